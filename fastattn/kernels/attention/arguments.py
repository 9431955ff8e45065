"""Sizes of attention's kernels, and the named tuples that operations pass to them: plain data. No Numba."""

import math
from collections import namedtuple
from typing import Any, NamedTuple

import numpy as np

from fastattn.simd.arguments import SIZE, TILE_ROWS, TILE_STEPS
from fastattn.simd.target import LANES, TARGET

# Tiles: ROWS query rows by up to KEYS keys
ROWS = TARGET.rows
VECTORS = 2  # divides head widths of 32 and 64 evenly on every target
COLUMNS = VECTORS * LANES
# Packed keys and values of width 64 take 2 * 64 KiB and stay in L2 for all query rows; a tile's scores take 6 KiB.
KEYS = 256
SCORE_ROW = (KEYS + LANES) * 4  # bytes from row to row of a tile's scores: not a part of 4 KB, or loads wait for stores
# Products in bfloat16: rows of a tile, inner values of a step
NARROW_ROWS, NARROW_STEP = (TILE_ROWS, 2 * TILE_STEPS) if "bfloat16" in TARGET.tiles else (ROWS, 2)
MOST_ROWS = max(ROWS, NARROW_ROWS)  # of a tile

# Blocks of rows
RANGE_FLOATS = 4  # the size of two int64 in floats: a row's first key and its stop
INDEX_FLOATS = KEYS  # the size of the numbers of KEYS rows, int32, in floats
LIMIT = 128 // ROWS * ROWS  # rows of a task that chooses keys: each task packs its keys for itself
PIECE = 256  # keys of one call of a mask

# Scores by distance
STRIP = 16 * ROWS  # query rows, whose scores take 96 KiB (AVX2); 6 rows would leave half of the products unused
_STEP = math.lcm(ROWS, LANES)
DISTANCE_KEYS = -(-24 // _STEP) * _STEP  # keys of a chunk; their scores take 16 KiB (AVX2)
TILE_FLOATS = KEYS + 2 * COLUMNS  # floats of a row of a tile's scores by distance
CHUNK_FLOATS = STRIP + DISTANCE_KEYS + 2 * COLUMNS  # floats of a row of a chunk's scores by distance

GROUP_ROWS = 4  # rows of a step that share keys and are computed together
NO_FUNCTION = 0  # in the place of a user's function


def whole_columns(width):
    """``width`` rounded up to whole panels."""
    return (width + COLUMNS - 1) // COLUMNS * COLUMNS


def whole_vectors(width):
    """``width`` rounded up to whole vectors."""
    return (width + LANES - 1) // LANES * LANES


def whole_tiles(rows):
    """``rows`` rounded up to whole tiles."""
    return (rows + ROWS - 1) // ROWS * ROWS


def scratch_layout(heads, width, value_width, stride):
    """The ScratchLayout of a step's row, with ``stride`` floats for a head's scores."""
    totals = heads * stride * 4
    sums = totals + heads * SIZE
    queries = sums + heads * ((value_width + LANES - 1) // LANES * SIZE)
    size = queries + (heads * ((width + LANES - 1) // LANES * SIZE) + 63) // 64 * 64
    return ScratchLayout(totals, sums, queries, size)


class ShapeArguments(NamedTuple):
    """The numbers of heads, their widths, and the size of a block."""

    heads: int
    key_heads: int
    width: int  # of a query's and a key's head
    value_width: int
    limit: int  # the greatest number of rows of a block


class ScoreArguments(NamedTuple):
    """The parts of a score. Arrays may be empty."""

    factor: np.float32  # of dot products, the scale times log2(e); of additive attention 1
    softcap: np.float32  # the cap of products times log2(e); 0: none
    bias: np.ndarray  # for its address; then its steps
    bias_batch: int
    bias_head: int
    bias_row: int
    bias_key: int  # 0 or 4
    slopes_H: np.ndarray  # with table_HL and from_start a PositionBias
    table_HL: np.ndarray
    from_start: int
    sinks_H: np.ndarray  # logits times log2(e)
    function: Any  # a compiled score_mod, or NO_FUNCTION
    product: Any  # with ``details``, how a query and a key make a score: see tiles.py
    details: np.ndarray


class MaskArguments(NamedTuple):
    """The keys that rows see within their ranges. Arrays may be empty."""

    seen: np.ndarray  # bytes, for their address; then their steps
    seen_batch: int
    seen_head: int
    seen_row: int
    seen_key: int  # 0 or 1
    states: np.ndarray  # a byte for each block of queries and keys; then their steps
    states_batch: int
    states_head: int
    block_queries: int  # of a block
    block_keys: int
    key_blocks: int  # blocks of a query's keys
    function: Any  # a compiled mask_mod, or NO_FUNCTION


class OutputArguments(NamedTuple):
    """The arrays that a kernel writes beside the results; an empty array is not written."""

    weights_BHTS: np.ndarray  # the softmax weights
    logs: np.ndarray  # log-sum-exps, for their address; then their steps
    logs_batch: int
    logs_head: int
    logs_row: int


# Rows of a sentence, from a head on: the address of the first row; bytes from head to head and from row to row.
HeadRows = namedtuple("HeadRows", "address head_step row_step")
# Rows of a block that are computed together.
Tile = namedtuple("Tile", "first stop")
# Packed keys that a tile's rows see: from ``front``, the start of a panel, to ``stop``, in whole vectors to ``whole``.
Span = namedtuple("Span", "front stop whole")
# The scratch of a step's row, which starts with the row's scores: byte offsets in the scratch, and its size.
ScratchLayout = namedtuple("ScratchLayout", "totals sums queries size")
