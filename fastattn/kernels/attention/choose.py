"""Hard attention's most probable key of each query (Xu 2015), in one pass over the keys, without weights or values.

Tiles of scores, products or additive, are those of sentences.py; each row keeps its greatest score and the score's key.
"""

from collections import namedtuple

import numpy as np
from numba import prange

from fastattn.kernels.attention.arguments import KEYS, LIMIT, ROWS, SCORE_ROW, HeadRows, Span, Tile
from fastattn.kernels.attention.masks import seen_by_tile, seen_here
from fastattn.kernels.attention.scores import add_bias, aligned, hide_outside, multiply_row, vectors_of
from fastattn.kernels.attention.tiles import (
    AdditiveHead,
    add_keys,
    columns_of,
    exponentiate,
    exponentiate_keys,
    multiply_keys,
    pack_keys,
    row_maxima,
    tiles_of,
)
from fastattn.runtime.jit import inner, kernel, take_part
from fastattn.simd.memory import address, load_scalar, store_integer, store_scalar

# Up to LIMIT query rows of one sentence and head; the kernel writes their best keys to ``best``, int64.
ChoiceScratch = namedtuple("ChoiceScratch", "keys scores queries maxima new_maxima")
ChoiceBlock = namedtuple(
    "ChoiceBlock", "query key rows keys width ranges factor head bias bias_row bias_key best scratch"
)


@inner
def _choose_tile(block, i, s, count):
    """Update the greatest scores of the tile of rows from i on with ``count`` packed keys, from key s on."""
    scratch, head, width = block.scratch, block.head, block.width
    tile = Tile(i, min(i + ROWS, block.rows))
    front, stop, _ = seen_by_tile(block.ranges, tile, s, count, 0)
    if front >= stop:
        return
    span, queries = Span(front, stop, vectors_of(stop)), scratch.queries + i * width * 4
    if head.factors != 0:
        add_keys(queries, scratch.keys, width, span, scratch.scores, head)
    else:
        multiply_keys(queries, scratch.keys, width, span, scratch.scores)
    for n in range(ROWS):
        store_scalar(load_scalar(scratch.maxima + (i + n) * 4), scratch.new_maxima + n * 4)
    for n in range(i, tile.stop):
        row, (begin, end) = scratch.scores + (n - i) * SCORE_ROW, seen_here(block.ranges, n, s, count, 0)
        if block.bias != 0 and begin < end:
            bias = block.bias + n * block.bias_row + (s + front) * block.bias_key
            add_bias(row + front * 4, bias, block.bias_key, end - front)
        hide_outside(row, begin, end, span, front)
    row_maxima(scratch.scores + front * 4, SCORE_ROW, (span.whole - front) * 4, scratch.new_maxima)
    for n in range(i, tile.stop):
        row, greatest = scratch.scores + (n - i) * SCORE_ROW, load_scalar(scratch.new_maxima + (n - i) * 4)
        if greatest > load_scalar(scratch.maxima + n * 4):
            store_scalar(greatest, scratch.maxima + n * 4)
            k = front
            while load_scalar(row + k * 4) != greatest:  # the first key with that score
                k += 1
            store_integer(s + k, block.best + n * 8)


@inner
def _choose_block(block):
    """The best key of each row of a ChoiceBlock."""
    query, key, scratch, width = block.query, block.key, block.scratch, block.width
    padded = tiles_of(block.rows)
    for i in range(padded):
        row = query.address + min(i, block.rows - 1) * query.row_step
        multiply_row(row, block.factor, scratch.queries + i * width * 4, width)
        store_scalar(np.float32(-np.inf), scratch.maxima + i * 4)
    if block.head.exponential:
        exponentiate(scratch.queries, padded * width)
    least, last, _ = seen_by_tile(block.ranges, Tile(0, block.rows), 0, block.keys, 0)
    for s in range(least // KEYS * KEYS, last, KEYS):
        count = min(KEYS, last - s)
        pack_keys(key.address + s * key.row_step, key.row_step, count, width, scratch.keys)
        if block.head.exponential:
            exponentiate_keys(scratch.keys, count, width)
        for i in range(0, block.rows, ROWS):
            _choose_tile(block, i, s, count)


@kernel
def _choose(rows, seen_BT2, factors_HE, exponential_BH, factor, bias, steps, scratch_PN, best_BHT):
    """The parts take blocks of queries in turn; see best_keys."""
    query_BTHK, key_BSGK = rows
    B, T, H, K = query_BTHK.shape
    S, G = key_BSGK.shape[1:3]
    blocks = (T + LIMIT - 1) // LIMIT
    bias_batch, bias_head, bias_row, bias_key = steps
    for part in prange(0, len(scratch_PN)):
        keys, _, _ = take_part(scratch_PN, part, 0)
        keys = aligned(keys)
        scores = keys + KEYS * columns_of(K) * 4
        queries = scores + ROWS * SCORE_ROW
        maxima = queries + LIMIT * K * 4
        scratch = ChoiceScratch(keys, scores, queries, maxima, maxima + LIMIT * 4)
        for task in range(part, B * H * blocks, len(scratch_PN)):
            b, h, t = task // (H * blocks), task // blocks % H, task % blocks * LIMIT
            query = HeadRows(address(query_BTHK) + ((b * T + t) * H + h) * K * 4, K * 4, H * K * 4)
            key = HeadRows(address(key_BSGK) + (b * S * G + h // (H // G)) * K * 4, K * 4, G * K * 4)
            ranges, best = address(seen_BT2) + (b * T + t) * 16, address(best_BHT) + ((b * H + h) * T + t) * 8
            factors = address(factors_HE) + h * (K + 1) * 4 if factors_HE.size > 0 else 0
            head = AdditiveHead(factors, factors != 0 and exponential_BH[b, h] != 0)
            biases = address(bias) + b * bias_batch + h * bias_head + t * bias_row if bias.size > 0 else 0
            block = ChoiceBlock(
                query, key, min(LIMIT, T - t), S, K, ranges, factor, head, biases, bias_row, bias_key, best, scratch
            )
            _choose_block(block)
