"""Operations on numbers in lanes and on scalars, in any mixture, as functions that compiled code calls.

``OPERATIONS["add"](a, b)`` and so on follow these rules: a result is in lanes if an operand is; a number is float32 if
an operand is a float, of any width, else whole; true counts as 1. Nothing raises, and nothing is undefined: a whole
number divided by 0 is 0; a float that fits no whole number becomes the nearest one, and NaN becomes 0. The same code
emits an operation for lanes and for a scalar, so both give the same bits.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from numba import types
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import lower_builtin

from fastattn.simd import elementary, lanes
from fastattn.simd.emit import I32, I64
from fastattn.simd.lanes import IN_LANES, INTEGERS, LONG, LONGS, MASK, RUNS, LaneEmitter, is_float, is_truth, is_whole
from fastattn.simd.ranges import IN_RANGES, emit_range, range_result
from fastattn.simd.target import LANES
from fastattn.simd.vector import VECTOR

OPERATIONS: dict[str, Callable] = {}  # name -> the function that compiled code calls
_DEFINITIONS: dict[str, "_Operation"] = {}
FAILURES: list[str] = []  # why operations have no type, latest last; the compiler of a function clears the list
_FLOAT = {True: VECTOR, False: types.float32}
_TRUTH = {True: MASK, False: types.boolean}
_FAILURE_WORDS = {
    "decide": "an if or while cannot depend on",
    "count": "a range cannot be of",
    "scalar": "a function that only Numba knows takes no",
    "truths_in_lanes": "a mask cannot be of",
    "floats_in_lanes": "a score cannot be of",
}
_MIRRORED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "==": "==", "!=": "!="}
_LAST_POSITION = 2**62  # no position is greater


class _Operation:
    """The types and the code of an operation.

    rule    of the result's type. "number": whole for whole operands, else float32; "ring": likewise, and right for
            operands that wrapped around; "float": always float32; "compare": a truth value; "truth": likewise, of truth
            values; "bits": a truth value if all operands are, else a number; "shift": whole; "where": as the second and
            third operand
    count   the number of operands
    floats, wholes, truths  emit the operation from a LaneEmitter and operands of that kind; None: there is no such code
    """

    def __init__(self, rule: str, count: int, floats=None, wholes=None, truths=None):
        self.rule, self.count, self.floats, self.wholes, self.truths = rule, count, floats, wholes, truths

    def attribute(self, kinds) -> str | None:
        """The attribute that computes these types: floats, wholes or truths; None where there is no such operation."""
        if len(kinds) != self.count or not all(is_float(k) or is_whole(k) or is_truth(k) for k in kinds):
            return None
        values = kinds[1:] if self.rule == "where" else kinds
        if self.rule == "truth" or (self.rule in ("bits", "where") and all(map(is_truth, values))):
            return "truths"
        attribute = "floats" if self.rule == "float" or any(map(is_float, values)) else "wholes"
        return attribute if getattr(self, attribute) is not None else None

    def resolve(self, kinds):
        """The type of the result; None where there is none."""
        attribute, in_lanes = self.attribute(kinds), any(kind in IN_LANES for kind in kinds)
        if attribute is None:
            return None
        if self.rule in ("compare", "truth") or attribute == "truths":
            return _TRUTH[in_lanes]
        if attribute == "floats":
            return _FLOAT[in_lanes]
        return _wholes(in_lanes, self.is_long(kinds))

    def is_long(self, kinds) -> bool:
        """Whether whole numbers have 64 bits in lanes too: if an operand is long, or if lanes shift a scalar."""
        if self.rule == "shift":
            shifted, shift = kinds
            if lanes.is_scalar_whole(shifted) and shift in IN_LANES:
                return True
        kinds = kinds[1:] if self.rule == "where" else kinds
        return LONGS in kinds or LONG in kinds

    def emit(self, builder, kinds, values):
        attribute, in_lanes = self.attribute(kinds), any(kind in IN_LANES for kind in kinds)
        a = LaneEmitter(builder, in_lanes, self.is_long(kinds))
        convert = {"floats": a.as_floats, "wholes": a.as_wholes, "truths": a.as_truths}[attribute]
        if attribute == "wholes" and self.rule in ("ring", "bits"):
            convert = partial(a.as_wholes, wrapped=True)
        converted = [convert(*operand) for operand in zip(values, kinds)]
        if self.rule == "where":
            condition, *_ = zip(values, kinds)
            converted[0] = a.as_truths(*condition)
        return a.result(getattr(self, attribute)(a, *converted))


class _Operand(NamedTuple):
    """A value of a Numba type; None where the caller wants only the type of a result."""

    value: Any
    kind: types.Type


def _wholes(in_lanes: bool, long: bool):
    """The type of a result that is whole."""
    if in_lanes:
        return LONGS if long else INTEGERS
    return LONG if long else types.int64


def _define(name: str, rule: str, count: int, floats=None, wholes=None, truths=None, special=None) -> None:
    """Define an operation and the function that compiled code calls.

    special  (builder, *operands) -> the result, or None for operands that it does not take; (None, *operands) -> a type
    """
    operation = _Operation(rule, count, floats, wholes, truths)

    def stub(*operands: Any) -> Any:
        raise NotImplementedError(f"{name} is for compiled code")

    stub.__name__ = stub.__qualname__ = name

    def special_type(kinds):
        applies = special and len(kinds) == operation.count
        return special(None, *(_Operand(None, kind) for kind in kinds)) if applies else None

    def resolve(kinds):
        if any(kind in IN_RANGES for kind in kinds):
            return range_result(name, kinds)
        return special_type(kinds) or operation.resolve(kinds)

    class Template(AbstractTemplate):
        key = stub

        def generic(self, args, kws):
            result = resolve(tuple(map(types.unliteral, args)))
            if result is None:
                FAILURES.append(f"{_FAILURE_WORDS.get(name, f'no {name} of')} {' and '.join(map(name_of, args))}")
                return None
            return signature(result, *map(types.unliteral, args))

    infer_global(stub, types.Function(Template))

    @lower_builtin(stub, types.VarArg(types.Any))
    def lower(context, builder, signature, values):
        kinds = signature.args
        if any(kind in IN_RANGES for kind in kinds):
            return emit_range(name, builder, kinds, values)
        if special_type(kinds):
            return special(builder, *map(_Operand, values, kinds))
        return operation.emit(builder, kinds, values)

    OPERATIONS[name], _DEFINITIONS[name] = stub, operation


def name_of(kind) -> str:
    """A type in words for the author of a function."""
    names = {VECTOR: "floats in lanes", MASK: "truth values in lanes", LONG: "int64"}
    names |= dict.fromkeys((INTEGERS, LONGS), "integers in lanes")
    names |= dict.fromkeys(RUNS, "positions in lanes")
    return names.get(kind) or getattr(kind, "words", None) or str(types.unliteral(kind))


def result_of(name: str, *kinds):
    """The type of an operation's result for operands of these types; None: it takes no such operands."""
    return _DEFINITIONS[name].resolve(kinds)


