"""Attention: over whole sentences in one pass over the keys, and of queries over tables of keys.

Whole sentences: softmax(Q K' scale + bias) V, whose scores are never stored. A block computes TILE queries of one head.
It goes through the keys TILE at a time: queries and keys come into shared memory DEPTH columns at a time, and each
thread has the scores of MICRO queries and MICRO keys in registers, SIDE apart. The softmax is online (Milakov and
Gimelshein 2018; Dao 2022): a row's greatest score so far is subtracted from its exponents, and where it grows, what has
been summed is multiplied by exp(old - new). The exponentials go through shared memory to the threads that have the sums
of MICRO queries and some columns of the values. More value columns than threads can sum are computed by several blocks.
Bits: tiles begin at whole multiples of TILE in a sentence, and a hidden key adds exact zeros, so a row's result does
not depend on other sentences, nor on what follows the last key that it sees.

Tables, a decoder's step: a block has one query and head, and PIECE of the keys that it sees, counted from its first
one. Scores: SIDE threads share a key and read SIDE adjacent columns at a time. Sums of values: each thread has one
column and every SIDE-th key. Where there is more than a piece, another kernel joins the pieces by the logs of their
sums, as if there were one. So a row's bits depend on its own keys alone, wherever they lie in the table.
"""

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numba import cuda, float32, int32, int64, uint32, uint64

from fastattn.arguments.attention import ALL, NONE, SOME, Heads, KeyIndex, PositionBias, RaggedBatch
from fastattn.ops import reference
from fastattn.ops.cuda import card
from fastattn.ops.cuda.card import MICRO, SIDE, SIMULATED, THREADS, TILE, device, none
from fastattn.ops.cuda.instructions import block_max, block_sum
from fastattn.ops.cuda.matmul import nearest_bfloat16

INFINITY = math.inf
DEPTH = max(SIDE, 8)  # columns of queries and keys in shared memory at a time
PITCH, SCORES = DEPTH + 1, TILE + 1  # floats from row to row of shared arrays: odd, so that a column is in all banks
DISTANCES = 2 * MICRO - 1  # how many distances a thread's queries and keys have, SIDE apart
NEAR = 2 * TILE  # how many distances the queries and keys of two tiles have, and one more
COLUMNS = 1, 2, 4, 8  # how many value columns a thread may have
PIECE = 4 * TILE  # keys that a block of a step has
STEP_PITCH = SIDE + 1


class LaidHeads(NamedTuple):
    """Rows of heads in a flat array: column d of row n is at first + b batch + n row + h head + d."""

    array_X: Any
    first: int
    batch: int
    row: int
    head: int


class Broadcast(NamedTuple):
    """An array [B, H, T, S], flat, and its steps, 0 along an axis of length one; empty for None."""

    array_X: Any
    batch: int
    head: int
    row: int
    key: int


class VisibleKeys(NamedTuple):
    """Which keys the queries see: the fields of ``Visible``, with empty arrays for None."""

    seen_N2: Any
    sinks: int
    mask: Broadcast
    states: Broadcast
    block_queries: int
    block_keys: int


class Terms(NamedTuple):
    """What scores are made of, with empty arrays for None."""

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
    """The device function from numbers of arrays to float32: uint16 are the bits of bfloat16."""
    return _of_bfloat16 if np.dtype(dtype) == np.uint16 else _float32


def writer(dtype: Any) -> Any:
    """The device function from float32 to numbers of arrays."""
    return _to_bfloat16 if np.dtype(dtype) == np.uint16 else _float32


@device
def start_of(laid, b, n, h):
    """Where a row's head begins."""
    return laid.first + b * laid.batch + n * laid.row + h * laid.head


@device
def number_of(array, b, h, t, s):
    """The number of a ``Broadcast`` at b, h, t, s."""
    return array.array_X[uint64(b * array.batch + h * array.head + t * array.row + s * array.key)]


