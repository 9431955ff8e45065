"""How a Neural Turing Machine chooses rows of its memory (Graves 2014, section 3.3), for all heads at once.

Weights are (B, H, N) over the N rows of a memory (B, N, M); parameters of a head, such as its strength, are (B, H).
Each of the four steps is a function; ``address`` calls them in order.
"""

import numpy as np

from fastattn.array_attention.arguments import MAX_HEAD_WIDTH
from fastattn.array_attention.attention import attention
from fastattn.errors import InputError
from fastattn.mechanisms.arrays import check_float32, check_shape
from fastattn.ops import backend

MAX_FLOAT32 = float(np.finfo(np.float32).max)


def _checked_per_head(name: str, numbers: np.ndarray, shape: tuple[int, ...], low: float, high: float) -> np.ndarray:
    """``numbers`` as float32 (B, H); InputError unless all are ``low`` to ``high``."""
    numbers = check_float32(name, numbers, "(B, H)")
    check_shape(name, numbers, shape, "one a head")
    if not ((numbers >= low) & (numbers <= high)).all():
        bound = f"{low:g} or more" if high == np.inf else f"{low:g} to {high:g}"
        raise InputError(f"{name}: expected {bound}")
    return numbers


def content_weights(key: np.ndarray, memory: np.ndarray, strength: np.ndarray, *, device: str = "cpu") -> np.ndarray:
    """softmax(strength cos(key, memory)) over the rows of the memory (equations 5 and 6): (B, H, N).

    key (B, H, M), memory (B, N, M), strength (B, H), each at least 0
    """
    key, memory = check_float32("key", key, "(B, H, M)"), check_float32("memory", memory, "(B, N, M)")
    (B, H, M), N = key.shape, memory.shape[1]
    if memory.shape[0] != B or memory.shape[2] != M or 0 in (H, M, N):
        raise InputError(f"memory: expected places of width {M} for a batch of {B}, got shape {memory.shape}")
    if M > MAX_HEAD_WIDTH:
        raise InputError(f"key: expected a width of at most {MAX_HEAD_WIDTH}, got {M}")
    strength = _checked_per_head("strength", strength, (B, H), 0, MAX_FLOAT32)
    ops = backend(device)
    # All heads read the same memory: each head becomes a query of attention with one head.
    query_BH1M = (ops.unit_vectors(key) * strength[..., None])[:, :, None]
    memory_BN1M = ops.unit_vectors(memory)[:, :, None]
    zeros_BN11 = np.zeros((B, N, 1, 1), np.float32)
    _, weights_B1HN = attention(query_BH1M, memory_BN1M, zeros_BN11, scale=1.0, return_weights=True, device=device)
    return weights_B1HN[:, 0]


def interpolate(weights: np.ndarray, previous: np.ndarray, gate: np.ndarray) -> np.ndarray:
    """gate weights + (1 - gate) previous (equation 7): (B, H, N); gate (B, H), 0 to 1."""
    weights, previous = check_float32("weights", weights, "(B, H, N)"), check_float32("previous", previous, "(B, H, N)")
    check_shape("previous", previous, weights.shape, "as the weights have")
    gate_BH1 = _checked_per_head("gate", gate, weights.shape[:2], 0, 1)[..., None]
    return gate_BH1 * weights + (1 - gate_BH1) * previous


def shift(weights: np.ndarray, shifts: np.ndarray) -> np.ndarray:
    """The circular convolution sum over j of w(j) s(i - j) (equation 8): (B, H, N).

    shifts (B, H, J), J odd and at most N: the shares of shifts by -(J // 2) to J // 2 rows
    """
    weights, shifts = check_float32("weights", weights, "(B, H, N)"), check_float32("shifts", shifts, "(B, H, J)")
    N, J = weights.shape[2], shifts.shape[2]
    if shifts.shape[:2] != weights.shape[:2] or J % 2 == 0 or J > N:
        raise InputError(
            f"shifts: expected {weights.shape[:2]} times an odd number up to {N}, got shape {shifts.shape}"
        )
    half = J // 2
    padded = np.concatenate([weights[..., N - half :], weights, weights[..., :half]], axis=-1)
    shifted = np.zeros_like(weights)
    for j in range(J):  # shifts[..., j] is the share that moves by j - half rows
        shifted += shifts[..., j : j + 1] * padded[..., J - 1 - j : J - 1 - j + N]
    return shifted


def sharpen(weights: np.ndarray, exponent: np.ndarray) -> np.ndarray:
    """w**exponent / sum of w**exponent (equation 9): (B, H, N); exponent (B, H), at least 1. Zeros stay zeros."""
    weights = check_float32("weights", weights, "(B, H, N)")
    exponent_BH1 = _checked_per_head("exponent", exponent, weights.shape[:2], 1, MAX_FLOAT32)[..., None]
    greatest = weights.max(axis=-1, keepdims=True, initial=0)
    # Weights are divided by the greatest, whose power is then 1: no exponent makes all powers zero.
    powers = (weights / np.where(greatest > 0, greatest, 1)) ** exponent_BH1
    return powers / np.maximum(powers.sum(axis=-1, keepdims=True), np.finfo(np.float32).tiny)


def address(
    key: np.ndarray,
    memory: np.ndarray,
    previous: np.ndarray,
    *,
    strength: np.ndarray,
    gate: np.ndarray,
    shifts: np.ndarray,
    exponent: np.ndarray,
    device: str = "cpu",
) -> np.ndarray:
    """The next step's weights (B, H, N): content weights, interpolated with the previous ones, shifted, sharpened."""
    by_content = content_weights(key, memory, strength, device=device)
    return sharpen(shift(interpolate(by_content, previous, gate), shifts), exponent)
