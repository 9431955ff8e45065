"""Attention of a block of query rows of one sentence and key head: FlashAttention-2 (Dao 2023, algorithm 1).

A block of a few rows, the queries of a step, reads keys and values where they are: packing would take longer.
"""

import math

import numpy as np

from fastattn.arguments.attention import NONE
from fastattn.kernels.attention.arguments import INDICES, INTEGERS, KEYS, ROWS, Scratch, Span, Tile, TilePosition
from fastattn.kernels.attention.masks import (
    is_masked,
    mask_tile,
    query_of_row,
    seen_by,
    seen_by_tile,
    seen_here,
    state_of_tile,
)
from fastattn.kernels.attention.products import (
    add_values,
    prepare_keys,
    prepare_queries,
    prepare_rows,
    prepare_values,
    score_keys,
)
from fastattn.kernels.attention.scores import (
    LN_2,
    add_biases,
    finish_weights,
    hide_between,
    hide_outside,
    softmax_shift,
    total_of,
    vectors_of,
)
from fastattn.kernels.attention.tiles import (
    columns_of,
    multiply_keys_of_few,
    multiply_values_of_few,
    pack_keys,
    pack_values,
    prefetch_rows,
    prefetch_values,
    row_maxima,
    row_maximum,
    scale_row,
    take_exponentials,
    tiles_of,
    widened,
    write_indices,
    write_row,
)
from fastattn.kernels.attention.user_functions import any_function, modify_scores
from fastattn.runtime.jit import inner
from fastattn.simd.arguments import SIZE
from fastattn.simd.attention import cap_row, hide_unseen
from fastattn.simd.rows import copy_floats
from fastattn.simd.target import LANES
from fastattn.simd.vector import load_integer, load_scalar, splat, store, store_integer, store_scalar


@inner
def cut_scratch(keys, limit, width, value_width):
    """A thread's scratch, which begins with packed keys, for blocks of ``limit`` rows."""
    columns = columns_of(value_width)
    values = keys + KEYS * columns_of(width) * 4
    scores = values + KEYS * columns * 4
    totals = scores + ROWS * KEYS * 4
    sums = totals + limit * SIZE
    queries = sums + limit * columns * 4
    ranges = queries + limit * width * 4
    maxima = ranges + limit * INTEGERS * 4
    new_maxima = maxima + limit * 4
    seen = new_maxima + ROWS * 4
    indices = seen + ROWS * KEYS + LANES * 4
    spare = indices + INDICES * 4
    return Scratch(keys, values, scores, totals, sums, queries, ranges, maxima, new_maxima, seen, indices, spare)


@inner
def row_of(rows, h, t):
    """The address of position t of head h of some HeadRows."""
    return rows.address + h * rows.head_step + t * rows.row_step


@inner
def start_rows(block):
    """Copy the block's queries times the factor and clear their state; returns (least first key, greatest stop).

    A head's sink is what its rows have seen before they see a key. The last row is repeated to fill the last tile.
    """
    rows, scores, scratch = block.rows, block.scores, block.scratch
    padded, width = tiles_of(rows.length), block.width
    least, last = block.keys, 0
    h, t = rows.first // rows.queries, rows.first % rows.queries
    for i in range(padded):
        scale_row(block.like, row_of(block.query, h, t), scores.factor, scratch.queries + i * width * 4, width)
        begin, stop = seen_by(block.ranges, t, block.keys)
        if begin < stop:
            least, last = min(least, begin), max(last, stop)
        else:
            begin = stop = 0
        store_integer(begin, scratch.ranges + i * 16)
        store_integer(stop, scratch.ranges + i * 16 + 8)
        store_scalar(np.float32(-np.inf), scratch.maxima + i * 4)
        store(splat(np.float32(0)), scratch.totals + i * SIZE)
        if scores.sinks != 0:
            store_scalar(load_scalar(scores.sinks + h * 4), scratch.maxima + i * 4)
            store_scalar(np.float32(1), scratch.totals + i * SIZE)
        if i + 1 < rows.length:
            t += 1
            if t == rows.queries:
                h, t = h + 1, 0
    for k in range(0, padded * columns_of(block.value_width), LANES):
        store(splat(np.float32(0)), scratch.sums + k * 4)
    if not block.few:  # which read their queries as they are
        prepare_queries(scores.product, scores.head, scratch.queries, padded * width)
    return least, last


