"""Attention on callers' arrays, by the formula in float64, and users' functions on whole arrays."""

from typing import Any

import numpy as np

from fastattn.ops.float64_attention import recompute_in_float64
from fastattn.ops.heads import Heads
from fastattn.ops.strided_attention import ScoreTerms, SoftmaxOutputs, StridedArrays, Visible, mask_states


def reads_float16() -> bool:
    """Whether arrays of float16, and cache tables of its bits, are read as they are."""
    return False


def compile_function(function: Any, kind: str) -> Any:
    """The function of arrays that broadcast."""
    return np.vectorize(function, otypes=[bool if kind == "mask_mod" else np.float64])


def strided_attention(
    arrays: StridedArrays, heads: Heads, visible: Visible, terms: ScoreTerms, outputs: SoftmaxOutputs
) -> int:
    """Attention of a caller's arrays; 0: float64 holds all rows."""
    arrays.out_BTHV[...] = 0
    if outputs.logs is not None:
        outputs.logs[...] = -np.inf
    recompute_in_float64(arrays, heads, visible, terms, outputs, every=True)
    return 0


def block_states(function: Any, shape: tuple[int, int, int, int], block: tuple[int, int]) -> np.ndarray:
    """states_BHTS uint8 of the blocks (queries, keys) of masks [B, H, T, S]."""
    return mask_states(np.broadcast_to(function(*np.ogrid[tuple(map(slice, shape))]), shape), block)


def best_keys(
    query_BTHK: np.ndarray,
    key_BSGK: np.ndarray,
    *,
    seen_BT2: np.ndarray,
    factor: float = 1.0,
    vector_HK: np.ndarray | None = None,
    bias_BHTS: np.ndarray | None = None,
) -> np.ndarray:
    """The key of each query's greatest score, int64 (B, H, T), the first of equal ones; -1 where it sees none."""
    key_BSHK = np.repeat(key_BSGK, query_BTHK.shape[2] // key_BSGK.shape[2], axis=2)
    if vector_HK is None:
        scores_BHTS = np.einsum("bthk,bshk->bhts", query_BTHK, key_BSHK) * factor
    else:
        sums_BTSHK = np.tanh(query_BTHK[:, :, None] + key_BSHK[:, None])
        scores_BHTS = np.einsum("btshk,hk->bhts", sums_BTSHK, vector_HK)
    if bias_BHTS is not None:
        scores_BHTS = scores_BHTS + bias_BHTS
    s_S, seen_BT2 = np.arange(key_BSGK.shape[1]), seen_BT2[:, None]
    hidden = (s_S < seen_BT2[..., :1]) | (s_S >= seen_BT2[..., 1:]) | np.isnan(scores_BHTS)
    scores_BHTS = np.where(hidden, -np.inf, scores_BHTS)
    if not len(s_S):
        return np.full(scores_BHTS.shape[:3], -1, np.int64)
    return np.where(np.isneginf(scores_BHTS).all(axis=3), -1, scores_BHTS.argmax(axis=3))
