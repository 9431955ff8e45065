"""Vectors of float32 rounded to narrower numbers and written: as operands of a register tile, or as plain bfloat16.

The arithmetic of the target defines an operand's form in memory: see fastattn.simd.arithmetic.
"""

from numba import types

from fastattn.simd.arithmetic import arithmetic_for
from fastattn.simd.emit import Emitter
from fastattn.simd.vector import VECTOR, as_intrinsic

INT8, BFLOAT16 = arithmetic_for("int8"), arithmetic_for("bfloat16")
INT8_BYTES, BFLOAT16_BYTES = INT8.a_bytes, BFLOAT16.a_bytes  # of one operand


@as_intrinsic(types.void, VECTOR, types.intp)
def store_int8(emitter: Emitter, value, address):
    """Write the nearest integers as int8 operands."""
    integers = emitter.builder.add(emitter.round_to_integers(value), emitter.integer(INT8.offset))
    emitter.store_narrow(integers, address, 8 * INT8_BYTES)


@as_intrinsic(types.void, VECTOR, types.intp)
def store_bfloat16(emitter: Emitter, value, address):
    """Write the nearest bfloat16 operands."""
    upper = emitter.round_to_bfloat16(value)
    if BFLOAT16_BYTES == 4:
        emitter.store(emitter.builder.bitcast(upper, emitter.vector), address)
    else:
        emitter.store_narrow(emitter.builder.lshr(upper, emitter.integer(16)), address, 16)


@as_intrinsic(types.void, VECTOR, types.intp, types.intp)
def store_first_bfloat16(emitter: Emitter, value, address, count):
    """Write the first ``count`` lanes as the nearest bfloat16."""
    upper = emitter.builder.lshr(emitter.round_to_bfloat16(value), emitter.integer(16))
    emitter.store_first(emitter.builder.trunc(upper, emitter.halves), address, count, 2)


@as_intrinsic(VECTOR, VECTOR)
def nearest_bfloat16(emitter: Emitter, value):
    """The nearest bfloat16, as float32."""
    return emitter.builder.bitcast(emitter.round_to_bfloat16(value), emitter.vector)


store_first_float16 = as_intrinsic(types.void, VECTOR, types.intp, types.intp)(Emitter.store_first_float16)
