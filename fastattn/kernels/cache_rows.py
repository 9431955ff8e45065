"""Writes rows of keys and values to the key-value cache's tables, as they are or rounded to bfloat16 or float16.

Half the bytes take half the time of a step's attention, which is bound by reading them.
"""

import numpy as np
from numba import prange, types

from fastattn.runtime.jit import inner, inner_overload, kernel
from fastattn.simd.narrow import nearest_bfloat16, store_first_bfloat16, store_first_float16
from fastattn.simd.rows import copy_floats
from fastattn.simd.target import LANES
from fastattn.simd.vector import load_part, splat, store_part

ROW_BLOCK = 32  # rows of a task: 32 of 1,024 floats are 10 us


def _make_rounding(store_first):
    @inner
    def write(values, target, width):
        for d in range(0, width, LANES):
            value = load_part(values + d * 4, width - d, splat(np.float32(0)))
            store_first(value, target + d * 2, min(LANES, width - d))

    return write


# of the types of tables that values are rounded for
ROUNDING = {types.uint16: _make_rounding(store_first_bfloat16), types.int16: _make_rounding(store_first_float16)}


@inner_overload
def write_row(table, values, target, width):
    """``width`` floats to the address ``target`` in the type of ``table``."""
    write = ROUNDING.get(table.dtype, copy_floats)
    return lambda table, values, target, width: write(values, target, width)


@kernel
def _write(table_ME, rows_N, values_NE, first_column):
    N, E = values_NE.shape
    values, table = values_NE.ctypes.data + first_column * 4, table_ME.ctypes.data
    row = table_ME.shape[1] * table_ME.itemsize
    for block in prange(0, -(-N // ROW_BLOCK)):
        for n in range(block * ROW_BLOCK, min(N, (block + 1) * ROW_BLOCK)):
            write_row(table_ME, values + n * E * 4, table + rows_N[n] * row, E - first_column)


@kernel
def _round_in_place(values_NE, first_column):
    N, E = values_NE.shape
    for block in prange(0, -(-N // ROW_BLOCK)):
        zero = splat(np.float32(0))
        for n in range(block * ROW_BLOCK, min(N, (block + 1) * ROW_BLOCK)):
            row = values_NE.ctypes.data + n * E * 4
            for d in range(first_column, E, LANES):
                store_part(nearest_bfloat16(load_part(row + d * 4, E - d, zero)), row + d * 4, E - d)
