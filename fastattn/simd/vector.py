"""A vector of LANES float32 as a Numba type, its arithmetic, and how emitters become intrinsics of kernels."""

import operator
from functools import partial
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.datamodel import models
from numba.core.typing.templates import ConcreteTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, register_model

from fastattn.simd import elementary
from fastattn.simd.emit import EXACT, F32, I32, I64, Emitter
from fastattn.simd.target import LANES, TARGET


def register_form(kind: type[types.Type], form: Any) -> None:
    """Give the values of a Numba type an LLVM type: ``form``, or what ``form(type)`` returns."""

    @register_model(kind)
    class Model(models.PrimitiveModel):
        def __init__(self, manager, instance):
            super().__init__(manager, instance, form if isinstance(form, ir.Type) else form(instance))


class PlainType(types.Type):
    """A Numba type with a name and the LLVM type of its values."""

    def __init__(self, name: str, form: ir.Type):
        super().__init__(name=name)
        self.form = form


register_form(PlainType, lambda kind: kind.form)
VECTOR = PlainType(f"float32x{LANES}", ir.VectorType(F32, LANES))


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


def as_intrinsic(result, *parameters):
    """Make an intrinsic of these types from a function ``emit(emitter, *llvm values)``, under its name."""

    def make(emit):
        def typer(typing_context, *actual):
            def generate(context, builder, kind, arguments):
                value = emit(Emitter(builder, TARGET), *arguments)
                return context.get_dummy_value() if value is None else value

            return result(*parameters), generate

        return _with_parameters(emit.__name__, len(parameters), typer, emit.__doc__)

    return make


def _with_parameters(name, count, typer, documentation):
    """The intrinsic of ``typer(typing_context, *types)``; ``count`` types become parameters, which Numba counts."""
    names = ", ".join(f"a{i}" for i in range(count))
    space = {"typer": typer}
    exec(f"def {name}(typing_context{', ' if names else ''}{names}): return typer(typing_context, {names})", space)  # noqa: S102
    space[name].__doc__ = documentation
    return intrinsic(space[name])


def as_routine(name, *parameters, rare=False):
    """``as_intrinsic`` for long code without a result: a kernel calls it as a function, see ``Emitter.call_once``."""

    def make(emit):
        def call(emitter, *arguments):
            emitter.call_once(f"fastattn.{name}", arguments, emit, rare=rare)

        call.__name__, call.__doc__ = name, emit.__doc__
        return as_intrinsic(types.void, *parameters)(call)

    return make


def as_array_routine(name, forms, prepare, result=types.void):
    """``as_routine`` whose first argument is an array, read for its type alone; the others are integers, or tuples.

    forms    the class of each tuple, or None: a number
    prepare  (Numba type of the array) -> the first argument of ``emit(prepared, emitter, *values)``
    """
    kinds = [types.NamedUniTuple(types.intp, len(form._fields), form) if form else types.intp for form in forms]

    def make(emit):
        def typer(typing_context, array, *actual):
            body = partial(emit, prepare(array))

            def generate(context, builder, kind, arguments):
                called, returned = f"fastattn.{name}_{array.dtype}", None if result == types.void else I64
                value = Emitter(builder, TARGET).call_once(called, arguments[1:], body, returned, forms=forms)
                return context.get_dummy_value() if returned is None else value

            return result(array, *kinds), generate

        return _with_parameters(name, 1 + len(forms), typer, emit.__doc__)

    return make


_V, _F = VECTOR, types.float32
count_lanes, splat = as_intrinsic(_V)(Emitter.count_lanes), as_intrinsic(_V, _F)(Emitter.splat)
absolute, fma = as_intrinsic(_V, _V)(Emitter.absolute), as_intrinsic(_V, _V, _V, _V)(Emitter.fma)
maximum, minimum, larger_magnitude = (
    as_intrinsic(_V, _V, _V)(emit) for emit in (Emitter.maximum, Emitter.minimum, Emitter.larger_magnitude)
)
exp, exp2, erf, tanh = (
    as_intrinsic(_V, _V)(emit) for emit in (elementary.exp, elementary.exp2, elementary.erf, elementary.tanh)
)


def _make_fold(combine):
    @as_intrinsic(_F, _V)
    def fold(emitter, vector):
        """All lanes combined, in a fixed order."""
        return emitter.fold(vector, partial(combine, emitter))

    return fold


# largest_magnitude: the largest of non-negative lanes, or NaN
sum_lanes, max_lanes, largest_magnitude = map(_make_fold, (Emitter.add, Emitter.maximum, Emitter.larger_magnitude))


@as_intrinsic(types.boolean, _V, _V)
def any_above(emitter, a, b):
    """Whether any lane of a is greater than the same lane of b."""
    bits = emitter.builder.bitcast(emitter.builder.fcmp_ordered(">", a, b, flags=EXACT), ir.IntType(LANES))
    return emitter.builder.icmp_unsigned("!=", bits, ir.Constant(ir.IntType(LANES), 0))


@as_intrinsic(_F, _V)
def lane(emitter, vector):
    """The first lane."""
    return emitter.builder.extract_element(vector, I32(0))
