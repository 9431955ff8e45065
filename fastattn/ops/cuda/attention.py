"""Attention: over whole sentences, in one pass over the keys, and over tables of keys and values.

Whole sentences: softmax(Q K' scale + bias) V, whose scores are never stored. A block computes TILE queries of one head.
It goes through the keys TILE at a time: queries and keys come into shared memory DEPTH columns at a time, and each
thread has the scores of MICRO queries and MICRO keys in registers, SIDE apart. The softmax is online (Milakov and
Gimelshein 2018; Dao 2022): a row's greatest score so far is subtracted from its exponents; when that score grows,
earlier sums are multiplied by exp(old - new). The exponentials go through shared memory to the threads that have the
sums of MICRO queries and some columns of the values. Several blocks share the value columns that are too many for one.
Bits: tiles begin at whole multiples of TILE in a sentence, and a hidden key adds exact zeros, so a row's result does
not depend on other sentences, nor on keys after the last one that it sees.

Tables, a decoder's step: a block computes one query and head for PIECE of the keys that the query sees, counted from
the first. Scores: SIDE threads share a key and read SIDE adjacent columns at a time. Sums of values: each thread has
one column and every SIDE-th key. A second kernel joins the pieces by their greatest scores and sums of exponentials.
So a row's bits depend on its own keys alone, wherever they lie in the table.
"""

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numba import cuda, float32, int32, int64, uint32, uint64

from fastattn.arguments.attention import ALL, NONE, SOME, Heads, KeyIndex, PositionBias, RaggedBatch
from fastattn.ops import reference
from fastattn.ops.cuda import card
from fastattn.ops.cuda.card import MICRO, SIDE, SIMULATED, THREADS, TILE, device, no_array
from fastattn.ops.cuda.instructions import block_max, block_sum
from fastattn.ops.cuda.matmul import nearest_bfloat16

INFINITY = math.inf
DEPTH = max(SIDE, 8)  # columns of queries and keys in shared memory at a time
PITCH, SCORE_PITCH = DEPTH + 1, TILE + 1  # floats between rows of shared arrays; odd, so that a column is in all banks
THREAD_DISTANCES = 2 * MICRO - 1  # distances, SIDE apart, between a thread's queries and keys
TILE_DISTANCES = 2 * TILE  # distances between the queries of a tile and the keys of a tile, and one more
COLUMNS = 1, 2, 4, 8  # the numbers of value columns that a thread may have
PIECE = 4 * TILE  # keys of a block of a step
STEP_PITCH = SIDE + 1


class HeadLayout(NamedTuple):
    """Rows of heads in a flat array: column d of row n is at first + b batch + n row + h head + d."""

    array_X: Any
    first: int
    batch: int
    row: int
    head: int


class Broadcast(NamedTuple):
    """A flat array [B, H, T, S] and its strides in numbers, 0 along an axis of length one; empty for None."""

    array_X: Any
    batch: int
    head: int
    row: int
    key: int


class VisibleKeys(NamedTuple):
    """Which keys the queries see: the fields of ``KeyMask``, with empty arrays for None."""

    seen_N2: Any
    sinks: int
    mask: Broadcast
    states: Broadcast
    block_queries: int
    block_keys: int


class Terms(NamedTuple):
    """The factors and summands of scores, with empty arrays for None."""

    scale: Any
    softcap: Any
    bias: Broadcast
    slopes_H: Any
    table_HL: Any
    from_start: int
    sinks_H: Any
    vector_HK: Any


@device
def _float32(number):
    return float32(number)


@device
def _of_bfloat16(bits):
    return np.uint32(np.uint32(bits) << np.uint32(16)).view(np.float32)


@device
def _to_bfloat16(number):
    return nearest_bfloat16(int(np.float32(number).view(np.uint32)))


@device
def same_score(score, b, h, t, s):
    """The score_mod of a call that has none."""
    return score


@device
def every_key(b, h, t, s):
    """The mask_mod of a call that has none."""
    return True


def reader(dtype: Any) -> Any:
    """The device function from an array's numbers to float32; uint16 are the bits of bfloat16."""
    return _of_bfloat16 if np.dtype(dtype) == np.uint16 else _float32


