"""Attention of each query to a few keys of its own: a graph's neighbours, or a window around a position.

A graph lists the neighbours of one node after another (CSR); Velickovic 2018. A task is a run of nodes; all tasks have
about as many neighbours. A task goes node by node: scores of all heads in scratch, [neighbours, heads], their softmax
along the neighbours, and the weighted sum, which stays in a register. Reading the neighbours' rows bounds the speed; a
task reads each for all heads while it is in L1.

Windows around positions: Luong 2015, local-p, equations 7 to 10. O(T D) for windows of 2 D + 1 keys. A task is a block
of queries of one sentence; each head's window goes as a whole through scores in scratch, their softmax, the Gaussian
and the weighted sum. Addresses are in bytes.
"""

from collections import namedtuple

import numpy as np
from numba import prange

from fastattn.kernels.arguments import WINDOW_ROWS
from fastattn.runtime.jit import inner, kernel, take_part
from fastattn.simd.arguments import LOG2_E, SIZE
from fastattn.simd.memory import address, load, load_integer, load_part, load_scalar, store, store_part, store_scalar
from fastattn.simd.rows import copy_floats
from fastattn.simd.target import LANES
from fastattn.simd.vector import count_lanes, exp2, fma, maximum, minimum, splat, sum_lanes

RUN = 64  # neighbours of a partial sum: one sum of thousands loses digits
# A node's neighbours in the list of all neighbours.
EdgeSpan = namedtuple("EdgeSpan", "first stop")


@inner
def _add_terms(scratch, target, source, indices_E, span, heads, slope):
    """Write the scores LeakyReLU(target + source) of a node's neighbours, [neighbours, heads]."""
    zero, slopes = splat(np.float32(0)), splat(slope)
    for e in range(span.first, span.stop):
        row, score = source + np.int64(indices_E[e]) * heads * 4, scratch + (e - span.first) * heads * 4
        for h in range(0, heads, LANES):
            value = load_part(target + h * 4, heads - h, zero) + load_part(row + h * 4, heads - h, zero)
            # in this order NaN stays
            value = fma(slopes, minimum(zero, value), maximum(zero, value))
            store_part(value, score + h * 4, heads - h)


@inner
def dot(a, b, width):
    """The dot product of two rows at addresses; the order of its sum depends on ``width`` only."""
    zero = splat(np.float32(0))
    total = zero
    for k in range(0, width, LANES):
        total = fma(load_part(a + k * 4, width - k, zero), load_part(b + k * 4, width - k, zero), total)
    return sum_lanes(total)


@inner
def _multiply(scratch, query, key, indices_E, span, heads, width, scale):
    """Write the scores scale q k of a node's neighbours, [neighbours, heads]."""
    for e in range(span.first, span.stop):
        row, score = key + np.int64(indices_E[e]) * heads * width * 4, scratch + (e - span.first) * heads * 4
        for h in range(heads):
            store_scalar(dot(query + h * width * 4, row + h * width * 4, width) * scale, score + h * 4)


@inner
def _take_softmax(scratch, count, heads):
    """Replace scores [count, heads] by their softmax along ``count``."""
    zero, factor = splat(np.float32(0)), splat(np.float32(LOG2_E))
    for h in range(0, heads, LANES):
        top = splat(np.float32(-np.inf))
        for e in range(count):
            top = maximum(load_part(scratch + (e * heads + h) * 4, heads - h, zero), top)
        total = zero
        for first in range(0, count, RUN):
            partial = zero
            for e in range(first, min(first + RUN, count)):
                score = scratch + (e * heads + h) * 4
                value = exp2((load_part(score, heads - h, zero) - top) * factor)
                partial = partial + value
                store_part(value, score, heads - h)
            total = total + partial
        inverse = splat(np.float32(1)) / total
        for e in range(count):
            score = scratch + (e * heads + h) * 4
            store_part(load_part(score, heads - h, zero) * inverse, score, heads - h)


@inner
def _add_values(scratch, value, indices_E, span, heads, width, out):
    """Write the sums of a node's neighbours' values, weighted by the softmax in ``scratch``."""
    zero = splat(np.float32(0))
    for h in range(heads):
        for k in range(0, width, LANES):
            total, column = zero, value + (h * width + k) * 4
            for first in range(span.first, span.stop, RUN):
                partial = zero
                for e in range(first, min(first + RUN, span.stop)):
                    weight = splat(load_scalar(scratch + ((e - span.first) * heads + h) * 4))
                    row = column + np.int64(indices_E[e]) * heads * width * 4
                    partial = fma(weight, load_part(row, width - k, zero), partial)
                total = total + partial
            store_part(total, out + (h * width + k) * 4, width - k)


