"""Hard attention's most probable key of each query (Xu 2015), in one pass over the keys: no weights, no values.

Tiles of scores, products or additive, as in blocks.py; of each row the greatest score and its key are kept. Addresses
are in bytes.
"""

import numpy as np
from numba import prange

from fastattn.kernels.attention.additive_tile import add_keys, exponentiate, exponentiate_keys
from fastattn.kernels.attention.constants import KEYS, LIMIT, ROWS
from fastattn.kernels.attention.masks import seen_by_tile, seen_here
from fastattn.kernels.attention.scores import add_bias, aligned, hide_outside, multiply_row
from fastattn.kernels.attention.tiles import multiply_keys, pack_keys, row_maxima
from fastattn.runtime.jit import inner, kernel
from fastattn.runtime.parts import take_part
from fastattn.simd.target import LANES
from fastattn.simd.vector import address, load_scalar, store_integer, store_scalar


@inner
def _keep_best(row, front, s, top, new_top, place):
    """Where a row's greatest score has grown, keep it, and the number of the first key that has it."""
    now = load_scalar(new_top)
    if now > load_scalar(top):
        store_scalar(now, top)
        at = front
        while load_scalar(row + at * 4) != now:
            at += 1
        store_integer(s + at, place)


@inner
def _choose_tile(i, s, here, count, width, seen, head, bias, best, places):
    """The greatest scores so far of a tile's rows, with the packed keys from key s on."""
    keys, scores, rows, tops, new_tops = places
    tile = i, min(i + ROWS, count)
    front, stop, _ = seen_by_tile(seen, tile, s, here, 0)
    if front >= stop:
        return
    whole = (stop + LANES - 1) // LANES * LANES
    if head[0] != 0:
        add_keys(rows + i * width * 4, keys, width, front, stop, scores, head[0], head[1])
    else:
        multiply_keys(rows + i * width * 4, keys, width, front, stop, scores)
    for n in range(ROWS):
        store_scalar(load_scalar(tops + (i + n) * 4), new_tops + n * 4)
    for n in range(tile[0], tile[1]):
        row, (begin, end) = scores + (n - i) * KEYS * 4, seen_here(seen, n, s, here, 0)
        if bias[0] != 0 and begin < end:
            line = bias[0] + n * bias[1] + (s + front) * bias[2]
            add_bias(row + front * 4, line, bias[2], end - front)
        hide_outside(row, begin, end, (front, whole), front)
    row_maxima(scores + front * 4, KEYS * 4, (whole - front) * 4, new_tops)
    for n in range(tile[0], tile[1]):
        row, new_top = scores + (n - i) * KEYS * 4, new_tops + (n - i) * 4
        _keep_best(row, front, s, tops + n * 4, new_top, best + n * 8)


@inner
def _choose_block(query, key, sizes, seen, head, bias, best, places):
    """The best key of some rows of one sentence and head.

    sizes  numbers of rows and of keys, width
    seen  the address of the rows' ranges
    head  (address of ``vector_factors``, or 0: products; whether exponentials; factor of queries for products)
    best  the address of the rows' keys, int64, written where a row sees any
    """
    count, every, width = sizes
    keys, _, rows, tops, _ = places
    padded = (count + ROWS - 1) // ROWS * ROWS
    for i in range(padded):
        multiply_row(query[0] + min(i, count - 1) * query[1], head[2], rows + i * width * 4, width)
        store_scalar(np.float32(-np.inf), tops + i * 4)
    if head[1]:
        exponentiate(rows, padded * width)
    least, last, _ = seen_by_tile(seen, (0, count), 0, every, 0)
    for s in range(least // KEYS * KEYS, last, KEYS):
        here = min(KEYS, last - s)
        pack_keys(key[0] + s * key[1], key[1], here, width, keys)
        if head[1]:
            exponentiate_keys(keys, here, width)
        for i in range(0, count, ROWS):
            _choose_tile(i, s, here, count, width, seen, head, bias, best, places)


@kernel
def _choose(rows, seen_BT2, factors_HE, exponential_BH, factor, bias, steps, scratch_PN, best_BHT):
    """All blocks, dealt to the parts in turn; see best_keys."""
    query_BTHK, key_BSGK = rows
    B, T, H, K = query_BTHK.shape
    S, G = key_BSGK.shape[1:3]
    blocks, panel = (T + LIMIT - 1) // LIMIT, (len(scratch_PN[0]) - LIMIT * (K + 1) - ROWS * (KEYS + 1) - 16) * 4
    batch, head, row, step = steps
    for part in prange(0, len(scratch_PN)):
        keys, _, _ = take_part(scratch_PN, part, 0)
        keys = aligned(keys)
        scores = keys + panel
        queries = scores + ROWS * KEYS * 4
        tops = queries + LIMIT * K * 4
        places = keys, scores, queries, tops, tops + LIMIT * 4
        for task in range(part, B * H * blocks, len(scratch_PN)):
            b, h, t = task // (H * blocks), task // blocks % H, task % blocks * LIMIT
            place = address(bias) + b * batch + h * head + t * row if bias.size > 0 else 0
            additive = address(factors_HE) + h * (K + 1) * 4 if factors_HE.size > 0 else 0
            _choose_block(
                (address(query_BTHK) + ((b * T + t) * H + h) * K * 4, H * K * 4),
                (address(key_BSGK) + (b * S * G + h // (H // G)) * K * 4, G * K * 4),
                (min(LIMIT, T - t), S, K), address(seen_BT2) + (b * T + t) * 16,
                (additive, additive != 0 and exponential_BH[b, h] != 0, factor), (place, row, step),
                address(best_BHT) + ((b * H + h) * T + t) * 8, places,
            )  # fmt: skip
