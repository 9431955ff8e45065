"""Operations on numbers in lanes and on scalars, in any mixture, as functions that compiled code calls.

``OPERATIONS["add"](a, b)`` and so on follow these rules: a result is in lanes if an operand is; a number is float32 if
an operand is a float, of any width, or if the operation always gives floats, such as divide, else whole; true counts as
1. Nothing raises, and nothing is undefined: a whole number // 0 is 0; a float that fits no whole number becomes the
nearest whole number, and NaN becomes 0. The same code emits an operation for lanes and for a scalar, so both give the
same bits.
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

    rule    of the result's type. "number": whole for whole operands, else float32; "ring": likewise; computed modulo
            2^32 or 2^64, so operands may have wrapped around; "float": always float32; "compare": a truth value;
            "truth": likewise, of truth values; "bits": a truth value if all operands are, else a number; "shift":
            whole; "where": as the second and third operand
    count   the number of operands
    floats, wholes, truths  emit the operation from a LaneEmitter and such operands; None: it takes no such operands
    """

    def __init__(self, rule: str, count: int, floats=None, wholes=None, truths=None):
        self.rule, self.count, self.floats, self.wholes, self.truths = rule, count, floats, wholes, truths

    def attribute(self, operand_types) -> str | None:
        """The attribute that takes these types: "floats", "wholes" or "truths"; None where the operation does not."""
        are_known = all(is_float(type_) or is_whole(type_) or is_truth(type_) for type_ in operand_types)
        if len(operand_types) != self.count or not are_known:
            return None
        values = operand_types[1:] if self.rule == "where" else operand_types
        if self.rule == "truth" or (self.rule in ("bits", "where") and all(map(is_truth, values))):
            return "truths"
        attribute = "floats" if self.rule == "float" or any(map(is_float, values)) else "wholes"
        return attribute if getattr(self, attribute) is not None else None

    def resolve(self, operand_types):
        """The type of the result; None where there is none."""
        attribute, in_lanes = self.attribute(operand_types), any(type_ in IN_LANES for type_ in operand_types)
        if attribute is None:
            return None
        if self.rule in ("compare", "truth") or attribute == "truths":
            return _TRUTH[in_lanes]
        if attribute == "floats":
            return _FLOAT[in_lanes]
        return _wholes(in_lanes, self.is_long(operand_types))

    def is_long(self, operand_types) -> bool:
        """Whether whole numbers have 64 bits in lanes too: if an operand is long, or if lanes shift a scalar."""
        if self.rule == "shift":
            shifted, shift = operand_types
            if lanes.is_scalar_whole(shifted) and shift in IN_LANES:
                return True
        operand_types = operand_types[1:] if self.rule == "where" else operand_types
        return LONGS in operand_types or LONG in operand_types

    def emit(self, builder, operand_types, values):
        attribute, in_lanes = self.attribute(operand_types), any(type_ in IN_LANES for type_ in operand_types)
        e = LaneEmitter(builder, in_lanes, self.is_long(operand_types))
        convert = {"floats": e.as_floats, "wholes": e.as_wholes, "truths": e.as_truths}[attribute]
        if attribute == "wholes" and self.rule in ("ring", "bits"):
            convert = partial(e.as_wholes, wrapped=True)
        converted = [convert(*operand) for operand in zip(values, operand_types)]
        if self.rule == "where":
            condition, *_ = zip(values, operand_types)
            converted[0] = e.as_truths(*condition)
        return e.result(getattr(self, attribute)(e, *converted))


class _Operand(NamedTuple):
    """A value of a Numba type; None where the caller wants only the type of a result."""

    value: Any
    type: types.Type


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

    def special_type(operand_types):
        applies = special and len(operand_types) == operation.count
        return special(None, *(_Operand(None, type_) for type_ in operand_types)) if applies else None

    def resolve(operand_types):
        if any(type_ in IN_RANGES for type_ in operand_types):
            return range_result(name, operand_types)
        return special_type(operand_types) or operation.resolve(operand_types)

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
        operand_types = signature.args
        if any(type_ in IN_RANGES for type_ in operand_types):
            return emit_range(name, builder, operand_types, values)
        if special_type(operand_types):
            return special(builder, *map(_Operand, values, operand_types))
        return operation.emit(builder, operand_types, values)

    OPERATIONS[name], _DEFINITIONS[name] = stub, operation