@inner
def is_changed(scores):
    """Whether a score is more than a product."""
    biases = scores.biases
    added = biases.bias != 0 or biases.slopes != 0 or biases.table != 0
    return scores.softcap != np.float32(0) or added or any_function(scores.function)


@inner
def finish_scores(block, tile, s, count, span, masked):
    """Turn a tile's products into scores: cap, apply the function, add biases, hide what a row does not see, keep
    wanted weights. A query's position is its index; ``count`` keys from s on are packed."""
    scores, mask, outputs, scratch, sinks = block.scores, block.mask, block.outputs, block.scratch, block.sinks
    front, whole = span.front, span.whole
    changed, capped = is_changed(scores), scores.softcap != np.float32(0)
    for n in range(tile.first, tile.stop):
        row = scratch.scores + (n - tile.first) * KEYS * 4
        _, stop = seen_here(scratch.ranges, n, s, count, sinks)
        stop = max(min(stop, span.stop), 0)
        first_seen, h, t = load_integer(scratch.ranges + n * 16) - s, 0, 0
        if changed or outputs.weights != 0:  # a division for each row would slow short sentences
            h, t = query_of_row(block.rows, n)
        if changed:
            if capped:
                cap_row(row + front * 4, (whole - front) * 4, scores.softcap)
            modify_scores(scores.function, row + front * 4, mask.b, mask.h + h, t, s + front, stop - front)
            add_biases(row + front * 4, scores.biases, h, t, t, s + front, stop - front)
        if masked:
            hide_unseen(row + front * 4, scratch.seen + (n - tile.first) * KEYS + front, (whole - front) * 4)
        hide_outside(row, first_seen, stop, span, sinks - s)
        if outputs.weights != 0:
            line = outputs.weights + h * outputs.weights_head + t * outputs.weights_row + s * 4
            keep_scores(row, line, front, min(sinks - s, first_seen, stop))
            keep_scores(row, line, max(first_seen, front), stop)


@inner
def keep_scores(row, line, first, stop):
    """Copy the scores of some keys to a row of weights; keys count from the packed ones' first."""
    if first < stop:
        copy_floats(row + first * 4, line + first * 4, stop - first)


@inner
def attend_tile(block, tile, s, count, masked, finishing):
    """Attention of a tile's rows over ``count`` keys and values from s on: adds to their sums and totals.

    finishing  whether scores are more than products, masks and wanted weights included
    """
    rows, scores, scratch, like, width = block.rows, block.scores, block.scratch, block.like, block.width
    front, stop, every = 0, count, True
    if block.ranges != 0:
        front, stop, every = seen_by_tile(scratch.ranges, tile, s, count, block.sinks)
        if front >= stop:
            return
    if masked:
        front, stop, masked = mask_tile(block.mask, tile, rows, s, front, stop, scratch.seen)
        if front >= stop:
            return
    span, length = Span(front, stop, vectors_of(stop)), tile.stop - tile.first
    # scores of queries and keys
    queries = scratch.queries + tile.first * width * 4
    if block.few:
        value = block.value
        prefetch_values(like, value.address + (s + front) * value.row_step, value.row_step, block.value_width)
        multiply_keys_of_few(like, queries, length, block.key, s, width, span, scratch.scores)
    else:
        position = TilePosition(tile.first, rows.first + tile.first, rows.first + rows.length - 1, s)
        score_keys(
            scores.product, scores.head, queries, scratch.keys, width, span, scratch.scores, position, scratch.spare
        )
    if finishing or not every or stop < span.whole:
        finish_scores(block, tile, s, count, span, masked)
    # their maxima
    line, size = scratch.scores + front * 4, (span.whole - front) * 4
    for n in range(length):
        store_scalar(load_scalar(scratch.maxima + (tile.first + n) * 4), scratch.new_maxima + n * 4)
    if block.few:
        for n in range(length):
            row_maximum(line + n * KEYS * 4, 0, size, scratch.new_maxima + n * 4)
    else:
        row_maxima(line, KEYS * 4, size, scratch.new_maxima)
    # exponentials, their totals, and the sums of values weighted by them
    columns = columns_of(block.value_width)
    maxima, totals = scratch.maxima + tile.first * 4, scratch.totals + tile.first * SIZE
    sums = scratch.sums + tile.first * columns * 4
    take_exponentials(line, size, length, scratch.new_maxima, maxima, totals, sums, columns)
    if block.few:
        multiply_values_of_few(
            like, scratch.scores, length, block.value, s, block.value_width, span, sums, scratch.indices
        )
    else:
        add_values(scores.product, scratch.scores, scratch.values, span, sums, columns)


