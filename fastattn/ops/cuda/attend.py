"""Attention over whole sentences in one pass over the keys: softmax(Q K' scale + bias) V; scores are never stored.

A block computes TILE queries of one head. It goes through the keys TILE at a time: queries and keys come into shared
memory DEPTH columns at a time, and each thread has the scores of MICRO queries and MICRO keys in registers, SIDE apart.
The softmax is online (Milakov and Gimelshein 2018; Dao 2022): a row's greatest score so far is subtracted from its
exponents, and where it grows, what has been summed is multiplied by exp(old - new). The exponentials go through shared
memory to the threads that have the sums of MICRO queries and some columns of the values. More value columns than
threads can sum are computed by several blocks.

Bits: tiles begin at whole multiples of TILE in a sentence, and a hidden key adds exact zeros, so a row's result does
not depend on other sentences, nor on what follows the last key that it sees.
"""

import math
from functools import lru_cache
from typing import Any, NamedTuple

from numba import cuda, float32, int32, int64, uint32, uint64

from fastattn.ops.cuda import card
from fastattn.ops.cuda.card import MICRO, SIDE, SIMULATED, THREADS, TILE, device
from fastattn.ops.cuda.scores import (
    INFINITY,
    LaidHeads,
    every_key,
    finished_score,
    is_hidden,
    is_shown,
    reader,
    same_score,
    seen_range,
    shift_of,
    start_of,
    writer,
)

DEPTH = max(SIDE, 8)  # columns of queries and keys in shared memory at a time
PITCH, SCORES = DEPTH + 1, TILE + 1  # floats from row to row of shared arrays: odd, so that a column is in all banks
BESIDE = 2 * MICRO - 1  # distances between a thread's queries and keys, SIDE apart
NEAR = 2 * TILE  # distances between the queries and the keys of two tiles, and one more


class Rows(NamedTuple):
    """What is read and written, for each tile of queries its place, and sizes.

    places_X6  uint32: the sentence, the tile's first query, the sentence's first row, its queries, first key, its keys
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
    """Rows of distances, see ``pack_distances``; [0, 0] for none."""

    key_LE: Any
    query_LE: Any


class Outputs(NamedTuple):
    """What is written beside the result; empty arrays for none.

    weights_BHTS  the softmax weights; zeros before
    logs_X        flat, the logs of the softmaxes' sums: of row n at b batch + h head + n row
    invalid_1     int32, 0 before: how many rows see a key and have a sum of 0 or NaN
    """

    weights_BHTS: Any
    logs_X: Any
    batch: int
    head: int
    row: int
    invalid_1: Any


@device
def _place(places_X6, x):
    """Row x, as signed numbers of which the compiler knows that they are not negative: so indices need no test."""
    b, first, row = int64(places_X6[x, 0]), int64(places_X6[x, 1]), int64(places_X6[x, 2])
    return b, first, row, int64(places_X6[x, 3]), int64(places_X6[x, 4]), int64(places_X6[x, 5])


@device
def _load(read, rows, start, count, first, width, tile_ND):
    """DEPTH columns from ``first`` on of ``count`` rows into shared memory, zeros beyond; ``start`` is row 0's."""
    for i in range(TILE * DEPTH // THREADS):
        e = int64(uint32(cuda.threadIdx.x)) + THREADS * i
        n, d = e // DEPTH, e % DEPTH
        number = float32(0)
        if n < count and first + d < width:
            number = read(rows.array_X[uint64(start + n * rows.row + first + d)])
        tile_ND[n, d] = number


@device
def _load_near(rows_LE, least, column, first, width, tile_MD):
    """Likewise of the rows of NEAR distances from ``least`` on."""
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
    """The decorator of a form's kernel: where 128 registers do, two blocks run on a multiprocessor at a time."""
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
    def attend(rows, seen, terms, distances, outputs):
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
        near_key_M = cuda.local.array(BESIDE, float32)
        near_query_M = cuda.local.array(BESIDE, float32)
        x, h, part = cuda.blockIdx.x, cuda.blockIdx.y, cuda.blockIdx.z
        thread = int64(uint32(cuda.threadIdx.x))
        r, c = thread // SIDE, thread % SIDE  # its queries are r + SIDE i, its keys c + SIDE j
        b, t0, first_row, T, first_key, S = _place(rows.places_X6, uint32(x))
        first_row, K, V = first_row + t0, rows.width, rows.value_width
        count, g, column = min(T - t0, TILE), h // rows.group, part * WIDE
        query = start_of(rows.query, b, first_row, h)

        begin, end = int32(S), int32(0)  # what any query of the tile sees, beside sinks
        for n in range(count):
            first, stop = seen_range(seen.seen_N2, first_row + n, S)
            if first < stop:
                begin, end = min(begin, first), max(end, stop)
        for i in range(MICRO):
            top_I[i], total_I[i] = -INFINITY, 0
            for v in range(OWN):
                sum_IV[i, v] = 0

        for s0 in range(0, end, TILE):
            if is_hidden(seen, b, h, t0, t0 + count - 1, (s0, begin, end)):
                continue

            # products of queries and keys
            for i in range(MICRO):
                for j in range(MICRO):
                    score_IJ[i, j] = 0
            key = start_of(rows.key, b, first_key + s0, g)
            for d0 in range(0, K, DEPTH):
                cuda.syncthreads()  # whoever still reads what is there
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
                    for m in range(BESIDE):  # key j is SIDE (j - i) further from query i than c is from r
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
            cuda.syncthreads()  # whoever still reads query_RD
            for n in range(r, count, SIDE):
                t, greatest = t0 + n, float32(-INFINITY)
                first, stop = seen_range(seen.seen_N2, first_row + n, S)
                for s in range(s0 + c, s0 + TILE, SIDE):
                    score = float32(-INFINITY)
                    if s < stop and (s >= first or s < seen.sinks) and is_shown(seen, mask_mod, b, h, t, s):
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
                    if column + v < V and s < end and (s >= begin or s < seen.sinks):
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
                _, stop = seen_range(seen.seen_N2, first_row + n, S)
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
                if not is_hidden(seen, b, h, t0, t0 + count - 1, (s0, begin, end)):
                    for n in range(r, count, SIDE):
                        for s in range(s0 + c, min(s0 + TILE, S), SIDE):
                            score = outputs.weights_BHTS[b, h, t0 + n, s]  # this thread's own
                            outputs.weights_BHTS[b, h, t0 + n, s] = math.exp(score - score_RS[n, 1]) * score_RS[n, 2]

    return attend
