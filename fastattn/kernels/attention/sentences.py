"""Attention over whole sentences in one pass over the keys: softmax(Q K' scale + bias) V, without storing scores.

A task is a block of query rows of one sentence and key head (the rows of all query heads that share it). It packs KEYS
keys at a time, transposed, and their values in panels of COLUMNS columns, then takes ROWS query rows at a time: scores
by register tiles, online softmax (Milakov and Gimelshein 2018) in base 2, the sum of values by register tiles (Dao
2023, algorithm 1). Queries are first multiplied by the scale and log2(e). Each row has a first key and a stop, and may
have sinks before the first; a mask may hide more (masks.py). A task skips blocks, tiles and panels of keys that none of
its rows sees. A sentence of a few rows, the queries of a step, reads its keys and values where they are (tiles.py):
packing would take longer.

On x86, numbers below 1.2e-38 count as 0, except beside a mask_mod, which may compare them: an Intel core takes as long
for a sum with one as for a hundred others. Sums of values begin with the smallest weights, of which ALiBi's steep
slopes make many: (1, 4, 2048, 64), 138 -> 37 ms at a slope of 0.5 on an Emerald Rapids core, 34 at a slope of 0.

Bits: the tile of a key depends only on its index in its own sentence, and a hidden key adds exact zeros, so a row's
result does not depend on the batch, the blocks or the number of threads.

Reached on one Zen 3 core (AVX2), of 102 GFLOP/s for a tile alone: 78 at (8, 12, 512, 64), 84 at
(1, 12, 2048, 64), 54 at (32, 12, 128, 32). At the first size exponentials take 9% of the time, packing 6%, maxima 2%.
70 -> 74  softmax of a tile's rows without divisions and masked stores between rows
74 -> 76  256 keys a block instead of 128 (fewer sums rescaled; both packed blocks still fit L2)
76 -> 79  one tile's scores in 6 KiB instead of 48 rows' scores in 48 KiB, which did not stay in L1
52 -> 54  (at the third size, which memory bounds: 62 if each head is contiguous) prefetching two heads ahead
No gain: prefetching the next keys of a long sentence, blocks of 1024 rows.
One Zen 4 core (AVX-512), 197 x 197 of 64, 12 heads: 89 in float32, 140 with products in bfloat16.
"""

import math
from collections import namedtuple
from typing import NamedTuple

import numpy as np
from numba import prange

from fastattn.arguments.attention import NONE, RaggedBatch
from fastattn.kernels.attention.arguments import (
    INDEX_FLOATS,
    KEYS,
    MOST_ROWS,
    RANGE_FLOATS,
    ROWS,
    SCORE_ROW,
    HeadRows,
    Span,
    Tile,
)
from fastattn.kernels.attention.masks import (
    any_function,
    is_masked,
    mask_tile,
    modify_scores,
    query_of_row,
    seen_by,
    seen_by_tile,
    seen_here,
    state_of_tile,
)
from fastattn.kernels.attention.scores import (
    LN_2,
    HeadScores,
    add_biases,
    aligned,
    finish_weights,
    head_scores,
    hide_between,
    hide_outside,
    softmax_shift,
    total_of,
)
from fastattn.kernels.attention.tiles import (
    FEW,
    add_values,
    begin_products,
    columns_of,
    end_products,
    is_dot,
    multiply_keys_of_few,
    multiply_values_of_few,
    prefetch_rows,
    prefetch_values,
    prepare_keys,
    prepare_query,
    prepare_rows,
    prepare_values,
    product_head,
    rescale,
    row_maxima,
    row_maximum,
    score_keys,
    take_exponentials,
    tile_rows,
    tiles_of,
    whole_keys,
    widened,
    write_row,
)
from fastattn.runtime.jit import inner, kernel, take_part
from fastattn.simd.arguments import SIZE
from fastattn.simd.attention import cap_row, drop_subnormals, hide_unseen, keep_subnormals
from fastattn.simd.memory import address, load_integer, load_scalar, store, store_index, store_integer, store_scalar
from fastattn.simd.rows import copy_floats
from fastattn.simd.target import LANES
from fastattn.simd.vector import splat

# A head's tiles prefetch the rows of the head AHEAD later: heads are short, and rows of adjacent heads may be too far
# apart for the hardware's prefetcher.
AHEAD = 2

