"""A vector of LANES float32 as a Numba type, with operators and the kernels' intrinsics.

Addresses are plain integers (``array.ctypes.data`` plus bytes); nothing is checked: a kernel bounds its own tiles.
"""

import operator
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.datamodel import models
from numba.core.typing.templates import ConcreteTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, register_model

from fastattn.simd.emit import F32, I32, I64, Emitter
from fastattn.simd.target import LANES, TARGET


class Vector(types.Type):
    """LANES float32 values in one register."""

    def __init__(self):
        super().__init__(name=f"float32x{LANES}")


VECTOR = Vector()


def register_form(kind: type[types.Type], form: Any) -> None:
    """Have values of a Numba type be of one LLVM type; ``form`` is that, or says it of the type."""

    @register_model(kind)
    class Model(models.PrimitiveModel):
        def __init__(self, manager, instance):
            super().__init__(manager, instance, form if isinstance(form, ir.Type) else form(instance))


register_form(Vector, ir.VectorType(F32, LANES))


def _register_operator(function, emit):
    class Template(ConcreteTemplate):
        cases = [signature(VECTOR, VECTOR, VECTOR)]

    infer_global(function)(Template)

    @lower_builtin(function, VECTOR, VECTOR)
    def lower(context, builder, kind, arguments):
        return emit(Emitter(builder, TARGET), *arguments)


_register_operator(operator.add, Emitter.add)
_register_operator(operator.sub, Emitter.subtract)
_register_operator(operator.mul, Emitter.multiply)
_register_operator(operator.truediv, Emitter.divide)


def make_intrinsic(name, result, parameters, emit, documentation):
    """Make an intrinsic of fixed types from ``emit(emitter, *llvm values)``."""

    def typer(typing_context, *actual):
        def generate(context, builder, kind, arguments):
            value = emit(Emitter(builder, TARGET), *arguments)
            return context.get_dummy_value() if value is None else value

        return result(*parameters), generate

    return with_parameters(name, len(parameters), typer, documentation)


def with_parameters(name, count, typer, documentation):
    """The intrinsic of ``typer(typing_context, *types)``, of so many types; Numba reads the number from a function."""
    names = ", ".join(f"a{i}" for i in range(count))
    space = {"typer": typer}
    exec(f"def {name}(typing_context{', ' if names else ''}{names}): return typer(typing_context, {names})", space)  # noqa: S102
    space[name].__doc__ = documentation
    return intrinsic(space[name])


def make_routine(name, parameters, emit, documentation, rare=False):
    """``make_intrinsic`` for long code without a result: a kernel calls it as a function, see ``Emitter.call_once``."""

    def call(emitter, *arguments):
        emitter.call_once(f"fastattn.{name}", arguments, emit, rare=rare)

    return make_intrinsic(name, types.void, parameters, call, documentation)


@intrinsic
def address(typing_context, array):
    """The address of an array's first element, int64: ``ctypes.data`` is uint64, whose sum with an int64 is a float."""

    def generate(context, builder, kind, arguments):
        return builder.ptrtoint(context.make_array(array)(context, builder, arguments[0]).data, I64)

    return types.intp(array), generate