# Sums and differences of a run of positions and a scalar, and comparisons.


def _is_scalar(kind) -> bool:
    return lanes.is_scalar_whole(kind) or isinstance(kind, types.Boolean)


def _int64(builder, scalar: _Operand):
    return LaneEmitter(builder, False).result(LaneEmitter(builder, False).as_wholes(*scalar))


def _add_run(builder, x: _Operand, y: _Operand):
    run, scalar = (x, y) if x.kind in RUNS else (y, x)
    if run.kind not in RUNS or not _is_scalar(scalar.kind):
        return None
    return run.kind if builder is None else builder.add(run.value, _int64(builder, scalar))


def _subtract_run(builder, x: _Operand, y: _Operand):
    if x.kind in RUNS and _is_scalar(y.kind):
        return x.kind if builder is None else builder.sub(x.value, _int64(builder, y))
    if y.kind in RUNS and _is_scalar(x.kind):
        run_kind = lanes.FALL if y.kind == lanes.RAMP else lanes.RAMP
        return run_kind if builder is None else builder.sub(_int64(builder, x), y.value)
    return None


def _compare_with_scalar(symbol: str) -> Callable:
    """Compare a run, or int32 in lanes, with a scalar of 64 bits, without widening the lanes."""

    def special(builder, x: _Operand, y: _Operand):
        vector, scalar, relation = (y, x, _MIRRORED[symbol]) if _is_scalar(x.kind) else (x, y, symbol)
        if vector.kind not in (*RUNS, INTEGERS) or not _is_scalar(scalar.kind):
            return None
        if builder is None:
            return MASK
        # LLVM computes what depends on the scalar alone once a row, if the scalar is the same for the row
        number = _int64(builder, scalar)
        if vector.kind == INTEGERS:
            return _compare_narrow(builder, relation, vector.value, number)
        return _compare_run(builder, relation, vector, number)

    return special


