"""Attention of whole sentences in one pass over the keys: softmax(Q K' scale + bias) V, the scores never stored.

A task is a block of query rows of one sentence and key head (the rows of all query heads that share it). For every
KEYS keys it packs them transposed and the values as panels of COLUMNS columns, then takes ROWS query rows at a time:
scores by register tiles, online softmax (Milakov and Gimelshein 2018) in base 2, the sum of values by register tiles
(Dao 2023, algorithm 1). The scale and log2(e) are multiplied into the queries. Each row has a first key and a stop, and
perhaps sinks before the first; blocks, tiles and panels of keys that none of their rows sees are skipped.

Bits: where a key falls into tiles depends on its index in its own sentence only, and a hidden key adds exact zeros, so
a row's result does not depend on the batch, the blocks or the number of threads.

Reached on one Zen 3 core (AVX2), of 102 GFLOP/s that a tile alone does: 78 at (8, 12, 512, 64), 84 at
(1, 12, 2048, 64), 54 at (32, 12, 128, 32). At the first the exponentials take 9% of the time, packing 6%, maxima 2%.
70 -> 74  softmax of a tile's rows without divisions and masked stores between them
74 -> 76  256 keys a block instead of 128 (fewer sums rescaled; both packed blocks still fit L2)
76 -> 79  one tile's scores in a buffer of 6 KiB instead of 48 rows' in 48 KiB, which left the first cache
52 -> 54  (at the third, which is bound by memory: 62 where each head lies apart) prefetching two heads ahead
No gain: prefetching the next keys of a long sentence, blocks of 1024 rows.
"""

import numpy as np
from numba import prange

from fastattn.kernels.attention.scores import (
    add_biases,
    aligned,
    copy_row,
    finish_row,
    finish_weights,
    finite,
    hide_between,
    hide_from,
    multiply_row,
)
from fastattn.kernels.attention.tiles import (
    COLUMNS,
    KEYS,
    ROWS,
    columns_of,
    multiply_keys,
    multiply_values,
    pack_keys,
    pack_values,
    prefetch_rows,
    row_maxima,
    take_exponentials,
    whole_columns,
)
from fastattn.position_bias import PositionBias
from fastattn.runtime.jit import inner, kernel
from fastattn.runtime.threads import current_threads
from fastattn.simd.target import LANES
from fastattn.simd.vector import LOG2_E, SIZE, load_integer, load_scalar, splat, store, store_integer, store_scalar

# Rows of heads side by side lie too far apart for the hardware to foresee: while one head is computed, those of the
# head so many further on are asked for.
AHEAD = 2
# The keys are packed once for so many query rows of width 64: 1% of the work there; the block's queries and sums
# take 256 KiB, whatever the length of the sentence.
BLOCK_FLOATS = 512 * 64
INTEGERS = 4  # floats that the two int64 of a row's first key and stop take


def scratch_size(limit: int, width: int, value_width: int) -> int:
    """Floats of scratch that a thread takes for blocks of ``limit`` rows, see cut_scratch."""
    columns, alignment = whole_columns(value_width), 16
    packed = KEYS * (whole_columns(width) + columns)
    return packed + ROWS * KEYS + limit * (LANES + columns + width + 1 + INTEGERS) + ROWS + alignment


@inner
def cut_scratch(scratch, limit, width, value_width):
    """Where a thread's scratch holds: packed keys and values, a tile's scores; of each row of a block its total, sums,
    query, first key and stop, maximum; of a tile's rows the maxima that are new."""
    columns = columns_of(value_width)
    values = scratch + KEYS * columns_of(width) * 4
    scores = values + KEYS * columns * 4
    totals = scores + ROWS * KEYS * 4
    sums = totals + limit * SIZE
    queries = sums + limit * columns * 4
    seen = queries + limit * width * 4
    tops = seen + limit * INTEGERS * 4
    return scratch, values, scores, totals, sums, queries, seen, tops, tops + limit * 4


@inner
def seen_by(seen, t, keys):
    """The first key that query t sees, and the stop; ``seen`` is the address of such pairs, 0: all keys."""
    if seen == 0:
        return 0, keys
    return max(load_integer(seen + t * 16), 0), min(load_integer(seen + t * 16 + 8), keys)


