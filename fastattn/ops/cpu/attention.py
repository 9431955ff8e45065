"""Attention: over whole sentences, in one pass over the keys, and over tables of keys and values."""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from fastattn.arguments.attention import Heads, KeyIndex, PositionBias, RaggedBatch
from fastattn.kernels.attention.arguments import (
    CHUNK_FLOATS,
    COLUMNS,
    DISTANCE_KEYS,
    GROUP_ROWS,
    INDEX_FLOATS,
    KEYS,
    MOST_ROWS,
    NARROW_STEP,
    NO_FUNCTION,
    RANGE_FLOATS,
    ROWS,
    SCORE_ROW,
    STRIP,
    TILE_FLOATS,
    MaskArguments,
    OutputArguments,
    ScoreArguments,
    ShapeArguments,
    scratch_layout,
    whole_columns,
)
from fastattn.ops.cpu.absent import NO_BYTES, NO_FLOATS, NO_LONGS
from fastattn.runtime.arena import empty, make_scratch_parts
from fastattn.runtime.handle import kernel_named
from fastattn.runtime.threads import current_threads
from fastattn.simd.arguments import LOG2_E
from fastattn.simd.target import LANES, TARGET

# The arguments of a call without a bias, a mask or further outputs.
NO_STRIDES = (0, 0, 0, 0)
NO_BLOCKS = NO_BYTES, 0, 0, 1, 1, 0
NO_MASK = MaskArguments._make((NO_BYTES, *NO_STRIDES, *NO_BLOCKS, NO_FUNCTION))
NO_OUTPUTS = OutputArguments(NO_FLOATS[4], NO_FLOATS[1], 0, 0, 0)


def strides_of(array_BHTS: np.ndarray) -> tuple[np.ndarray, tuple[int, ...]]:
    """(an array with the address and the dtype; strides in bytes, 0 along an axis of length one).

    Keys must be adjacent; other arrays are copied.
    """
    if array_BHTS.size == 0:
        return NO_FLOATS[1], NO_STRIDES
    if array_BHTS.shape[3] > 1 and array_BHTS.strides[3] not in (0, array_BHTS.itemsize):
        array_BHTS = np.ascontiguousarray(array_BHTS)
    strides = tuple(stride if size > 1 else 0 for size, stride in zip(array_BHTS.shape, array_BHTS.strides))
    return array_BHTS[0, 0, 0, :1], strides


def score_arguments(
    heads: Heads,
    bias_BHTS: np.ndarray | None = None,
    position_bias: PositionBias | None = None,
    sinks_H: np.ndarray | None = None,
    function: Any = None,
    product: tuple[Any, np.ndarray] | None = None,
    narrow: bool = False,
) -> ScoreArguments:
    """The scores' arguments as kernels take them.

    product  (product, details) of kernels/attention/tiles.py; None: dot products, in bfloat16 if ``narrow``
    For additive attention the scale is 1 / log2(e).
    """
    plain = _plain_scores(heads.width, heads.scale, heads.softcap, narrow)
    if bias_BHTS is position_bias is sinks_H is function is product is None:
        return plain
    slopes_H, table_HL, from_start = position_bias or PositionBias()
    bias, strides = (NO_FLOATS[1], NO_STRIDES) if bias_BHTS is None else strides_of(bias_BHTS)
    slopes_H = NO_FLOATS[1] if slopes_H is None else slopes_H
    table_HL = NO_FLOATS[2] if table_HL is None else table_HL
    sinks_H = NO_FLOATS[1] if sinks_H is None else sinks_H * np.float32(LOG2_E)
    function = NO_FUNCTION if function is None else function
    terms = bias, *strides, slopes_H, table_HL, int(from_start), sinks_H, function
    return ScoreArguments._make((plain.factor, plain.softcap, *terms, *(product or (plain.product, plain.details))))


@lru_cache(256)  # a model needs the same arguments thousands of times a second
def _plain_scores(width: int, scale: float | None, softcap: float, narrow: bool) -> ScoreArguments:
    factor = np.float32((width**-0.5 if scale is None else scale) * LOG2_E)
    biases = NO_FLOATS[1], *NO_STRIDES, NO_FLOATS[1], NO_FLOATS[2], 0
    product = np.empty(0, np.uint16) if narrow else 0
    details = np.empty((0, 0), np.uint8)
    return ScoreArguments(factor, np.float32(softcap * LOG2_E), *biases, NO_FLOATS[1], NO_FUNCTION, product, details)


class PackedDistances(NamedTuple):
    """Rows of distances for ``attention``, packed like keys.

    tables_XHP  [1 or 2, H, floats of a head]: key_LE by s - t, then query_LE by t - s, times the scale and log2(e)
    layout      int64: has key_LE, has query_LE, a head's width, the greatest distance in whole vectors, and the column
                of the distance 0
    """

    tables_XHP: np.ndarray
    layout: np.ndarray