def name_of(type_) -> str:
    """A type in words for the author of a function."""
    names = {VECTOR: "floats in lanes", MASK: "truth values in lanes", LONG: "int64"}
    names |= dict.fromkeys((INTEGERS, LONGS), "integers in lanes")
    names |= dict.fromkeys(RUNS, "positions in lanes")
    return names.get(type_) or getattr(type_, "words", None) or str(types.unliteral(type_))


def result_of(name: str, *operand_types):
    """The type of an operation's result for operands of these types; None: it takes no such operands."""
    return _DEFINITIONS[name].resolve(operand_types)


# Sums and differences of a run of positions and a scalar, and comparisons.


def _is_scalar(type_) -> bool:
    return lanes.is_scalar_whole(type_) or isinstance(type_, types.Boolean)


def _int64(builder, scalar: _Operand):
    return LaneEmitter(builder, False).result(LaneEmitter(builder, False).as_wholes(*scalar))


def _add_run(builder, x: _Operand, y: _Operand):
    run, scalar = (x, y) if x.type in RUNS else (y, x)
    if run.type not in RUNS or not _is_scalar(scalar.type):
        return None
    return run.type if builder is None else builder.add(run.value, _int64(builder, scalar))


def _subtract_run(builder, x: _Operand, y: _Operand):
    if x.type in RUNS and _is_scalar(y.type):
        return x.type if builder is None else builder.sub(x.value, _int64(builder, y))
    if y.type in RUNS and _is_scalar(x.type):
        run_type = lanes.FALL if y.type == lanes.RAMP else lanes.RAMP
        return run_type if builder is None else builder.sub(_int64(builder, x), y.value)
    return None


def _compare_with_scalar(symbol: str) -> Callable:
    """Compare a run, or int32 in lanes, with a scalar of 64 bits, without widening the lanes."""

    def special(builder, x: _Operand, y: _Operand):
        vector, scalar, relation = (y, x, _MIRRORED[symbol]) if _is_scalar(x.type) else (x, y, symbol)
        if vector.type not in (*RUNS, INTEGERS) or not _is_scalar(scalar.type):
            return None
        if builder is None:
            return MASK
        # where the scalar is the same for a whole row, LLVM moves what depends only on it out of the loop
        number = _int64(builder, scalar)
        if vector.type == INTEGERS:
            return _compare_narrow(builder, relation, vector.value, number)
        return _compare_run(builder, relation, vector, number)

    return special


def _compare_narrow(builder, relation: str, x, scalar):
    """Compare int32 with a scalar; with a scalar beyond int32, 0 compares like every int32."""
    e, narrow = LaneEmitter(builder, True), builder.trunc(scalar, I32)
    is_int32 = builder.icmp_signed("==", builder.sext(narrow, I64), scalar)
    comparison = builder.icmp_signed(relation, x, e.splat(narrow))
    return builder.select(e.splat(is_int32), comparison, e.splat(builder.icmp_signed(relation, I64(0), scalar)))


def _compare_run(builder, relation: str, run: _Operand, scalar):
    """Compare 0, 1, 2 and so on with the scalar's distance from the first position."""
    e, scalar = LaneEmitter(builder, True), lanes.clip(builder, scalar, I64(-_LAST_POSITION), I64(_LAST_POSITION))
    if run.type == lanes.FALL:  # start - n < scalar where n > start - scalar
        distance, relation = builder.sub(run.value, scalar), _MIRRORED[relation]
    else:
        distance = builder.sub(scalar, run.value)
    distance = builder.trunc(lanes.clip(builder, distance, I64(-1), I64(LANES)), I32)
    return builder.icmp_signed(relation, e.count(), e.splat(distance))


_define("add", "ring", 2, LaneEmitter.add, lanes.by_builder("add"), special=_add_run)
_define("subtract", "ring", 2, LaneEmitter.subtract, lanes.by_builder("sub"), special=_subtract_run)
_define("multiply", "ring", 2, LaneEmitter.multiply, lanes.by_builder("mul"))
_define("divide", "float", 2, LaneEmitter.divide)
_define(
    "floor_divide", "number", 2, lambda e, *xy: lanes.floor_divided(e, *xy)[0], lambda e, *xy: e.floor_divided(*xy)[0]
)
_define("remainder", "number", 2, lambda e, *xy: lanes.floor_divided(e, *xy)[1], lambda e, *xy: e.floor_divided(*xy)[1])
_define("power", "float", 2, elementary.power)
MOST_EXPONENT = 16  # the greatest n for which x**n is written as multiplications
for _n in range(2, MOST_EXPONENT + 1):
    _powers = (lanes.repeat_product(multiply, _n) for multiply in (LaneEmitter.multiply, lanes.by_builder("mul")))
    _define(f"power_{_n}", "number", 1, *_powers)