# Rows of a batch: the address of the first; bytes from sentence to sentence (added to those of the rows between), from
# head to head, and from row to row.
BatchRows = namedtuple("BatchRows", "address batch_step head_step row_step")
PrefetchRows = namedtuple("PrefetchRows", "query key value out")  # addresses of a later head's rows, to prefetch
# MaskArguments and OutputArguments of the heads of a sentence, from head h of sentence b on.
HeadMask = namedtuple(
    "HeadMask", "seen seen_head seen_row seen_key states states_head block_queries block_keys key_blocks b h function"
)
HeadOutputs = namedtuple("HeadOutputs", "weights weights_head weights_row logs logs_head logs_row")
# Rows of a block: its row r is row n = first + r of a sentence, query n % queries of head n // queries.
QueryRows = namedtuple("QueryRows", "first length queries")
# A tile of scores: its first row in the block, that row's query, the block's last query, its first key.
TilePosition = namedtuple("TilePosition", "row query last_query key")


class Scratch(NamedTuple):
    """Addresses in a thread's scratch."""

    keys: int  # packed
    values: int  # packed
    scores: int  # of a tile: rows of KEYS
    totals: int  # of each row's exponentials, lane by lane
    sums: int  # of values, weighted by the exponentials; rows of whole columns
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
    few: bool  # whether the block has at most FEW rows
    ranges: int  # the address of each query's first key and stop; 0: all see all keys
    sinks: int  # number of first keys that all rows see
    scores: HeadScores
    mask: HeadMask
    outputs: HeadOutputs
    scratch: Scratch


@inner
def cut_scratch(keys, limit, width, value_width):
    """A thread's scratch, which begins with packed keys, for blocks of ``limit`` rows."""
    columns = columns_of(value_width)
    values = keys + KEYS * columns_of(width) * 4
    scores = values + KEYS * columns * 4
    totals = scores + MOST_ROWS * SCORE_ROW
    sums = totals + limit * SIZE
    queries = sums + limit * columns * 4
    ranges = queries + limit * width * 4
    maxima = ranges + limit * RANGE_FLOATS * 4
    new_maxima = maxima + limit * 4
    seen = new_maxima + MOST_ROWS * 4
    indices = seen + ROWS * KEYS + LANES * 4
    spare = indices + INDEX_FLOATS * 4
    return Scratch(keys, values, scores, totals, sums, queries, ranges, maxima, new_maxima, seen, indices, spare)


@inner
def row_of(rows, h, t):
    """The address of position t of head h of some HeadRows."""
    return rows.address + h * rows.head_step + t * rows.row_step


@inner
def start_rows(block):
    """Copy the block's queries times the factor and clear their state; returns (least first key, greatest stop).

    A head's sink is the first score of its rows. Copies of the last row fill the last tile.
    """
    rows, scores, scratch = block.rows, block.scores, block.scratch
    padded, width = tiles_of(rows.length), block.width
    least, last = block.keys, 0
    h, t = rows.first // rows.queries, rows.first % rows.queries
    for i in range(padded):
        source, target = row_of(block.query, h, t), scratch.queries + i * width * 4
        prepare_query(scores.product, scores.head, block.like, source, scores.factor, target, width, block.few)
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
    return least, last


@inner
def is_changed(scores):
    """Whether a score is more than a product."""
    biases = scores.biases
    added = biases.bias != 0 or biases.slopes != 0 or biases.table != 0
    return scores.softcap != np.float32(0) or added or any_function(scores.function)


@inner
def finish_scores(block, tile, s, count, span, masked):
    """Turn a tile's products into scores: cap, apply the function, add biases, hide keys, copy scores to weights.

    A query's position is its index; ``count`` keys from s on are packed.
    """
    scores, mask, outputs, scratch, sinks = block.scores, block.mask, block.outputs, block.scratch, block.sinks
    front, whole = span.front, span.whole
    changed, capped = is_changed(scores), scores.softcap != np.float32(0)
    for n in range(tile.first, tile.stop):
        row = scratch.scores + (n - tile.first) * SCORE_ROW
        _, stop = seen_here(scratch.ranges, n, s, count, sinks)
        stop = max(min(stop, span.stop), 0)
        first_seen, h, t = load_integer(scratch.ranges + n * 16) - s, 0, 0
        if changed or outputs.weights != 0:  # only here: a division for each row would slow short sentences
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
    """Copy the scores of the keys ``first`` to ``stop``, counted from the first packed key, to a row of weights."""
    if first < stop:
        copy_floats(row + first * 4, line + first * 4, stop - first)


