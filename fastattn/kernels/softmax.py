"""The softmax of rows: three passes over a row that stays in L1, its maximum subtracted first."""

import numpy as np
from numba import prange

from fastattn.kernels.norm import ROW_BLOCK
from fastattn.runtime.jit import inner, kernel
from fastattn.simd.target import LANES
from fastattn.simd.vector import address, exp, load_part, max_lanes, maximum, splat, store_part, sum_lanes


@inner
def soften_row(x, y, count):
    """y = softmax of ``count`` floats at the address x, zeros if all are -inf."""
    zero, least = splat(np.float32(0)), splat(np.float32(-np.inf))
    top, total = least, zero
    for s in range(0, count, LANES):
        top = maximum(load_part(x + s * 4, count - s, least), top)  # in this order it passes over NaN
    highest = max_lanes(top)
    if highest == np.float32(-np.inf):  # -inf minus -inf is NaN
        highest = np.float32(0)
    shift = splat(highest)
    for s in range(0, count, LANES):
        value = exp(load_part(x + s * 4, count - s, least) - shift)
        store_part(value, y + s * 4, count - s)
        total = total + value
    everything = sum_lanes(total)
    if everything != np.float32(0):
        everything = np.float32(1) / everything
    inverse = splat(everything)
    for s in range(0, count, LANES):
        store_part(load_part(y + s * 4, count - s, zero) * inverse, y + s * 4, count - s)


@kernel
def _softmax(x_NS, y_NS):
    S = x_NS.shape[1]
    x, y = address(x_NS), address(y_NS)
    for block in prange(0, -(-len(x_NS) // ROW_BLOCK)):
        for n in range(block * ROW_BLOCK, min((block + 1) * ROW_BLOCK, len(x_NS))):
            soften_row(x + n * S * 4, y + n * S * 4, S)


def softmax(x_NS: np.ndarray) -> np.ndarray:
    """e**x divided by its sum along the row (Bridle 1990); float32 [N, S], C-contiguous.

    -inf yields 0, a row of nothing else zeros; a row with NaN or +inf is NaN.
    """
    y_NS = np.empty_like(x_NS)
    _softmax(x_NS, y_NS)
    return y_NS
