"""What attention's kernels are passed, and what their functions pass on, by name. Nothing here imports Numba.

Operations pass the ``...Arguments``, which are flat, since Numba's own threads take no nested tuples. The others are
made in compiled code. Addresses and steps are in bytes; the address 0 stands for what is not there, the step 0 for an
axis that is broadcast.
"""

from typing import Any, NamedTuple

import numpy as np

# What operations pass


class ShapeArguments(NamedTuple):
    """Heads: ``width`` is of a query's and a key's, ``value_width`` of a value's; limit: the most rows of a block."""

    heads: int
    key_heads: int
    width: int
    value_width: int
    limit: int


class ScoreArguments(NamedTuple):
    """What a score is made of. Arrays may be empty.

    factor    of dot products, the scale times log2(e); of additive attention 1
    softcap   the cap of products times log2(e); 0: none
    bias      an array for its address, and its steps from sentence to sentence, head to head, row to row, key to key
    slopes_H  with ``table_HL`` and ``from_start`` a PositionBias
    sinks_H   logits times log2(e)
    function  a compiled score_mod, or NO_FUNCTION
    product   with ``details`` what is computed of a query and a key, see products.py
    """

    factor: np.float32
    softcap: np.float32
    bias: np.ndarray
    bias_batch: int
    bias_head: int
    bias_row: int
    bias_key: int
    slopes_H: np.ndarray
    table_HL: np.ndarray
    from_start: int
    sinks_H: np.ndarray
    function: Any
    product: Any
    details: np.ndarray


class MaskArguments(NamedTuple):
    """Which keys are seen, beside the ranges of rows. Arrays may be empty.

    seen           an array of bytes for its address, and its steps from sentence to sentence, head to head, row to row,
                   key to key
    states         a byte for each block of queries and keys, and the steps from sentence to sentence and head to head
    block_queries  of a block, likewise ``block_keys``; key_blocks: how many there are of a query's
    function       a compiled mask_mod, or NO_FUNCTION
    """

    seen: np.ndarray
    seen_batch: int
    seen_head: int
    seen_row: int
    seen_key: int
    states: np.ndarray
    states_batch: int
    states_head: int
    block_queries: int
    block_keys: int
    key_blocks: int
    function: Any


class OutputArguments(NamedTuple):
    """What is written beside the results; arrays are empty where it is not wanted.

    weights_BHTS  the softmax weights
    logs          an array of log-sum-exps for its address, and its steps from sentence to sentence, head to head, row
                  to row
    """

    weights_BHTS: np.ndarray
    logs: np.ndarray
    logs_batch: int
    logs_head: int
    logs_row: int


# Where rows are


class BatchRows(NamedTuple):
    """The rows of an array: the address of its first head, steps from sentence to sentence beside the rows between."""

    address: int
    batch_step: int
    head_step: int
    row_step: int


class HeadRows(NamedTuple):
    """Rows from a head on: the address of the first, steps to the same row of the next head and to the next row."""

    address: int
    head_step: int
    row_step: int


class Ahead(NamedTuple):
    """The addresses of the first rows of a later head, to be prefetched."""

    query: int
    key: int
    value: int
    out: int


# What is computed for the heads of a sentence, from one on


class HeadBiases(NamedTuple):
    """What is added to scores, by address: ``bias_key`` is 0 or 4, ``table`` the entry for a distance of 0."""

    bias: int
    bias_head: int
    bias_row: int
    bias_key: int
    slopes: int
    table: int
    table_head: int
    from_start: int


class HeadScores(NamedTuple):
    """ScoreArguments of these heads; ``head`` is the first one's part of the product's details."""

    factor: np.float32
    softcap: np.float32
    sinks: int
    function: Any
    biases: HeadBiases
    product: Any
    head: Any


class AdditiveHead(NamedTuple):
    """A head of additive attention: the address of its ``vector_factors``, whether queries and keys are exponentials.

    With the address 0 scores are products.
    """

    factors: int
    exponential: bool


class DistanceHead(NamedTuple):
    """A head of disentangled attention.

    keys     the address of the packed keys of distances; likewise ``queries``
    width    of its rows
    bound    the greatest distance that whole vectors have
    reach    the column of the distance 0
    """

    keys: int
    queries: int
    width: int
    bound: int
    reach: int


class HeadMask(NamedTuple):
    """MaskArguments of these heads, the first of which is head ``h`` of sentence ``b``."""

    seen: int
    seen_head: int
    seen_row: int
    seen_key: int
    states: int
    states_head: int
    block_queries: int
    block_keys: int
    key_blocks: int
    b: int
    h: int
    function: Any


