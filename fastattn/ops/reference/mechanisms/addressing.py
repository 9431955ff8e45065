"""A Neural Turing Machine's addressing (Graves 2014, section 3.3); weights are (B, H, N)."""

import numpy as np


def content_weights(key_BHM: np.ndarray, memory_BNM: np.ndarray, strength_BH: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(key_BHM, axis=2)[..., None] * np.linalg.norm(memory_BNM, axis=2)[:, None]
    cosine_BHN = key_BHM @ memory_BNM.swapaxes(1, 2) / np.where(lengths == 0, 1, lengths)
    powers_BHN = np.exp(strength_BH[..., None] * (cosine_BHN - cosine_BHN.max(axis=-1, keepdims=True)))
    return powers_BHN / powers_BHN.sum(axis=-1, keepdims=True)


def interpolate(weights_BHN: np.ndarray, previous_BHN: np.ndarray, gate_BH: np.ndarray) -> np.ndarray:
    return gate_BH[..., None] * weights_BHN + (1 - gate_BH[..., None]) * previous_BHN


def shift(weights_BHN: np.ndarray, shifts_BHJ: np.ndarray) -> np.ndarray:
    """The circular convolution, its sum over j as it is written: w(j) s(i - j)."""
    N, half = weights_BHN.shape[2], shifts_BHJ.shape[2] // 2
    moved_BHN = np.zeros_like(weights_BHN)
    for i in range(N):
        for by in range(-half, half + 1):
            moved_BHN[..., i] += weights_BHN[..., (i - by) % N] * shifts_BHJ[..., by + half]
    return moved_BHN


def sharpen(weights_BHN: np.ndarray, exponent_BH: np.ndarray) -> np.ndarray:
    powers_BHN = weights_BHN ** exponent_BH[..., None]
    return powers_BHN / powers_BHN.sum(axis=-1, keepdims=True)


def address(
    key_BHM: np.ndarray,
    memory_BNM: np.ndarray,
    previous_BHN: np.ndarray,
    strength_BH: np.ndarray,
    gate_BH: np.ndarray,
    shifts_BHJ: np.ndarray,
    exponent_BH: np.ndarray,
) -> np.ndarray:
    chosen_BHN = content_weights(key_BHM, memory_BNM, strength_BH)
    return sharpen(shift(interpolate(chosen_BHN, previous_BHN, gate_BH), shifts_BHJ), exponent_BH)