_define(
    "negative", "number", 1, lambda e, x: e.subtract(e.constant(-0.0), x), lambda e, x: e.builder.sub(e.whole(0), x)
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
_define("invert", "bits", 1, None, lambda e, x: e.builder.xor(x, e.whole(-1)), lanes.negate)
_define("truth", "truth", 1, truths=lambda e, x: x)
_define("logical_not", "truth", 1, truths=lanes.negate)
_define("logical_and", "truth", 2, truths=lanes.by_builder("and_"))
_define("logical_or", "truth", 2, truths=lanes.by_builder("or_"))
_define("logical_xor", "truth", 2, truths=lanes.by_builder("xor"))
_define("to_float", "float", 1, lambda e, x: x)
_define("exp", "float", 1, elementary.exp)
_define("exp2", "float", 1, elementary.exp2_of_any)
_define("log", "float", 1, elementary.log)
_define("log2", "float", 1, elementary.log2)
_define("tanh", "float", 1, elementary.accurate_tanh)
_define("erf", "float", 1, elementary.erf)
for _name, _intrinsic in (("sqrt", "sqrt"), ("floor", "floor"), ("ceil", "ceil"), ("round", "rint")):
    _define(_name, "float", 1, lanes.by_intrinsic(_intrinsic))
_define("is_nan", "compare", 1, lambda e, x: e.builder.fcmp_unordered("uno", x, x), lambda e, x: e.truth(False))


def _to_whole(rounding: str | None) -> Callable:
    """``int``, ``floor`` and so on: a whole result of a float operand, which no rule covers."""

    def special(builder, x: _Operand):
        if not is_float(x.type):
            return None
        if builder is None:
            return _wholes(x.type == VECTOR, False)
        e = LaneEmitter(builder, x.type == VECTOR)
        value = e.as_floats(*x)
        value = lanes.by_intrinsic(rounding)(e, value) if rounding else value
        return e.result(e.call(f"llvm.fptosi.sat.v{e.lanes}i{e.bits}.v{e.lanes}f32", e.wholes, value))

    return special


for _name, _rounding in (("to_whole", None), ("floor_whole", "floor"), ("ceil_whole", "ceil"), ("round_whole", "rint")):
    _define(_name, "number", 1, None, lambda e, x: x, special=_to_whole(_rounding))


def _condition(builder, x: _Operand):
    """The condition of an ``if`` that remains a branch: a truth value that all lanes share."""
    if x.type in IN_LANES:
        return None
    return types.boolean if builder is None else _DEFINITIONS["truth"].emit(builder, [x.type], [x.value])


def _range_bound(builder, x: _Operand):
    """A bound of a range."""
    if not _is_scalar(x.type):
        return None
    return types.int64 if builder is None else _int64(builder, x)


def _scalar_operand(builder, x: _Operand):
    """An operand of a function that only Numba knows."""
    if is_float(x.type) and x.type != VECTOR:
        return types.float32 if builder is None else _DEFINITIONS["to_float"].emit(builder, [x.type], [x.value])
    return _range_bound(builder, x)


def _result_in_lanes(result):
    """The result of a user's function, in lanes."""

    def special(builder, x: _Operand):
        if not (is_float(x.type) or is_whole(x.type) or is_truth(x.type)):
            return None
        if builder is None:
            return result
        e = LaneEmitter(builder, True)
        return (e.as_floats if result == VECTOR else e.as_truths)(*x)

    return special


for _name, _special in (
    ("decide", _condition), ("count", _range_bound), ("scalar", _scalar_operand),
    ("floats_in_lanes", _result_in_lanes(VECTOR)), ("truths_in_lanes", _result_in_lanes(MASK)),
):  # fmt: skip
    _define(_name, "number", 1, special=_special)
