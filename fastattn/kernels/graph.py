"""Attention of a graph's nodes to their neighbours, listed one node after another (CSR); Velickovic 2018.

A task is a run of nodes, of about as many neighbours in each, taken node by node: scores of all heads in scratch,
[neighbours, heads], their softmax along the neighbours, and the weighted sum, which stays in a register. Bound by
reading the neighbours' rows; each is read for all heads while it is in L1. Addresses are in bytes.
"""

import numpy as np
from numba import prange

from fastattn.runtime.jit import inner, kernel
from fastattn.runtime.parts import take_part
from fastattn.runtime.threads import current_threads
from fastattn.simd.target import LANES
from fastattn.simd.vector import (
    LOG2_E,
    address,
    exp2,
    fma,
    load_part,
    load_scalar,
    maximum,
    minimum,
    splat,
    store_part,
    store_scalar,
    sum_lanes,
)

RUN = 64  # neighbours that are summed up by themselves: in one sum, thousands would lose digits
SMALL = 1 << 14  # products that one thread finishes before another would have started: 5 to 10 us


@inner
def _add_terms(scratch, target, source, indices_E, edges, heads, slope):
    """Scores LeakyReLU(target + source) of a node's neighbours, [neighbours, heads]."""
    zero, below = splat(np.float32(0)), splat(slope)
    for e in range(edges[0], edges[1]):
        row, place = source + np.int64(indices_E[e]) * heads * 4, scratch + (e - edges[0]) * heads * 4
        for h in range(0, heads, LANES):
            value = load_part(target + h * 4, heads - h, zero) + load_part(row + h * 4, heads - h, zero)
            # in this order NaN stays
            value = fma(below, minimum(zero, value), maximum(zero, value))
            store_part(value, place + h * 4, heads - h)


@inner
def dot(a, b, width):
    """The dot product of two rows at addresses; its order depends on ``width`` only."""
    zero = splat(np.float32(0))
    total = zero
    for k in range(0, width, LANES):
        total = fma(load_part(a + k * 4, width - k, zero), load_part(b + k * 4, width - k, zero), total)
    return sum_lanes(total)


@inner
def _multiply(scratch, query, key, indices_E, edges, heads, width, scale):
    """Scores scale q k of a node's neighbours, [neighbours, heads]."""
    for e in range(edges[0], edges[1]):
        row, place = key + np.int64(indices_E[e]) * heads * width * 4, scratch + (e - edges[0]) * heads * 4
        for h in range(heads):
            store_scalar(dot(query + h * width * 4, row + h * width * 4, width) * scale, place + h * 4)


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
            part = zero
            for e in range(first, min(first + RUN, count)):
                place = scratch + (e * heads + h) * 4
                value = exp2((load_part(place, heads - h, zero) - top) * factor)
                part = part + value
                store_part(value, place, heads - h)
            total = total + part
        inverse = splat(np.float32(1)) / total
        for e in range(count):
            place = scratch + (e * heads + h) * 4
            store_part(load_part(place, heads - h, zero) * inverse, place, heads - h)


@inner
def _add_values(scratch, value, indices_E, edges, heads, width, out):
    zero = splat(np.float32(0))
    for h in range(heads):
        for k in range(0, width, LANES):
            total, column = zero, value + (h * width + k) * 4
            for first in range(edges[0], edges[1], RUN):
                part = zero
                for e in range(first, min(first + RUN, edges[1])):
                    weight = splat(load_scalar(scratch + ((e - edges[0]) * heads + h) * 4))
                    row = column + np.int64(indices_E[e]) * heads * width * 4
                    part = fma(weight, load_part(row, width - k, zero), part)
                total = total + part
            store_part(total, out + (h * width + k) * 4, width - k)


@kernel
def _attend(bounds_P1, edges, terms, dots, value_MHV, factor, weights_EH, scratch_PN, out_NHV):
    """A run of nodes a part; see graph_attention.

    edges   starts_N1, indices_E
    terms   target_NH, source_MH; empty: scores are dot products
    dots    query_NHK, key_MHK
    factor  slope of the terms' LeakyReLU, or scale of the products
    """
    starts_N1, indices_E = edges
    target_NH, source_MH = terms
    query_NHK, key_MHK = dots
    H, V, K = value_MHV.shape[1], value_MHV.shape[2], query_NHK.shape[2]
    keeps = weights_EH.size > 0
    for part in prange(0, len(scratch_PN)):
        scratch, _, _ = take_part(scratch_PN, part, 0)
        for n in range(bounds_P1[part], bounds_P1[part + 1]):
            span = np.int64(starts_N1[n]), np.int64(starts_N1[n + 1])
            if keeps:
                scratch = address(weights_EH) + span[0] * H * 4
            if target_NH.size > 0:
                _add_terms(scratch, address(target_NH) + n * H * 4, address(source_MH), indices_E, span, H, factor)
            else:
                query = address(query_NHK) + n * H * K * 4
                _multiply(scratch, query, address(key_MHK), indices_E, span, H, K, factor)
            _take_softmax(scratch, span[1] - span[0], H)
            _add_values(scratch, address(value_MHV), indices_E, span, H, V, address(out_NHV) + n * H * V * 4)


_NONE_2, _NONE_3 = np.empty((0, 0), np.float32), np.empty((0, 0, 0), np.float32)


def graph_attention(
    value_MHV: np.ndarray,
    starts_N1: np.ndarray,
    indices_E: np.ndarray,
    *,
    terms: tuple[np.ndarray, np.ndarray] | None = None,
    dots: tuple[np.ndarray, np.ndarray] | None = None,
    factor: float,
    weights_EH: np.ndarray | None = None,
) -> np.ndarray:
    """out_NHV: node n's softmax over its neighbours indices[starts[n]:starts[n + 1]], and their weighted values.

    terms   (target_NH, source_MH): scores LeakyReLU(target[n] + source[m]), ``factor`` is the slope below zero
    dots    (query_NHK, key_MHK): scores factor query[n] . key[m]
    weights_EH  written if given: each neighbour's weight
    A node without neighbours yields zeros. Arrays are float32, starts and indices int64, all C-contiguous; nothing is
    checked here.
    """
    N, (_, H, V) = len(starts_N1) - 1, value_MHV.shape
    out_NHV = np.empty((N, H, V), np.float32)
    degree = int(np.diff(starts_N1).max(initial=0))
    parts = 1 if len(indices_E) * H * V <= SMALL else current_threads()
    # as much to do in each part as its nodes have neighbours, and each node a little
    costs_N1 = starts_N1 + np.arange(N + 1)
    bounds_P1 = np.searchsorted(costs_N1, costs_N1[-1] * np.arange(parts + 1) // parts)
    scratch_PN = np.empty((parts, degree * H if weights_EH is None else 0), np.float32)
    terms, dots = terms or (_NONE_2, _NONE_2), dots or (_NONE_3, _NONE_3)
    kept = _NONE_2 if weights_EH is None else weights_EH
    _attend(bounds_P1, (starts_N1, indices_E), terms, dots, value_MHV, np.float32(factor), kept, scratch_PN, out_NHV)
    return out_NHV
