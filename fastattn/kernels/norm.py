"""Normalizations of rows: layer and root-mean-square norm, softmax, unit length. A row stays in L1 for all passes."""

import numpy as np
from numba import prange

from fastattn.runtime.jit import inner, kernel
from fastattn.simd.arguments import LOG2_E, SIZE
from fastattn.simd.memory import address, load, load_first, load_part, store, store_first, store_part
from fastattn.simd.target import LANES
from fastattn.simd.vector import (
    absolute,
    exp2,
    fma,
    larger_magnitude,
    largest_magnitude,
    max_lanes,
    maximum,
    splat,
    sum_lanes,
)

# Rows of a task, here and in other passes over rows: 5 to 10 us of 512 columns, where launching threads takes 2 to 15.
ROW_BLOCK = 32
# Rows of greatest magnitude below TINY are first divided by TINY, since the inverse of that magnitude may overflow.
TINY, TINY_INVERSE = np.float32(2.0**-100), np.float32(2.0**100)


@kernel
def _normalise(x_ND, residual_ND, weight_D, bias_D, epsilon, centred, y_ND):
    """Layer norm of x + residual if ``centred``, else the root-mean-square norm; empty arrays are absent."""
    D = x_ND.shape[1]
    x, y, weight, bias = x_ND.ctypes.data, y_ND.ctypes.data, weight_D.ctypes.data, bias_D.ctypes.data
    residual = residual_ND.ctypes.data
    has_residual, has_bias = residual_ND.size > 0, bias_D.size > 0
    for block in prange(0, -(-len(x_ND) // ROW_BLOCK)):
        for n in range(block * ROW_BLOCK, min((block + 1) * ROW_BLOCK, len(x_ND))):
            zero = splat(np.float32(0))
            at = n * D * 4
            total = zero
            for d in range(0, D, LANES):
                value = load_part(x + at + d * 4, D - d, zero)
                if has_residual:
                    value = value + load_part(residual + at + d * 4, D - d, zero)
                store_part(value, y + at + d * 4, D - d)
                total = total + value
            mean = splat(sum_lanes(total) / np.float32(D)) if centred else zero
            deviations, squares = zero, zero
            for d in range(0, D, LANES):
                deviation = load_part(y + at + d * 4, D - d, mean) - mean  # 0 in lanes past D
                deviations = deviations + deviation
                squares = fma(deviation, deviation, squares)
            error, variance = sum_lanes(deviations) / np.float32(D), sum_lanes(squares) / np.float32(D)
            if centred:
                # the mean's rounding error matters where the mean is large beside the deviations
                variance -= error * error
                mean = mean + splat(error)
            scale = splat(np.float32(1) / np.sqrt(variance + np.float32(epsilon)))
            for d in range(0, D, LANES):
                value = (load_part(y + at + d * 4, D - d, zero) - mean) * scale
                value = value * load_part(weight + d * 4, D - d, zero)
                if has_bias:
                    value = value + load_part(bias + d * 4, D - d, zero)
                store_part(value, y + at + d * 4, D - d)


@kernel
def _normalize_heads(x_NE, weight_HK, epsilon, column):
    H, K = weight_HK.shape
    for block in prange(0, -(-len(x_NE) // ROW_BLOCK)):
        zero = splat(np.float32(0))
        for n in range(block * ROW_BLOCK, min((block + 1) * ROW_BLOCK, len(x_NE))):
            for h in range(H):
                head = x_NE.ctypes.data + n * x_NE.strides[0] + (column + h * K) * 4
                weight = weight_HK.ctypes.data + h * K * 4
                squares = zero
                for k in range(0, K, LANES):
                    value = load_part(head + k * 4, K - k, zero)
                    squares = fma(value, value, squares)
                mean = sum_lanes(squares) / np.float32(K)
                scale = splat(np.float32(1) / np.sqrt(mean + np.float32(epsilon)))
                for k in range(0, K, LANES):
                    value = load_part(head + k * 4, K - k, zero) * scale * load_part(weight + k * 4, K - k, zero)
                    store_part(value, head + k * 4, K - k)


@inner
def soften_row(x, y, count):
    """y = softmax of ``count`` floats at the address x, zeros if all are -inf."""
    hidden, base = splat(np.float32(-np.inf)), splat(np.float32(LOG2_E))
    whole = count - count % LANES
    remaining, end = count - whole, whole * 4  # only the tail: a masked load is slow even for a whole vector
    tail = load_first(x + end, remaining, hidden) if remaining > 0 else hidden
    top = maximum(tail, hidden)  # ``maximum`` passes over NaN in this order
    for s in range(0, end, SIZE):
        top = maximum(load(x + s), top)
    highest = max_lanes(top)
    shift = splat(np.float32(0) if highest == np.float32(-np.inf) else highest)  # -inf minus -inf is NaN
    tail = exp2((tail - shift) * base)
    total = tail
    for s in range(0, end, SIZE):
        value = exp2((load(x + s) - shift) * base)
        store(value, y + s)
        total = total + value
    scale = sum_lanes(total)
    if scale != np.float32(0):
        scale = np.float32(1) / scale
    inverse = splat(scale)
    for s in range(0, end, SIZE):
        store(load(y + s) * inverse, y + s)
    if remaining > 0:
        store_first(tail * inverse, y + end, remaining)


@kernel
def _softmax(x_NS, y_NS):
    S = x_NS.shape[1]
    x, y = address(x_NS), address(y_NS)
    for block in prange(0, -(-len(x_NS) // ROW_BLOCK)):
        for n in range(block * ROW_BLOCK, min((block + 1) * ROW_BLOCK, len(x_NS))):
            soften_row(x + n * S * 4, y + n * S * 4, S)


@inner
def _direct(x, y, width):
    """y = x / |x| of rows at addresses; zeros for zeros, NaN for a row with NaN or infinity."""
    zero = splat(np.float32(0))
    peaks = zero
    for d in range(0, width, LANES):
        peaks = larger_magnitude(absolute(load_part(x + d * 4, width - d, zero)), peaks)
    peak = largest_magnitude(peaks)
    # relative to the greatest magnitude, so that no square leaves float32's range
    tiny_factor = splat(TINY_INVERSE if peak < TINY else np.float32(1))
    peak = peak * TINY_INVERSE if peak < TINY else peak
    inverse, squares = splat(np.float32(1) / peak if peak != np.float32(0) else np.float32(0)), zero
    for d in range(0, width, LANES):
        value = load_part(x + d * 4, width - d, zero) * tiny_factor * inverse
        squares = fma(value, value, squares)
        store_part(value, y + d * 4, width - d)
    length = np.sqrt(sum_lanes(squares))
    unit_factor = splat(np.float32(1) / length if length != np.float32(0) else np.float32(1))
    for d in range(0, width, LANES):
        store_part(load_part(y + d * 4, width - d, zero) * unit_factor, y + d * 4, width - d)


@kernel
def _direct_all(x_ND, y_ND):
    N, D = x_ND.shape
    for block in prange(0, -(-N // ROW_BLOCK)):
        for n in range(block * ROW_BLOCK, min((block + 1) * ROW_BLOCK, N)):
            _direct(address(x_ND) + n * D * 4, address(y_ND) + n * D * 4, D)