def writer(dtype: Any) -> Any:
    """The device function from float32 to an array's numbers."""
    return _to_bfloat16 if np.dtype(dtype) == np.uint16 else _float32


@device
def start_of(layout, b, n, h):
    """The index at which head h of row n begins."""
    return layout.first + b * layout.batch + n * layout.row + h * layout.head


@device
def number_of(array, b, h, t, s):
    """The number of a ``Broadcast`` at b, h, t, s."""
    return array.array_X[uint64(b * array.batch + h * array.head + t * array.row + s * array.key)]


@device
def final_score(score, terms, score_mod, b, h, t, s, position):
    """The score of query t and key s from their product; ``position`` is the query's for biases by distance."""
    score = score * terms.scale
    if terms.softcap > float32(0):
        score = terms.softcap * math.tanh(score / terms.softcap)
    score = float32(score_mod(score, b, h, t, s))
    if len(terms.bias.array_X) > 0:
        score += number_of(terms.bias, b, h, t, s)
    if len(terms.slopes_H) > 0:
        score += terms.slopes_H[h] * float32(s if terms.from_start else s - position)
    if len(terms.table_HL) > 0:
        score += terms.table_HL[h, s - position + terms.table_HL.shape[1] // 2]
    return score


@device
def visible_range(seen_N2, n, keys):
    """(first key, stop) of row n; (0, 0) if it sees none."""
    first, stop = int32(0), int32(keys)
    if len(seen_N2) > 0:
        first = int32(min(max(seen_N2[n, 0], 0), keys))
        stop = int32(min(max(seen_N2[n, 1], 0), keys))
    if first >= stop:
        first, stop = int32(0), int32(0)
    return first, stop


@device
def is_visible(key_mask, mask_mod, b, h, t, s):
    """Whether query t sees key s by mask, blocks and function, which is called only where a block's state is SOME."""
    if len(key_mask.mask.array_X) > 0 and number_of(key_mask.mask, b, h, t, s) == 0:
        return False
    state = SOME
    if len(key_mask.states.array_X) > 0:
        state = number_of(key_mask.states, b, h, t // key_mask.block_queries, s // key_mask.block_keys)
    if state == SOME:
        return True if mask_mod(b, h, t, s) else False
    return state == ALL


@device
def is_hidden(key_mask, b, h, t, last_t, keys):
    """Whether no query from t to last_t sees any of the TILE keys from s on, by sinks, ranges and blocks.

    keys  (s, begin, end): all of the queries' ranges of keys lie between ``begin`` and ``end``
    """
    s, begin, end = keys
    if s >= key_mask.sinks and s + TILE <= begin:
        return True
    if len(key_mask.states.array_X) == 0:
        return False
    for i in range(t // key_mask.block_queries, last_t // key_mask.block_queries + 1):
        for j in range(s // key_mask.block_keys, (min(s + TILE, end) - 1) // key_mask.block_keys + 1):
            if number_of(key_mask.states, b, h, i, j) != NONE:
                return False
    return True


@device
def shift_of(top):
    """The number that is subtracted from exponents: a row's greatest score, or 0 if it sees no key."""
    return float32(0) if top == -INFINITY else top


class AttentionRows(NamedTuple):
    """The arrays that the kernel reads and writes, the tiles of queries, and sizes.

    tiles_X6  uint32: a tile's sentence and first query; the sentence's first row, number of queries, first key,
              number of keys
    """

    query: HeadLayout
    key: HeadLayout
    value: HeadLayout
    out: HeadLayout
    tiles_X6: Any
    width: int
    value_width: int
    group: int  # query heads of a key head


class CardDistances(NamedTuple):
    """The rows of distances of ``pack_distances``; empty for None."""

    key_LE: Any
    query_LE: Any


class Outputs(NamedTuple):
    """Arrays that are written in addition to the result; empty: not written.

    weights_BHTS  the softmax weights; zeros at first
    logs_X        flat, the logs of the softmaxes' sums; the log of row n lies at b batch + h head + n row
    invalid_1     int32, 0 at first: how many rows see a key and have a sum of 0 or NaN
    """

    weights_BHTS: Any
    logs_X: Any
    batch: int
    head: int
    row: int
    invalid_1: Any


@device
def _tile_at(tiles_X6, x):
    """Row x as signed numbers, which the compiler knows not to be negative, so that indices need no test."""
    b, first, row = int64(tiles_X6[x, 0]), int64(tiles_X6[x, 1]), int64(tiles_X6[x, 2])
    return b, first, row, int64(tiles_X6[x, 3]), int64(tiles_X6[x, 4]), int64(tiles_X6[x, 5])


@device
def _load(read, rows, start, count, first, width, tile_ND):
    """Load ``count`` rows' DEPTH columns from ``first`` on, with zeros beyond; row 0 begins at index ``start``."""
    for i in range(TILE * DEPTH // THREADS):
        e = int64(uint32(cuda.threadIdx.x)) + THREADS * i
        n, d = e // DEPTH, e % DEPTH
        number = float32(0)
        if n < count and first + d < width:
            number = read(rows.array_X[uint64(start + n * rows.row + first + d)])
        tile_ND[n, d] = number


@device
def _load_distances(rows_LE, least, column, first, width, tile_MD):
    """Load DEPTH columns from ``first`` on of the rows of TILE_DISTANCES distances from ``least`` on."""
    farthest = len(rows_LE) // 2
    for i in range(TILE_DISTANCES * DEPTH // THREADS):
        e = int64(uint32(cuda.threadIdx.x)) + THREADS * i
        m, d = e // DEPTH, e % DEPTH
        number = float32(0)
        if first + d < width:
            number = rows_LE[min(max(least + m, -farthest), farthest) + farthest, column + first + d]
        tile_MD[m, d] = number


@device
def _product(query, key, vector):
    return query * key


@device
def _additive(query, key, vector):
    return vector * math.tanh(query + key)


class KernelVariant(NamedTuple):
    """The constants for which the kernel ``attend`` is compiled."""

    columns: int = 1  # value columns of a thread
    dtype: str = "float32"
    out_dtype: str = "float32"
    additive: bool = False
    has_key_distances: bool = False
    has_query_distances: bool = False
    score_mod: Any = same_score
    mask_mod: Any = every_key


def _jit(variant: KernelVariant) -> Any:
    """The decorator of a variant's kernel; where 128 registers suffice, a multiprocessor runs two blocks at a time."""
    has_two_blocks = variant == KernelVariant(variant.columns) and variant.columns in (1, 4)
    bounds = {"launch_bounds": (THREADS, 1 + has_two_blocks)}
    if variant[-2:] == (same_score, every_key):
        return card.kernel_of(*variant[:-2], **bounds)
    return cuda.jit if SIMULATED else cuda.jit(**bounds)  # a user's functions are compiled in each process


@lru_cache(256)
def make_attend(variant: KernelVariant) -> Any:
    """The kernel of a variant; blocks are (tiles of queries, heads, tiles of value columns)."""
    THREAD_COLUMNS, TILE_COLUMNS = variant.columns, SIDE * variant.columns
    TILE_KEYS = TILE // variant.columns  # of a tile of values, which has TILE_COLUMNS columns
    additive, has_key_distances, has_query_distances, score_mod, mask_mod = variant[3:]
    KEY_DISTANCES, QUERY_DISTANCES = (
        TILE_DISTANCES if used else 1 for used in (has_key_distances, has_query_distances)
    )
    read, write = reader(variant.dtype), writer(variant.out_dtype)
    product = _additive if additive else _product

    @_jit(variant)
    def attend(rows, key_mask, terms, distances, outputs):
        query_RD = cuda.shared.array((TILE, PITCH), float32)
        key_SD = cuda.shared.array((TILE, PITCH), float32)
        key_distance_MD = cuda.shared.array((KEY_DISTANCES, PITCH), float32)
        query_distance_MD = cuda.shared.array((QUERY_DISTANCES, PITCH), float32)
        score_RS = cuda.shared.array((TILE, SCORE_PITCH), float32)
        value_SV = cuda.shared.array((TILE_KEYS, TILE_COLUMNS), float32)
        score_IJ = cuda.local.array((MICRO, MICRO), float32)
        sum_IV = cuda.local.array((MICRO, THREAD_COLUMNS), float32)
        top_I = cuda.local.array(MICRO, float32)
        total_I = cuda.local.array(MICRO, float32)  # of this thread's keys alone
        operand_I = cuda.local.array(MICRO, float32)  # numbers of the thread's queries, later their exponentials
        key_distance_M = cuda.local.array(THREAD_DISTANCES, float32)
        query_distance_M = cuda.local.array(THREAD_DISTANCES, float32)
        x, h, value_tile = cuda.blockIdx.x, cuda.blockIdx.y, cuda.blockIdx.z
        thread = int64(uint32(cuda.threadIdx.x))
        r, c = thread // SIDE, thread % SIDE  # the thread's queries are r + SIDE i, its keys c + SIDE j
        b, t0, first_row, T, first_key, S = _tile_at(rows.tiles_X6, uint32(x))
        first_row, K, V = first_row + t0, rows.width, rows.value_width
        count, g, column = min(T - t0, TILE), h // rows.group, value_tile * TILE_COLUMNS
        query = start_of(rows.query, b, first_row, h)

        begin, end = int32(S), int32(0)  # the keys that any query of the tile sees, without sinks
        for n in range(count):
            first, stop = visible_range(key_mask.seen_N2, first_row + n, S)
            if first < stop:
                begin, end = min(begin, first), max(end, stop)
        for i in range(MICRO):
            top_I[i], total_I[i] = -INFINITY, 0
            for v in range(THREAD_COLUMNS):
                sum_IV[i, v] = 0

        for s0 in range(0, end, TILE):
            if is_hidden(key_mask, b, h, t0, t0 + count - 1, (s0, begin, end)):
                continue

            # products of queries and keys
            for i in range(MICRO):
                for j in range(MICRO):
                    score_IJ[i, j] = 0
            key = start_of(rows.key, b, first_key + s0, g)
            for d0 in range(0, K, DEPTH):
                cuda.syncthreads()  # other threads may still read the arrays
                _load(read, rows.query, query, count, d0, K, query_RD)
                _load(read, rows.key, key, S - s0, d0, K, key_SD)
                if has_key_distances:
                    _load_distances(distances.key_LE, s0 - t0 - TILE + 1, h * K, d0, K, key_distance_MD)
                if has_query_distances:
                    _load_distances(distances.query_LE, s0 - t0 - TILE + 1, h * K, d0, K, query_distance_MD)
                cuda.syncthreads()
                for d in range(min(DEPTH, K - d0)):
                    for i in range(MICRO):
                        operand_I[i] = query_RD[r + SIDE * i, d]
                    for m in range(THREAD_DISTANCES):  # key j is SIDE (j - i) further from query i than c is from r
                        distance = c - r + TILE - 1 + SIDE * (m - MICRO + 1)
                        if has_key_distances:
                            key_distance_M[m] = key_distance_MD[distance, d]
                        if has_query_distances:
                            query_distance_M[m] = query_distance_MD[distance, d]
                    vector = terms.vector_HK[h, d0 + d] if additive else float32(0)
                    for j in range(MICRO):
                        number = key_SD[c + SIDE * j, d]
                        for i in range(MICRO):
                            score_IJ[i, j] += product(operand_I[i], number, vector)
                            if has_key_distances:
                                score_IJ[i, j] += operand_I[i] * key_distance_M[j - i + MICRO - 1]
                            if has_query_distances:
                                score_IJ[i, j] += number * query_distance_M[j - i + MICRO - 1]
            for i in range(MICRO):
                for j in range(MICRO):
                    score_RS[r + SIDE * i, c + SIDE * j] = score_IJ[i, j]

            # scores, and the greatest of each row among this thread's keys
            cuda.syncthreads()  # other threads may still read query_RD
            for n in range(r, count, SIDE):
                t, greatest = t0 + n, float32(-INFINITY)
                first, stop = visible_range(key_mask.seen_N2, first_row + n, S)
                for s in range(s0 + c, s0 + TILE, SIDE):
                    score = float32(-INFINITY)
                    if s < stop and (s >= first or s < key_mask.sinks) and is_visible(key_mask, mask_mod, b, h, t, s):
                        score = final_score(score_RS[n, s - s0], terms, score_mod, b, h, t, s, t)
                    score_RS[n, s - s0] = score
                    if score > greatest:
                        greatest = score
                    if len(outputs.weights_BHTS) > 0 and value_tile == 0 and s < S:
                        outputs.weights_BHTS[b, h, t, s] = score  # the end of the kernel makes it a weight
                query_RD[n, c] = greatest  # the queries are no longer needed
            cuda.syncthreads()

            # exponentials relative to the new greatest scores, to which earlier sums are scaled
            for i in range(MICRO):
                top = top_I[i]
                for j in range(SIDE):
                    top = max(top, query_RD[r + SIDE * i, j])
                factor = math.exp(top_I[i] - shift_of(top))
                top_I[i] = top
                total_I[i] *= factor
                for v in range(THREAD_COLUMNS):
                    sum_IV[i, v] *= factor
                for j in range(MICRO):
                    weight = math.exp(score_RS[r + SIDE * i, c + SIDE * j] - shift_of(top))
                    total_I[i] += weight
                    score_RS[r + SIDE * i, c + SIDE * j] = weight

            # exponentials times values
            value = start_of(rows.value, b, first_key + s0, g) + column
            for s1 in range(s0, min(s0 + TILE, end), TILE_KEYS):
                cuda.syncthreads()  # all exponentials are stored, and no thread reads the last values any more
                for i in range(MICRO):
                    e = thread + THREADS * i
                    s, v = s1 + e // TILE_COLUMNS, e % TILE_COLUMNS
                    number = float32(0)  # for keys that no query of the tile sees, whose values may be NaN
                    if column + v < V and s < end and (s >= begin or s < key_mask.sinks):
                        number = read(rows.value.array_X[uint64(value + (s - s0) * rows.value.row + v)])
                    value_SV[e // TILE_COLUMNS, v] = number
                cuda.syncthreads()
                for s in range(min(TILE_KEYS, end - s1)):
                    for i in range(MICRO):
                        operand_I[i] = score_RS[r + SIDE * i, s1 - s0 + s]
                    for v in range(THREAD_COLUMNS):
                        number = value_SV[s, c + SIDE * v]
                        for i in range(MICRO):
                            sum_IV[i, v] += operand_I[i] * number

        # each row's total over the keys of all threads, computed by one thread
        cuda.syncthreads()
        for i in range(MICRO):
            query_RD[r + SIDE * i, c] = total_I[i]
            key_SD[r + SIDE * i, 0] = top_I[i]  # the same in all threads of the row
        cuda.syncthreads()
        for n in range(thread, count, THREADS):
            greatest, total = key_SD[n, 0], float32(0)
            for j in range(SIDE):
                total += query_RD[n, j]
            top = greatest
            if len(terms.sinks_H) > 0:
                top = max(greatest, terms.sinks_H[h])
                total = total * math.exp(greatest - top) + math.exp(terms.sinks_H[h] - top)
            inverse, log = float32(0), float32(-INFINITY)
            if total != 0:
                inverse, log = float32(1) / total, top + math.log(total)
            score_RS[n, 0], score_RS[n, 1] = inverse * math.exp(greatest - shift_of(top)), shift_of(top)
            score_RS[n, 2] = inverse
            if value_tile == 0:
                if len(outputs.logs_X) > 0:
                    outputs.logs_X[b * outputs.batch + h * outputs.head + (first_row + n) * outputs.row] = log
                _, stop = visible_range(key_mask.seen_N2, first_row + n, S)
                if len(outputs.invalid_1) > 0 and stop > 0 and not total > 0:
                    cuda.atomic.add(outputs.invalid_1, 0, 1)
        cuda.syncthreads()
        out = start_of(rows.out, b, first_row, h) + column
        for i in range(MICRO):
            n = r + SIDE * i
            for v in range(THREAD_COLUMNS):
                if n < count and column + c + SIDE * v < V:
                    index = uint64(out + n * rows.out.row + c + SIDE * v)
                    rows.out.array_X[index] = write(sum_IV[i, v] * score_RS[n, 0])
        if len(outputs.weights_BHTS) > 0 and value_tile == 0:
            for s0 in range(0, end, TILE):
                if not is_hidden(key_mask, b, h, t0, t0 + count - 1, (s0, begin, end)):
                    for n in range(r, count, SIDE):
                        for s in range(s0 + c, min(s0 + TILE, S), SIDE):
                            score = outputs.weights_BHTS[b, h, t0 + n, s]  # this thread has written it
                            outputs.weights_BHTS[b, h, t0 + n, s] = math.exp(score - score_RS[n, 1]) * score_RS[n, 2]

    return attend


@card.kernel
def _clear_kernel(array_X):
    for x in range(cuda.grid(1), len(array_X), cuda.gridsize(1)):
        array_X[x] = float32(0)


def clear(array: Any) -> Any:
    """Fill an array of the card with zeros and return it."""
    flat_X = flat(array)
    card.launch(_clear_kernel, min(-(-len(flat_X) // THREADS), 1 << 16), flat_X)
    return array


def flat(array: Any) -> Any:
    """The array on the card with one axis."""
    array = card.upload(array)
    return array.reshape(array.size)


def head_layout(array_NE: Any, column: int, width: int) -> HeadLayout:
    """The layout of rows whose heads of ``width`` begin at a column."""
    return HeadLayout(flat(array_NE), column, 0, array_NE.shape[1], width)


def broadcast(array: Any, dtype: Any = np.float32) -> Broadcast:
    """The ``Broadcast`` of an array [B, H, T, S] or of None."""
    if array is None or array.size == 0:
        return Broadcast(no_array(1, dtype), 0, 0, 0, 0)
    _, h, t, s = array.shape
    steps = (step if size > 1 else 0 for size, step in zip(array.shape, (h * t * s, t * s, s, 1)))
    return Broadcast(flat(array), *steps)


def terms_of(
    heads: Heads,
    bias_BHTS: Any = None,
    position_bias: PositionBias | None = None,
    sinks_H: Any = None,
    vector_HK: Any = None,
) -> Terms:
    """The terms as kernels take them."""
    position_bias = position_bias or PositionBias()
    scale = heads.width**-0.5 if heads.scale is None else heads.scale
    if vector_HK is not None:
        scale = 1.0
    slopes_H, table_HL = card.parameter(position_bias.slopes_H), card.parameter(position_bias.table_HL, 2)
    caller_arrays = card.optional(sinks_H, 1), card.optional(vector_HK, 2)  # they may change from call to call
    numbers = np.float32(scale), np.float32(heads.softcap)
    return Terms(*numbers, broadcast(bias_BHTS), slopes_H, table_HL, int(position_bias.from_start), *caller_arrays)


def tiles_of(query_starts_B1: np.ndarray, key_starts_B1: np.ndarray) -> np.ndarray:
    """tiles_X6 of ``AttentionRows``."""
    queries_B, keys_B = np.diff(query_starts_B1), np.diff(key_starts_B1)
    tiles_B = -(-queries_B // TILE)
    b_X = np.repeat(np.arange(len(queries_B)), tiles_B)
    first_X = (np.arange(len(b_X)) - (np.cumsum(tiles_B) - tiles_B)[b_X]) * TILE
    columns = b_X, first_X, query_starts_B1[b_X], queries_B[b_X], key_starts_B1[b_X], keys_B[b_X]
    return np.stack(columns, axis=1).astype(np.uint32)


def launch_attend(variant: KernelVariant, heads: int, rows: AttentionRows, *arguments: Any) -> None:
    """Launch the variant's kernel ``attend``, whose arguments are ``rows`` and ``arguments``, for ``heads`` heads.

    A thread has the fewest value columns with which a block covers all columns, or else the most.
    """
    columns = next((count for count in COLUMNS if count * SIDE >= rows.value_width), COLUMNS[-1])
    blocks = len(rows.tiles_X6), heads, -(-rows.value_width // (columns * SIDE))
    card.launch(make_attend(variant._replace(columns=columns)), blocks, rows, *arguments)


def pack_distances(key_LE: np.ndarray | None, query_LE: np.ndarray | None, heads: Heads) -> CardDistances:
    return CardDistances(card.optional(key_LE, 2), card.optional(query_LE, 2))


def attention(
    query_NE: np.ndarray,
    key_ME: np.ndarray,
    value_ME: np.ndarray,
    batch: RaggedBatch,
    heads: Heads,
    *,
    bias_BHTS: np.ndarray | None = None,
    position_bias: PositionBias | None = None,
    distances: CardDistances | None = None,
    weights_BHTS: np.ndarray | None = None,
) -> np.ndarray:
    H, G, K, V = heads.query_heads, heads.key_heads, heads.width, heads.value_width or heads.width
    out_NF = card.empty((len(query_NE), H * V), np.float32)
    query, key = head_layout(query_NE, heads.query_column, K), head_layout(key_ME, heads.key_column, K)
    value, tiles_X6 = head_layout(value_ME, heads.value_column, V), card.upload(tiles_of(*batch[:2]))
    rows = AttentionRows(query, key, value, head_layout(out_NF, 0, V), tiles_X6, K, V, H // G)
    no_mask = broadcast(None, np.uint8)
    key_mask = VisibleKeys(card.optional(batch.seen_N2, 2, np.int64), batch.sinks, no_mask, no_mask, 1, 1)
    weights_BHTS = no_array(4) if weights_BHTS is None else clear(card.upload(weights_BHTS))
    distances = CardDistances(no_array(2), no_array(2)) if distances is None else distances
    has_key_distances, has_query_distances = (len(rows_LE) > 0 for rows_LE in distances)
    variant = KernelVariant(has_key_distances=has_key_distances, has_query_distances=has_query_distances)
    outputs = Outputs(weights_BHTS, no_array(1), 0, 0, 0, no_array(1, np.int32))
    launch_attend(variant, H, rows, key_mask, terms_of(heads, bias_BHTS, position_bias), distances, outputs)
    return out_NF


class StepTables(NamedTuple):
    """The arrays that a step reads: queries, tables, and the fields of ``KeyIndex``."""

    query: HeadLayout
    key: HeadLayout
    value: HeadLayout
    index_RS: Any
    stops_N: Any
    rows_N: Any  # empty: row n
    firsts_N: Any  # empty: 0
    window: int
    width: int
    value_width: int
    group: int  # query heads of a key head


@device
def _first_key(firsts_N, stops_N, window, n):
    first = firsts_N[n] if len(firsts_N) > 0 else int64(0)
    return max(first, stops_N[n] - window) if window > 0 else first


@lru_cache(8)
def _step_kernel(dtype: Any) -> Any:
    """The kernel for tables of a type; blocks are (queries, heads, pieces)."""
    read = reader(dtype)

    @card.kernel_of(str(np.dtype(dtype)))
    def attend_piece(step, terms, weights_NHS, sums_NHPV, tops_NHP2):
        """Write a piece's sums of exponentials times values, and its greatest score and sum of exponentials."""
        score_S = cuda.shared.array(PIECE, float32)
        partial_RC = cuda.shared.array((SIDE, STEP_PITCH), float32)
        shared_T = cuda.shared.array(THREADS, float32)
        n, h, p = cuda.blockIdx.x, cuda.blockIdx.y, cuda.blockIdx.z
        thread = int64(uint32(cuda.threadIdx.x))
        r, c = thread // SIDE, thread % SIDE
        row = step.rows_N[n] if len(step.rows_N) > 0 else int64(n)
        first = _first_key(step.firsts_N, step.stops_N, step.window, n) + p * PIECE
        count, g = min(step.stops_N[n] - first, PIECE), h // step.group
        query = start_of(step.query, 0, n, h)

        greatest = float32(-INFINITY)
        for s0 in range(0, count, SIDE):  # SIDE keys, each by SIDE threads
            s, partial = s0 + r, float32(0)
            if s < count:
                key = start_of(step.key, 0, int64(step.index_RS[row, first + s]), g)
                for d in range(c, step.width, SIDE):
                    x, y = step.query.array_X[uint64(query + d)], read(step.key.array_X[uint64(key + d)])
                    if len(terms.vector_HK) > 0:
                        partial += terms.vector_HK[h, d] * math.tanh(x + y)
                    else:
                        partial += x * y
            cuda.syncthreads()  # other threads may still read partial_RC
            partial_RC[r, c] = partial
            cuda.syncthreads()
            if thread < SIDE and s0 + thread < count:
                s, score = s0 + thread, float32(0)
                for j in range(SIDE):
                    score += partial_RC[thread, j]
                score = final_score(score, terms, same_score, n, h, 0, first + s, step.stops_N[n] - 1)
                score_S[s] = score
                if score > greatest:
                    greatest = score
                if len(weights_NHS) > 0:
                    weights_NHS[n, h, first + s] = score  # _join makes it a weight
        top, total = block_max(greatest, shared_T), float32(0)
        for s in range(thread, count, THREADS):
            score_S[s] = math.exp(score_S[s] - shift_of(top))
            total += score_S[s]
        total = block_sum(total, shared_T)  # its barrier also shows score_S to all threads
        if thread == 0:
            tops_NHP2[n, h, p, 0], tops_NHP2[n, h, p, 1] = top, total

        for v0 in range(0, step.value_width, SIDE):
            v, partial = v0 + c, float32(0)
            if v < step.value_width:
                for s in range(r, count, SIDE):
                    value = start_of(step.value, 0, int64(step.index_RS[row, first + s]), g)
                    partial += score_S[s] * read(step.value.array_X[uint64(value + v)])
            cuda.syncthreads()
            partial_RC[r, c] = partial
            cuda.syncthreads()
            if thread < SIDE and v0 + thread < step.value_width:
                partial = float32(0)
                for j in range(SIDE):
                    partial += partial_RC[j, thread]
                sums_NHPV[n, h, p, v0 + thread] = partial

    return attend_piece


@card.kernel
def _join(sums_NHPV, tops_NHP2, firsts_N, stops_N, window, weights_NHS, out_NHV):
    """A block joins the pieces of a query and head: their sums, relative to the greatest score, over the total."""
    n, h = cuda.blockIdx.x, cuda.blockIdx.y
    thread, pieces = int64(uint32(cuda.threadIdx.x)), sums_NHPV.shape[2]
    top, total = float32(-INFINITY), float32(0)
    for p in range(pieces):
        top = max(top, tops_NHP2[n, h, p, 0])
    for p in range(pieces):
        total += tops_NHP2[n, h, p, 1] * math.exp(tops_NHP2[n, h, p, 0] - shift_of(top))
    inverse = float32(0)
    if total != 0:
        inverse = float32(1) / total
    for v in range(thread, out_NHV.shape[2], THREADS):
        value = float32(0)
        for p in range(pieces):
            value += sums_NHPV[n, h, p, v] * math.exp(tops_NHP2[n, h, p, 0] - shift_of(top))
        out_NHV[n, h, v] = value * inverse
    if len(weights_NHS) > 0:
        first = _first_key(firsts_N, stops_N, window, n)
        for s in range(first + thread, stops_N[n], THREADS):
            weights_NHS[n, h, s] = math.exp(weights_NHS[n, h, s] - shift_of(top)) * inverse


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
    N, H, K, V = len(query_NE), heads.query_heads, heads.width, heads.value_width or heads.width
    pieces = max(-(-key_index.index_RS.shape[1] // PIECE), 1)  # a recorded step does not know the stops yet
    query, key = head_layout(query_NE, heads.query_column, K), head_layout(key_ME, heads.key_column, K)
    value = head_layout(value_ME, heads.value_column, V)
    index_RS, stops_N = card.upload(key_index.index_RS), card.upload(key_index.stops_N)
    rows_N, firsts_N = (card.optional(array, 1, np.int64) for array in (key_index.rows_N, key_index.firsts_N))
    group = H // heads.key_heads
    step = StepTables(query, key, value, index_RS, stops_N, rows_N, firsts_N, key_index.window, K, V, group)
    weights_NHS = no_array(3) if weights_NHS is None else clear(card.upload(weights_NHS))
    sums_NHPV, tops_NHP2 = (card.empty((N, H, pieces, width), np.float32) for width in (V, 2))
    out_NHV = card.empty((N, H, V), np.float32)
    bias = None if bias_NHS is None else card.upload(bias_NHS).reshape((*bias_NHS.shape[:2], 1, bias_NHS.shape[2]))
    vector_HK = None if vector_HK is None else card.parameter(vector_HK)
    terms = terms_of(heads, bias, position_bias, vector_HK=vector_HK)
    card.launch(_step_kernel(key_ME.dtype), (N, H, pieces), step, terms, weights_NHS, sums_NHPV, tops_NHP2)
    card.launch(_join, (N, H), sums_NHPV, tops_NHP2, firsts_N, stops_N, step.window, weights_NHS, out_NHV)
    return out_NHV.reshape((N, H * V))


def average_heads(weights: np.ndarray, heads: int) -> np.ndarray:
    return reference.average_heads(card.download(weights), heads)