@inner
def prefetch_ahead(block, ahead, i):
    """Prefetch the share of the tile from row i on of the rows of a later head."""
    queries, keys, padded = block.rows.queries, min(KEYS, block.keys), tiles_of(block.rows.length)
    stop, first_key, last_key = min(i + ROWS, queries), keys * i // padded, keys * (i + ROWS) // padded
    prefetch_rows(ahead.query, block.query.row_step, i, stop, block.width)
    prefetch_rows(ahead.out, block.out.row_step, i, stop, block.value_width)
    prefetch_rows(ahead.key, block.key.row_step, first_key, last_key, block.width)
    prefetch_rows(ahead.value, block.value.row_step, first_key, last_key, block.value_width)


@inner
def finish_block(block):
    """Write a block's outputs from its sums; returns the number of rows that see a key and have a total of 0 or NaN."""
    rows, outputs, scratch, width = block.rows, block.outputs, block.scratch, block.value_width
    columns, invalid = columns_of(width), 0
    h, t = rows.first // rows.queries, rows.first % rows.queries
    for i in range(rows.length):
        (total, inverse), maximum = total_of(scratch.totals + i * SIZE), load_scalar(scratch.maxima + i * 4)
        write_row(block.like, scratch.sums + i * columns * 4, inverse, row_of(block.out, h, t), width)
        begin, stop = load_integer(scratch.ranges + i * 16), load_integer(scratch.ranges + i * 16 + 8)
        invalid += begin < stop and not inverse > np.float32(0)
        if outputs.weights != 0:
            line = outputs.weights + h * outputs.weights_head + t * outputs.weights_row
            shift, before = softmax_shift(maximum), min(block.sinks, begin, stop)
            finish_weights(line, before, shift, inverse)
            finish_weights(line + max(begin, before) * 4, stop - max(begin, before), shift, inverse)
        if outputs.logs != 0:
            log = -math.inf if total == np.float32(0) else maximum * LN_2 + math.log(np.float64(total))
            store_scalar(np.float32(log), outputs.logs + h * outputs.logs_head + t * outputs.logs_row)
        t += 1
        if t == rows.queries:
            h, t = h + 1, 0
    return invalid


@inner
def clear_weights(block):
    """Set the weights of all keys in the ranges of a block's rows to -inf: not all of them will be computed."""
    outputs, ranges = block.outputs, block.scratch.ranges
    for i in range(block.rows.length):
        h, t = query_of_row(block.rows, i)
        line = outputs.weights + h * outputs.weights_head + t * outputs.weights_row
        begin, stop = load_integer(ranges + i * 16), load_integer(ranges + i * 16 + 8)
        before = min(block.sinks, begin, stop)
        hide_between(line, 0, before)
        hide_between(line, max(begin, before), stop)


@inner
def attend_block(block, ahead):
    """Attention of a RowBlock; returns the number of invalid rows, see finish_block."""
    like, key, value, scores, scratch = block.like, block.key, block.value, block.scores, block.scratch
    least, last = start_rows(block)
    masked, wants_weights = is_masked(block.mask), block.outputs.weights != 0
    finishing = masked or wants_weights or is_changed(scores)
    if masked and wants_weights:
        clear_weights(block)
    if block.few:
        write_indices(scratch.indices)
    every_row = Tile(0, block.rows.length)
    for s in range(0, last, KEYS):
        count = min(KEYS, last - s)
        if s >= block.sinks and s + count <= least:
            continue
        if masked and state_of_tile(block.mask, every_row, block.rows, s, s + count) == NONE:
            continue
        if block.few:
            attend_tile(block, every_row, s, count, masked, finishing)
            continue
        rows, step = widened(like, key.address + s * key.row_step, key.row_step, count, block.width, scratch.spare)
        pack_keys(rows, step, count, block.width, scratch.keys)
        prepare_keys(scores.product, scores.head, scratch.keys, count, block.width)
        rows, step = widened(
            like, value.address + s * value.row_step, value.row_step, count, block.value_width, scratch.spare
        )
        pack_values(rows, step, count, block.value_width, scratch.values)
        prepare_values(scores.product, scratch.values, count, columns_of(block.value_width))
        for i in range(0, block.rows.length, ROWS):
            if s + KEYS >= last:
                prefetch_ahead(block, ahead, i)
            prepare_rows(scores.product, block, i, s, count)
            attend_tile(block, Tile(i, i + ROWS), s, count, masked, finishing)
    return finish_block(block)
