"""Rows of A in the form that a register tile multiplies: as they are, rounded to bfloat16, or quantised to int8.

int8 is symmetric with one factor a row: 127 / max |x|, found as the row passes, which fits in L1, so that the second
look at it is free; or one that the weights come with, as a checkpoint wants it. Columns may be balanced first, by
factors that the weights come with too. So a row's integers depend on nothing but the row. Where the instruction wants
unsigned bytes, 128 is added, for which packed weights carry the correction.
"""

import numpy as np
from numba import types
from numba.extending import overload

from fastattn.runtime.jit import FLAGS, inner
from fastattn.simd.arithmetic import arithmetic_for
from fastattn.simd.target import LANES
from fastattn.simd.tile import PRECISIONS
from fastattn.simd.vector import (
    VECTOR,
    absolute,
    fma,
    larger_magnitude,
    largest_magnitude,
    load,
    load_first,
    make_intrinsic,
    maximum,
    minimum,
    splat,
    store_scalar,
    sum_lanes,
)

INT8, BFLOAT16 = arithmetic_for("int8"), arithmetic_for("bfloat16")
INT8_BYTES, BFLOAT16_BYTES = INT8.a_bytes, BFLOAT16.a_bytes


def _store_int8(emitter, value, address):
    integers = emitter.builder.add(emitter.round_to_integers(value), emitter.integer(INT8.offset))
    emitter.store_narrow(integers, address, 8 * INT8.a_bytes)


def _store_bfloat16(emitter, value, address):
    upper = emitter.round_to_bfloat16(value)
    if BFLOAT16.a_bytes == 4:
        emitter.store(emitter.builder.bitcast(upper, emitter.vector), address)
    else:
        emitter.store_narrow(emitter.builder.lshr(upper, emitter.integer(16)), address, 16)


store_int8 = make_intrinsic(
    "store_int8", types.void, (VECTOR, types.intp), _store_int8, "Write the nearest integers as int8 operands."
)
store_bfloat16 = make_intrinsic(
    "store_bfloat16", types.void, (VECTOR, types.intp), _store_bfloat16, "Write the nearest bfloat16 operands."
)


@inner
def balance(value, factors, d):
    """The columns from ``d`` on times theirs of the factors at an address, or None."""
    if factors is None:
        return value
    return value * load(factors + d * 4)


@inner
def quantise_row(x, column_factors, width, staged):
    """A row of ``width`` floats as int8 operands, zeros up to whole vectors; returns what an integer stands for.

    column_factors  by what the row is multiplied first: an address, whole vectors; or None
    NaN where the row has one: its integers mean nothing then, and what comes of them is NaN.
    """
    zero = splat(np.float32(0))
    whole = width - width % LANES
    peaks = zero
    for d in range(0, whole, LANES):
        peaks = larger_magnitude(absolute(balance(load(x + d * 4), column_factors, d)), peaks)
    if whole < width:
        last = load_first(x + whole * 4, width - whole, zero)
        peaks = larger_magnitude(absolute(balance(last, column_factors, whole)), peaks)
    peak = largest_magnitude(peaks)
    factor = splat(np.float32(127) / peak if peak > 0 else np.float32(0))
    for d in range(0, whole, LANES):
        store_int8(balance(load(x + d * 4), column_factors, d) * factor, staged + d * INT8_BYTES)
    if whole < width:
        last = load_first(x + whole * 4, width - whole, zero)
        store_int8(balance(last, column_factors, whole) * factor, staged + whole * INT8_BYTES)
    return peak / np.float32(127)


@inner
def store_cut(value, factor, staged):
    scaled = value * factor
    store_int8(minimum(maximum(scaled, splat(np.float32(-127))), splat(np.float32(127))), staged)


@inner
def quantise_row_by(scale, x, width, staged):
    """``quantise_row`` with a given factor: what it takes beyond +-127 is cut; NaN for an infinity too."""
    zero, factor = splat(np.float32(0)), splat(scale)
    whole = width - width % LANES
    faults = zero  # 0, or NaN where a value is not finite
    for d in range(0, whole, LANES):
        value = load(x + d * 4)
        faults = fma(value, zero, faults)
        store_cut(value, factor, staged + d * INT8_BYTES)
    if whole < width:
        value = load_first(x + whole * 4, width - whole, zero)
        faults = fma(value, zero, faults)
        store_cut(value, factor, staged + whole * INT8_BYTES)
    return np.float32(1) / scale + sum_lanes(faults)


@inner
def round_row(x, width, staged):
    """A row of ``width`` floats as bfloat16 operands, zeros up to whole vectors."""
    zero = splat(np.float32(0))
    whole = width - width % LANES
    for d in range(0, whole, LANES):
        store_bfloat16(load(x + d * 4), staged + d * BFLOAT16_BYTES)
    if whole < width:
        store_bfloat16(load_first(x + whole * 4, width - whole, zero), staged + whole * BFLOAT16_BYTES)


_STAGED_BYTES = {"f": 0, "H": BFLOAT16_BYTES, "b": INT8_BYTES}  # of one value, by the type of the panels


def scratch_bytes(weights: np.ndarray, width: int, rows: int) -> int:
    """Bytes for ``rows`` rows of that width and their factors, staged for weights of that type."""
    size = _STAGED_BYTES[weights.dtype.char]
    return rows * (-(-width // LANES) * LANES * size + 4) if size else 0


def staged_row(panels, width):
    """Bytes from one row that a tile reads to the next."""
    raise NotImplementedError("compiled code only")


def stage_rows(panels, staging, x, rows, width, staged, factors):
    """Stage ``rows`` adjacent float32 rows at ``staged`` for the precision of ``panels``; addresses, as in tiles.

    staging is PackedLinear's. Written in int8: a factor a row at ``factors``. Returns the address of the first row
    that a tile shall read.
    """
    raise NotImplementedError("compiled code only")


@overload(staged_row, jit_options=FLAGS)
def _staged_row(panels, width):
    def as_it_is(panels, width):
        return width * 4

    def bfloat16(panels, width):
        return (width + LANES - 1) // LANES * LANES * BFLOAT16_BYTES

    def int8(panels, width):
        return (width + LANES - 1) // LANES * LANES * INT8_BYTES

    return {"float32": as_it_is, "bfloat16": bfloat16, "int8": int8}[PRECISIONS[panels.dtype]]


@overload(stage_rows, jit_options=FLAGS)
def _stage_rows(panels, staging, x, rows, width, staged, factors):
    def as_it_is(panels, staging, x, rows, width, staged, factors):
        return x

    def bfloat16(panels, staging, x, rows, width, staged, factors):
        step = staged_row(panels, width)
        for r in range(rows):
            round_row(x + r * width * 4, width, staged + r * step)
        return staged

    def int8(panels, staging, x, rows, width, staged, factors):
        input_scale, input_factors = staging
        step, scale = staged_row(panels, width), input_scale[0]
        for r in range(rows):
            row, place = x + r * width * 4, staged + r * step
            if scale > 0:
                factor = quantise_row_by(scale, row, width, place)
            elif input_factors.size > 0:
                factor = quantise_row(row, input_factors.ctypes.data, width, place)
            else:
                factor = quantise_row(row, None, width, place)
            store_scalar(factor, factors + r * 4)
        return staged

    return {"float32": as_it_is, "bfloat16": bfloat16, "int8": int8}[PRECISIONS[panels.dtype]]
