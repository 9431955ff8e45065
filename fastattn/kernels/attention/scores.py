"""Scores and their softmax in both attention kernels, for one row of one head.

score = (cap(q k' scale) + bias(h, t, s) + slope(h) (s - p) + table(h, s - p)) log2(e), -inf where the key is hidden;
cap(x) = softcap tanh(x / softcap). Then the softmax, whose sums are divided at the end. Addresses are in bytes; scores
are in scratch that may be written up to a multiple of LANES. What is added is passed as a tuple of addresses, 0 for
none:

biases  (bias, its distances of heads and rows, of keys in floats: 0 or 1; slopes of the heads; tables, with the
        address of the entry for s - p = 0, and the distance of heads; whether p is 0 for all rows)
"""

from functools import lru_cache

import numpy as np

from fastattn.heads import Heads
from fastattn.position_bias import PositionBias
from fastattn.runtime.jit import inner
from fastattn.simd.target import LANES
from fastattn.simd.vector import (
    LOG2_E,
    address,
    count_lanes,
    exp2,
    fma,
    load,
    load_first,
    load_scalar,
    splat,
    store,
    store_first,
    sum_lanes,
)

_NO_BIAS, _NO_TABLE = np.empty((0, 0, 0, 0), np.float32), np.empty((0, 1), np.float32)
_NO_SLOPES = np.empty(0, np.float32)


def score_form(heads: Heads, bias_BHTS: np.ndarray | None, position_bias: PositionBias | None) -> tuple:
    """(factor of products, their cap or 0, bias_BHTS, slopes_H, table_HL, whether positions count from the start), for
    kernels; arrays may be empty."""
    if bias_BHTS is None and position_bias is None:
        return _plain_form(heads.width, heads.scale, heads.softcap)
    position_bias = position_bias or PositionBias()
    return (
        *_plain_form(heads.width, heads.scale, heads.softcap)[:2],
        _NO_BIAS if bias_BHTS is None else np.ascontiguousarray(bias_BHTS),
        _NO_SLOPES if position_bias.slopes_H is None else position_bias.slopes_H,
        _NO_TABLE if position_bias.table_HL is None else position_bias.table_HL,
        int(position_bias.from_start),
    )


@lru_cache(256)  # a model needs the same thousands of times a second
def _plain_form(width: int, scale: float | None, softcap: float) -> tuple:
    scale = width**-0.5 if scale is None else scale
    return np.float32(scale * LOG2_E), np.float32(softcap * LOG2_E), _NO_BIAS, _NO_SLOPES, _NO_TABLE, 0


@inner
def strides(array_BHTS):
    """Strides in floats along batch, head, row and key; 0 along an axis of length one."""
    B, H, T, S = array_BHTS.shape
    return (
        H * T * S if B > 1 else 0,
        T * S if H > 1 else 0,
        S if T > 1 else 0,
        1 if S > 1 else 0,
    )


@inner
def biases_of(form, b, h):
    """The biases of a ``score_form`` for ``add_biases``, for a sentence's heads from h on."""
    _, _, bias_BHTS, slopes_H, table_HL, from_start = form
    batch, head, row, step = strides(bias_BHTS)
    bias = address(bias_BHTS) + (b * batch + h * head) * 4 if bias_BHTS.size > 0 else 0
    slopes = address(slopes_H) + h * 4 if slopes_H.size > 0 else 0
    L = table_HL.shape[1]
    table = address(table_HL) + (h * L + L // 2) * 4 if table_HL.size > 0 else 0
    return bias, head * 4, row * 4, step, slopes, table, L * 4, from_start


@inner
def aligned(place):
    """The address rounded up to a cache line."""
    return (place + 63) & -64


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
    """score += bias log2(e); biases are ``step`` floats (0 or 1) apart."""
    zero, factor, constant = splat(np.float32(0)), splat(np.float32(LOG2_E)), splat(load_scalar(bias))
    for s in range(0, count, LANES):
        if step != 0:
            constant = load_first(bias + s * 4, min(LANES, count - s), zero)
        store(fma(constant, factor, load(score + s * 4)), score + s * 4)


@inner
def add_slope(score, slope, distance, count):
    """score += slope log2(e) times distance, distance + 1 and so on (ALiBi, Press 2022)."""
    slopes, factor = splat(slope), splat(np.float32(LOG2_E))
    for s in range(0, count, LANES):
        bias = slopes * (splat(np.float32(distance + s)) + count_lanes())
        store(fma(bias, factor, load(score + s * 4)), score + s * 4)


@inner
def add_biases(score, biases, head, row, position, first, count):
    """Add all biases to ``count`` scores of a row at ``position`` and the keys from ``first`` on."""
    bias, bias_head, bias_row, bias_step, slopes, table, table_head, from_start = biases
    if count <= 0:
        return
    if bias != 0:
        add_bias(score, bias + head * bias_head + row * bias_row + first * 4 * bias_step, bias_step, count)
    if slopes != 0:
        add_slope(score, load_scalar(slopes + head * 4), first if from_start != 0 else first - position, count)
    if table != 0:
        add_bias(score, table + head * table_head + (first - position) * 4, 1, count)


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
def softmax_shift(top):
    """The value subtracted from exponents: the maximum, or 0 for a row that has seen no key."""
    return np.float32(0) if top == np.float32(-np.inf) else top


@inner
def finish_weights(weight, count, shift, inverse):
    """Turn scores kept in a row of weights into the softmax, in place."""
    hidden = splat(np.float32(-np.inf))
    subtrahend, scale = splat(shift), splat(inverse)
    for s in range(0, count, LANES):
        lanes = min(LANES, count - s)
        score = load_first(weight + s * 4, lanes, hidden)
        store_first(exp2(score - subtrahend) * scale, weight + s * 4, lanes)


@inner
def finish_row(sums, total, out, width):
    """out = sums / total, zeros for a total of 0; returns 1 / total, or 0."""
    everything = sum_lanes(load(total))
    inverse = np.float32(0) if everything == np.float32(0) else np.float32(1) / everything
    multiply_row(sums, inverse, out, width)
    return inverse