class HeadOutputs(NamedTuple):
    """OutputArguments of these heads of a sentence, by address."""

    weights: int
    weights_head: int
    weights_row: int
    logs: int
    logs_head: int
    logs_row: int


# A block of rows, tile by tile


class QueryRows(NamedTuple):
    """Rows of a block: its row r is row n = first + r of a sentence, query n % queries of head n // queries."""

    first: int
    length: int
    queries: int


class Tile(NamedTuple):
    """Rows of a block that are computed together: the first and the stop."""

    first: int
    stop: int


class Span(NamedTuple):
    """Packed keys that a tile's rows see: from ``front``, a whole panel, to ``stop``, in whole vectors to ``whole``."""

    front: int
    stop: int
    whole: int


class TilePosition(NamedTuple):
    """Where a tile of scores lies: its first row in the block, that row's query, the block's last query, key 0."""

    row: int
    query: int
    last_query: int
    key: int


class Scratch(NamedTuple):
    """Addresses in a thread's scratch.

    keys        packed, likewise ``values``
    scores      of a tile, rows of KEYS
    totals      of the exponentials of each row of the block, by lanes
    sums        of its values weighted by exponentials, rows of whole columns
    queries     its rows times the factor
    ranges      the first key and the stop of each row, int64
    maxima      of each row's scores
    new_maxima  of the tile's rows, after its keys
    seen        bytes of what the tile's rows see, rows of KEYS
    indices     the numbers of KEYS adjacent rows
    spare       rows of narrow numbers as float32, or what disentangled attention keeps
    """

    keys: int
    values: int
    scores: int
    totals: int
    sums: int
    queries: int
    ranges: int
    maxima: int
    new_maxima: int
    seen: int
    indices: int
    spare: int


class RowBlock(NamedTuple):
    """A block of query rows of one sentence and key head, with all that its tiles take.

    like    an array of the rows' dtype
    keys    of the sentence; heads have ``width``, those of values ``value_width``
    few     whether there are only a few rows
    ranges  the address of the first key and the stop of each query, 0: all see all keys
    sinks   the number of first keys that stay seen
    """

    like: np.ndarray
    query: HeadRows
    key: HeadRows
    value: HeadRows
    out: HeadRows
    rows: QueryRows
    keys: int
    width: int
    value_width: int
    few: bool
    ranges: int
    sinks: int
    scores: HeadScores
    mask: HeadMask
    outputs: HeadOutputs
    scratch: Scratch


# Hard attention's block of rows


class ChoiceScratch(NamedTuple):
    """Addresses in a thread's scratch, as in Scratch."""

    keys: int
    scores: int
    queries: int
    maxima: int
    new_maxima: int


class ChoiceBlock(NamedTuple):
    """Query rows of one sentence and head, whose best keys are written to ``best``, int64, where a row sees any.

    ranges   the address of the first key and the stop of each row
    factor   of the queries
    """

    query: HeadRows
    key: HeadRows
    rows: int
    keys: int
    width: int
    ranges: int
    factor: np.float32
    head: AdditiveHead
    bias: int
    bias_row: int
    bias_key: int
    best: int
    scratch: ChoiceScratch


# A step of some rows over tables of keys


class SlotLayout(NamedTuple):
    """Byte offsets in the scratch of a step's row, which starts with its scores; ``size`` is that of all."""

    totals: int
    sums: int
    queries: int
    size: int


class StepArrays(NamedTuple):
    """Queries, keys, values and results from the first column on; ``like`` is an array of the keys' dtype."""

    like: np.ndarray
    query: HeadRows
    key: HeadRows
    value: HeadRows
    out: HeadRows


class StepHeads(NamedTuple):
    """Heads from the first to the last of all: ``group`` to a key head, their scores ``stride`` floats apart."""

    first: int
    last: int
    heads: int
    group: int
    width: int
    value_width: int
    stride: int


class Together(NamedTuple):
    """Rows that are processed together: the first, the stop, how many first keys they share."""

    first: int
    stop: int
    shared: int


class KeyList(NamedTuple):
    """The keys that a query sees: the address of their row numbers, int32; the first one's position and the stop."""

    index: int
    first: int
    stop: int


class ListedKeys(NamedTuple):
    """Keys of a list that are read, from the first to the stop, and the list whose rows are prefetched meanwhile.

    tail   the address of space for LANES row numbers
    ahead  the address of the other list; it has ``ahead_stop`` numbers
    """

    index: int
    first: int
    stop: int
    tail: int
    ahead: int
    ahead_stop: int
