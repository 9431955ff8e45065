"""The softmax of rows: three passes over a row that stays in L1, its maximum subtracted first."""

import numpy as np
from numba import prange

from fastattn.kernels.norm import ROW_BLOCK
from fastattn.runtime.jit import inner, kernel
from fastattn.simd.constants import LOG2_E, SIZE
from fastattn.simd.target import LANES
from fastattn.simd.vector import (
    address,
    exp2,
    load,
    load_first,
    max_lanes,
    maximum,
    splat,
    store,
    store_first,
    sum_lanes,
)


@inner
def soften_row(x, y, count):
    """y = softmax of ``count`` floats at the address x, zeros if all are -inf."""
    hidden, base = splat(np.float32(-np.inf)), splat(np.float32(LOG2_E))
    whole = count - count % LANES
    left, end = count - whole, whole * 4  # only the tail: a masked load is slow even for a whole vector
    tail = load_first(x + end, left, hidden) if left > 0 else hidden
    top = maximum(tail, hidden)  # in this order it passes over NaN
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
    everything = sum_lanes(total)
    if everything != np.float32(0):
        everything = np.float32(1) / everything
    inverse = splat(everything)
    for s in range(0, end, SIZE):
        store(load(y + s) * inverse, y + s)
    if left > 0:
        store_first(tail * inverse, y + end, left)


@kernel
def _softmax(x_NS, y_NS):
    S = x_NS.shape[1]
    x, y = address(x_NS), address(y_NS)
    for block in prange(0, -(-len(x_NS) // ROW_BLOCK)):
        for n in range(block * ROW_BLOCK, min((block + 1) * ROW_BLOCK, len(x_NS))):
            soften_row(x + n * S * 4, y + n * S * 4, S)
