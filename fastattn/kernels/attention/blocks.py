"""A block of query rows of one sentence and key head: its tiles, from the queries to the outputs.

Addresses are in bytes. What belongs together travels as a tuple:

query, key, value, out  addresses of the head's first row, and the distance to the next; a query's head too
sentence  numbers of queries and keys, widths of keys and values
block     first row, and how many; row r is query r % queries of the head r // queries
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

# Rows of heads side by side lie too far apart for the hardware to foresee: while one head is computed, those of the
# head so many further on are asked for.
AHEAD = 2
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
def finish_scores(i, s, here, span, queries, block, form, weight, sinks, places):
    """A tile's products become scores: what is added to them is, what a row does not see is hidden, weights are kept.

    span     the tile's scores, in whole panels and vectors, that are there at all
    queries  of each head; a query's position is its number
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
        if changed or weights != 0:  # a division, of which a short sentence would notice one a row
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
    """Copy to a row of weights the scores of those keys that a row sees, numbered from the block's first on."""
    before = max(min(sinks, first_seen, stop), 0)
    if before > 0:
        copy_floats(row, line, before)
    if max(first_seen, before) < stop:
        copy_floats(
            row + max(first_seen, before) * 4, line + max(first_seen, before) * 4, stop - max(first_seen, before)
        )


@inner
def attend_tile(i, s, here, sentence, block, form, weight, sinks, places):
    """A tile's rows over the packed keys and values, which begin with key s: their sums and totals go on."""
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
    """All of a block; how many of its rows are invalid, see finish_block.

    mask      see seen_by; sinks
    form      what products are multiplied by, where they are capped, 0: nowhere; see add_biases
    weight    address, distances of heads and rows; address 0: no weights are wanted
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