@inner
def attend_tile(block, tile, s, count, masked, finishing):
    """Attention of a tile's rows over ``count`` keys and values from s on: adds to their sums and totals.

    finishing  whether scores are more than products, or the caller wants weights
    """
    rows, scores, scratch, like, width = block.rows, block.scores, block.scratch, block.like, block.width
    front, stop, all_seen = 0, count, True
    if block.ranges != 0:
        front, stop, all_seen = seen_by_tile(scratch.ranges, tile, s, count, block.sinks)
        if front >= stop:
            return
    if masked:
        front, stop, masked = mask_tile(block.mask, tile, rows, s, front, stop, scratch.seen)
        if front >= stop:
            return
    span, length = Span(front, stop, whole_keys(scores.product, stop)), tile.stop - tile.first
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
    if finishing or not all_seen or stop < span.whole:
        finish_scores(block, tile, s, count, span, masked)
    # the rows' maxima
    line, size = scratch.scores + front * 4, (span.whole - front) * 4
    for n in range(length):
        store_scalar(load_scalar(scratch.maxima + (tile.first + n) * 4), scratch.new_maxima + n * 4)
    if block.few:
        for n in range(length):
            row_maximum(line + n * SCORE_ROW, 0, size, scratch.new_maxima + n * 4)
    else:
        for n in range(0, length, ROWS):
            row_maxima(line + n * SCORE_ROW, SCORE_ROW, size, scratch.new_maxima + n * 4)
    # exponentials, their totals, and the sums of values weighted by them
    columns = columns_of(block.value_width)
    maxima, totals = scratch.maxima + tile.first * 4, scratch.totals + tile.first * SIZE
    sums = scratch.sums + tile.first * columns * 4
    rescale(length, scratch.new_maxima, maxima, totals, sums, columns)
    take_exponentials(scores.product, line, size, length, scratch.new_maxima, totals)
    if block.few:
        multiply_values_of_few(
            like, scratch.scores, length, block.value, s, block.value_width, span, sums, scratch.indices
        )
    else:
        shifts = scratch.new_maxima
        add_values(scores.product, scratch.scores, length, scratch.values, span, shifts, totals, sums, columns)


@inner
def prefetch_ahead(block, ahead, i):
    """Prefetch, for the tile from row i on, its share of a later head's rows."""
    queries, keys, height = block.rows.queries, min(KEYS, block.keys), tile_rows(block.scores.product)
    padded = tiles_of(block.rows.length)
    stop, first_key, last_key = min(i + height, queries), keys * i // padded, keys * (i + height) // padded
    prefetch_rows(ahead.query, block.query.row_step, i, stop, block.width)
    prefetch_rows(ahead.out, block.out.row_step, i, stop, block.value_width)
    prefetch_rows(ahead.key, block.key.row_step, first_key, last_key, block.width)
    prefetch_rows(ahead.value, block.value.row_step, first_key, last_key, block.value_width)


@inner
def finish_block(block):
    """Write a block's outputs; returns the number of invalid rows, which see a key but have a total of 0 or NaN."""
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
            shift, sinks = softmax_shift(maximum), min(block.sinks, begin, stop)
            finish_weights(line, sinks, shift, inverse)
            finish_weights(line + max(begin, sinks) * 4, stop - max(begin, sinks), shift, inverse)
        if outputs.logs != 0:
            log = -math.inf if total == np.float32(0) else maximum * LN_2 + math.log(np.float64(total))
            store_scalar(np.float32(log), outputs.logs + h * outputs.logs_head + t * outputs.logs_row)
        t += 1
        if t == rows.queries:
            h, t = h + 1, 0
    return invalid


