"""Rows divided by their length, for cosines: one pass over memory, a row stays in L1 for its three."""

import numpy as np
from numba import prange

from fastattn.kernels.norm import ROW_BLOCK
from fastattn.runtime.jit import inner, kernel
from fastattn.simd.target import LANES
from fastattn.simd.vector import (
    absolute,
    address,
    fma,
    larger_magnitude,
    largest_magnitude,
    load_part,
    splat,
    store_part,
    sum_lanes,
)

TINY, RAISE = np.float32(2.0**-100), np.float32(2.0**100)  # below it the inverse of a number would overflow


@inner
def _direct(x, y, width):
    """y = x / |x|, at addresses; zeros for zeros, NaN for a row that has NaN or infinity."""
    zero = splat(np.float32(0))
    peaks = zero
    for d in range(0, width, LANES):
        peaks = larger_magnitude(absolute(load_part(x + d * 4, width - d, zero)), peaks)
    peak = largest_magnitude(peaks)
    # relative to the greatest, so that no square leaves float32's range
    raised = splat(RAISE if peak < TINY else np.float32(1))
    peak = peak * RAISE if peak < TINY else peak
    inverse, squares = splat(np.float32(1) / peak if peak != np.float32(0) else np.float32(0)), zero
    for d in range(0, width, LANES):
        value = load_part(x + d * 4, width - d, zero) * raised * inverse
        squares = fma(value, value, squares)
        store_part(value, y + d * 4, width - d)
    length = np.sqrt(sum_lanes(squares))
    shorter = splat(np.float32(1) / length if length != np.float32(0) else np.float32(1))
    for d in range(0, width, LANES):
        store_part(load_part(y + d * 4, width - d, zero) * shorter, y + d * 4, width - d)


@kernel
def _direct_all(x_ND, y_ND):
    N, D = x_ND.shape
    for block in prange(0, -(-N // ROW_BLOCK)):
        for n in range(block * ROW_BLOCK, min((block + 1) * ROW_BLOCK, N)):
            _direct(address(x_ND) + n * D * 4, address(y_ND) + n * D * 4, D)
