"""Scores and their softmax in both attention kernels, for one row of one head.

score = (f(cap(q k' scale)) + bias(h, t, s) + slope(h) (s - p) + table(h, s - p)) log2(e), -inf where the key is hidden;
cap(x) = softcap tanh(x / softcap), f the caller's function. The division of the softmax comes last, on its sums.
Addresses are in bytes; scores lie in scratch that has room up to a multiple of LANES.
"""

import math
from collections import namedtuple

import numpy as np

from fastattn.kernels.attention.arguments import whole_vectors
from fastattn.runtime.jit import inner
from fastattn.simd.arguments import LOG2_E
from fastattn.simd.memory import address, load, load_first, load_scalar, store, store_first
from fastattn.simd.target import LANES
from fastattn.simd.vector import count_lanes, exp2, fma, splat, sum_lanes

LN_2 = math.log(2.0)
vectors_of = inner(whole_vectors)
# ScoreArguments of the heads of a sentence, from head h on. ``bias_key`` is 0 or 4; ``table`` is the address of the
# entry for a distance of 0; ``head`` is head h's part of the product's details.
HeadBiases = namedtuple("HeadBiases", "bias bias_head bias_row bias_key slopes table table_head from_start")
HeadScores = namedtuple("HeadScores", "factor softcap sinks function biases product head")


@inner
def head_biases(scores, b, h):
    """The biases in ScoreArguments of a sentence's heads from h on."""
    bias = address(scores.bias) + b * scores.bias_batch + h * scores.bias_head if scores.bias.size > 0 else 0
    slopes = address(scores.slopes_H) + h * 4 if scores.slopes_H.size > 0 else 0
    L = scores.table_HL.shape[1]
    table = address(scores.table_HL) + (h * L + L // 2) * 4 if scores.table_HL.size > 0 else 0
    return HeadBiases(bias, scores.bias_head, scores.bias_row, scores.bias_key, slopes, table, L * 4, scores.from_start)


@inner
def head_scores(scores, b, h, head):
    """ScoreArguments of a sentence's heads from h on; ``head`` is head h's part of the product's details."""
    sinks = address(scores.sinks_H) + h * 4 if scores.sinks_H.size > 0 else 0
    biases = head_biases(scores, b, h)
    return HeadScores(scores.factor, scores.softcap, sinks, scores.function, biases, scores.product, head)


@inner
def aligned(start):
    """The address rounded up to a cache line."""
    return (start + 63) & -64


@inner
def multiply_row(source, factor, target, width):
    """target = source * factor, ``width`` floats."""
    multiplier = splat(factor)
    whole = width - width % LANES
    for k in range(0, whole, LANES):
        store(load(source + k * 4) * multiplier, target + k * 4)
    if whole < width:  # only here: a masked store is slow even for a whole vector
        tail = load_first(source + whole * 4, width - whole, multiplier)
        store_first(tail * multiplier, target + whole * 4, width - whole)


@inner
def add_bias(score, bias, step, count):
    """score += bias log2(e); biases are ``step`` bytes (0 or 4) apart."""
    zero, factor, constant = splat(np.float32(0)), splat(np.float32(LOG2_E)), splat(load_scalar(bias))
    for s in range(0, count, LANES):
        if step != 0:
            constant = load_first(bias + s * 4, min(LANES, count - s), zero)
        store(fma(constant, factor, load(score + s * 4)), score + s * 4)


@inner
def add_biases(score, biases, head, row, position, first, count):
    """Add all biases to ``count`` scores of a row at ``position`` and the keys from ``first`` on."""
    if count <= 0:
        return
    if biases.bias != 0:
        bias = biases.bias + head * biases.bias_head + row * biases.bias_row + first * biases.bias_key
        add_bias(score, bias, biases.bias_key, count)
    if biases.slopes != 0:  # the slope times distance, distance + 1 and so on (ALiBi, Press 2022)
        distance = first if biases.from_start != 0 else first - position
        slope, factor = splat(load_scalar(biases.slopes + head * 4)), splat(np.float32(LOG2_E))
        for s in range(0, count, LANES):
            distances = splat(np.float32(distance + s)) + count_lanes()
            store(fma(slope * distances, factor, load(score + s * 4)), score + s * 4)
    if biases.table != 0:
        add_bias(score, biases.table + head * biases.table_head + (first - position) * 4, 4, count)


@inner
def hide_from(score, first, stop):
    """Set scores ``first`` to ``stop``, a multiple of LANES, to -inf."""
    hidden = splat(np.float32(-np.inf))
    start = first - first % LANES
    if start < first:
        store(load_first(score + start * 4, first - start, hidden), score + start * 4)
        start += LANES
    for s in range(start, stop, LANES):
        store(hidden, score + s * 4)


@inner
def hide_between(score, first, stop):
    """Set scores ``first`` to ``stop`` to -inf."""
    hidden = splat(np.float32(-np.inf))
    for s in range(first, stop, LANES):
        store_first(hidden, score + s * 4, min(LANES, stop - s))


@inner
def hide_outside(score, first_seen, stop, span, sinks):
    """Set to -inf the scores of a span from ``stop`` on, and from ``sinks`` to ``first_seen``."""
    if stop < span.whole:
        hide_from(score, max(stop, span.front), span.whole)
    if first_seen > span.front:
        hide_between(score, max(sinks, span.front), min(first_seen, span.whole))


@inner
def softmax_shift(top):
    """The value to subtract from exponents: the maximum, or 0 for a row that has seen no key."""
    return np.float32(0) if top == np.float32(-np.inf) else top


@inner
def finish_weights(weight, count, shift, inverse):
    """Turn scores in a row of weights into the softmax, in place."""
    hidden = splat(np.float32(-np.inf))
    subtrahend, scale = splat(shift), splat(inverse)
    for s in range(0, count, LANES):
        lanes = min(LANES, count - s)
        score = load_first(weight + s * 4, lanes, hidden)
        store_first(exp2(score - subtrahend) * scale, weight + s * 4, lanes)


@inner
def total_of(lanes):
    """(the total of the lanes at an address, its inverse); the inverse of 0 is 0."""
    total = sum_lanes(load(lanes))
    return total, np.float32(0) if total == np.float32(0) else np.float32(1) / total
