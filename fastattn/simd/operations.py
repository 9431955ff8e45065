"""Operations on numbers in lanes and on scalars, mixed as one likes, as functions that compiled code calls.

``OPERATIONS["add"](a, b)`` and so on are typed by these rules, whichever of the operands are in lanes: a result is in
lanes if an operand is; numbers are float32 if an operand is a float, of whatever width, or else whole; true counts as
1. Nothing raises, and nothing is undefined: what is divided by 0 is 0 as a whole number, and a float that fits no whole
number becomes the nearest, NaN 0. Each is emitted once for lanes and for a lane alone, so that both give the same bits.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from numba import types
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import lower_builtin

from fastattn.simd.emissions import (
    by_builder,
    extreme,
    first_if_true,
    floor_divided,
    is_nan,
    last_if_true,
    negated,
    negative_float,
    repeated,
    rounded,
    select,
    shift_left,
    shift_right,
    to_wholes,
)
from fastattn.simd.emit import EXACT, I32, I64
from fastattn.simd.lanes import (
    FALL,
    IN_LANES,
    INTEGERS,
    LONG,
    LONGS,
    MASK,
    RAMP,
    RUNS,
    LaneEmitter,
    clip,
    is_float,
    is_scalar_whole,
    is_truth,
    is_whole,
)
from fastattn.simd.powers import exp2, log, log2, power
from fastattn.simd.ranges import IN_RANGES, emit_range, range_result
from fastattn.simd.target import LANES
from fastattn.simd.vector import VECTOR

OPERATIONS: dict[str, Callable] = {}
FAILURES: list[str] = []  # what could not be typed, latest last; whoever compiles clears it
_FLOAT = {True: VECTOR, False: types.float32}
_TRUTH = {True: MASK, False: types.boolean}


class _Operation:
    """How an operation is typed and emitted.

    rule    "number": whole for whole operands, else float32; "ring": likewise, and true of what wraps around; "float":
            always float32; "compare": true or false; "truth": of truth values; "bits": of truth values if all are,
            else a number; "shift": whole; "where": as the second and third operand
    floats, wholes, truths  emit it from an LaneEmitter and operands of that kind; None: there is none
    """

    def __init__(self, rule: str, count: int, floats=None, wholes=None, truths=None):
        self.rule, self.count, self.floats, self.wholes, self.truths = rule, count, floats, wholes, truths

    def form(self, kinds) -> str | None:
        """Which of floats, wholes and truths computes it for these types."""
        if len(kinds) != self.count or not all(is_float(k) or is_whole(k) or is_truth(k) for k in kinds):
            return None
        values = kinds[1:] if self.rule == "where" else kinds
        if self.rule == "truth" or (self.rule in ("bits", "where") and all(map(is_truth, values))):
            return "truths"
        form = "floats" if self.rule == "float" or any(map(is_float, values)) else "wholes"
        return form if getattr(self, form) is not None else None

    def resolve(self, kinds):
        """The type of the result; None where there is none."""
        form, wide = self.form(kinds), any(kind in IN_LANES for kind in kinds)
        if form is None:
            return None
        if self.rule in ("compare", "truth") or form == "truths":
            return _TRUTH[wide]
        if form == "floats":
            return _FLOAT[wide]
        return _wholes(wide, self.is_long(kinds))

    def is_long(self, kinds) -> bool:
        """Whether whole numbers have 64 bits in lanes, too: for operands that have, or a scalar shifted by lanes."""
        kinds = kinds[1:] if self.rule == "where" else kinds
        if self.rule == "shift" and is_scalar_whole(kinds[0]) and kinds[1] in IN_LANES:
            return True
        return LONGS in kinds or LONG in kinds

    def emit(self, builder, kinds, values):
        form, wide = self.form(kinds), any(kind in IN_LANES for kind in kinds)
        a = LaneEmitter(builder, wide, self.is_long(kinds))
        convert = {"floats": a.as_floats, "wholes": a.as_wholes, "truths": a.as_truths}[form]
        if form == "wholes" and self.rule in ("ring", "bits"):
            convert = partial(a.as_wholes, wrapped=True)
        converted = [convert(value, kind) for value, kind in zip(values, kinds)]
        if self.rule == "where":
            converted[0] = a.as_truths(values[0], kinds[0])
        return a.result(getattr(self, form)(a, *converted))


def _wholes(wide: bool, long: bool):
    """The type of whole numbers."""
    if wide:
        return LONGS if long else INTEGERS
    return LONG if long else types.int64


def _register(name: str, operation: _Operation, special: Callable | None = None) -> None:
    """``special(builder, kinds, values)`` emits it where it can, and with no builder says the type; else None."""

    def stub(*operands: Any) -> Any:
        raise NotImplementedError(f"{name} is for compiled code")

    stub.__name__ = stub.__qualname__ = name

    def resolve(kinds):
        if any(kind in IN_RANGES for kind in kinds):
            return range_result(name, kinds)
        return (special and special(None, kinds, None)) or operation.resolve(kinds)

    class Template(AbstractTemplate):
        key = stub

        def generic(self, args, kws):
            result = resolve(tuple(map(types.unliteral, args)))
            if result is None:
                FAILURES.append(f"{_WORDS.get(name, f'no {name} of')} {' and '.join(map(name_of, args))}")
                return None
            return signature(result, *map(types.unliteral, args))

    infer_global(stub, types.Function(Template))

    @lower_builtin(stub, types.VarArg(types.Any))
    def lower(context, builder, signature, values):
        kinds = signature.args
        if any(kind in IN_RANGES for kind in kinds):
            return emit_range(name, builder, kinds, values)
        if special and special(None, kinds, None):
            return special(builder, kinds, values)
        return operation.emit(builder, kinds, values)

    OPERATIONS[name] = stub


_WORDS = {
    "decide": "an if or while cannot depend on",
    "count": "a range cannot be of",
    "scalar": "a function that only Numba knows takes no",
    "truths_in_lanes": "a mask cannot be of",
    "floats_in_lanes": "a score cannot be of",
}


def name_of(kind) -> str:
    """A type in the words of whoever wrote the function."""
    names = {VECTOR: "floats in lanes", MASK: "truth values in lanes", LONG: "int64"}
    names |= dict.fromkeys((INTEGERS, LONGS), "integers in lanes")
    names |= dict.fromkeys(RUNS, "positions in lanes")
    return names.get(kind) or getattr(kind, "words", None) or str(types.unliteral(kind))


def result_of(name: str, *kinds):
    """The type that an operation has for operands of these types; None: it has none."""
    return _OPERATIONS[name].resolve(kinds)


_OPERATIONS: dict[str, _Operation] = {}


def _add(name: str, rule: str, count: int, floats=None, wholes=None, truths=None, special=None) -> None:
    _OPERATIONS[name] = _Operation(rule, count, floats, wholes, truths)
    _register(name, _OPERATIONS[name], special)


# Sums and differences of a run of positions and a scalar, and comparisons.


def _is_scalar(kind) -> bool:
    return is_scalar_whole(kind) or isinstance(kind, types.Boolean)


def _int64(builder, value, kind):
    return LaneEmitter(builder, False).result(LaneEmitter(builder, False).as_wholes(value, kind))


def _add_run(builder, kinds, values):
    for n in (0, 1):
        if kinds[n] in RUNS and _is_scalar(kinds[1 - n]):
            return kinds[n] if builder is None else builder.add(values[n], _int64(builder, values[1 - n], kinds[1 - n]))
    return None


def _subtract_run(builder, kinds, values):
    if kinds[0] in RUNS and _is_scalar(kinds[1]):
        return kinds[0] if builder is None else builder.sub(values[0], _int64(builder, values[1], kinds[1]))
    if kinds[1] in RUNS and _is_scalar(kinds[0]):
        other = FALL if kinds[1] == RAMP else RAMP
        return other if builder is None else builder.sub(_int64(builder, values[0], kinds[0]), values[1])
    return None


_MIRRORED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "==": "==", "!=": "!="}
_FAR = 2**62  # beyond it no position is


def _compare_with_scalar(symbol: str) -> Callable:
    """Compare a run, or int32 in lanes, with a scalar of 64 bits; none is widened."""

    def special(builder, kinds, values):
        if not any(kind in (*RUNS, INTEGERS) for kind in kinds) or not any(map(_is_scalar, kinds)):
            return None
        if builder is None:
            return MASK
        way = symbol
        if _is_scalar(kinds[0]):
            kinds, values, way = kinds[::-1], values[::-1], _MIRRORED[symbol]
        # of a scalar that is the same for a whole row, what depends on it alone is computed once
        scalar = _int64(builder, values[1], kinds[1])
        if kinds[0] == INTEGERS:
            return _compare_narrow(builder, way, values[0], scalar)
        return _compare_run(builder, way, kinds[0], values[0], scalar)

    return special


def _compare_narrow(builder, way: str, x, scalar):
    """Of one that is no int32, any int32 is on the same side as 0."""
    a, narrow = LaneEmitter(builder, True), builder.trunc(scalar, I32)
    fits = builder.icmp_signed("==", builder.sext(narrow, I64), scalar)
    near = builder.icmp_signed(way, x, a.spread(narrow))
    return builder.select(a.spread(fits), near, a.spread(builder.icmp_signed(way, I64(0), scalar)))


def _compare_run(builder, way: str, kind, start, scalar):
    """The scalar's distance from the first position with 0, 1, 2 and so on."""
    a, scalar = LaneEmitter(builder, True), clip(builder, scalar, I64(-_FAR), I64(_FAR))
    ends = scalar, start
    if kind == FALL:  # start - n < scalar where n > start - scalar
        ends, way = ends[::-1], _MIRRORED[way]
    distance = builder.sub(*ends)
    distance = builder.trunc(clip(builder, distance, I64(-1), I64(LANES)), I32)
    return builder.icmp_signed(way, a.count(), a.spread(distance))


