"""Layer and root-mean-square normalization, the residual added on the way in. A row stays in L1 for all passes."""

import numpy as np
from numba import prange

from fastattn.runtime.jit import inner, kernel
from fastattn.simd.target import LANES
from fastattn.simd.vector import fma, load_part, splat, store_part, sum_lanes

# Rows a task of this and the other passes over rows: 5 to 10 us of 512 columns, where launching threads takes 2 to 15.
ROW_BLOCK = 32


@inner
def sum_deviations(row, D, mean):
    """Sums of row - mean and of its square; lanes past D hold the mean, so they add nothing."""
    total, squares = splat(np.float32(0)), splat(np.float32(0))
    for d in range(0, D, LANES):
        deviation = load_part(row + d * 4, D - d, mean) - mean
        total = total + deviation
        squares = fma(deviation, deviation, squares)
    return sum_lanes(total), sum_lanes(squares)


@kernel
def _normalise(x_ND, residual_ND, weight_D, bias_D, epsilon, centred, y_ND):
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
            rest, squares = sum_deviations(y + at, D, mean)
            variance = squares / np.float32(D)
            if centred:
                # what rounding left in the mean: it matters where the mean is large beside the deviations
                rest = rest / np.float32(D)
                variance -= rest * rest
                mean = mean + splat(rest)
            scale = splat(np.float32(1) / np.sqrt(variance + np.float32(epsilon)))
            for d in range(0, D, LANES):
                value = (load_part(y + at + d * 4, D - d, zero) - mean) * scale
                value = value * load_part(weight + d * 4, D - d, zero)
                if has_bias:
                    value = value + load_part(bias + d * 4, D - d, zero)
                store_part(value, y + at + d * 4, D - d)


@kernel
def _normalize_heads(x_NE, weight_HK, epsilon):
    H, K = weight_HK.shape
    for block in prange(0, -(-len(x_NE) // ROW_BLOCK)):
        zero = splat(np.float32(0))
        for n in range(block * ROW_BLOCK, min((block + 1) * ROW_BLOCK, len(x_NE))):
            for h in range(H):
                head, weight = x_NE.ctypes.data + n * x_NE.strides[0] + h * K * 4, weight_HK.ctypes.data + h * K * 4
                squares = zero
                for k in range(0, K, LANES):
                    value = load_part(head + k * 4, K - k, zero)
                    squares = fma(value, value, squares)
                mean = sum_lanes(squares) / np.float32(K)
                scale = splat(np.float32(1) / np.sqrt(mean + np.float32(epsilon)))
                for k in range(0, K, LANES):
                    value = load_part(head + k * 4, K - k, zero) * scale * load_part(weight + k * 4, K - k, zero)
                    store_part(value, head + k * 4, K - k)
