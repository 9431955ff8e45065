"""Sizes of attention's kernels, and the named tuples that operations pass to them: plain data. No Numba."""

import math
from collections import namedtuple
from typing import Any, NamedTuple

import numpy as np

from fastattn.simd.arguments import SIZE
from fastattn.simd.target import LANES, TARGET

# Tiles: ROWS query rows by up to KEYS keys
ROWS = TARGET.rows
VECTORS = 2  # divides head widths of 32 and 64 evenly on every target
COLUMNS = VECTORS * LANES
# Packed keys and values of width 64 take 2 * 64 KiB and stay in L2 for all query rows; a tile's scores take 6 KiB.
KEYS = 256

# Blocks of rows
INTEGERS = 4  # the size in floats of two int64: a row's first key and stop
INDICES = KEYS
LIMIT = 128 // ROWS * ROWS  # rows of a task that chooses keys: each task packs its keys for itself
PIECE = 256  # keys of one call of a mask

# Scores by distance
STRIP = 16 * ROWS  # query rows; a strip takes 96 KiB (AVX2); of 6 rows, half of the products' columns lie outside
_STEP = math.lcm(ROWS, LANES)
DISTANCE_KEYS = -(-24 // _STEP) * _STEP  # of a chunk; their scores take 16 KiB (AVX2)
WIDE = KEYS + 2 * COLUMNS  # floats of a row of a tile's scores by distance
LONG = STRIP + DISTANCE_KEYS + 2 * COLUMNS  # of a row of a chunk's

TOGETHER = 4  # rows of a step that share keys and go together
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


def slot_layout(heads, width, value_width, stride):
    """The SlotLayout of a step's row, with ``stride`` floats for a head's scores."""
    totals = heads * stride * 4
    sums = totals + heads * SIZE
    queries = sums + heads * ((value_width + LANES - 1) // LANES * SIZE)
    size = queries + (heads * ((width + LANES - 1) // LANES * SIZE) + 63) // 64 * 64
    return SlotLayout(totals, sums, queries, size)


class ShapeArguments(NamedTuple):
    """The numbers of heads, their widths, and the size of a block."""

    heads: int
    key_heads: int
    width: int  # of a query's and a key's head
    value_width: int
    limit: int  # most rows of a block


class ScoreArguments(NamedTuple):
    """The parts of a score. Arrays may be empty."""

    factor: np.float32  # of dot products, the scale times log2(e); of additive attention 1
    softcap: np.float32  # the cap of products times log2(e); 0: none
    bias: np.ndarray  # for its address; then its steps
    bias_batch: int
    bias_head: int
    bias_row: int
    bias_key: int  # 0 or 4
    slopes_H: np.ndarray  # with the next two a PositionBias
    table_HL: np.ndarray
    from_start: int
    sinks_H: np.ndarray  # logits times log2(e)
    function: Any  # a compiled score_mod, or NO_FUNCTION
    product: Any  # of a query and a key, with its details: see tiles.py
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
    """What a kernel writes beside the results; the caller passes empty arrays for what it does not want."""

    weights_BHTS: np.ndarray  # the softmax weights
    logs: np.ndarray  # log-sum-exps, for their address; then their steps
    logs_batch: int
    logs_head: int
    logs_row: int


# Rows of a batch: the address of the first; steps from sentence to sentence (beside the rows between), from head to
# head, and from row to row. Rows of a sentence, from a head on. The addresses of a later head's rows, to prefetch.
BatchRows = namedtuple("BatchRows", "address batch_step head_step row_step")
HeadRows = namedtuple("HeadRows", "address head_step row_step")
PrefetchRows = namedtuple("PrefetchRows", "query key value out")

# The arguments for the heads of a sentence, from head h of sentence b on. ``bias_key`` is 0 or 4; ``table`` is the
# address of the entry for a distance of 0; ``head`` is head h's part of the product's details.
HeadBiases = namedtuple("HeadBiases", "bias bias_head bias_row bias_key slopes table table_head from_start")
HeadScores = namedtuple("HeadScores", "factor softcap sinks function biases product head")
HeadMask = namedtuple(
    "HeadMask", "seen seen_head seen_row seen_key states states_head block_queries block_keys key_blocks b h function"
)
HeadOutputs = namedtuple("HeadOutputs", "weights weights_head weights_row logs logs_head logs_row")
# Additive attention: the address of ``vector_factors``, 0 where scores are products; whether queries and keys are
# exponentials.
AdditiveHead = namedtuple("AdditiveHead", "factors exponential")
# Disentangled attention: packed keys and queries of distances; the width of their rows; ``bound``, the greatest
# distance in whole vectors; ``reach``, the column of the distance 0.
DistanceHead = namedtuple("DistanceHead", "keys queries width bound reach")

# Rows of a block: its row r is row n = first + r of a sentence, query n % queries of head n // queries.
QueryRows = namedtuple("QueryRows", "first length queries")
# Rows of a block that go together.
Tile = namedtuple("Tile", "first stop")
# Packed keys that a tile's rows see: from ``front``, the start of a panel, to ``stop``; ``whole``: in whole vectors.
Span = namedtuple("Span", "front stop whole")
# A tile of scores: its first row in the block, that row's query, the block's last query, its first key.
TilePosition = namedtuple("TilePosition", "row query last_query key")


class Scratch(NamedTuple):
    """Addresses in a thread's scratch."""

    keys: int  # packed, likewise values
    values: int
    scores: int  # of a tile: rows of KEYS
    totals: int  # of each row's exponentials, lane by lane
    sums: int  # of values, weighted by these; rows of whole columns
    queries: int  # the block's rows times the factor
    ranges: int  # the first key and the stop of each row, int64
    maxima: int  # of each row's scores
    new_maxima: int  # of the tile's rows, after its keys
    seen: int  # a byte for each of the tile's rows and keys: rows of KEYS
    indices: int  # the numbers of KEYS adjacent rows
    spare: int  # rows of narrow numbers as float32, or the scratch of disentangled attention


class RowBlock(NamedTuple):
    """A block of query rows of one sentence and key head, and all arguments of its tiles."""

    like: np.ndarray  # of the rows' dtype
    query: HeadRows
    key: HeadRows
    value: HeadRows
    out: HeadRows
    rows: QueryRows
    keys: int  # of the sentence
    width: int  # of a query's and a key's head
    value_width: int
    few: bool  # whether there are only a few rows
    ranges: int  # the address of each query's first key and stop; 0: all see all keys
    sinks: int  # number of first keys that all rows see
    scores: HeadScores
    mask: HeadMask
    outputs: HeadOutputs
    scratch: Scratch


# Hard attention: query rows of one sentence and head; the kernel writes their best keys to ``best``, int64.
ChoiceScratch = namedtuple("ChoiceScratch", "keys scores queries maxima new_maxima")
ChoiceBlock = namedtuple(
    "ChoiceBlock", "query key rows keys width ranges factor head bias bias_row bias_key best scratch"
)

# A step of some rows over tables of keys. A row's scratch starts with its scores; byte offsets in it, and its size:
SlotLayout = namedtuple("SlotLayout", "totals sums queries size")
# HeadRows of all heads; ``like``: an array of the keys' dtype; ``vector``: the address of additive attention's v, or 0.
StepArrays = namedtuple("StepArrays", "like query key value out vector")
# Some of all heads: ``group`` to a key head, their scores ``stride`` floats apart.
StepHeads = namedtuple("StepHeads", "first last heads group width value_width stride")
# Rows that go together, and the number of first keys that they share.
RowGroup = namedtuple("RowGroup", "first stop shared")
# The keys that a query sees: the address of their row numbers, int32; the first key's position and the stop.
KeyList = namedtuple("KeyList", "index first stop")
# Keys of a list to read; ``tail``, the address of room for LANES row numbers; the address and the length of a list
# whose rows to prefetch meanwhile.
ListedKeys = namedtuple("ListedKeys", "index first stop tail ahead ahead_stop")
