"""Operations on callers' arrays, which no model calls: attention in place, over graphs and over windows; search."""

from typing import Any

import numpy as np

from fastattn.arguments.attention import Heads, KeyMask, RaggedBatch, ScoreTerms, SoftmaxOutputs, StridedArrays
from fastattn.kernels.arguments import WINDOW_ROWS, NodeDots, NodeTerms
from fastattn.kernels.attention.arguments import (
    KEYS,
    LIMIT,
    PIECE,
    ROWS,
    SCORE_ROW,
    MaskArguments,
    OutputArguments,
    whole_columns,
)
from fastattn.ops.cpu.absent import NO_BYTES, NO_FLOATS
from fastattn.ops.cpu.attention import NO_BLOCKS, NO_MASK, NO_STRIDES, attend_batch, score_arguments, strides_of
from fastattn.ops.cpu.search import nearest_rows
from fastattn.runtime.arena import make_scratch_parts
from fastattn.runtime.handle import kernel_named
from fastattn.runtime.threads import current_threads
from fastattn.simd.arguments import LOG2_E
from fastattn.simd.target import LANES, TARGET

# Where a head has queries and keys with numbers beyond FAR, tanh(q + k) is computed directly, else by exponentials.
FAR = 35.0


def vector_factors(vector_HD: np.ndarray) -> np.ndarray:
    """float32 [H, D + 1] for ``add_keys`` of each head's v; the scores are in base 2, as in all kernels."""
    scaled_HD = vector_HD.astype(np.float64) * LOG2_E
    factors_HE = np.empty((len(vector_HD), vector_HD.shape[1] + 1), np.float32)
    factors_HE[:, :-1], factors_HE[:, -1] = -2 * scaled_HD, scaled_HD.sum(axis=1)
    return factors_HE


