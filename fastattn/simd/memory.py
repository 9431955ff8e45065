"""Loads and stores of vectors and numbers at addresses, which are plain integers: ``array.ctypes.data`` plus bytes.

Nothing checks an address: a kernel bounds its own tiles.
"""

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from fastattn.simd.emit import I32, I64, Emitter
from fastattn.simd.vector import VECTOR, as_intrinsic

_V, _A, _F = VECTOR, types.intp, types.float32
load, store = as_intrinsic(_V, _A)(Emitter.load), as_intrinsic(types.void, _V, _A)(Emitter.store)
load_first = as_intrinsic(_V, _A, _A, _V)(Emitter.load_first)
store_first = as_intrinsic(types.void, _V, _A, _A)(Emitter.store_first)
load_part = as_intrinsic(_V, _A, _A, _V)(Emitter.load_part)
store_part = as_intrinsic(types.void, _V, _A, _A)(Emitter.store_part)
load_scalar = as_intrinsic(_F, _A)(Emitter.load_scalar)
store_scalar, store_integer = (as_intrinsic(types.void, kind, _A)(Emitter.store) for kind in (_F, _A))


@intrinsic
def address(typing_context, array):
    """The address of an array's first element, int64: with ``ctypes.data``, uint64, sums with int64 would be floats."""

    def generate(context, builder, kind, arguments):
        (value,) = arguments
        return builder.ptrtoint(context.make_array(array)(context, builder, value).data, I64)

    return types.intp(array), generate


@as_intrinsic(_A, _A)
def load_integer(emitter, address):
    """The int64 at an address."""
    return emitter.read(address, I64)


@as_intrinsic(_A, _A)
def load_index(emitter, address):
    """The int32 at an address, as int64."""
    return emitter.builder.sext(emitter.read(address, I32), I64)


@as_intrinsic(types.void, _A, _A)
def store_index(emitter, value, address):
    """Write an int64 to an address as int32."""
    emitter.store(emitter.builder.trunc(value, I32), address)


def make_scratch(size: int):
    """The intrinsic ``scratch()``: the address of ``size`` bytes on the stack, valid until the caller returns."""

    @intrinsic
    def scratch(typing_context):
        def generate(context, builder, kind, arguments):
            with builder.goto_entry_block():
                memory = builder.alloca(ir.ArrayType(ir.IntType(8), size))
            memory.align = 64
            return builder.ptrtoint(memory, I64)

        return types.intp(), generate

    return scratch
