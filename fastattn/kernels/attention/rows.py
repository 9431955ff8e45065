"""Rows of queries, keys and values in their own type on the way in, and of results on the way out.

``table`` is an array of the type: float32, or uint16 for bfloat16, int16 for float16, which Numba lacks. All is
computed in float32.
"""

from numba import types

from fastattn.kernels.attention.scores import multiply_row
from fastattn.runtime.jit import inner_by_type
from fastattn.simd.narrow import store_first_bfloat16, store_first_float16
from fastattn.simd.rows import widen_row
from fastattn.simd.target import LANES
from fastattn.simd.vector import load, splat


def scale_row(table, source, factor, target, width):
    """Write a row times ``factor`` as float32."""
    raise NotImplementedError("compiled code only")


def widened(table, source, row, count, width, target):
    """(address, distance) of ``count`` rows as float32: the rows themselves, or those written to ``target``."""
    raise NotImplementedError("compiled code only")


def write_row(table, source, factor, target, width):
    """Write a row of float32, in scratch of whole vectors, times ``factor`` in the type of ``table``."""
    raise NotImplementedError("compiled code only")


@inner_by_type(scale_row)
def _scale_row(table, source, factor, target, width):
    if table.dtype == types.float32:

        def run(table, source, factor, target, width):
            multiply_row(source, factor, target, width)

    else:

        def run(table, source, factor, target, width):
            widen_row(table, source, target, width)
            multiply_row(target, factor, target, width)

    return run


@inner_by_type(widened)
def _widened(table, source, row, count, width, target):
    if table.dtype == types.float32:

        def run(table, source, row, count, width, target):
            return source, row

    else:

        def run(table, source, row, count, width, target):
            for n in range(count):
                widen_row(table, source + n * row, target + n * width * 4, width)
            return target, width * 4

    return run


@inner_by_type(write_row)
def _write_row(table, source, factor, target, width):
    if table.dtype == types.float32:

        def run(table, source, factor, target, width):
            multiply_row(source, factor, target, width)

        return run
    store_first = store_first_float16 if table.dtype == types.int16 else store_first_bfloat16

    def narrow(table, source, factor, target, width):
        multiplier = splat(factor)
        for k in range(0, width, LANES):
            store_first(load(source + k * 4) * multiplier, target + k * 2, min(LANES, width - k))

    return narrow
