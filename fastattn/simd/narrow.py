"""Vectors of float32 rounded to narrower numbers and written: as operands of a register tile, or as plain bfloat16.

The arithmetic of the target defines an operand's form in memory: see fastattn.simd.arithmetic.
"""

from llvmlite import ir
from numba import types

from fastattn.simd.arithmetic import arithmetic_for
from fastattn.simd.emit import I32, Emitter
from fastattn.simd.vector import VECTOR, make_intrinsic

INT8, BFLOAT16 = arithmetic_for("int8"), arithmetic_for("bfloat16")
INT8_BYTES, BFLOAT16_BYTES = INT8.a_bytes, BFLOAT16.a_bytes  # of one operand


def _store_int8(emitter: Emitter, value, address):
    integers = emitter.builder.add(emitter.round_to_integers(value), emitter.integer(INT8.offset))
    emitter.store_narrow(integers, address, 8 * INT8_BYTES)


def _store_bfloat16(emitter: Emitter, value, address):
    upper = emitter.round_to_bfloat16(value)
    if BFLOAT16_BYTES == 4:
        emitter.store(emitter.builder.bitcast(upper, emitter.vector), address)
    else:
        emitter.store_narrow(emitter.builder.lshr(upper, emitter.integer(16)), address, 16)


def _store_first_bfloat16(emitter: Emitter, value, address, count):
    upper = emitter.builder.lshr(emitter.round_to_bfloat16(value), emitter.integer(16))
    kind = ir.VectorType(ir.IntType(16), emitter.target.lanes)
    name = f"llvm.masked.store.v{emitter.target.lanes}i16.p0"
    narrow = emitter.builder.trunc(upper, kind)
    emitter.call(name, ir.VoidType(), narrow, emitter.pointer(address, kind), I32(2), emitter.first_lanes(count))


def _round_to_bfloat16(emitter: Emitter, value):
    return emitter.builder.bitcast(emitter.round_to_bfloat16(value), emitter.vector)


store_int8 = make_intrinsic(
    "store_int8", types.void, (VECTOR, types.intp), _store_int8, "Write the nearest integers as int8 operands."
)
store_bfloat16 = make_intrinsic(
    "store_bfloat16", types.void, (VECTOR, types.intp), _store_bfloat16, "Write the nearest bfloat16 operands."
)
store_first_bfloat16 = make_intrinsic(
    "store_first_bfloat16",
    types.void,
    (VECTOR, types.intp, types.intp),
    _store_first_bfloat16,
    "Write the first ``count`` lanes as the nearest bfloat16.",
)
store_first_float16 = make_intrinsic(
    "store_first_float16",
    types.void,
    (VECTOR, types.intp, types.intp),
    Emitter.store_first_float16,
    "Write the first ``count`` lanes as the nearest float16.",
)
nearest_bfloat16 = make_intrinsic(
    "nearest_bfloat16", VECTOR, (VECTOR,), _round_to_bfloat16, "The nearest bfloat16, as float32."
)
