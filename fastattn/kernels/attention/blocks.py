"""Attention of a block of query rows of one sentence and key head, tile by tile, from queries to outputs.

Addresses are in bytes. Related arguments are passed as tuples:

query, key, value, out  (address of the head's first row, distance of rows); for query also the distance of heads
sentence  numbers of queries and keys, widths of keys and values
block     first row, number of rows; row r is query r % queries of head r // queries
places    see cut_scratch
"""

import numpy as np

from fastattn.kernels.attention.scores import (
    add_biases,
    finish_row,
    finish_weights,
    hide_between,
    hide_from,
    multiply_row,
    softmax_shift,
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
from fastattn.runtime.jit import inner
from fastattn.simd.rows import copy_floats
from fastattn.simd.softmax import cap_row
from fastattn.simd.target import LANES
from fastattn.simd.vector import SIZE, load_integer, load_scalar, splat, store, store_integer, store_scalar

# Rows of adjacent heads are too far apart for the hardware's prefetcher: while one head is computed, the rows of the
# head this many further on are prefetched.
AHEAD = 2
INTEGERS = 4  # the size in floats of two int64: a row's first key and stop


def scratch_size(limit: int, width: int, value_width: int) -> int:
    """The number of scratch floats of a thread for blocks of ``limit`` rows; see cut_scratch."""
    columns, alignment = whole_columns(value_width), 16
    packed = KEYS * (whole_columns(width) + columns)
    return packed + ROWS * KEYS + limit * (LANES + columns + width + 1 + INTEGERS) + ROWS + alignment


@inner
def cut_scratch(scratch, limit, width, value_width):
    """The addresses in a thread's scratch of: packed keys, packed values, a tile's scores; totals, sums, queries, first
    keys and stops, maxima of a block's rows; new maxima of a tile's rows."""
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
    """(first key, stop) that query t sees; ``seen`` is the address of all queries' pairs, 0: all keys."""
    if seen == 0:
        return 0, keys
    return max(load_integer(seen + t * 16), 0), min(load_integer(seen + t * 16 + 8), keys)


@inner
def start_rows(query, sentence, block, seen, factor, places):
    """Copy the block's queries times ``factor`` and clear their state; returns (least first key, greatest stop).

    The last row is repeated to fill the last tile.
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
    """(begin, stop) of what row n sees among ``here`` keys from s on; some between them may be hidden."""
    begin, stop = load_integer(ranges + n * 16) - s, min(load_integer(ranges + n * 16 + 8) - s, here)
    if begin >= here:
        stop = min(stop, sinks - s)
    return (0 if s < sinks else max(begin, 0)), stop


@inner
def seen_by_tile(ranges, i, s, here, sinks):
    """(begin, stop) of what any row of a tile sees among ``here`` keys from s on."""
    front, stop = here, 0
    for n in range(i, i + ROWS):
        begin, end = seen_here(ranges, n, s, here, sinks)
        if begin < end:
            front, stop = min(front, begin), max(stop, end)
    return front, stop


@inner
def finish_scores(i, s, here, span, queries, block, form, weight, sinks, places):
    """Turn a tile's products into scores: cap, add biases, hide what a row does not see, keep wanted weights.

    span     (begin, stop) of the tile's computed scores, in whole panels and vectors
    queries  number of queries of each head; a query's position is its index
    """
    _, _, scores, _, _, _, ranges, _, _ = places
    front, whole = span
    first, count = block
    weights, weight_head, weight_row = weight
    _, softcap, biases = form
    capped = softcap != np.float32(0)
    changed = capped or biases[0] != 0 or biases[4] != 0 or biases[5] != 0
    for n in range(i, i + ROWS):
        row = scores + (n - i) * KEYS * 4
        stop = max(seen_here(ranges, n, s, here, sinks)[1], 0)
        first_seen, h, t = load_integer(ranges + n * 16) - s, 0, 0
        if changed or weights != 0:  # a division for each row would slow short sentences
            h, t = divmod(first + min(n, count - 1), queries)
        if changed:
            if capped:
                cap_row(row + front * 4, (whole - front) * 4, softcap)
            add_biases(row + front * 4, biases, h, t, t, s + front, stop - front)
        if stop < whole:
            hide_from(row, max(stop, front), whole)
        if first_seen > front:
            hide_between(row, max(sinks - s, front), min(first_seen, whole))
        if weights != 0:
            keep_scores(row, weights + h * weight_head + t * weight_row + s * 4, sinks - s, first_seen, stop)


@inner
def keep_scores(row, line, sinks, first_seen, stop):
    """Copy the scores of the keys that a row sees to its row of weights; keys count from the packed ones' first."""
    before = max(min(sinks, first_seen, stop), 0)
    if before > 0:
        copy_floats(row, line, before)
    if max(first_seen, before) < stop:
        copy_floats(
            row + max(first_seen, before) * 4, line + max(first_seen, before) * 4, stop - max(first_seen, before)
        )


@inner
def attend_tile(i, s, here, sentence, block, form, weight, sinks, places):
    """Attention of a tile's rows over the packed keys and values, from key s on: adds to their sums and totals."""
    keys, values, scores, totals, sums, rows, ranges, tops, new_tops = places
    front, stop = seen_by_tile(ranges, i, s, here, sinks)
    if front >= stop:
        return
    queries, _, width, value_width = sentence
    front -= front % COLUMNS
    whole, columns = (stop + LANES - 1) // LANES * LANES, columns_of(value_width)
    multiply_keys(rows + i * width * 4, keys, width, front, stop, scores)
    finish_scores(i, s, here, (front, whole), queries, block, form, weight, sinks, places)
    line, size, mine = scores + front * 4, (whole - front) * 4, sums + i * columns * 4
    for n in range(ROWS):
        store_scalar(load_scalar(tops + (i + n) * 4), new_tops + n * 4)
    row_maxima(line, KEYS * 4, size, new_tops)
    take_exponentials(line, size, new_tops, tops + i * 4, totals + i * SIZE, mine, columns)
    multiply_values(scores, values, front, stop, mine, columns)


@inner
def prefetch_head_ahead(i, query, key, value, out, sentence, padded):
    """Prefetch a tile's share of the memory of a later head."""
    queries, keys, width, value_width = sentence
    ahead, value_ahead, stop = AHEAD * width * 4, AHEAD * value_width * 4, min(i + ROWS, queries)
    prefetch_rows(query[0] + ahead, query[1], i, stop, width)
    prefetch_rows(out[0] + value_ahead, out[1], i, stop, value_width)
    near, far = min(KEYS, keys) * i // padded, min(KEYS, keys) * (i + ROWS) // padded
    prefetch_rows(key[0] + ahead, key[1], near, far, width)
    prefetch_rows(value[0] + value_ahead, value[1], near, far, value_width)


@inner
def finish_block(out, sentence, block, weight, sinks, places):
    """Write a block's outputs from its sums; returns the number of rows with a total of 0 or NaN."""
    queries, _, _, width = sentence
    first, count = block
    _, _, _, totals, sums, _, ranges, tops, _ = places
    weights, weight_head, weight_row = weight
    columns, invalid = columns_of(width), 0
    h, t = first // queries, first % queries
    for i in range(count):
        inverse = finish_row(sums + i * columns * 4, totals + i * SIZE, out[0] + h * width * 4 + t * out[1], width)
        invalid += not inverse > np.float32(0)
        if weights != 0:
            line, shift = weights + h * weight_head + t * weight_row, softmax_shift(load_scalar(tops + i * 4))
            begin, stop = load_integer(ranges + i * 16), load_integer(ranges + i * 16 + 8)
            before = min(sinks, begin, stop)
            finish_weights(line, before, shift, inverse)
            finish_weights(line + max(begin, before) * 4, stop - max(begin, before), shift, inverse)
        t += 1
        if t == queries:
            h, t = h + 1, 0
    return invalid


@inner
def attend_block(query, key, value, out, sentence, block, mask, form, weight, places):
    """Attention of a whole block; returns the number of invalid rows, see finish_block.

    mask      (seen, sinks); see seen_by
    form      (factor of products, their cap or 0, biases); see add_biases
    weight    (address, distance of heads, distance of rows); address 0: no weights are wanted
    """
    queries, keys, width, value_width = sentence
    seen, sinks = mask
    padded = (block[1] + ROWS - 1) // ROWS * ROWS
    least, last = start_rows(query, sentence, block, seen, form[0], places)
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
                prefetch_head_ahead(i, query, key, value, out, sentence, padded)
            attend_tile(i, s, here, sentence, block, form, weight, sinks, places)
    return finish_block(out, sentence, block, weight, sinks, places)
