"""Attention of a block of query rows of one sentence and key head, tile by tile, from queries to outputs.

Addresses are in bytes. Related arguments are passed as tuples:

query, key, value, out  (address of the head's first row, distance of rows); for query and out also the distance of
          heads. ``table`` is an array of their dtype
sentence  numbers of queries and keys, widths of keys and values, whether it has but a few rows
block     first row, number of rows; row r is query r % queries of head r // queries
tile      first row, stop
outputs   see finish_block
places    see cut_scratch

A block of a few rows, the queries of a step, reads keys and values where they are: packing would take longer.
"""

import math

import numpy as np

from fastattn.kernels.attention.constants import INDICES, INTEGERS, KEYS, ROWS
from fastattn.kernels.attention.few import (
    multiply_keys_of_few,
    multiply_values_of_few,
    prefetch_values,
    write_indices,
)
from fastattn.kernels.attention.masks import (
    is_masked,
    mask_tile,
    place_of_row,
    seen_by,
    seen_by_tile,
    seen_here,
    state_of_tile,
)
from fastattn.kernels.attention.products import prepare_keys, prepare_queries, prepare_rows, score_keys
from fastattn.kernels.attention.rows import scale_row, widened, write_row
from fastattn.kernels.attention.scores import (
    LN_2,
    add_biases,
    finish_weights,
    hide_between,
    hide_outside,
    softmax_shift,
    total_of,
)
from fastattn.kernels.attention.tiles import (
    columns_of,
    multiply_values,
    pack_keys,
    pack_values,
    prefetch_rows,
    row_maxima,
    row_maximum,
    take_exponentials,
)
from fastattn.kernels.user_functions.rows import any_function, modify_scores
from fastattn.kernels.user_functions.states import NONE
from fastattn.runtime.jit import inner
from fastattn.simd.bytes import hide_unseen
from fastattn.simd.constants import SIZE
from fastattn.simd.rows import copy_floats
from fastattn.simd.softmax import cap_row
from fastattn.simd.target import LANES
from fastattn.simd.vector import load_integer, load_scalar, splat, store, store_integer, store_scalar


@inner
def cut_scratch(scratch, limit, width, value_width):
    """The addresses in a thread's scratch of: packed keys, packed values, a tile's scores; totals, sums, queries, first
    keys and stops, maxima of a block's rows; new maxima of a tile's rows; bytes of what these see; indices; rows of
    narrow numbers as float32, or what disentangled attention keeps."""
    columns = columns_of(value_width)
    values = scratch + KEYS * columns_of(width) * 4
    scores = values + KEYS * columns * 4
    totals = scores + ROWS * KEYS * 4
    sums = totals + limit * SIZE
    queries = sums + limit * columns * 4
    ranges = queries + limit * width * 4
    tops = ranges + limit * INTEGERS * 4
    new_tops = tops + limit * 4
    seen = new_tops + ROWS * 4
    indices = seen + ROWS * KEYS + LANES * 4
    return scratch, values, scores, totals, sums, queries, ranges, tops, new_tops, seen, indices, indices + INDICES * 4