@kernel
def _attend_nodes(bounds_P1, starts_N1, indices_E, terms, dots, value_MHV, factor, weights_EH, scratch_PN, out_NHV):
    """Each part computes a run of nodes; see graph_attention.

    terms   NodeTerms; empty: scores are those of ``dots``, NodeDots
    factor  slope of the terms' LeakyReLU, or scale of the products
    """
    target_NH, source_MH = terms
    query_NHK, key_MHK = dots
    H, V, K = value_MHV.shape[1], value_MHV.shape[2], query_NHK.shape[2]
    has_weights = weights_EH.size > 0
    for part in prange(0, len(scratch_PN)):
        scratch, _, _ = take_part(scratch_PN, part, 0)
        for n in range(bounds_P1[part], bounds_P1[part + 1]):
            span = EdgeSpan(np.int64(starts_N1[n]), np.int64(starts_N1[n + 1]))
            if has_weights:
                scratch = address(weights_EH) + span.first * H * 4
            if target_NH.size > 0:
                _add_terms(scratch, address(target_NH) + n * H * 4, address(source_MH), indices_E, span, H, factor)
            else:
                query = address(query_NHK) + n * H * K * 4
                _multiply(scratch, query, address(key_MHK), indices_E, span, H, K, factor)
            _take_softmax(scratch, span.stop - span.first, H)
            _add_values(scratch, address(value_MHV), indices_E, span, H, V, address(out_NHV) + n * H * V * 4)


@inner
def _score(query, key, key_row, first, stop, width, factor, scores):
    """Write the scores of a window's keys, and -inf up to whole vectors; returns the greatest score."""
    hidden, top = splat(np.float32(-np.inf)), np.float32(-np.inf)
    count = stop - first
    store(hidden, scores + (count - 1) // LANES * SIZE)
    for s in range(count):
        value = dot(query, key + (first + s) * key_row, width) * factor
        top = max(top, value)
        store_scalar(value, scores + s * 4)
    return top


@inner
def _weigh(scores, first, stop, top, centre, decay):
    """Replace scores by their softmax times exp(-(s - centre)**2 decay); a decay of 0 leaves the softmax."""
    total, shift, factor = splat(np.float32(0)), splat(top), splat(np.float32(LOG2_E))
    for s in range(0, stop - first, LANES):
        value = exp2((load(scores + s * 4) - shift) * factor)
        total = total + value
        store(value, scores + s * 4)
    inverse, exponent_factor = splat(np.float32(1) / sum_lanes(total)), splat(np.float32(-LOG2_E) * decay)
    for s in range(0, stop - first, LANES):
        distance = splat(np.float32(first + s) - centre) + count_lanes()
        weight = load(scores + s * 4) * inverse * exp2(exponent_factor * distance * distance)
        store(weight, scores + s * 4)


@inner
def _add(scores, value, value_row, first, stop, width, out):
    """Write the weighted sum of the window's values."""
    zero = splat(np.float32(0))
    for k in range(0, width, LANES):
        total = zero
        for s in range(first, stop):
            weight = splat(load_scalar(scores + (s - first) * 4))
            total = fma(weight, load_part(value + s * value_row + k * 4, width - k, zero), total)
        store_part(total, out + k * 4, width - k)


@kernel
def _attend_windows(
    query_BTHK, key_BSGK, value_BSGV, windows_BTH2, centre_BTH, scale, decay, weights_BHTS, scratch_PN, out_BTHV
):
    """The parts take blocks of queries in turn; see local_attention."""
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
                    _weigh(scores, first, stop, top, centre, decay)
                value, out = address(value_BSGV) + g * V * 4, address(out_BTHV) + n * V * 4
                _add(scores, value, G * V * 4, first, stop, V, out)
                if weights_BHTS.size > 0 and first < stop:
                    line = address(weights_BHTS) + ((b * H + h) * T + n // H - b * T) * S * 4
                    copy_floats(scores, line + first * 4, stop - first)