@inner
def start_rows(query, sentence, block, seen, factor, places):
    """The block's queries times ``factor`` end to end, their state cleared; the least first key and the last stop.

    Rows that fill up the last tile repeat the last row.
    """
    queries, keys, width, _ = sentence
    first, count = block
    _, _, _, totals, sums, rows, ranges, tops, _ = places
    least, last = keys, 0
    h, t = first // queries, first % queries
    for i in range((count + ROWS - 1) // ROWS * ROWS):
        multiply_row(query[0] + h * query[2] + t * query[1], factor, rows + i * width * 4, width)
        begin, stop = seen_by(seen, t, keys)
        if begin < stop:
            least, last = min(least, begin), max(last, stop)
        else:
            begin = stop = 0
        store_integer(begin, ranges + i * 16)
        store_integer(stop, ranges + i * 16 + 8)
        store_scalar(np.float32(-np.inf), tops + i * 4)
        store(splat(np.float32(0)), totals + i * SIZE)
        if i + 1 < count:
            t += 1
            if t == queries:
                h, t = h + 1, 0
    return least, last


@inner
def seen_here(ranges, n, s, here, sinks):
    """From where to where row n sees some of ``here`` keys that begin with s; not all between them are its own."""
    begin, stop = load_integer(ranges + n * 16) - s, min(load_integer(ranges + n * 16 + 8) - s, here)
    if begin >= here:
        stop = min(stop, sinks - s)
    return (0 if s < sinks else max(begin, 0)), stop


@inner
def seen_by_tile(ranges, i, s, here, sinks):
    """From where to where any row of a tile sees some of ``here`` keys that begin with s."""
    front, stop = here, 0
    for n in range(i, i + ROWS):
        begin, end = seen_here(ranges, n, s, here, sinks)
        if begin < end:
            front, stop = min(front, begin), max(stop, end)
    return front, stop


@inner
def finish_scores(i, s, here, span, heads, block, biases, weight, sinks, places):
    """A tile's products become scores: what is added to them is, what a row does not see is hidden, weights are kept.

    span   the tile's scores, in whole panels and vectors, that are there at all
    heads  queries of each head, and the position of the first
    """
    _, _, scores, _, _, _, ranges, _, _ = places
    front, whole = span
    queries, position = heads
    first, count = block
    weights, weight_head, weight_row = weight
    added = biases[0] != 0 or biases[4] != 0 or biases[5] != 0
    for n in range(i, i + ROWS):
        row = scores + (n - i) * KEYS * 4
        stop = max(seen_here(ranges, n, s, here, sinks)[1], 0)
        own, h, t = load_integer(ranges + n * 16) - s, 0, 0
        if added or weights != 0:  # a division, of which a short sentence would notice one a row
            h, t = divmod(first + min(n, count - 1), queries)
        if added:
            add_biases(row + front * 4, biases, h, t, position + t, s + front, stop - front)
        if stop < whole:
            hide_from(row, max(stop, front), whole)
        if own > front:
            hide_between(row, max(sinks - s, front), min(own, whole))
        if weights != 0:
            keep_scores(row, weights + h * weight_head + t * weight_row + s * 4, sinks - s, own, stop)


@inner
def keep_scores(row, line, sinks, own, stop):
    """Copy to a row of weights the scores of those keys that a row sees, numbered from the block's first on."""
    before = max(min(sinks, own, stop), 0)
    if before > 0:
        copy_row(row, line, before)
    if max(own, before) < stop:
        copy_row(row + max(own, before) * 4, line + max(own, before) * 4, stop - max(own, before))


@inner
def attend_tile(i, s, here, sentence, block, biases, position, weight, sinks, places):
    """A tile's rows over the packed keys and values, which begin with key s: their sums and totals go on."""
    keys, values, scores, totals, sums, rows, ranges, tops, fresh = places
    front, stop = seen_by_tile(ranges, i, s, here, sinks)
    if front >= stop:
        return
    queries, _, width, value_width = sentence
    front -= front % COLUMNS
    whole, columns = (stop + LANES - 1) // LANES * LANES, columns_of(value_width)
    multiply_keys(rows + i * width * 4, keys, width, front, stop, scores)
    finish_scores(i, s, here, (front, whole), (queries, position), block, biases, weight, sinks, places)
    for n in range(ROWS):
        store_scalar(load_scalar(tops + (i + n) * 4), fresh + n * 4)
    line, size, mine = scores + front * 4, (whole - front) * 4, sums + i * columns * 4
    row_maxima(line, KEYS * 4, size, fresh)
    take_exponentials(line, size, fresh, tops + i * 4, totals + i * SIZE, mine, columns)
    multiply_values(scores, values, front, stop, mine, columns)


@inner
def ask_ahead(i, query, key, value, out, sentence, padded):
    """Ask for a tile's share of the memory of a head further on."""
    queries, keys, width, value_width = sentence
    ahead, value_ahead, stop = AHEAD * width * 4, AHEAD * value_width * 4, min(i + ROWS, queries)
    prefetch_rows(query[0] + ahead, query[1], i, stop, width)
    prefetch_rows(out[0] + value_ahead, out[1], i, stop, value_width)
    near, far = min(KEYS, keys) * i // padded, min(KEYS, keys) * (i + ROWS) // padded
    prefetch_rows(key[0] + ahead, key[1], near, far, width)
    prefetch_rows(value[0] + value_ahead, value[1], near, far, value_width)


@inner
def finish_block(out, sentence, block, weight, sinks, places):
    """The sums of a block's rows become their outputs; how many rows have a total that is 0 or no number."""
    queries, _, _, width = sentence
    first, count = block
    _, _, _, totals, sums, _, ranges, tops, _ = places
    weights, weight_head, weight_row = weight
    columns, odd = columns_of(width), 0
    h, t = first // queries, first % queries
    for i in range(count):
        inverse = finish_row(sums + i * columns * 4, totals + i * SIZE, out[0] + h * width * 4 + t * out[1], width)
        odd += not inverse > np.float32(0)
        if weights != 0:
            line, shift = weights + h * weight_head + t * weight_row, finite(load_scalar(tops + i * 4))
            begin, stop = load_integer(ranges + i * 16), load_integer(ranges + i * 16 + 8)
            before = min(sinks, begin, stop)
            finish_weights(line, before, shift, inverse)
            finish_weights(line + max(begin, before) * 4, stop - max(begin, before), shift, inverse)
        t += 1
        if t == queries:
            h, t = h + 1, 0
    return odd


@inner
def attend_block(query, key, value, out, sentence, block, mask, form, weight, places):
    """Rows of one key head, where row r is query r % queries of its head r // queries; how many of them are odd.

    query, key, value, out  addresses of the head's first row, and the distance to the next; a query's head too
    sentence  numbers of queries and keys, widths of keys and values
    block     first row, and how many
    mask      see seen_by; sinks
    form      what scores are multiplied by; position of query 0; see add_biases
    weight    address, distances of heads and rows; address 0: no weights are wanted
    """
    queries, keys, width, value_width = sentence
    factor, position, biases = form
    seen, sinks = mask
    padded = (block[1] + ROWS - 1) // ROWS * ROWS
    least, last = start_rows(query, sentence, block, seen, factor, places)
    for k in range(0, padded * columns_of(value_width), LANES):
        store(splat(np.float32(0)), places[4] + k * 4)
    for s in range(0, last, KEYS):
        here = min(KEYS, last - s)
        if s >= sinks and s + here <= least:
            continue
        pack_keys(key[0] + s * key[1], key[1], here, width, places[0])
        pack_values(value[0] + s * value[1], value[1], here, value_width, places[1])
        for i in range(0, padded, ROWS):
            if s + KEYS >= last:
                ask_ahead(i, query, key, value, out, sentence, padded)
            attend_tile(i, s, here, sentence, block, biases, position, weight, sinks, places)
    return finish_block(out, sentence, block, weight, sinks, places)


@inner
def block_cost(first, count, queries, keys, seen):
    """Roughly how many scores a block of rows computes; blocks are shared among threads by it."""
    if seen != 0 and first // queries == (first + count - 1) // queries:
        begin, stop = seen_by(seen, (first + count // 2) % queries, keys)
        return count * (max(stop - begin, 0) + 16)
    return count * (keys + 16)


@inner
def strides(array_BHTS):
    """Distances in floats along batch, head and row, 0 along an axis of length one, and along the last axis."""
    B, H, T, S = array_BHTS.shape
    return (
        H * T * S if B > 1 else 0,
        T * S if H > 1 else 0,
        S if T > 1 else 0,
        1 if S > 1 else 0,
    )


@inner
def place_of(array, row, column):
    """Address of a number in an array of rows, and the distance to the next row."""
    return array.ctypes.data + (row * array.shape[1] + column) * array.itemsize, array.shape[1] * array.itemsize


@inner
def biases_of(biases, b, h):
    """What ``add_biases`` takes of the arrays, for a sentence's heads from h on."""
    bias_BHTS, slopes_H, table_HL, from_start = biases
    batch, head, row, step = strides(bias_BHTS)
    bias = bias_BHTS.ctypes.data + (b * batch + h * head) * 4 if bias_BHTS.size > 0 else 0
    slopes = slopes_H.ctypes.data + h * 4 if slopes_H.size > 0 else 0
    L = table_HL.shape[1]
    table = table_HL.ctypes.data + (h * L + L // 2) * 4 if table_HL.size > 0 else 0
    return bias, head * 4, row * 4, step, slopes, table, L * 4, from_start


@kernel
def attend(rows, starts, shape, columns, mask, form, weights_BHTS, scratch_PN, odd_P):
    """All blocks of ``limit`` rows cut into P runs of like cost, a thread each; see attention.

    rows     query_NE, key_ME, value_ME, out_NF
    starts   query_starts_B1, key_starts_B1
    shape    heads, key heads, widths of keys and values, limit
    columns  of the first query, key and value
    mask     seen_N2, empty: all keys; sinks
    form     by what scores are multiplied; bias_BHTS, slopes_H and table_HL, each perhaps empty; from_start
    weights_BHTS  empty: none are wanted
    odd_P    how many rows of each part have a total that is 0 or no number
    """
    query_NE, key_ME, value_ME, out_NF = rows
    query_starts_B1, key_starts_B1 = starts
    heads, key_heads, width, value_width, limit = shape
    seen_N2, sinks = mask
    factor, bias_BHTS, slopes_H, table_HL, from_start = form
    B, parts, group = len(query_starts_B1) - 1, len(scratch_PN), heads // key_heads
    everything = 0
    for b in range(B):
        queries = query_starts_B1[b + 1] - query_starts_B1[b]
        keys = key_starts_B1[b + 1] - key_starts_B1[b]
        seen = seen_N2.ctypes.data + query_starts_B1[b] * 16 if seen_N2.size > 0 else 0
        for first in range(0, queries * group, limit):
            count = min(limit, queries * group - first)
            everything += key_heads * block_cost(first, count, queries, keys, seen)
    weight_strides = strides(weights_BHTS)

    for part in prange(0, parts):
        odd_P[part] = 0
        scratch = aligned(scratch_PN.ctypes.data + part * scratch_PN.shape[1] * 4)
        places = cut_scratch(scratch, limit, width, value_width)
        done = 0
        for b in range(B):
            q, k = query_starts_B1[b], key_starts_B1[b]
            queries, keys = query_starts_B1[b + 1] - q, key_starts_B1[b + 1] - k
            seen = seen_N2.ctypes.data + q * 16 if seen_N2.size > 0 else 0
            for g in range(key_heads):
                for first in range(0, queries * group, limit):
                    count = min(limit, queries * group - first)
                    owner = min(done * parts // max(everything, 1), parts - 1)
                    done += block_cost(first, count, queries, keys, seen)
                    if owner != part:
                        continue
                    h = g * group
                    weight = weights_BHTS.ctypes.data + (b * weight_strides[0] + h * weight_strides[1]) * 4
                    query, query_row = place_of(query_NE, q, columns[0] + h * width)
                    odd_P[part] += attend_block(
                        (query, query_row, width * 4),
                        place_of(key_ME, k, columns[1] + g * width),
                        place_of(value_ME, k, columns[2] + g * value_width),
                        place_of(out_NF, q, h * value_width),
                        (queries, keys, width, value_width),
                        (first, count),
                        (seen, sinks),
                        (factor, 0, biases_of((bias_BHTS, slopes_H, table_HL, from_start), b, h)),
                        (weight if weights_BHTS.size > 0 else 0, weight_strides[1] * 4, weight_strides[2] * 4),
                        places,
                    )


def block_rows(N: int, heads: int, key_heads: int, width: int, parts: int) -> int:
    """The most rows of a block: what fits the cache, four blocks a thread where they are not too small."""
    rows = BLOCK_FLOATS // width
    if parts > 1:
        rows = min(rows, max(N * heads // (4 * parts), 8 * ROWS))
    rows = max(rows // ROWS * ROWS, ROWS)
    return min(rows, max(-(-N * (heads // key_heads) // ROWS), 1) * ROWS)


@kernel
def _see(query_starts_B1, lengths_B, causal, offset_B, window, seen_N2):
    for _ in prange(0, 1):  # microseconds: no work to share
        for b in range(len(query_starts_B1) - 1):
            for n in range(query_starts_B1[b], query_starts_B1[b + 1]):
                stop = lengths_B[b]
                if causal:
                    stop = min(n - query_starts_B1[b] + offset_B[b % len(offset_B)] + 1, stop)
                seen_N2[n, 0] = max(stop - window, 0) if window > 0 else 0
                seen_N2[n, 1] = stop


def seen_keys(
    query_starts_B1: np.ndarray,
    lengths_B: np.ndarray,
    causal: bool = False,
    offset_B: np.ndarray | None = None,
    window: int = 0,
) -> np.ndarray:
    """The first key that each query sees and its stop, seen_N2 int64, for ``attention``: below its sentence's length.

    causal  query t sees keys s <= t + offset[b]; offsets are int64, 0 where none are given
    window  the last so many of them; 0: all
    """
    seen_N2 = np.empty((int(query_starts_B1[-1]), 2), np.int64)
    _see(query_starts_B1, lengths_B, causal, _NO_OFFSET if offset_B is None else offset_B, window, seen_N2)
    return seen_N2


_NO_OFFSET, _NO_KEYS = np.zeros(1, np.int64), np.empty((0, 2), np.int64)
_NO_BIAS, _NO_TABLE, _NO_SLOPES = (
    np.empty((0, 0, 0, 0), np.float32),
    np.empty((0, 1), np.float32),
    np.empty(0, np.float32),
)


def attention(
    query_NE: np.ndarray,
    key_ME: np.ndarray,
    value_ME: np.ndarray,
    query_starts_B1: np.ndarray,
    key_starts_B1: np.ndarray,
    *,
    heads: int,
    key_heads: int,
    head_width: int,
    value_width: int = 0,
    query_column: int = 0,
    key_column: int = 0,
    value_column: int = 0,
    seen_N2: np.ndarray | None = None,
    sinks: int = 0,
    scale: float | None = None,
    bias_BHTS: np.ndarray | None = None,
    positions: PositionBias | None = None,
    weights_BHTS: np.ndarray | None = None,
) -> np.ndarray:
    """Multi-head attention (Vaswani 2017) over a ragged batch: out_NF float32, F = heads * value_width.

    Sentence b has query rows query_starts[b] .. query_starts[b + 1], likewise keys; starts are int64. Head h of query
    row n is query[n, query_column + h K : + K]; its keys are of key head h // (heads // key_heads). Values are of
    ``value_width``, 0: of head_width.
    seen_N2       int64: row n sees keys seen[n, 0] <= s < seen[n, 1] of its sentence (see seen_keys), and those before
                  that are below ``sinks`` (Xiao 2023) if it sees any; None: all keys.
    scale         of the scores, 1 / sqrt(head_width) where none is given.
    bias_BHTS     added after the scale; axes of length one are broadcast; -inf hides a key.
    positions     added too; a query's position is its place in its sentence. Arrays are C-contiguous.
    weights_BHTS  written where given, float32 and C-contiguous: the softmax weights, 0 where a key is hidden.
    A query that sees no key yields zeros. Arrays are float32 and C-contiguous; nothing is checked here.
    """
    given = (query_NE, key_ME, value_ME), (query_starts_B1, key_starts_B1)
    shape = heads, key_heads, head_width, value_width or head_width
    columns = query_column, key_column, value_column
    biases = bias_BHTS, positions or PositionBias()
    return attend_counting(*given, shape, columns, (seen_N2, sinks), scale, biases, weights_BHTS)[0]


def attend_counting(
    rows: tuple[np.ndarray, ...],
    starts: tuple[np.ndarray, ...],
    shape: tuple[int, ...],
    columns: tuple[int, ...],
    mask: tuple[np.ndarray | None, int],
    scale: float | None,
    biases: tuple[np.ndarray | None, PositionBias],
    weights_BHTS: np.ndarray | None,
) -> tuple[np.ndarray, int]:
    """``attention``, and how many rows of a head have no softmax: they see no key, or their scores overflowed."""
    heads, key_heads, width, value_width = shape
    parts, N = current_threads(), len(rows[0])
    limit = block_rows(N, heads, key_heads, width, parts)
    out_NF, odd_P = np.empty((N, heads * value_width), np.float32), np.empty(parts, np.int64)
    scratch_PN = np.empty((parts, scratch_size(limit, width, value_width)), np.float32)
    factor = np.float32((width**-0.5 if scale is None else scale) * LOG2_E)
    seen_N2, sinks = mask
    bias_BHTS, positions = biases
    if weights_BHTS is None:
        weights_BHTS = _NO_BIAS
    else:
        weights_BHTS.fill(0)
    form = (
        factor,
        _NO_BIAS if bias_BHTS is None else np.ascontiguousarray(bias_BHTS),
        _NO_SLOPES if positions.slopes_H is None else positions.slopes_H,
        _NO_TABLE if positions.table_HL is None else positions.table_HL,
        int(positions.from_start),
    )
    seen = (_NO_KEYS if seen_N2 is None else seen_N2), sinks
    attend((*rows, out_NF), starts, (*shape, limit), columns, seen, form, weights_BHTS, scratch_PN, odd_P)
    return out_NF, int(odd_P.sum())
