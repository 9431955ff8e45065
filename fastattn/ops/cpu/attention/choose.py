"""Hard attention's most probable key of each query (Xu 2015)."""

import numpy as np

from fastattn.kernels.attention.constants import KEYS, LIMIT, ROWS, whole_columns
from fastattn.ops.cpu.attention.additive_tile import far_heads, vector_factors
from fastattn.ops.cpu.attention.memory import NO_ARRAY, NO_STEPS, steps_of
from fastattn.runtime.arena import make_scratch_parts
from fastattn.runtime.handle import kernel_named
from fastattn.simd.constants import LOG2_E

_choose = kernel_named("attention.choose", "_choose")

_NO_VECTOR = np.empty((0, 0), np.float32)


def best_keys(
    query_BTHK: np.ndarray,
    key_BSGK: np.ndarray,
    *,
    seen_BT2: np.ndarray,
    factor: float = 1.0,
    vector_HK: np.ndarray | None = None,
    bias_BHTS: np.ndarray | None = None,
) -> np.ndarray:
    """The key of each query's greatest score, int64 (B, H, T), the first of equal ones; -1 where it sees none.

    Scores are factor q . k, or, with a vector, v . tanh(q + k); plus the bias. NaN is never the greatest.
    seen_BT2  the first key and the stop of each query;  bias_BHTS  as attention has it. Nothing is checked here.
    """
    B, T, H, K = query_BTHK.shape
    best_BHT = np.full((B, H, T), -1, np.int64)
    size = KEYS * whole_columns(K) + LIMIT * (K + 1) + ROWS * (KEYS + 1) + 16
    scratch_PN = make_scratch_parts(max(B * H * -(-T // LIMIT), 1), size, dtype=np.float32)
    factors_HE = _NO_VECTOR if vector_HK is None else vector_factors(vector_HK)
    if vector_HK is None:
        near_BH, factor = np.zeros((B, H), np.uint8), factor * LOG2_E
    else:
        lasts_B = seen_BT2[:, :, 1].max(axis=1, initial=0)
        pairs = zip(query_BTHK, key_BSGK, lasts_B)
        near_BH, factor = np.array([~far_heads(q, k[:last]) for q, k, last in pairs], np.uint8).reshape(B, H), 1.0
    bias, steps = (NO_ARRAY, NO_STEPS) if bias_BHTS is None else steps_of(bias_BHTS)
    arrays = query_BTHK, key_BSGK
    _choose(arrays, seen_BT2, factors_HE, near_BH, np.float32(factor), bias, steps, scratch_PN, best_BHT)
    return best_BHT