@device
def finished_score(score, terms, score_mod, b, h, t, s, position):
    """The score of query t and key s, from the product; ``position`` is the query's for biases by distance."""
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
def is_visible(visible, mask_mod, b, h, t, s):
    """Whether mask, blocks and function show key s to query t; the function is asked where a block's state is SOME."""
    if len(visible.mask.array_X) > 0 and number_of(visible.mask, b, h, t, s) == 0:
        return False
    state = SOME
    if len(visible.states.array_X) > 0:
        state = number_of(visible.states, b, h, t // visible.block_queries, s // visible.block_keys)
    if state == SOME:
        return True if mask_mod(b, h, t, s) else False
    return state == ALL


@device
def is_hidden(visible, b, h, t, last_t, keys):
    """Whether no query from t to last_t sees any of the TILE keys from s on; keys: s, begin and end of all keys."""
    s, begin, end = keys
    if s >= visible.sinks and s + TILE <= begin:
        return True
    if len(visible.states.array_X) == 0:
        return False
    for i in range(t // visible.block_queries, last_t // visible.block_queries + 1):
        for j in range(s // visible.block_keys, (min(s + TILE, end) - 1) // visible.block_keys + 1):
            if number_of(visible.states, b, h, i, j) != NONE:
                return False
    return True


@device
def shift_of(top):
    """What is subtracted from exponents: a row's greatest score, or 0 where it sees no key."""
    return float32(0) if top == -INFINITY else top


class Rows(NamedTuple):
    """The arrays that the kernel reads and writes, a row of numbers for each tile of queries, and sizes.

    places_X6  uint32: of the tile its sentence and its first query; of the sentence its first row, its number of
               queries, its first key, its number of keys
    """

    query: LaidHeads
    key: LaidHeads
    value: LaidHeads
    out: LaidHeads
    places_X6: Any
    width: int
    value_width: int
    group: int  # query heads of a key head


class NearRows(NamedTuple):
    """Rows of distances, see ``pack_distances``; empty for None."""

    key_LE: Any
    query_LE: Any


class Outputs(NamedTuple):
    """Arrays that are written in addition to the result; empty: not wanted.

    weights_BHTS  the softmax weights; zeros at first
    logs_X        flat, the logs of the softmaxes' sums: that of row n lies at b batch + h head + n row
    invalid_1     int32, 0 at first: how many rows see a key and have a sum of 0 or NaN
    """

    weights_BHTS: Any
    logs_X: Any
    batch: int
    head: int
    row: int
    invalid_1: Any


@device
def _place(places_X6, x):
    """Row x in signed numbers that the compiler knows are not negative, so that indices need no test."""
    b, first, row = int64(places_X6[x, 0]), int64(places_X6[x, 1]), int64(places_X6[x, 2])
    return b, first, row, int64(places_X6[x, 3]), int64(places_X6[x, 4]), int64(places_X6[x, 5])


@device
def _load(read, rows, start, count, first, width, tile_ND):
    """Load DEPTH columns from ``first`` on of ``count`` rows, zeros beyond; ``start`` is where row 0 begins."""
    for i in range(TILE * DEPTH // THREADS):
        e = int64(uint32(cuda.threadIdx.x)) + THREADS * i
        n, d = e // DEPTH, e % DEPTH
        number = float32(0)
        if n < count and first + d < width:
            number = read(rows.array_X[uint64(start + n * rows.row + first + d)])
        tile_ND[n, d] = number


@device
def _load_near(rows_LE, least, column, first, width, tile_MD):
    """Load the same columns of the rows of NEAR distances from ``least`` on."""
    farthest = len(rows_LE) // 2
    for i in range(NEAR * DEPTH // THREADS):
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


class Form(NamedTuple):
    """What a kernel is compiled for."""

    columns: int = 1  # of values that a thread has
    dtype: str = "float32"
    out: str = "float32"
    additive: bool = False
    near_keys: bool = False
    near_queries: bool = False
    score_mod: Any = same_score
    mask_mod: Any = every_key


def _jit(form: Form) -> Any:
    """The decorator of a form's kernel: if 128 registers suffice, two blocks run on a multiprocessor at a time."""
    two = form == Form(form.columns) and form.columns in (1, 4)
    bounds = {"launch_bounds": (THREADS, 1 + two)}
    if form[-2:] == (same_score, every_key):
        return card.kernel_of(*form[:-2], **bounds)
    return cuda.jit if SIMULATED else cuda.jit(**bounds)  # a user's functions are compiled in each process


@lru_cache(256)
def make_attend(form: Form) -> Any:
    """The kernel of a form; blocks are (tiles of queries, heads, tiles of value columns)."""
    OWN, WIDE, KEYS = form.columns, SIDE * form.columns, TILE // form.columns  # a tile of values is KEYS x WIDE
    additive, near_keys, near_queries = form.additive, form.near_keys, form.near_queries
    NEAR_KEYS, NEAR_QUERIES = (NEAR if used else 1 for used in (near_keys, near_queries))
    read, write, score_mod, mask_mod = reader(form.dtype), writer(form.out), form.score_mod, form.mask_mod
    product = _additive if additive else _product

    @_jit(form)
    def attend(rows, visible, terms, distances, outputs):
        query_RD = cuda.shared.array((TILE, PITCH), float32)
        key_SD = cuda.shared.array((TILE, PITCH), float32)
        near_key_MD = cuda.shared.array((NEAR_KEYS, PITCH), float32)
        near_query_MD = cuda.shared.array((NEAR_QUERIES, PITCH), float32)
        score_RS = cuda.shared.array((TILE, SCORES), float32)
        value_SV = cuda.shared.array((KEYS, WIDE), float32)
        score_IJ = cuda.local.array((MICRO, MICRO), float32)
        sum_IV = cuda.local.array((MICRO, OWN), float32)
        top_I = cuda.local.array(MICRO, float32)
        total_I = cuda.local.array(MICRO, float32)  # of this thread's keys alone
        own_I = cuda.local.array(MICRO, float32)
        near_key_M = cuda.local.array(DISTANCES, float32)
        near_query_M = cuda.local.array(DISTANCES, float32)
        x, h, part = cuda.blockIdx.x, cuda.blockIdx.y, cuda.blockIdx.z
        thread = int64(uint32(cuda.threadIdx.x))
        r, c = thread // SIDE, thread % SIDE  # its queries are r + SIDE i, its keys c + SIDE j
        b, t0, first_row, T, first_key, S = _place(rows.places_X6, uint32(x))
        first_row, K, V = first_row + t0, rows.width, rows.value_width
        count, g, column = min(T - t0, TILE), h // rows.group, part * WIDE
        query = start_of(rows.query, b, first_row, h)

        begin, end = int32(S), int32(0)  # the keys that any query of the tile sees, without sinks
        for n in range(count):
            first, stop = visible_range(visible.seen_N2, first_row + n, S)
            if first < stop:
                begin, end = min(begin, first), max(end, stop)
        for i in range(MICRO):
            top_I[i], total_I[i] = -INFINITY, 0
            for v in range(OWN):
                sum_IV[i, v] = 0

        for s0 in range(0, end, TILE):
            if is_hidden(visible, b, h, t0, t0 + count - 1, (s0, begin, end)):
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
                if near_keys:
                    _load_near(distances.key_LE, s0 - t0 - TILE + 1, h * K, d0, K, near_key_MD)
                if near_queries:
                    _load_near(distances.query_LE, s0 - t0 - TILE + 1, h * K, d0, K, near_query_MD)
                cuda.syncthreads()
                for d in range(min(DEPTH, K - d0)):
                    for i in range(MICRO):
                        own_I[i] = query_RD[r + SIDE * i, d]
                    for m in range(DISTANCES):  # key j is SIDE (j - i) further from query i than c is from r
                        distance = c - r + TILE - 1 + SIDE * (m - MICRO + 1)
                        if near_keys:
                            near_key_M[m] = near_key_MD[distance, d]
                        if near_queries:
                            near_query_M[m] = near_query_MD[distance, d]
                    vector = terms.vector_HK[h, d0 + d] if additive else float32(0)
                    for j in range(MICRO):
                        number = key_SD[c + SIDE * j, d]
                        for i in range(MICRO):
                            score_IJ[i, j] += product(own_I[i], number, vector)
                            if near_keys:
                                score_IJ[i, j] += own_I[i] * near_key_M[j - i + MICRO - 1]
                            if near_queries:
                                score_IJ[i, j] += number * near_query_M[j - i + MICRO - 1]
            for i in range(MICRO):
                for j in range(MICRO):
                    score_RS[r + SIDE * i, c + SIDE * j] = score_IJ[i, j]

            # scores, and the greatest of each row among this thread's keys
            cuda.syncthreads()  # other threads may still read query_RD
            for n in range(r, count, SIDE):
                t, greatest = t0 + n, float32(-INFINITY)
                first, stop = visible_range(visible.seen_N2, first_row + n, S)
                for s in range(s0 + c, s0 + TILE, SIDE):
                    score = float32(-INFINITY)
                    if s < stop and (s >= first or s < visible.sinks) and is_visible(visible, mask_mod, b, h, t, s):
                        score = finished_score(score_RS[n, s - s0], terms, score_mod, b, h, t, s, t)
                    score_RS[n, s - s0] = score
                    if score > greatest:
                        greatest = score
                    if len(outputs.weights_BHTS) > 0 and part == 0 and s < S:
                        outputs.weights_BHTS[b, h, t, s] = score  # a weight at the end
                query_RD[n, c] = greatest  # the queries are no longer needed
            cuda.syncthreads()

            # exponentials, and what was summed before, by the new greatest scores
            for i in range(MICRO):
                top = top_I[i]
                for j in range(SIDE):
                    top = max(top, query_RD[r + SIDE * i, j])
                factor = math.exp(top_I[i] - shift_of(top))
                top_I[i] = top
                total_I[i] *= factor
                for v in range(OWN):
                    sum_IV[i, v] *= factor
                for j in range(MICRO):
                    weight = math.exp(score_RS[r + SIDE * i, c + SIDE * j] - shift_of(top))
                    total_I[i] += weight
                    score_RS[r + SIDE * i, c + SIDE * j] = weight

            # exponentials times values
            value = start_of(rows.value, b, first_key + s0, g) + column
            for s1 in range(s0, min(s0 + TILE, end), KEYS):
                cuda.syncthreads()  # the exponentials are all there, and nobody reads the values before
                for i in range(MICRO):
                    e = thread + THREADS * i
                    s, v = s1 + e // WIDE, e % WIDE
                    number = float32(0)  # of keys that no query of the tile sees, where there may be NaN
                    if column + v < V and s < end and (s >= begin or s < visible.sinks):
                        number = read(rows.value.array_X[uint64(value + (s - s0) * rows.value.row + v)])
                    value_SV[e // WIDE, v] = number
                cuda.syncthreads()
                for s in range(min(KEYS, end - s1)):
                    for i in range(MICRO):
                        own_I[i] = score_RS[r + SIDE * i, s1 - s0 + s]
                    for v in range(OWN):
                        number = value_SV[s, c + SIDE * v]
                        for i in range(MICRO):
                            sum_IV[i, v] += own_I[i] * number

        # the sums of all threads' keys: a thread a row
        cuda.syncthreads()
        for i in range(MICRO):
            query_RD[r + SIDE * i, c] = total_I[i]
            key_SD[r + SIDE * i, 0] = top_I[i]  # the same in all threads of the row
        cuda.syncthreads()
        for n in range(thread, count, THREADS):
            old, total = key_SD[n, 0], float32(0)
            for j in range(SIDE):
                total += query_RD[n, j]
            top = old
            if len(terms.sinks_H) > 0:
                top = max(old, terms.sinks_H[h])
                total = total * math.exp(old - top) + math.exp(terms.sinks_H[h] - top)
            inverse, log = float32(0), float32(-INFINITY)
            if total != 0:
                inverse, log = float32(1) / total, top + math.log(total)
            score_RS[n, 0], score_RS[n, 1] = inverse * math.exp(old - shift_of(top)), shift_of(top)
            score_RS[n, 2] = inverse
            if part == 0:
                if len(outputs.logs_X) > 0:
                    outputs.logs_X[b * outputs.batch + h * outputs.head + (first_row + n) * outputs.row] = log
                _, stop = visible_range(visible.seen_N2, first_row + n, S)
                if len(outputs.invalid_1) > 0 and stop > 0 and not total > 0:
                    cuda.atomic.add(outputs.invalid_1, 0, 1)
        cuda.syncthreads()
        out = start_of(rows.out, b, first_row, h) + column
        for i in range(MICRO):
            n = r + SIDE * i
            for v in range(OWN):
                if n < count and column + c + SIDE * v < V:
                    place = uint64(out + n * rows.out.row + c + SIDE * v)
                    rows.out.array_X[place] = write(sum_IV[i, v] * score_RS[n, 0])
        if len(outputs.weights_BHTS) > 0 and part == 0:
            for s0 in range(0, end, TILE):
                if not is_hidden(visible, b, h, t0, t0 + count - 1, (s0, begin, end)):
                    for n in range(r, count, SIDE):
                        for s in range(s0 + c, min(s0 + TILE, S), SIDE):
                            score = outputs.weights_BHTS[b, h, t0 + n, s]  # this thread's own
                            outputs.weights_BHTS[b, h, t0 + n, s] = math.exp(score - score_RS[n, 1]) * score_RS[n, 2]

    return attend


@card.kernel
def _clear(array_X):
    for x in range(cuda.grid(1), len(array_X), cuda.gridsize(1)):
        array_X[x] = float32(0)


def cleared(array: Any) -> Any:
    """The array of the card, filled with zeros."""
    flat_X = flat(array)
    card.launch(_clear, min(-(-len(flat_X) // THREADS), 1 << 16), flat_X)
    return array


def flat(array: Any) -> Any:
    """The array on the card with one axis."""
    array = card.upload(array)
    return array.reshape(array.size)


def laid(array_NE: Any, column: int, width: int) -> LaidHeads:
    """Rows whose heads begin at a column."""
    return LaidHeads(flat(array_NE), column, 0, array_NE.shape[1], width)


def broadcast(array: Any, dtype: Any = np.float32) -> Broadcast:
    """An array [B, H, T, S], or None."""
    if array is None or array.size == 0:
        return Broadcast(none(1, dtype), 0, 0, 0, 0)
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
    """What kernels take."""
    position_bias = position_bias or PositionBias()
    scale = heads.width**-0.5 if heads.scale is None else heads.scale
    if vector_HK is not None:
        scale = 1.0
    slopes_H, table_HL = card.parameter(position_bias.slopes_H), card.parameter(position_bias.table_HL, 2)
    callers = card.optional(sinks_H, 1), card.optional(vector_HK, 2)  # a caller may have changed them
    numbers = np.float32(scale), np.float32(heads.softcap)
    return Terms(*numbers, broadcast(bias_BHTS), slopes_H, table_HL, int(position_bias.from_start), *callers)


def places_of(query_starts_B1: np.ndarray, key_starts_B1: np.ndarray) -> np.ndarray:
    """places_X6 of ``Rows``."""
    queries_B, keys_B = np.diff(query_starts_B1), np.diff(key_starts_B1)
    tiles_B = -(-queries_B // TILE)
    b_X = np.repeat(np.arange(len(queries_B)), tiles_B)
    first_X = (np.arange(len(b_X)) - (np.cumsum(tiles_B) - tiles_B)[b_X]) * TILE
    columns = b_X, first_X, query_starts_B1[b_X], queries_B[b_X], key_starts_B1[b_X], keys_B[b_X]
    return np.stack(columns, axis=1).astype(np.uint32)


def launch_attend(
    form: Form, rows: Rows, visible: VisibleKeys, terms: Terms, distances: NearRows, outputs: Outputs, heads: int
) -> None:
    """Launch the form's kernel, with as few value columns for a thread as cover all, or with the most."""
    columns = next((most for most in COLUMNS if most * SIDE >= rows.value_width), COLUMNS[-1])
    blocks = len(rows.places_X6), heads, -(-rows.value_width // (columns * SIDE))
    card.launch(make_attend(form._replace(columns=columns)), blocks, rows, visible, terms, distances, outputs)


def pack_distances(key_LE: np.ndarray | None, query_LE: np.ndarray | None, heads: Heads) -> NearRows:
    return NearRows(card.optional(key_LE, 2), card.optional(query_LE, 2))


def attention(
    query_NE: np.ndarray,
    key_ME: np.ndarray,
    value_ME: np.ndarray,
    batch: RaggedBatch,
    heads: Heads,
    *,
    bias_BHTS: np.ndarray | None = None,
    position_bias: PositionBias | None = None,
    distances: NearRows | None = None,
    weights_BHTS: np.ndarray | None = None,
) -> np.ndarray:
    H, G, K, V = heads.query_heads, heads.key_heads, heads.width, heads.value_width or heads.width
    out_NF = card.empty((len(query_NE), H * V), np.float32)
    query, key = laid(query_NE, heads.query_column, K), laid(key_ME, heads.key_column, K)
    value, places_X6 = laid(value_ME, heads.value_column, V), card.upload(places_of(*batch[:2]))
    rows = Rows(query, key, value, laid(out_NF, 0, V), places_X6, K, V, H // G)
    no_mask = broadcast(None, np.uint8)
    visible = VisibleKeys(card.optional(batch.seen_N2, 2, np.int64), batch.sinks, no_mask, no_mask, 1, 1)
    weights_BHTS = none(4) if weights_BHTS is None else cleared(card.upload(weights_BHTS))
    distances = NearRows(none(2), none(2)) if distances is None else distances
    form = Form(near_keys=len(distances.key_LE) > 0, near_queries=len(distances.query_LE) > 0)
    outputs = Outputs(weights_BHTS, none(1), 0, 0, 0, none(1, np.int32))
    launch_attend(form, rows, visible, terms_of(heads, bias_BHTS, position_bias), distances, outputs, H)
    return out_NF


class StepTables(NamedTuple):
    """The arrays that a step reads: queries, tables, and the fields of ``KeyIndex``."""

    query: LaidHeads
    key: LaidHeads
    value: LaidHeads
    index_RS: Any
    stops_N: Any
    rows_N: Any  # empty: n
    firsts_N: Any  # empty: 0
    most: int
    width: int
    value_width: int
    group: int  # query heads of a key head


@device
def _first_of(firsts_N, stops_N, most, n):
    first = firsts_N[n] if len(firsts_N) > 0 else int64(0)
    return max(first, stops_N[n] - most) if most > 0 else first


@lru_cache(8)
def _step_kernel(dtype: Any) -> Any:
    """The kernel for tables of a type; blocks are (queries, heads, pieces)."""
    read = reader(dtype)

    @card.kernel_of(str(np.dtype(dtype)))
    def attend_piece(step, terms, weights_NHS, sums_NHPV, tops_NHP2):
        """Write sums, of exponentials times values, and tops, the greatest score and the sum of exponentials."""
        score_S = cuda.shared.array(PIECE, float32)
        part_RC = cuda.shared.array((SIDE, STEP_PITCH), float32)
        shared_T = cuda.shared.array(THREADS, float32)
        n, h, p = cuda.blockIdx.x, cuda.blockIdx.y, cuda.blockIdx.z
        thread = int64(uint32(cuda.threadIdx.x))
        r, c = thread // SIDE, thread % SIDE
        row = step.rows_N[n] if len(step.rows_N) > 0 else int64(n)
        first = _first_of(step.firsts_N, step.stops_N, step.most, n) + p * PIECE
        count, g = min(step.stops_N[n] - first, PIECE), h // step.group
        query = start_of(step.query, 0, n, h)

        greatest = float32(-INFINITY)
        for s0 in range(0, count, SIDE):  # SIDE keys, each by SIDE threads
            s, part = s0 + r, float32(0)
            if s < count:
                key = start_of(step.key, 0, int64(step.index_RS[row, first + s]), g)
                for d in range(c, step.width, SIDE):
                    x, y = step.query.array_X[uint64(query + d)], read(step.key.array_X[uint64(key + d)])
                    if len(terms.vector_HK) > 0:
                        part += terms.vector_HK[h, d] * math.tanh(x + y)
                    else:
                        part += x * y
            cuda.syncthreads()  # other threads may still read part_RC
            part_RC[r, c] = part
            cuda.syncthreads()
            if thread < SIDE and s0 + thread < count:
                s, score = s0 + thread, float32(0)
                for j in range(SIDE):
                    score += part_RC[thread, j]
                score = finished_score(score, terms, same_score, n, h, 0, first + s, step.stops_N[n] - 1)
                score_S[s] = score
                if score > greatest:
                    greatest = score
                if len(weights_NHS) > 0:
                    weights_NHS[n, h, first + s] = score  # a weight at the end
        top, total = block_max(greatest, shared_T), float32(0)
        for s in range(thread, count, THREADS):
            score_S[s] = math.exp(score_S[s] - shift_of(top))
            total += score_S[s]
        total = block_sum(total, shared_T)  # the exponentials are all there
        if thread == 0:
            tops_NHP2[n, h, p, 0], tops_NHP2[n, h, p, 1] = top, total

        for v0 in range(0, step.value_width, SIDE):
            v, part = v0 + c, float32(0)
            if v < step.value_width:
                for s in range(r, count, SIDE):
                    value = start_of(step.value, 0, int64(step.index_RS[row, first + s]), g)
                    part += score_S[s] * read(step.value.array_X[uint64(value + v)])
            cuda.syncthreads()
            part_RC[r, c] = part
            cuda.syncthreads()
            if thread < SIDE and v0 + thread < step.value_width:
                part = float32(0)
                for j in range(SIDE):
                    part += part_RC[j, thread]
                sums_NHPV[n, h, p, v0 + thread] = part

    return attend_piece


@card.kernel
def _join(sums_NHPV, tops_NHP2, firsts_N, stops_N, most, weights_NHS, out_NHV):
    """Join the pieces of a query and head, in a block: their sums relative to the greatest score, over the total."""
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
        first = _first_of(firsts_N, stops_N, most, n)
        for s in range(first + thread, stops_N[n], THREADS):
            weights_NHS[n, h, s] = math.exp(weights_NHS[n, h, s] - shift_of(top)) * inverse


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
    vector_HK: np.ndarray | None = None,
) -> np.ndarray:
    N, H, K, V = len(query_NE), heads.query_heads, heads.width, heads.value_width or heads.width
    pieces = max(-(-seen.index_RS.shape[1] // PIECE), 1)  # not by the stops, which a recorded step does not know yet
    query, key = laid(query_NE, heads.query_column, K), laid(key_ME, heads.key_column, K)
    value = laid(value_ME, heads.value_column, V)
    lists = card.upload(seen.index_RS), card.upload(seen.stops_N)
    parts = card.optional(seen.rows_N, 1, np.int64), card.optional(seen.firsts_N, 1, np.int64)
    step = StepTables(query, key, value, *lists, *parts, seen.most, K, V, H // heads.key_heads)
    weights_NHS = none(3) if weights_NHS is None else cleared(card.upload(weights_NHS))
    sums_NHPV, tops_NHP2 = (card.empty((N, H, pieces, last), np.float32) for last in (V, 2))
    out_NHV = card.empty((N, H, V), np.float32)
    bias = None if bias_NHS is None else card.upload(bias_NHS).reshape((*bias_NHS.shape[:2], 1, bias_NHS.shape[2]))
    vector_HK = None if vector_HK is None else card.parameter(vector_HK)
    terms = terms_of(heads, bias, position_bias, vector_HK=vector_HK)
    card.launch(_step_kernel(key_ME.dtype), (N, H, pieces), step, terms, weights_NHS, sums_NHPV, tops_NHP2)
    keys = step.firsts_N, step.stops_N, step.most
    card.launch(_join, (N, H), sums_NHPV, tops_NHP2, *keys, weights_NHS, out_NHV)
    return out_NHV.reshape((N, H * V))


def average_heads(weights: np.ndarray, heads: int) -> np.ndarray:
    return reference.average_heads(card.download(weights), heads)
