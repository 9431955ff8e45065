"""Attention to a few keys around a place of each query's own: Luong 2015, local-p, equations 7 to 10.

O(T D) for windows of 2 D + 1 keys. A task is a block of queries of one sentence; each head's window is taken whole:
scores in scratch, their softmax, the Gaussian, the weighted sum. Addresses are in bytes.
"""

import numpy as np
from numba import prange

from fastattn.kernels.constants import WINDOW_ROWS
from fastattn.kernels.graph import dot
from fastattn.runtime.jit import inner, kernel, take_part
from fastattn.simd.constants import LOG2_E, SIZE
from fastattn.simd.rows import copy_floats
from fastattn.simd.target import LANES
from fastattn.simd.vector import (
    address,
    count_lanes,
    exp2,
    fma,
    load,
    load_integer,
    load_part,
    load_scalar,
    splat,
    store,
    store_first,
    store_scalar,
    sum_lanes,
)


@inner
def _score(query, key, key_row, first, stop, width, factor, scores):
    """Scores of the keys of a window, filled up with -inf to whole vectors; returns the greatest."""
    hidden, top = splat(np.float32(-np.inf)), np.float32(-np.inf)
    count = stop - first
    store(hidden, scores + (count - 1) // LANES * SIZE)
    for s in range(count):
        value = dot(query, key + (first + s) * key_row, width) * factor
        top = max(top, value)
        store_scalar(value, scores + s * 4)
    return top


@inner
def _weigh(scores, first, stop, top, centre, spread):
    """Replace scores by their softmax times exp(-(s - centre)**2 spread); a spread of 0 leaves the softmax."""
    total, shift, factor = splat(np.float32(0)), splat(top), splat(np.float32(LOG2_E))
    for s in range(0, stop - first, LANES):
        value = exp2((load(scores + s * 4) - shift) * factor)
        total = total + value
        store(value, scores + s * 4)
    inverse, steep = splat(np.float32(1) / sum_lanes(total)), splat(np.float32(-LOG2_E) * spread)
    for s in range(0, stop - first, LANES):
        distance = splat(np.float32(first + s) - centre) + count_lanes()
        weight = load(scores + s * 4) * inverse * exp2(steep * distance * distance)
        store(weight, scores + s * 4)


@inner
def _add(scores, value, value_row, first, stop, width, out):
    """out = the weighted sum of the window's values."""
    zero = splat(np.float32(0))
    for k in range(0, width, LANES):
        total = zero
        for s in range(first, stop):
            weight = splat(load_scalar(scores + (s - first) * 4))
            total = fma(weight, load_part(value + s * value_row + k * 4, width - k, zero), total)
        if width - k >= LANES:
            store(total, out + k * 4)
        else:
            store_first(total, out + k * 4, width - k)


@kernel
def _attend(
    query_BTHK, key_BSGK, value_BSGV, windows_BTH2, centre_BTH, scale, spread, weights_BHTS, scratch_PN, out_BTHV
):
    """Blocks of queries, dealt to the parts in turn; see local_attention."""
    B, T, H, K = query_BTHK.shape
    S, G, V = value_BSGV.shape[1:]
    blocks = (T + WINDOW_ROWS - 1) // WINDOW_ROWS
    for part in prange(0, len(scratch_PN)):
        scores, _, _ = take_part(scratch_PN, part, 0)
        for task in range(part, B * blocks, len(scratch_PN)):
            b, t = task // blocks, task % blocks * WINDOW_ROWS
            for n in range((b * T + t) * H, (b * T + min(t + WINDOW_ROWS, T)) * H):
                h, window = n % H, address(windows_BTH2) + n * 16
                g = b * S * G + h // (H // G)
                first, stop = load_integer(window), load_integer(window + 8)
                query, key = address(query_BTHK) + n * K * 4, address(key_BSGK) + g * K * 4
                if first < stop:
                    top = _score(query, key, G * K * 4, first, stop, K, scale, scores)
                    centre = load_scalar(address(centre_BTH) + n * 4)
                    _weigh(scores, first, stop, top, centre, spread)
                value, out = address(value_BSGV) + g * V * 4, address(out_BTHV) + n * V * 4
                _add(scores, value, G * V * 4, first, stop, V, out)
                if weights_BHTS.size > 0 and first < stop:
                    line = address(weights_BHTS) + ((b * H + h) * T + n // H - b * T) * S * 4
                    copy_floats(scores, line + first * 4, stop - first)