_add("add", "ring", 2, LaneEmitter.add, by_builder("add"), special=_add_run)
_add("subtract", "ring", 2, LaneEmitter.subtract, by_builder("sub"), special=_subtract_run)
_add("multiply", "ring", 2, LaneEmitter.multiply, by_builder("mul"))
_add("divide", "float", 2, LaneEmitter.divide)
for _part, _name in enumerate(("floor_divide", "remainder")):
    _add(
        _name,
        "number",
        2,
        lambda a, x, y, part=_part: floor_divided(a, x, y)[part],
        lambda a, x, y, part=_part: a.floor_divided(x, y)[part],
    )
_add("power", "float", 2, power)
MOST_EXPONENT = 16  # of which x**n is written as multiplications
for _n in range(2, MOST_EXPONENT + 1):
    _add(
        f"power_{_n}",
        "number",
        1,
        repeated(LaneEmitter.multiply, _n),
        repeated(lambda a, x, y: a.builder.mul(x, y), _n),
    )
_add("negative", "number", 1, negative_float, lambda a, x: a.builder.sub(a.whole(0), x))
_add(
    "absolute",
    "number",
    1,
    lambda a, x: a.call(f"llvm.fabs.v{a.lanes}f32", a.vector, x),
    lambda a, x: a.builder.select(a.builder.icmp_signed("<", x, a.whole(0)), a.builder.sub(a.whole(0), x), x),
)
_add("maximum", "number", 2, *extreme(">"))
_add("minimum", "number", 2, *extreme("<"))
_add("where", "where", 3, select, select, select)
for _name, _symbol in (
    ("less", "<"), ("less_equal", "<="), ("greater", ">"), ("greater_equal", ">="), ("equal", "=="),
    ("not_equal", "!="),
):  # fmt: skip
    _add(
        _name,
        "compare",
        2,
        lambda a, x, y, way=_symbol: (
            a.builder.fcmp_unordered(way, x, y, flags=EXACT)
            if way == "!="
            else a.builder.fcmp_ordered(way, x, y, flags=EXACT)
        ),
        lambda a, x, y, way=_symbol: a.builder.icmp_signed(way, x, y),
        special=_compare_with_scalar(_symbol),
    )