def _compare_narrow(builder, relation: str, x, scalar):
    """Compare int32 with a scalar; with a scalar beyond int32, 0 compares like every int32."""
    a, narrow = LaneEmitter(builder, True), builder.trunc(scalar, I32)
    is_int32 = builder.icmp_signed("==", builder.sext(narrow, I64), scalar)
    comparison = builder.icmp_signed(relation, x, a.splat(narrow))
    return builder.select(a.splat(is_int32), comparison, a.splat(builder.icmp_signed(relation, I64(0), scalar)))


def _compare_run(builder, relation: str, run: _Operand, scalar):
    """Compare 0, 1, 2 and so on with the scalar's distance from the first position."""
    a, scalar = LaneEmitter(builder, True), lanes.clip(builder, scalar, I64(-_LAST_POSITION), I64(_LAST_POSITION))
    if run.kind == lanes.FALL:  # start - n < scalar where n > start - scalar
        distance, relation = builder.sub(run.value, scalar), _MIRRORED[relation]
    else:
        distance = builder.sub(scalar, run.value)
    distance = builder.trunc(lanes.clip(builder, distance, I64(-1), I64(LANES)), I32)
    return builder.icmp_signed(relation, a.count(), a.splat(distance))


_define("add", "ring", 2, LaneEmitter.add, lanes.by_builder("add"), special=_add_run)
_define("subtract", "ring", 2, LaneEmitter.subtract, lanes.by_builder("sub"), special=_subtract_run)
_define("multiply", "ring", 2, LaneEmitter.multiply, lanes.by_builder("mul"))
_define("divide", "float", 2, LaneEmitter.divide)
_define(
    "floor_divide", "number", 2, lambda a, *xy: lanes.floor_divided(a, *xy)[0], lambda a, *xy: a.floor_divided(*xy)[0]
)
_define("remainder", "number", 2, lambda a, *xy: lanes.floor_divided(a, *xy)[1], lambda a, *xy: a.floor_divided(*xy)[1])
_define("power", "float", 2, elementary.power)
MOST_EXPONENT = 16  # the greatest n for which x**n is written as multiplications
for _n in range(2, MOST_EXPONENT + 1):
    _powers = (lanes.repeat_product(multiply, _n) for multiply in (LaneEmitter.multiply, lanes.by_builder("mul")))
    _define(f"power_{_n}", "number", 1, *_powers)
_define(
    "negative", "number", 1, lambda a, x: a.subtract(a.constant(-0.0), x), lambda a, x: a.builder.sub(a.whole(0), x)
)
_define("absolute", "number", 1, lanes.by_intrinsic("fabs"), lanes.absolute_whole)
_define("maximum", "number", 2, *lanes.extremes(">"))
_define("minimum", "number", 2, *lanes.extremes("<"))
_define("where", "where", 3, lanes.select, lanes.select, lanes.select)
for _name, _symbol in (
    ("less", "<"), ("less_equal", "<="), ("greater", ">"), ("greater_equal", ">="), ("equal", "=="),
    ("not_equal", "!="),
):  # fmt: skip
    _define(_name, "compare", 2, *lanes.comparisons(_symbol), special=_compare_with_scalar(_symbol))
