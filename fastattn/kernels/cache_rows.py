"""Rows of keys and values into the cache's table, where attention reads them: as they are, or rounded to bfloat16.

Half the bytes are half the time of a step's attention, which is bound by reading them.
"""

import numpy as np
from numba import prange, types
from numba.extending import overload

from fastattn.runtime.jit import FLAGS, inner, kernel
from fastattn.simd.emit import I32, ir
from fastattn.simd.target import LANES
from fastattn.simd.vector import VECTOR, load, load_first, make_intrinsic, splat, store, store_first

ROW_BLOCK = 32  # rows of a task: 32 of 1,024 floats are 10 us


def _store_bfloat16(emitter, value, address, count):
    upper = emitter.builder.lshr(emitter.round_to_bfloat16(value), emitter.integer(16))
    kind = ir.VectorType(ir.IntType(16), emitter.target.lanes)
    name = f"llvm.masked.store.v{emitter.target.lanes}i16.p0"
    narrow = emitter.builder.trunc(upper, kind)
    emitter.call(name, ir.VoidType(), narrow, emitter.pointer(address, kind), I32(2), emitter.first_lanes(count))


store_bfloat16 = make_intrinsic(
    "store_first_bfloat16",
    types.void,
    (VECTOR, types.intp, types.intp),
    _store_bfloat16,
    "Write the first so many lanes as the nearest bfloat16.",
)


def copy_row(table, values, target, width):
    """``width`` floats to the address ``target`` in the type of ``table``."""
    raise NotImplementedError("compiled code only")


@inner
def copy_floats(values, target, width):
    for d in range(0, width, LANES):
        if d + LANES <= width:
            store(load(values + d * 4), target + d * 4)
        else:
            store_first(load_first(values + d * 4, width - d, splat(np.float32(0))), target + d * 4, width - d)


@inner
def round_floats(values, target, width):
    for d in range(0, width, LANES):
        left = min(LANES, width - d)
        value = load(values + d * 4) if left == LANES else load_first(values + d * 4, left, splat(np.float32(0)))
        store_bfloat16(value, target + d * 2, left)


def _round(emitter, value):
    return emitter.builder.bitcast(emitter.round_to_bfloat16(value), emitter.vector)


nearest_bfloat16 = make_intrinsic("nearest_bfloat16", VECTOR, (VECTOR,), _round, "The nearest bfloat16, as float32.")


@overload(copy_row, jit_options=FLAGS)
def _copy_row(table, values, target, width):
    copy = round_floats if table.dtype == types.uint16 else copy_floats

    def run(table, values, target, width):
        copy(values, target, width)

    return run


@kernel
def _write(table_ME, rows_N, values_NE, first_column):
    N, E = values_NE.shape
    values, table = values_NE.ctypes.data + first_column * 4, table_ME.ctypes.data
    row = table_ME.shape[1] * table_ME.itemsize
    for block in prange(0, -(-N // ROW_BLOCK)):
        for n in range(block * ROW_BLOCK, min(N, (block + 1) * ROW_BLOCK)):
            copy_row(table_ME, values + n * E * 4, table + rows_N[n] * row, E - first_column)


@kernel
def _round_in_place(values_NE, first_column):
    N, E = values_NE.shape
    for block in prange(0, -(-N // ROW_BLOCK)):
        zero = splat(np.float32(0))
        for n in range(block * ROW_BLOCK, min(N, (block + 1) * ROW_BLOCK)):
            row = values_NE.ctypes.data + n * E * 4
            for d in range(first_column, E, LANES):
                left = min(LANES, E - d)
                if left == LANES:
                    store(nearest_bfloat16(load(row + d * 4)), row + d * 4)
                else:
                    store_first(nearest_bfloat16(load_first(row + d * 4, left, zero)), row + d * 4, left)


def round_rows(values_NE: np.ndarray, first_column: int) -> None:
    """The values, float32 and C-contiguous, from ``first_column`` on become the nearest bfloat16, in place."""
    _round_in_place(values_NE, first_column)


def write_rows(table_ME: np.ndarray, rows_N: np.ndarray, values_NE: np.ndarray, first_column: int) -> None:
    """Row n of the values, from ``first_column`` on, becomes row rows_N[n] of the table, as far as it goes.

    table_ME   written; float32, or uint16, which takes the nearest bfloat16; C-contiguous like values_NE, float32.
    rows_N     int32, inside the table and all different; nothing is checked here.
    """
    _write(table_ME, rows_N, values_NE, first_column)