def far_heads(query_THD: np.ndarray, key_SGD: np.ndarray) -> np.ndarray:
    """bool [H]: whether both queries and keys of a head in a sentence are too far from zero for exponentials."""
    return _far(query_THD) & np.repeat(_far(key_SGD), query_THD.shape[1] // key_SGD.shape[1])


def _far(x_NHD: np.ndarray) -> np.ndarray:
    """bool [H]: whether any number of a head is beyond FAR, or NaN."""
    return ~((x_NHD.max(axis=(0, 2), initial=0) <= FAR) & (x_NHD.min(axis=(0, 2), initial=0) >= -FAR))


_states = kernel_named("attention.masks", "_states")


def block_states(function: object, shape: tuple[int, int, int, int], block: tuple[int, int]) -> np.ndarray:
    B, H, T, S = shape
    block_queries, block_keys = block
    rows, columns = -(-T // block_queries), -(-S // block_keys)
    states_BHTS = np.empty((B, H, rows, columns), np.uint8)
    scratch_PN = make_scratch_parts(max(B * H * rows, 1), PIECE + LANES)
    _states(function, T, S, block_queries, block_keys, states_BHTS, scratch_PN)
    return states_BHTS


_choose = kernel_named("attention.choose", "_choose")


def best_keys(
    query_BTHK: np.ndarray,
    key_BSGK: np.ndarray,
    *,
    seen_BT2: np.ndarray,
    factor: float = 1.0,
    vector_HK: np.ndarray | None = None,
    bias_BHTS: np.ndarray | None = None,
) -> np.ndarray:
    B, T, H, K = query_BTHK.shape
    best_BHT = np.full((B, H, T), -1, np.int64)
    size = KEYS * whole_columns(K) + LIMIT * (K + 1) + ROWS * (SCORE_ROW // 4 + 1) + 16
    scratch_PN = make_scratch_parts(max(B * H * -(-T // LIMIT), 1), size, dtype=np.float32)
    if vector_HK is None:
        factors_HE, is_near_BH, factor = NO_FLOATS[2], np.zeros((B, H), np.uint8), factor * LOG2_E
    else:
        factors_HE = vector_factors(vector_HK)
        lasts_B = seen_BT2[:, :, 1].max(axis=1, initial=0)
        pairs = zip(query_BTHK, key_BSGK, lasts_B)
        is_near_BH, factor = np.array([~far_heads(q, k[:last]) for q, k, last in pairs], np.uint8).reshape(B, H), 1.0
    bias, strides = (NO_FLOATS[1], NO_STRIDES) if bias_BHTS is None else strides_of(bias_BHTS)
    arrays = query_BTHK, key_BSGK
    _choose(arrays, seen_BT2, factors_HE, is_near_BH, np.float32(factor), bias, strides, scratch_PN, best_BHT)
    return best_BHT


def reads_float16() -> bool:
    """Whether the CPU converts float16."""
    return TARGET.float16


def compile_function(function: Any, kind: str) -> Any:
    from fastattn.user_functions.plan import compile_function  # imported late, since it imports Numba

    return compile_function(function, kind)


def strided_attention(
    arrays: StridedArrays, heads: Heads, key_mask: KeyMask, terms: ScoreTerms, outputs: SoftmaxOutputs
) -> int:
    product = None
    if terms.vector_HK is not None:
        heads, product = heads._replace(scale=1 / LOG2_E), _additive_product(arrays, terms.vector_HK, key_mask.seen_N2)
    scores = score_arguments(heads, terms.bias_BHTS, None, terms.sinks_H, terms.function, product)
    strides: list[int] = []
    for x in arrays[:4]:
        batch, row, head = x.strides[:3]
        strides += [0, 0 if arrays.ragged else batch - x.shape[1] * row, head, row]
    firsts = [x[0, 0, :1] for x in arrays[:4]]  # by which the kernel has the arrays' addresses and their dtype
    if firsts[0].dtype == np.float16:
        firsts = [first.view(np.int16) for first in firsts]
    ragged = RaggedBatch(*arrays.starts, key_mask.seen_N2, key_mask.sinks)
    mask, output_arguments = _mask(key_mask), _outputs(arrays, outputs)
    return int(attend_batch(tuple(firsts), tuple(strides), ragged, heads, mask, scores, output_arguments).sum())


def _mask(key_mask: KeyMask) -> MaskArguments:
    mask, states, function = key_mask.mask_BHTS, key_mask.states_BHTS, key_mask.function
    if mask is states is function is None:
        return NO_MASK
    array, strides = (NO_BYTES, NO_STRIDES) if mask is None else strides_of(mask.view(np.uint8))
    blocks = NO_BLOCKS
    if states is not None:
        b, h, rows, columns = states.shape
        block_strides = rows * columns * h if b > 1 else 0, rows * columns if h > 1 else 0
        blocks = (states.reshape(-1), *block_strides, *key_mask.block, columns)
    return MaskArguments._make((array, *strides, *blocks, NO_MASK.function if function is None else function))


def _outputs(arrays: StridedArrays, outputs: SoftmaxOutputs) -> OutputArguments:
    _, H, T, _ = arrays.shape
    strides = (0, 4, 4 * H) if arrays.ragged else (4 * (H - 1) * T, 4 * T, 4)
    weights, logs = outputs
    logs = NO_FLOATS[1] if logs is None else logs.reshape(-1)
    return OutputArguments(NO_FLOATS[4] if weights is None else weights, logs, *strides)


def _additive_product(
    arrays: StridedArrays, vector_HD: np.ndarray, seen_N2: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """The product of ``score_arguments``: (factors of scores, uint8 [B, H]: whether exponentials compute tanh)."""
    is_near = []
    for rows, (query_THD, key_SGD, _, _) in arrays.sentences():
        last = None if seen_N2 is None else int(seen_N2[rows, 1].max(initial=0))
        is_near.append(~far_heads(query_THD, key_SGD[:last]))
    return vector_factors(vector_HD), np.array(is_near, np.uint8).reshape(-1, vector_HD.shape[0])


_attend_nodes = kernel_named("local", "_attend_nodes")

_SMALL_GRAPH = 1 << 14  # products that one thread finishes before a second one has started: 5 to 10 us


def graph_attention(
    value_MHV: np.ndarray,
    starts_N1: np.ndarray,
    indices_E: np.ndarray,
    *,
    terms: tuple[np.ndarray, np.ndarray] | None = None,
    dots: tuple[np.ndarray, np.ndarray] | None = None,
    factor: float,
    weights_EH: np.ndarray | None = None,
) -> np.ndarray:
    N, (_, H, V) = len(starts_N1) - 1, value_MHV.shape
    out_NHV = np.empty((N, H, V), np.float32)
    degree = int(np.diff(starts_N1).max(initial=0))
    parts = 1 if len(indices_E) * H * V <= _SMALL_GRAPH else current_threads()
    # Parts have equal work, which is 1 for each neighbour and 1 for each node.
    costs_N1 = starts_N1 + np.arange(N + 1)
    bounds_P1 = np.searchsorted(costs_N1, costs_N1[-1] * np.arange(parts + 1) // parts)
    scratch_PN = np.empty((parts, degree * H if weights_EH is None else 0), np.float32)
    terms, dots = NodeTerms(*terms or (NO_FLOATS[2],) * 2), NodeDots(*dots or (NO_FLOATS[3],) * 2)
    _attend_nodes(
        bounds_P1, starts_N1, indices_E, terms, dots, value_MHV, np.float32(factor),
        NO_FLOATS[2] if weights_EH is None else weights_EH, scratch_PN, out_NHV,
    )  # fmt: skip
    return out_NHV


_attend_windows = kernel_named("local", "_attend_windows")


def local_attention(
    query_BTHK: np.ndarray,
    key_BSGK: np.ndarray,
    value_BSGV: np.ndarray,
    centre_BTH: np.ndarray,
    windows_BTH2: np.ndarray,
    *,
    scale: float,
    decay: float,
    weights_BHTS: np.ndarray | None = None,
) -> np.ndarray:
    B, T, H, _ = query_BTHK.shape
    out_BTHV = np.empty((B, T, H, value_BSGV.shape[3]), np.float32)
    widest = int((windows_BTH2[..., 1] - windows_BTH2[..., 0]).max(initial=0))
    scratch_PN = make_scratch_parts(max(B * -(-T // WINDOW_ROWS), 1), max(widest, 1) + LANES, dtype=np.float32)
    if weights_BHTS is not None:
        weights_BHTS.fill(0)
    _attend_windows(
        query_BTHK, key_BSGK, value_BSGV, windows_BTH2, centre_BTH, np.float32(scale), np.float32(decay),
        NO_FLOATS[4] if weights_BHTS is None else weights_BHTS, scratch_PN, out_BTHV,
    )  # fmt: skip
    return out_BTHV