for _name, _symbol in (("bit_and", "and_"), ("bit_or", "or_"), ("bit_xor", "xor")):
    _define(_name, "bits", 2, None, lanes.by_builder(_symbol), lanes.by_builder(_symbol))
_define("and", "bits", 2, lanes.last_if_true, lanes.last_if_true, lanes.by_builder("and_"))
_define("or", "bits", 2, lanes.first_if_true, lanes.first_if_true, lanes.by_builder("or_"))
_define("shift_left", "shift", 2, None, lanes.shift_left)
_define("shift_right", "shift", 2, None, lanes.shift_right)
_define("invert", "bits", 1, None, lambda a, x: a.builder.xor(x, a.whole(-1)), lanes.negate)
_define("truth", "truth", 1, truths=lambda a, x: x)
_define("logical_not", "truth", 1, truths=lanes.negate)
_define("logical_and", "truth", 2, truths=lanes.by_builder("and_"))
_define("logical_or", "truth", 2, truths=lanes.by_builder("or_"))
_define("logical_xor", "truth", 2, truths=lanes.by_builder("xor"))
_define("to_float", "float", 1, lambda a, x: x)
_define("exp", "float", 1, elementary.exp)
_define("exp2", "float", 1, elementary.exp2_of_any)
_define("log", "float", 1, elementary.log)
_define("log2", "float", 1, elementary.log2)
_define("tanh", "float", 1, elementary.accurate_tanh)
_define("erf", "float", 1, elementary.erf)
for _name, _intrinsic in (("sqrt", "sqrt"), ("floor", "floor"), ("ceil", "ceil"), ("round", "rint")):
    _define(_name, "float", 1, lanes.by_intrinsic(_intrinsic))
_define("is_nan", "compare", 1, lambda a, x: a.builder.fcmp_unordered("uno", x, x), lambda a, x: a.truth(False))


def _to_whole(rounding: str | None) -> Callable:
    """``int``, ``floor`` and so on: a whole result of a float operand, which no rule covers."""

    def special(builder, x: _Operand):
        if not is_float(x.kind):
            return None
        if builder is None:
            return _wholes(x.kind == VECTOR, False)
        a = LaneEmitter(builder, x.kind == VECTOR)
        value = a.as_floats(*x)
        value = lanes.by_intrinsic(rounding)(a, value) if rounding else value
        return a.result(a.call(f"llvm.fptosi.sat.v{a.lanes}i{a.bits}.v{a.lanes}f32", a.wholes, value))

    return special


for _name, _rounding in (("to_whole", None), ("floor_whole", "floor"), ("ceil_whole", "ceil"), ("round_whole", "rint")):
    _define(_name, "number", 1, None, lambda a, x: x, special=_to_whole(_rounding))


def _condition(builder, x: _Operand):
    """The condition of an ``if`` that remains a branch: a truth value that all lanes share."""
    if x.kind in IN_LANES:
        return None
    return types.boolean if builder is None else _DEFINITIONS["truth"].emit(builder, [x.kind], [x.value])


def _range_bound(builder, x: _Operand):
    """A bound of a range."""
    if not _is_scalar(x.kind):
        return None
    return types.int64 if builder is None else _int64(builder, x)


def _scalar_operand(builder, x: _Operand):
    """An operand of a function that only Numba knows."""
    if is_float(x.kind) and x.kind != VECTOR:
        return types.float32 if builder is None else _DEFINITIONS["to_float"].emit(builder, [x.kind], [x.value])
    return _range_bound(builder, x)


def _result_in_lanes(result):
    """The result of a user's function, in lanes."""

    def special(builder, x: _Operand):
        if not (is_float(x.kind) or is_whole(x.kind) or is_truth(x.kind)):
            return None
        if builder is None:
            return result
        a = LaneEmitter(builder, True)
        return (a.as_floats if result == VECTOR else a.as_truths)(*x)

    return special


for _name, _special in (
    ("decide", _condition), ("count", _range_bound), ("scalar", _scalar_operand),
    ("floats_in_lanes", _result_in_lanes(VECTOR)), ("truths_in_lanes", _result_in_lanes(MASK)),
):  # fmt: skip
    _define(_name, "number", 1, special=_special)
