"""Rows of queries, keys and values in their own type on the way in, and of results on the way out.

``like`` is an array of the type: float32, or uint16 for bfloat16, int16 for float16, which Numba lacks. All is computed
in float32.
"""

from numba import types

from fastattn.kernels.attention.scores import multiply_row
from fastattn.runtime.jit import inner_overload
from fastattn.simd.rows import widen_row
from fastattn.simd.target import LANES
from fastattn.simd.tile import store_first_bfloat16, store_first_float16
from fastattn.simd.vector import load, splat


@inner_overload
def scale_row(like, source, factor, target, width):
    """Write a row times ``factor`` as float32."""
    if like.dtype == types.float32:
        return lambda like, source, factor, target, width: multiply_row(source, factor, target, width)

    def run(like, source, factor, target, width):
        widen_row(like, source, target, width)
        multiply_row(target, factor, target, width)

    return run


@inner_overload
def widened(like, source, step, count, width, target):
    """(address, step) of ``count`` rows as float32: the rows themselves, or those written to ``target``."""
    if like.dtype == types.float32:
        return lambda like, source, step, count, width, target: (source, step)

    def run(like, source, step, count, width, target):
        for n in range(count):
            widen_row(like, source + n * step, target + n * width * 4, width)
        return target, width * 4

    return run


@inner_overload
def write_row(like, source, factor, target, width):
    """Write a row of float32, in scratch of whole vectors, times ``factor`` in the type of ``like``."""
    if like.dtype == types.float32:
        return lambda like, source, factor, target, width: multiply_row(source, factor, target, width)
    store_first = store_first_float16 if like.dtype == types.int16 else store_first_bfloat16

    def narrow(like, source, factor, target, width):
        multiplier = splat(factor)
        for k in range(0, width, LANES):
            store_first(load(source + k * 4) * multiplier, target + k * 2, min(LANES, width - k))

    return narrow
