"""What both attention kernels do with one row: of queries, of scores in base 2, of weights, of sums.

Addresses are in bytes; scores lie in scratch that may be written to a multiple of LANES.
"""

import numpy as np

from fastattn.runtime.jit import inner
from fastattn.simd.target import LANES
from fastattn.simd.vector import LOG2_E, exp2, fma, load, load_first, load_scalar, splat, store, store_first, sum_lanes


@inner
def aligned(address):
    """The next start of a cache line."""
    return (address + 63) & -64


@inner
def copy_row(source, target, width):
    """Copy ``width`` floats."""
    whole = width - width % LANES
    for k in range(0, whole, LANES):
        store(load(source + k * 4), target + k * 4)
    if whole < width:
        tail = load_first(source + whole * 4, width - whole, splat(np.float32(0)))
        store_first(tail, target + whole * 4, width - whole)


@inner
def multiply_row(source, factor, target, width):
    """target = source * factor, ``width`` floats."""
    multiplier = splat(factor)
    whole = width - width % LANES
    for k in range(0, whole, LANES):
        store(load(source + k * 4) * multiplier, target + k * 4)
    if whole < width:  # only here: a masked store is slow even of a whole vector
        tail = load_first(source + whole * 4, width - whole, multiplier)
        store_first(tail * multiplier, target + whole * 4, width - whole)


@inner
def add_bias(score, bias, step, count):
    """score += bias log2(e), the bias ``step`` floats (0 or 1) apart."""
    zero, factor, constant = splat(np.float32(0)), splat(np.float32(LOG2_E)), splat(load_scalar(bias))
    for s in range(0, count, LANES):
        if step != 0:
            constant = load_first(bias + s * 4, min(LANES, count - s), zero)
        store(fma(constant, factor, load(score + s * 4)), score + s * 4)


@inner
def hide_from(score, first, stop):
    """-inf from score ``first`` to ``stop``, a multiple of LANES."""
    hidden = splat(np.float32(-np.inf))
    start = first - first % LANES
    if start < first:
        store(load_first(score + start * 4, first - start, hidden), score + start * 4)
        start += LANES
    for s in range(start, stop, LANES):
        store(hidden, score + s * 4)


@inner
def finite(top):
    """The maximum that exponents are taken against: 0 for a row that has seen no key."""
    return np.float32(0) if top == np.float32(-np.inf) else top


@inner
def finish_weights(weight, count, shift, inverse):
    """Scores kept in the weights' own row become the softmax."""
    hidden = splat(np.float32(-np.inf))
    subtrahend, scale = splat(shift), splat(inverse)
    for s in range(0, count, LANES):
        lanes = min(LANES, count - s)
        score = load_first(weight + s * 4, lanes, hidden)
        store_first(exp2(score - subtrahend) * scale, weight + s * 4, lanes)


@inner
def finish_row(sums, total, out, width):
    """out = sums / total, zeros where the total is; the factor."""
    everything = sum_lanes(load(total))
    inverse = np.float32(0) if everything == np.float32(0) else np.float32(1) / everything
    multiply_row(sums, inverse, out, width)
    return inverse