@inner
def start_rows(table, query, sentence, block, seen, form, head, places):
    """Copy the block's queries times the factor and clear their state; returns (least first key, greatest stop).

    A head's sink is what its rows have seen before they see a key. The last row is repeated to fill the last tile.
    """
    queries, keys, width, _, _ = sentence
    first, count = block
    totals, rows, ranges, tops = places[3], places[5], places[6], places[7]
    least, last = keys, 0
    h, t = first // queries, first % queries
    for i in range((count + ROWS - 1) // ROWS * ROWS):
        scale_row(table, query[0] + h * query[2] + t * query[1], form[0], rows + i * width * 4, width)
        begin, stop = seen_by(seen, t, keys)
        if begin < stop:
            least, last = min(least, begin), max(last, stop)
        else:
            begin = stop = 0
        store_integer(begin, ranges + i * 16)
        store_integer(stop, ranges + i * 16 + 8)
        store_scalar(np.float32(-np.inf), tops + i * 4)
        store(splat(np.float32(0)), totals + i * SIZE)
        if form[2] != 0:
            store_scalar(load_scalar(form[2] + (head + h) * 4), tops + i * 4)
            store_scalar(np.float32(1), totals + i * SIZE)
        if i + 1 < count:
            t += 1
            if t == queries:
                h, t = h + 1, 0
    prepare_queries(form[5], form[6], rows, (count + ROWS - 1) // ROWS * ROWS * width)
    return least, last


@inner
def is_changed(form):
    """Whether a score is more than a product."""
    biases = form[4]
    return form[1] != np.float32(0) or biases[0] != 0 or biases[4] != 0 or biases[5] != 0 or any_function(form[3])


@inner
def finish_scores(tile, s, here, span, queries, block, form, mask, masked, outputs, sinks, places):
    """Turn a tile's products into scores: cap, apply the function, add biases, hide what a row does not see, keep
    wanted weights.

    span     (begin, stop, whole): the tile's computed scores, up to whole vectors
    queries  number of queries of each head; a query's position is its index
    form     see attend_block
    """
    scores, ranges, seen = places[2], places[6], places[9]
    front, end, whole = span
    softcap, function, biases = form[1], form[3], form[4]
    changed = is_changed(form)
    weights, weight_head, weight_row = outputs[:3]
    capped = softcap != np.float32(0)
    for n in range(tile[0], tile[1]):
        row = scores + (n - tile[0]) * KEYS * 4
        stop = max(min(seen_here(ranges, n, s, here, sinks)[1], end), 0)
        first_seen, h, t = load_integer(ranges + n * 16) - s, 0, 0
        if changed or weights != 0:  # a division for each row would slow short sentences
            h, t = place_of_row(block, n, queries)
        if changed:
            if capped:
                cap_row(row + front * 4, (whole - front) * 4, softcap)
            modify_scores(function, row + front * 4, mask[9], mask[10] + h, t, s + front, stop - front)
            add_biases(row + front * 4, biases, h, t, t, s + front, stop - front)
        if masked:
            hide_unseen(row + front * 4, seen + (n - tile[0]) * KEYS + front, (whole - front) * 4)
        hide_outside(row, first_seen, stop, (front, whole), sinks - s)
        if weights != 0:
            line = weights + h * weight_head + t * weight_row + s * 4
            keep_scores(row, line, front, min(sinks - s, first_seen, stop))
            keep_scores(row, line, max(first_seen, front), stop)


@inner
def keep_scores(row, line, first, stop):
    """Copy the scores of some keys to a row of weights; keys count from the packed ones' first."""
    if first < stop:
        copy_floats(row + first * 4, line + first * 4, stop - first)


@inner
def attend_tile(
    table, tile, s, here, key, value, sentence, block, form, mask, masked, ranged, finishing, outputs, sinks, places
):
    """Attention of a tile's rows over ``here`` keys and values from s on: adds to their sums and totals.

    ranged     whether there are rows that do not see all keys
    finishing  whether more than that is done to the products
    """
    keys, values, scores, totals, sums, rows, ranges, tops, new_tops, seen, indices, more = places
    front, stop, every = 0, here, True
    if ranged:
        front, stop, every = seen_by_tile(ranges, tile, s, here, sinks)
        if front >= stop:
            return
    queries, _, width, value_width, few = sentence
    if masked:
        front, stop, masked = mask_tile(mask, tile, block, queries, s, front, stop, seen)
        if front >= stop:
            return
    i, count = tile[0], tile[1] - tile[0]
    whole, columns = (stop + LANES - 1) // LANES * LANES, columns_of(value_width)
    if few:
        prefetch_values(table, value[0] + (s + front) * value[1], value[1], value_width)
        multiply_keys_of_few(table, rows + i * width * 4, count, key, s, width, (front, stop), scores)
    else:
        where, query = (i, block[0] + i, block[0] + block[1] - 1, s), rows + i * width * 4
        score_keys(form[5], form[6], query, keys, width, front, stop, scores, where, more)
    if finishing or not every or stop < whole:
        span = front, stop, whole
        finish_scores(tile, s, here, span, queries, block, form, mask, masked, outputs, sinks, places)
    line, size, mine = scores + front * 4, (whole - front) * 4, sums + i * columns * 4
    for n in range(count):
        store_scalar(load_scalar(tops + (i + n) * 4), new_tops + n * 4)
    if few:
        for n in range(count):
            row_maximum(line + n * KEYS * 4, 0, size, new_tops + n * 4)
    else:
        row_maxima(line, KEYS * 4, size, new_tops)
    take_exponentials(line, size, count, new_tops, tops + i * 4, totals + i * SIZE, mine, columns)
    if few:
        multiply_values_of_few(table, scores, count, value, s, value_width, (front, stop), mine, columns, indices)
    else:
        multiply_values(scores, values, front, stop, mine, columns)


@inner
def prefetch_ahead(i, ahead, query, key, value, out, sentence, padded):
    """Prefetch a tile's share of the rows of a later head, whose first are at the addresses ``ahead``."""
    queries, keys, width, value_width, _ = sentence
    stop = min(i + ROWS, queries)
    prefetch_rows(ahead[0], query[1], i, stop, width)
    prefetch_rows(ahead[3], out[1], i, stop, value_width)
    near, far = min(KEYS, keys) * i // padded, min(KEYS, keys) * (i + ROWS) // padded
    prefetch_rows(ahead[1], key[1], near, far, width)
    prefetch_rows(ahead[2], value[1], near, far, value_width)


@inner
def finish_block(table, out, sentence, block, outputs, sinks, places):
    """Write a block's outputs from its sums; returns the number of rows that see a key and have a total of 0 or NaN.

    outputs  (address of weights, distances of heads and rows; address of log-sum-exps, distances of heads and rows);
             address 0: not wanted
    """
    queries, _, _, width, _ = sentence
    first, count = block
    totals, sums, ranges, tops = places[3], places[4], places[6], places[7]
    weights, weight_head, weight_row, sum_exps, sum_exp_head, sum_exp_row = outputs
    columns, invalid = columns_of(width), 0
    h, t = first // queries, first % queries
    for i in range(count):
        (total, inverse), top = total_of(totals + i * SIZE), load_scalar(tops + i * 4)
        write_row(table, sums + i * columns * 4, inverse, out[0] + h * out[2] + t * out[1], width)
        begin, stop = load_integer(ranges + i * 16), load_integer(ranges + i * 16 + 8)
        invalid += begin < stop and not inverse > np.float32(0)
        if weights != 0:
            line, shift = weights + h * weight_head + t * weight_row, softmax_shift(top)
            before = min(sinks, begin, stop)
            finish_weights(line, before, shift, inverse)
            finish_weights(line + max(begin, before) * 4, stop - max(begin, before), shift, inverse)
        if sum_exps != 0:
            both = -math.inf if total == np.float32(0) else top * LN_2 + math.log(np.float64(total))
            store_scalar(np.float32(both), sum_exps + h * sum_exp_head + t * sum_exp_row)
        t += 1
        if t == queries:
            h, t = h + 1, 0
    return invalid


@inner
def clear_weights(sentence, block, outputs, sinks, ranges):
    """Set the weights of all keys in the ranges of a block's rows to -inf: not all of them will be computed."""
    weights, weight_head, weight_row = outputs[:3]
    for i in range(block[1]):
        h, t = place_of_row(block, i, sentence[0])
        line = weights + h * weight_head + t * weight_row
        begin, stop = load_integer(ranges + i * 16), load_integer(ranges + i * 16 + 8)
        before = min(sinks, begin, stop)
        hide_between(line, 0, before)
        hide_between(line, max(begin, before), stop)


@inner
def attend_block(table, query, key, value, out, ahead, sentence, block, seen, form, mask, outputs, places):
    """Attention of a whole block; returns the number of invalid rows, see finish_block.

    ahead     addresses of the first rows of a later head's queries, keys, values and results, to be prefetched
    seen      (address of the ranges of the sentence's queries, 0: all see all keys; number of sinks)
    form      (factor of products, their cap or 0, address of the sinks' logits or 0, function of scores, biases; what
              scores are made of, and the head's part of it, see products.py)
    mask      see masks.py
    """
    queries, keys, width, value_width, few = sentence
    ranges, sinks = seen
    padded = (block[1] + ROWS - 1) // ROWS * ROWS
    least, last = start_rows(table, query, sentence, block, ranges, form, mask[10], places)
    masked = is_masked(mask)
    for k in range(0, padded * columns_of(value_width), LANES):
        store(splat(np.float32(0)), places[4] + k * 4)
    if masked and outputs[0] != 0:
        clear_weights(sentence, block, outputs, sinks, places[6])
    ranged, finishing = ranges != 0, masked or outputs[0] != 0 or is_changed(form)
    if few:
        write_indices(places[10])
    what = key, value, sentence, block, form, mask, masked, ranged, finishing, outputs, sinks, places
    for s in range(0, last, KEYS):
        here = min(KEYS, last - s)
        if s >= sinks and s + here <= least:
            continue
        if masked and state_of_tile(mask, (0, block[1]), block, queries, s, s + here) == NONE:
            continue
        if few:
            attend_tile(table, (0, block[1]), s, here, *what)
            continue
        packed_key, packed_row = widened(table, key[0] + s * key[1], key[1], here, width, places[11])
        pack_keys(packed_key, packed_row, here, width, places[0])
        prepare_keys(form[5], form[6], places[0], here, width)
        packed_value, packed_row = widened(table, value[0] + s * value[1], value[1], here, value_width, places[11])
        pack_values(packed_value, packed_row, here, value_width, places[1])
        for i in range(0, padded, ROWS):
            if s + KEYS >= last:
                prefetch_ahead(i, ahead, query, key, value, out, sentence, padded)
            prepare_rows(form[5], form[6], i, padded, block[0] + i, s, here, key, places[11])
            attend_tile(table, (i, i + ROWS), s, here, *what)
    return finish_block(table, out, sentence, block, outputs, sinks, places)