for _name, _symbol in (("bit_and", "and_"), ("bit_or", "or_"), ("bit_xor", "xor")):
    _add(_name, "bits", 2, None, by_builder(_symbol), by_builder(_symbol))
_add("and", "bits", 2, last_if_true, last_if_true, by_builder("and_"))
_add("or", "bits", 2, first_if_true, first_if_true, by_builder("or_"))
_add("shift_left", "shift", 2, None, shift_left)
_add("shift_right", "shift", 2, None, shift_right)
_add("invert", "bits", 1, None, lambda a, x: a.builder.xor(x, a.whole(-1)), negated)
_add("truth", "truth", 1, truths=lambda a, x: x)
_add("logical_not", "truth", 1, truths=negated)
_add("logical_and", "truth", 2, truths=by_builder("and_"))
_add("logical_or", "truth", 2, truths=by_builder("or_"))
_add("logical_xor", "truth", 2, truths=by_builder("xor"))
_add("to_float", "float", 1, lambda a, x: x)
_add("exp", "float", 1, LaneEmitter.exp)
_add("exp2", "float", 1, exp2)
_add("log", "float", 1, log)
_add("log2", "float", 1, log2)
_add("tanh", "float", 1, LaneEmitter.accurate_tanh)
_add("erf", "float", 1, LaneEmitter.erf)
_add("sqrt", "float", 1, lambda a, x: rounded(a, "sqrt", x))
_add("floor", "float", 1, lambda a, x: rounded(a, "floor", x))
_add("ceil", "float", 1, lambda a, x: rounded(a, "ceil", x))
_add("round", "float", 1, lambda a, x: rounded(a, "rint", x))
_add("is_nan", "compare", 1, is_nan, lambda a, x: a.truth(False))