def pack_distances(key_LE: np.ndarray | None, query_LE: np.ndarray | None, heads: Heads) -> PackedDistances:
    scores = score_arguments(heads)
    sides = (key_LE, np.float32(1)), (None if query_LE is None else query_LE[::-1], scores.factor)
    rows = [(x_LE, factor) for x_LE, factor in sides if x_LE is not None]
    farthest = len(rows[0][0]) // 2
    reach = farthest + 2 * (LANES - 1)
    panels = -(-(2 * reach + 1) // COLUMNS)
    index_L = np.clip(np.arange(panels * COLUMNS) - reach, -farthest, farthest) + farthest
    tables_XHP = np.empty((len(rows), heads.query_heads, panels * heads.width * COLUMNS), np.float32)
    with np.errstate(over="ignore", invalid="ignore"):  # a model's weights may be any numbers
        for table_HP, (x_LE, factor) in zip(tables_XHP, rows, strict=True):
            panels_PCHK = x_LE[index_L].reshape(panels, COLUMNS, heads.query_heads, heads.width)
            packed_HPKC = table_HP.reshape(heads.query_heads, panels, heads.width, COLUMNS)
            np.multiply(panels_PCHK.transpose(2, 0, 3, 1), factor, out=packed_HPKC)
    layout = (key_LE is not None, query_LE is not None, heads.width, reach - (LANES - 1), reach)
    return PackedDistances(tables_XHP, np.array(layout, np.int64))


attend, _see = kernel_named("attention.sentences", "attend"), kernel_named("attention.sentences", "_see")

# Floats of a block's queries: keys are packed once a block, which is 1% of the work for 512 queries of width 64. The
# block's queries and sums take 256 KiB for a sentence of any length.
BLOCK_FLOATS = 512 * 64


def seen_around(
    query_starts_B1: np.ndarray, lengths_B: np.ndarray, offset_B: np.ndarray, before: int, after: int
) -> np.ndarray:
    seen_N2 = np.empty((int(query_starts_B1[-1]), 2), np.int64)
    _see(query_starts_B1, lengths_B, offset_B, before, after, seen_N2)
    return seen_N2


def attend_batch(
    arrays: tuple[np.ndarray, ...],
    strides: tuple[int, ...],
    batch: RaggedBatch,
    heads: Heads,
    mask: MaskArguments,
    scores: ScoreArguments,
    outputs: OutputArguments,
    extra_floats: int = 0,
) -> np.ndarray:
    """Run the kernel ``attend``, with ``extra_floats`` more scratch for each thread, and return its invalid_P."""
    query_starts_B1, key_starts_B1, seen_N2, sinks = batch
    (query, *_), threads = arrays, current_threads()
    shape, floats = _shape_of(int(query_starts_B1[-1]), heads, query.itemsize < 4, threads)
    scratch_PN, invalid_P = empty((threads, floats + extra_floats)), empty(threads, np.int64)
    ragged = query_starts_B1, key_starts_B1, NO_LONGS[2] if seen_N2 is None else seen_N2, sinks
    attend(arrays, strides, ragged, shape, mask, scores, outputs, scratch_PN, invalid_P)
    return invalid_P


@lru_cache(1024)  # the layers of a model, its steps, and sentences of one length need the same shapes
def _shape_of(N: int, heads: Heads, narrow: bool, threads: int) -> tuple[ShapeArguments, int]:
    """(the kernel's shape, floats of a thread's scratch: see cut_scratch)."""
    H, G, width, value_width = heads[:4]
    value_width = value_width or width
    # as many rows a block as fit into the cache, with four blocks a thread unless blocks become too small
    limit = BLOCK_FLOATS // width
    if threads > 1:
        limit = min(limit, max(N * H // (4 * threads), 8 * MOST_ROWS))
    limit = max(limit // MOST_ROWS * MOST_ROWS, MOST_ROWS)
    limit = min(limit, max(-(-N * (H // G) // MOST_ROWS), 1) * MOST_ROWS)
    columns, alignment = whole_columns(value_width), 16
    key_floats = KEYS * (whole_columns(width) + columns) + MOST_ROWS * SCORE_ROW // 4
    seen_floats = (ROWS * KEYS + 3) // 4 + LANES
    row_floats = limit * (LANES + columns + width + 1 + RANGE_FLOATS) + MOST_ROWS
    floats = key_floats + row_floats + seen_floats + INDEX_FLOATS + narrow * KEYS * max(width, value_width) + alignment
    return ShapeArguments(H, G, width, value_width, limit), floats


@lru_cache(256)
def _row_strides(heads: Heads, query: int, key: int, value: int) -> tuple[int, ...]:
    """The kernel's strides in bytes, for rows of ``query``, ``key`` and ``value`` floats and for the result."""
    width, value_width = heads.width, heads.value_width or heads.width
    strides = (
        heads.query_column, 0, width, query,
        heads.key_column, 0, width, key,
        heads.value_column, 0, value_width, value,
        0, 0, value_width, heads.query_heads * value_width,
    )  # fmt: skip
    return tuple(4 * stride for stride in strides)


def attention(
    query_NE: np.ndarray,
    key_ME: np.ndarray,
    value_ME: np.ndarray,
    batch: RaggedBatch,
    heads: Heads,
    *,
    bias_BHTS: np.ndarray | None = None,
    position_bias: PositionBias | None = None,
    distances: PackedDistances | None = None,
    weights_BHTS: np.ndarray | None = None,
) -> np.ndarray:
    N = len(query_NE)
    out_NF = empty((N, heads.query_heads * (heads.value_width or heads.width)))
    strides = _row_strides(heads, query_NE.shape[1], key_ME.shape[1], value_ME.shape[1])
    outputs = NO_OUTPUTS
    if weights_BHTS is not None:
        weights_BHTS.fill(0)
        outputs = NO_OUTPUTS._replace(weights_BHTS=weights_BHTS)
    # A CPU without products of bfloat16 would convert them to float32.
    is_plain = batch.seen_N2 is weights_BHTS is distances is None and heads.width % max(LANES, NARROW_STEP) == 0
    narrow = heads.narrow and TARGET.bfloat16 in ("dot", "tiles") and is_plain
    scores = score_arguments(heads, bias_BHTS, position_bias, product=distances, narrow=narrow)
    extra_floats = KEYS * heads.width // 2 if narrow else 0  # keys in bfloat16
    if distances is not None:  # scores by distance of a tile, of a strip and of a chunk; a tile's keys
        extra_floats = ROWS * TILE_FLOATS + STRIP * KEYS + DISTANCE_KEYS * CHUNK_FLOATS + ROWS * heads.width
    attend_batch((query_NE, key_ME, value_ME, out_NF), strides, batch, heads, NO_MASK, scores, outputs, extra_floats)
    return out_NF


attend_rows = kernel_named("attention.step", "attend_rows")

GRAIN = 1 << 17  # products that are worth a further thread: 10 to 30 us, against 2 to 15 to launch it


@lru_cache(256)
def _scratch_size(heads: int, width: int, value_width: int, stride: int) -> int:
    """The number of scratch floats of a thread."""
    return GROUP_ROWS * scratch_layout(heads, width, value_width, stride).size // 4 + 2 * LANES + 16


def attention_step(
    query_NE: np.ndarray,
    key_ME: np.ndarray,
    value_ME: np.ndarray,
    key_index: KeyIndex,
    heads: Heads,
    *,
    bias_NHS: np.ndarray | None = None,
    position_bias: PositionBias | None = None,
    weights_NHS: np.ndarray | None = None,
    vector_HK: np.ndarray | None = None,
) -> np.ndarray:
    value_width = heads.value_width or heads.width
    shape = heads.query_heads, heads.query_heads // heads.key_heads, heads.width, value_width
    columns = heads.query_column, heads.key_column, heads.value_column
    index_RS, stops_N, rows_N, firsts_N, window = key_index
    longest, N = index_RS.shape[1], len(query_NE)
    products = N * longest * heads.query_heads * heads.width
    out_NF = empty((N, heads.query_heads * value_width))
    if weights_NHS is None:
        weights_NHS = NO_FLOATS[3]
    else:
        weights_NHS.fill(0)
    stride = (longest // LANES + 2) * LANES  # stores of the last keys' scores may reach LANES - 1 beyond them
    size = _scratch_size(heads.query_heads, heads.width, value_width, stride)
    scratch_PN = make_scratch_parts(products // GRAIN + 1, size, dtype=np.float32)
    rows_N, firsts_N = (NO_LONGS[1] if array is None else array for array in (rows_N, firsts_N))
    index = index_RS, stops_N, rows_N, firsts_N, window
    if vector_HK is None:
        vector_HK = NO_FLOATS[2]
    else:
        heads = heads._replace(scale=1 / LOG2_E, softcap=0.0)
    scores = score_arguments(heads, None if bias_NHS is None else bias_NHS[:, :, None], position_bias)
    arrays = query_NE, key_ME, value_ME, out_NF, vector_HK
    attend_rows(arrays, index, shape, columns, scores, weights_NHS, scratch_PN, stride)
    return out_NF