_V, _A, _F = VECTOR, types.intp, types.float32
load = make_intrinsic("load", _V, (_A,), Emitter.load, "The vector at an address.")
store = make_intrinsic("store", types.void, (_V, _A), Emitter.store, "Write a vector to an address.")
load_first = make_intrinsic(
    "load_first", _V, (_A, _A, _V), Emitter.load_first, "The first ``count`` lanes at an address, the rest from fill."
)
store_first = make_intrinsic(
    "store_first", types.void, (_V, _A, _A), Emitter.store_first, "Write the first ``count`` lanes to an address."
)
load_part = make_intrinsic(
    "load_part",
    _V,
    (_A, _A, _V),
    Emitter.load_part,
    "A whole vector, or its first ``left`` lanes and the rest from fill.",
)
store_part = make_intrinsic(
    "store_part", types.void, (_V, _A, _A), Emitter.store_part, "Write a whole vector, or its first ``left`` lanes."
)
absolute = make_intrinsic("absolute", _V, (_V,), Emitter.absolute, "The magnitude, lane by lane.")
count_lanes = make_intrinsic("count_lanes", _V, (), Emitter.count_lanes, "0, 1, 2 and so on, lane by lane.")
splat = make_intrinsic("splat", _V, (_F,), Emitter.splat, "A scalar in every lane.")
fma = make_intrinsic("fma", _V, (_V, _V, _V), Emitter.fma, "a * b + c, fused if the CPU can.")
maximum = make_intrinsic("maximum", _V, (_V, _V), Emitter.maximum, "The larger, lane by lane.")
larger_magnitude = make_intrinsic(
    "larger_magnitude", _V, (_V, _V), Emitter.larger_magnitude, "The larger of two non-negative values, or NaN."
)
minimum = make_intrinsic("minimum", _V, (_V, _V), Emitter.minimum, "The smaller, lane by lane.")
exp = make_intrinsic("exp", _V, (_V,), Emitter.exp, "e**x; see Emitter.exp.")
exp2 = make_intrinsic("exp2", _V, (_V,), Emitter.exp2, "2**x for x <= 127, 0 below -127; see Emitter.exp2.")
erf = make_intrinsic("erf", _V, (_V,), Emitter.erf, "The error function; see Emitter.erf.")
tanh = make_intrinsic("tanh", _V, (_V,), Emitter.tanh, "The hyperbolic tangent; see Emitter.tanh.")
sum_lanes = make_intrinsic(
    "sum_lanes", _F, (_V,), lambda e, v: e.fold(v, e.add), "The sum of all lanes, in a fixed order."
)
max_lanes = make_intrinsic("max_lanes", _F, (_V,), lambda e, v: e.fold(v, e.maximum), "The largest lane.")
largest_magnitude = make_intrinsic(
    "largest_magnitude",
    _F,
    (_V,),
    lambda e, v: e.fold(v, e.larger_magnitude),
    "The largest of non-negative lanes, or NaN.",
)


def _any_above(emitter, a, b):
    builder = emitter.builder
    mask = builder.fcmp_ordered(">", a, b, flags=("nsz",))
    bits = builder.bitcast(mask, ir.IntType(LANES))
    return builder.icmp_unsigned("!=", bits, ir.Constant(ir.IntType(LANES), 0))


def _access(kind):
    """Make functions that emit a load and a store of one number."""

    def emit_load(emitter, address):
        value = emitter.builder.load(emitter.pointer(address, kind))
        value.align = 4
        return value

    def emit_store(emitter, value, address):
        emitter.builder.store(value, emitter.pointer(address, kind)).align = 4

    return emit_load, emit_store


_load_float, _store_float = _access(F32)
_load_integer, _store_integer = _access(I64)
_load_int32, _store_int32 = _access(I32)
load_scalar = make_intrinsic("load_scalar", _F, (_A,), _load_float, "The float32 at an address.")
store_scalar = make_intrinsic("store_scalar", types.void, (_F, _A), _store_float, "Write a float32 to an address.")
load_integer = make_intrinsic("load_integer", _A, (_A,), _load_integer, "The int64 at an address.")
store_integer = make_intrinsic("store_integer", types.void, (_A, _A), _store_integer, "Write an int64 to an address.")


def _load_index(emitter, address):
    return emitter.builder.sext(_load_int32(emitter, address), I64)


def _store_index(emitter, value, address):
    _store_int32(emitter, emitter.builder.trunc(value, I32), address)


load_index = make_intrinsic("load_index", _A, (_A,), _load_index, "The int32 at an address, as int64.")
store_index = make_intrinsic(
    "store_index", types.void, (_A, _A), _store_index, "Write an int64 to an address as int32."
)
any_above = make_intrinsic(
    "any_above", types.boolean, (_V, _V), _any_above, "Whether any lane of a is greater than b's."
)
lane = make_intrinsic(
    "lane", _F, (_V,), lambda e, v: e.builder.extract_element(v, ir.IntType(32)(0)), "The first lane."
)


def make_scratch(size: int):
    """The intrinsic ``scratch()``: the address of ``size`` bytes on the stack, valid until its caller returns."""

    @intrinsic
    def scratch(typing_context):
        def generate(context, builder, kind, arguments):
            with builder.goto_entry_block():
                place = builder.alloca(ir.ArrayType(ir.IntType(8), size))
            place.align = 64
            return builder.ptrtoint(place, I64)

        return types.intp(), generate

    return scratch


prefetch, prefetch_far = (
    make_intrinsic(
        name,
        types.void,
        (_A,),
        lambda emitter, address, locality=locality: emitter.prefetch(address, locality),
        "Prefetch the cache line at an address, any address, into L1, or (far) L2.",
    )
    for name, locality in (("prefetch", 3), ("prefetch_far", 2))
)