@inner
def clear_weights(block):
    """Set the weights of all keys in the ranges of a block's rows to -inf, since tiles skip some of them."""
    outputs, ranges = block.outputs, block.scratch.ranges
    for i in range(block.rows.length):
        h, t = query_of_row(block.rows, i)
        line = outputs.weights + h * outputs.weights_head + t * outputs.weights_row
        begin, stop = load_integer(ranges + i * 16), load_integer(ranges + i * 16 + 8)
        sinks = min(block.sinks, begin, stop)
        hide_between(line, 0, sinks)
        hide_between(line, max(begin, sinks), stop)


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
        for n in range(KEYS):
            store_index(n, scratch.indices + n * 4)
    every_row = Tile(0, block.rows.length)
    height, padded = tile_rows(scores.product), tiles_of(block.rows.length)
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
        prepare_keys(scores.product, scores.head, rows, step, count, block.width, scratch.keys, scratch.spare)
        rows, step = widened(
            like, value.address + s * value.row_step, value.row_step, count, block.value_width, scratch.spare
        )
        prepare_values(scores.product, rows, step, count, block.value_width, scratch.values)
        for i in range(0, block.rows.length, height):
            if s + KEYS >= last:
                prefetch_ahead(block, ahead, i)
            prepare_rows(scores.product, block, i, s, count)
            attend_tile(block, Tile(i, min(i + height, padded)), s, count, masked, finishing)
    return finish_block(block)


