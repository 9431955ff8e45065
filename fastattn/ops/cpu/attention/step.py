"""Attention over tables of keys: a decoder's step over its history, or the next queries of a prefill."""

from functools import lru_cache

import numpy as np

from fastattn.kernels.attention.constants import TOGETHER, slot_layout
from fastattn.ops.cpu.attention.scores import score_arguments
from fastattn.ops.heads import Heads
from fastattn.ops.position_bias import PositionBias
from fastattn.ops.seen import KeyIndex
from fastattn.runtime.arena import empty, make_scratch_parts
from fastattn.runtime.handle import kernel_named
from fastattn.simd.target import LANES

attend_rows = kernel_named("attention.step", "attend_rows")

GRAIN = 1 << 17  # products that justify another thread: 10 to 30 us, against 2 to 15 to launch it
_NOTHING, _NO_WEIGHTS = np.empty(0, np.int64), np.empty((0, 0, 0), np.float32)


@lru_cache(256)
def _scratch_size(heads: int, width: int, value_width: int, stride: int) -> int:
    """The number of scratch floats of a thread."""
    return TOGETHER * slot_layout(heads, width, value_width, stride).size // 4 + 2 * LANES + 16


def attention_step(
    query_NE: np.ndarray,
    key_ME: np.ndarray,
    value_ME: np.ndarray,
    seen: KeyIndex,
    heads: Heads,
    *,
    bias_NHS: np.ndarray | None = None,
    position_bias: PositionBias | None = None,
    weights_NHS: np.ndarray | None = None,
) -> np.ndarray:
    """Attention over tables of keys and values, of which each query sees those that a list has for it; out_NF float32.

    One query for each row of the index is a step; several with ascending stops are the next chunk of a prefill, each
    with the same bits as in a step.
    bias_NHS     added after the scale; axes N and H of length one are broadcast; -inf hides a key.
    position_bias  added too; a query's position is that of the last key before its stop.
    weights_NHS  written if given, float32 and C-contiguous: the softmax weights, 0 for a hidden key.
    A query that sees no key yields zeros. Fastest if rows with the same keys are adjacent. Arrays are C-contiguous and
    float32, keys and values also uint16, the bits of bfloat16; nothing is checked here.
    """
    value_width = heads.value_width or heads.width
    shape = heads.query_heads, heads.query_heads // heads.key_heads, heads.width, value_width
    columns = heads.query_column, heads.key_column, heads.value_column
    index_RS, stops_N, rows_N, firsts_N = seen
    longest, N = index_RS.shape[1], len(query_NE)
    products = N * longest * heads.query_heads * heads.width
    out_NF = empty((N, heads.query_heads * value_width))
    if weights_NHS is None:
        weights_NHS = _NO_WEIGHTS
    else:
        weights_NHS.fill(0)
    stride = (longest // LANES + 2) * LANES  # scores of a few keys at a time may end LANES - 1 too late
    size = _scratch_size(heads.query_heads, heads.width, value_width, stride)
    scratch_PN = make_scratch_parts(products // GRAIN + 1, size, dtype=np.float32)
    keys = index_RS, stops_N, _NOTHING if rows_N is None else rows_N, _NOTHING if firsts_N is None else firsts_N
    scores = score_arguments(heads, None if bias_NHS is None else bias_NHS[:, :, None], position_bias)
    attend_rows((query_NE, key_ME, value_ME, out_NF), keys, shape, columns, scores, weights_NHS, scratch_PN, stride)
    return out_NF