def _whole_result(builder, kinds, values, rounding=None):
    """``int`` and its like have a whole result of float operands, for which there is no rule."""
    (kind,) = kinds
    if not is_float(kind):
        return None
    if builder is None:
        return _wholes(kind == VECTOR, False)
    a = LaneEmitter(builder, kind == VECTOR)
    x = a.as_floats(values[0], kind)
    return a.result(to_wholes(a, rounded(a, rounding, x) if rounding else x))


for _name, _rounding in (("to_whole", None), ("floor_whole", "floor"), ("ceil_whole", "ceil"), ("round_whole", "rint")):
    _add(
        _name,
        "number",
        1,
        None,
        lambda a, x: x,
        special=lambda builder, kinds, values, way=_rounding: _whole_result(builder, kinds, values, way),
    )


def _decide(builder, kinds, values):
    """The condition of an ``if`` that stays one: a truth value that all lanes share."""
    if len(kinds) != 1 or kinds[0] in IN_LANES:
        return None
    return types.boolean if builder is None else _OPERATIONS["truth"].emit(builder, kinds, values)


def _count(builder, kinds, values):
    """A bound of a range."""
    if len(kinds) != 1 or not _is_scalar(kinds[0]):
        return None
    return types.int64 if builder is None else _int64(builder, values[0], kinds[0])


def _scalar(builder, kinds, values):
    """An operand of what Numba knows, and lanes do not."""
    (kind,) = kinds
    if is_float(kind) and kind != VECTOR:
        return types.float32 if builder is None else _OPERATIONS["to_float"].emit(builder, kinds, values)
    return _count(builder, kinds, values)


_add("decide", "where", 0, special=_decide)
_add("count", "where", 0, special=_count)
_add("scalar", "where", 0, special=_scalar)


def _widen(result):
    """What a function returned, in lanes."""

    def special(builder, kinds, values):
        if len(kinds) != 1 or not (is_float(kinds[0]) or is_whole(kinds[0]) or is_truth(kinds[0])):
            return None
        if builder is None:
            return result
        a = LaneEmitter(builder, True)
        return (a.as_floats if result == VECTOR else a.as_truths)(values[0], kinds[0])

    return special


_add("floats_in_lanes", "where", 0, special=_widen(VECTOR))
_add("truths_in_lanes", "where", 0, special=_widen(MASK))