@inner
def block_cost(first, count, queries, keys, seen):
    """Roughly the number of scores of a block of rows, by which blocks are divided among threads."""
    if seen != 0 and first // queries == (first + count - 1) // queries:
        begin, stop = seen_by(seen, (first + count // 2) % queries, keys)
        return count * (max(stop - begin, 0) + 16)
    return count * (keys + 16)


@inner
def batch_rows(array, offset, batch_step, head_step, row_step):
    return BatchRows(address(array) + offset, batch_step, head_step, row_step)


@inner
def head_rows(rows, b, row, head):
    """The rows of sentence b from a head on; ``row`` is the number of the sentence's first row in the batch."""
    first = rows.address + b * rows.batch_step + row * rows.row_step + head * rows.head_step
    return HeadRows(first, rows.head_step, rows.row_step)


@inner
def rows_ahead(query, key, value, out, batch, shape, b, g):
    """The first rows of the key head AHEAD heads later, or of the last head."""
    g += AHEAD
    while g >= shape.key_heads and b + 1 < len(batch.query_starts_B1) - 1:
        b, g = b + 1, g - shape.key_heads
    g = min(g, shape.key_heads - 1)
    q, k, h = batch.query_starts_B1[b], batch.key_starts_B1[b], g * (shape.heads // shape.key_heads)
    return PrefetchRows(
        head_rows(query, b, q, h).address,
        head_rows(key, b, k, g).address,
        head_rows(value, b, k, g).address,
        head_rows(out, b, q, h).address,
    )


@inner
def seen_from(seen_N2, first):
    """The address of row ``first`` in seen_N2; 0: every row sees all keys."""
    return address(seen_N2) + first * 16 if seen_N2.size > 0 else 0


@inner
def head_mask(mask, b, h):
    """MaskArguments of a sentence's heads from h on."""
    seen = address(mask.seen) + b * mask.seen_batch + h * mask.seen_head if mask.seen.size > 0 else 0
    states = address(mask.states) + b * mask.states_batch + h * mask.states_head if mask.states.size > 0 else 0
    return HeadMask(
        seen, mask.seen_head, mask.seen_row, mask.seen_key,
        states, mask.states_head, mask.block_queries, mask.block_keys, mask.key_blocks, b, h, mask.function,
    )  # fmt: skip


@inner
def head_outputs(outputs, b, first, h):
    """OutputArguments of a sentence's heads from h on; the sentence begins with row ``first``."""
    _, H, T, S = outputs.weights_BHTS.shape
    weights = address(outputs.weights_BHTS) + (b * H + h) * T * S * 4 if outputs.weights_BHTS.size > 0 else 0
    start = b * outputs.logs_batch + first * outputs.logs_row + h * outputs.logs_head
    logs = address(outputs.logs) + start if outputs.logs.size > 0 else 0
    return HeadOutputs(weights, T * S * 4, S * 4, logs, outputs.logs_head, outputs.logs_row)


@inner
def heads_together(shape, product):
    """The number of query heads whose rows share blocks: all of a key head; 1 where scores are not dot products."""
    return shape.heads // shape.key_heads if is_dot(product) else 1


@inner
def whole_cost(batch, shape, together):
    """The cost of all blocks."""
    total = 0
    for b in range(len(batch.query_starts_B1) - 1):
        first_row = batch.query_starts_B1[b]
        queries = batch.query_starts_B1[b + 1] - first_row
        keys, seen = batch.key_starts_B1[b + 1] - batch.key_starts_B1[b], seen_from(batch.seen_N2, first_row)
        for first in range(0, queries * together, shape.limit):
            count = min(shape.limit, queries * together - first)
            total += shape.heads // together * block_cost(first, count, queries, keys, seen)
    return total


@inner
def attend_share(arrays, steps, batch, shape, mask, scores, outputs, share, scratch):
    """Compute a thread's blocks; ``share`` is (its number, the number of shares, the cost of all); see ``attend``."""
    query_array, key_array, value_array, out_array = arrays
    query, key = batch_rows(query_array, *steps[:4]), batch_rows(key_array, *steps[4:8])
    value, out = batch_rows(value_array, *steps[8:12]), batch_rows(out_array, *steps[12:])
    part, parts, total_cost = share
    together = heads_together(shape, scores.product)
    thread_scratch = cut_scratch(aligned(scratch), shape.limit, shape.width, shape.value_width)
    invalid = done = 0
    for b in range(len(batch.query_starts_B1) - 1):
        q, k = batch.query_starts_B1[b], batch.key_starts_B1[b]
        queries, keys = batch.query_starts_B1[b + 1] - q, batch.key_starts_B1[b + 1] - k
        ranges = seen_from(batch.seen_N2, q)
        for h in range(0, shape.heads, together):
            g = h // (shape.heads // shape.key_heads)
            for first in range(0, queries * together, shape.limit):
                count = min(shape.limit, queries * together - first)
                owner = min(done * parts // max(total_cost, 1), parts - 1)
                done += block_cost(first, count, queries, keys, ranges)
                if owner != part:
                    continue
                few = queries * together <= FEW and is_dot(scores.product)
                head = product_head(scores.product, scores.details, b, h)
                block = RowBlock(
                    query_array, head_rows(query, b, q, h), head_rows(key, b, k, g), head_rows(value, b, k, g),
                    head_rows(out, b, q, h), QueryRows(first, count, queries), keys, shape.width, shape.value_width,
                    few, ranges, batch.sinks, head_scores(scores, b, h, head), head_mask(mask, b, h),
                    head_outputs(outputs, b, q, h), thread_scratch,
                )  # fmt: skip
                invalid += attend_block(block, rows_ahead(query, key, value, out, batch, shape, b, g))
    return invalid


@kernel
def attend(arrays, steps, batch, shape, mask, scores, outputs, scratch_PN, invalid_P):
    """All blocks of ``limit`` rows, divided into P parts of similar cost, one for each thread; see attend_batch.

    arrays     queries, keys, values, out, of one type, for their addresses
    steps      of each array: bytes to its first head, then the steps of BatchRows
    batch      the members of a RaggedBatch; seen_N2 is empty where rows see all keys
    shape      ShapeArguments; mask, scores and outputs likewise
    invalid_P  written: the number of invalid rows of each part, see finish_block
    """
    sentences = RaggedBatch(*batch)
    total_cost = whole_cost(sentences, shape, heads_together(shape, scores.product))
    for part in prange(0, len(scratch_PN)):
        scratch, _, _ = take_part(scratch_PN, part, 0)
        share, subnormals = (part, len(scratch_PN), total_cost), np.int32(0)
        if not any_function(mask.function):
            subnormals = drop_subnormals()
        begin_products(scores.product)
        invalid_P[part] = attend_share(arrays, steps, sentences, shape, mask, scores, outputs, share, scratch)
        end_products(scores.product)
        if not any_function(mask.function):
            keep_subnormals(subnormals)


@kernel
def _see(query_starts_B1, lengths_B, offset_B, before, after, seen_N2):
    """Write the ranges of ``seen_around``; a negative ``before`` or ``after`` sets no bound."""
    for _ in prange(0, 1):  # one task: it takes microseconds
        for b in range(len(query_starts_B1) - 1):
            for n in range(query_starts_B1[b], query_starts_B1[b + 1]):
                t, stop = n - query_starts_B1[b] + offset_B[b % len(offset_B)], lengths_B[b]
                if after >= 0:
                    stop = min(t + after + 1, stop)
                seen_N2[n, 0] = max(t - before, 0) if before >= 0 else 0
                seen_N2[n, 1] = stop
