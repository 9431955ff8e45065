"""Whole numbers, truth values and runs of positions in lanes, as Numba types beside the float32 of vector.py.

In lanes truth values are a MASK and whole numbers INTEGERS, int32, which wrap around; a number from an array of int64
makes them LONGS, int64 in two registers. Outside lanes whole numbers are int64, and those from such an array LONG. A
RAMP is a run of positions s, s + 1 and so on, stored as the int64 s: additions and comparisons cost what a scalar's do.
A FALL is s, s - 1 and so on: a distance from a RAMP.

The functions below emit an operation from a LaneEmitter and operands of one kind, for lanes and for a scalar alike.
"""

from collections.abc import Callable
from dataclasses import replace

from llvmlite import ir
from numba import types
from numba.core.typeconv import Conversion
from numba.extending import lower_cast

from fastattn.simd.emit import EXACT, F32, I32, I64, Emitter
from fastattn.simd.target import LANES, TARGET
from fastattn.simd.vector import VECTOR, PlainType, as_intrinsic, register_form

I1, _BYTE = ir.IntType(1), ir.IntType(8)


class Long(types.Type):
    """An int64 that makes whole numbers in lanes int64, where an operation has both."""

    def __init__(self):
        super().__init__(name="long int64")

    def unify(self, typingctx, type_):
        if isinstance(type_, (types.Integer, types.Boolean)):
            return self
        return types.float64 if isinstance(type_, types.Float) else None

    def can_convert_to(self, typingctx, type_):
        return Conversion.unsafe if isinstance(type_, types.Float) else None

    def can_convert_from(self, typingctx, type_):
        return Conversion.safe if isinstance(type_, (types.Integer, types.Boolean)) else None


INTEGERS, LONGS = (PlainType(f"int{bits}x{LANES}", ir.VectorType(ir.IntType(bits), LANES)) for bits in (32, 64))
MASK, LONG = PlainType(f"boolx{LANES}", ir.VectorType(I1, LANES)), Long()
RAMP, FALL = PlainType(f"ramp{LANES}", I64), PlainType(f"fall{LANES}", I64)
RUNS = (RAMP, FALL)
IN_LANES = (VECTOR, INTEGERS, LONGS, MASK, RAMP, FALL)
_ONE_LANE = replace(TARGET, lanes=1)
register_form(Long, I64)


@lower_cast(types.Integer, Long)
@lower_cast(types.Boolean, Long)
def _to_long(context, builder, type_, long, value):
    return context.cast(builder, value, type_, types.int64)


@lower_cast(Long, types.Float)
def _from_long(context, builder, long, type_, value):
    return context.cast(builder, value, types.int64, type_)


def is_scalar_whole(type_) -> bool:
    return type_ == LONG or isinstance(type_, types.Integer)


def is_float(type_) -> bool:
    return type_ == VECTOR or isinstance(type_, types.Float)


def is_whole(type_) -> bool:
    return type_ in (INTEGERS, LONGS, RAMP, FALL) or is_scalar_whole(type_)


def is_truth(type_) -> bool:
    return type_ == MASK or isinstance(type_, types.Boolean)


class LaneEmitter(Emitter):
    """Operations on LANES values if ``in_lanes``, else on a vector of one lane for a scalar; both give the same bits.

    Whole numbers have 32 bits in lanes that are not ``long``, else 64.
    """

    def __init__(self, builder: ir.IRBuilder, in_lanes: bool, long: bool = False):
        super().__init__(builder, TARGET if in_lanes else _ONE_LANE)
        self.in_lanes, self.lanes = in_lanes, self.target.lanes
        self.bits = 32 if in_lanes and not long else 64
        self.whole_type = ir.IntType(self.bits)
        self.wholes = ir.VectorType(self.whole_type, self.lanes)
        self.truths = ir.VectorType(I1, self.lanes)

    def whole(self, value: int):
        return ir.Constant(self.wholes, [value] * self.lanes)

    def truth(self, value: bool):
        return ir.Constant(self.truths, [int(value)] * self.lanes)

    def count(self):
        """0, 1, 2 and so on, lane by lane."""
        return ir.Constant(self.wholes, list(range(self.lanes)))

    def result(self, value):
        """The value for Numba: of a vector of one lane, the scalar."""
        return value if self.in_lanes else self.builder.extract_element(value, I32(0))

    def as_floats(self, value, type_):
        b = self.builder
        if type_ == VECTOR:
            return value
        if isinstance(type_, types.Float):
            return self.splat(value if value.type == F32 else b.fptrunc(value, F32))
        if is_scalar_whole(type_):
            return self.splat(b.sitofp(_as_int64(b, value, type_), F32))
        if is_truth(type_):
            return b.uitofp(self.as_truths(value, type_), self.vector)
        return b.sitofp(value if type_ in (INTEGERS, LONGS) else self.as_wholes(value, type_), self.vector)

    def as_wholes(self, value, type_, wrapped: bool = False):
        """A scalar that does not fit the lanes becomes the nearest number that does, or is ``wrapped``."""
        b = self.builder
        if type_ in (INTEGERS, LONGS):
            return b.sext(value, self.wholes)
        if type_ in RUNS:
            emit = b.add if type_ == RAMP else b.sub
            return emit(self.splat(b.trunc(value, self.whole_type)), self.count())
        if is_truth(type_):
            return b.zext(self.as_truths(value, type_), self.wholes)
        value = _as_int64(b, value, type_)
        if self.bits == 32 and not wrapped:
            value = clip(b, value, I64(-(2**31)), I64(2**31 - 1))
        return self.splat(b.trunc(value, self.whole_type))

    def as_truths(self, value, type_):
        b = self.builder
        if type_ == MASK:
            return value
        if isinstance(type_, types.Boolean):
            return self.splat(value)
        if is_float(type_):
            return b.fcmp_unordered("!=", self.as_floats(value, type_), self.constant(0.0), flags=EXACT)
        value = value if type_ in (INTEGERS, LONGS) else self.as_wholes(value, type_)
        return b.icmp_signed("!=", value, ir.Constant(value.type, [0] * self.lanes))

    def floor_divided(self, x, y):
        """(quotient, remainder) of whole numbers, rounded down; (0, 0) where y is 0: the CPU's division would trap."""
        b, zero = self.builder, self.whole(0)
        by_zero, by_minus_one = b.icmp_signed("==", y, zero), b.icmp_signed("==", y, self.whole(-1))
        special = b.or_(by_zero, by_minus_one)
        y = b.select(special, self.whole(1), y)
        quotient = b.sdiv(x, y)
        remainder = b.sub(x, b.mul(quotient, y))
        rounded_up = b.and_(b.icmp_signed("!=", remainder, zero), b.icmp_signed("<", b.xor(remainder, y), zero))
        quotient = b.sub(quotient, b.zext(rounded_up, self.wholes))
        remainder = b.add(remainder, b.select(rounded_up, y, zero))
        quotient = b.select(by_zero, zero, b.select(by_minus_one, b.sub(zero, x), quotient))
        return quotient, b.select(special, zero, remainder)


def _as_int64(builder, value, type_):
    width = value.type.width
    if width < 64:
        return builder.sext(value, I64) if type_.signed else builder.zext(value, I64)
    return value


def clip(builder, value, low, high):
    """The nearest to ``value`` between two integers."""
    value = builder.select(builder.icmp_signed("<", value, low), low, value)
    return builder.select(builder.icmp_signed(">", value, high), high, value)


@as_intrinsic(types.void, MASK, types.intp, types.intp)
def keep_bytes(emitter: Emitter, mask, address, count):
    """Set LANES bytes to 0 where the mask is false, or the first ``count`` of them, and leave all other bytes."""
    builder, zero = emitter.builder, ir.Constant(ir.VectorType(_BYTE, LANES), [0] * LANES)
    with builder.if_else(builder.icmp_signed(">=", count, I64(LANES))) as (whole, part):
        with whole:
            value = emitter.read(address, zero.type, 1)
            emitter.store(builder.select(mask, value, zero), address, 1)
        with part:
            first = clip(builder, count, I64(0), I64(LANES))
            value = emitter.load_first(address, first, zero, 1)
            emitter.store_first(builder.select(mask, value, zero), address, first, 1)


@as_intrinsic(RAMP, types.int64)
def ramp(emitter: Emitter, start):
    """The positions from ``start`` on."""
    return start


def by_intrinsic(name: str) -> Callable:
    """LLVM's intrinsic of one float."""
    return lambda e, x: e.call(f"llvm.{name}.v{e.lanes}f32", e.vector, x)


def floor_divided(e: LaneEmitter, x, y):
    """(quotient, remainder) of floats as in NumPy; the remainder is exact, by the C library's fmod, lane by lane.

    The quotient comes from the remainder, since floor(x / y) is often 1 too large.
    """
    b, zero = e.builder, e.constant(0.0)
    remainder = b.frem(x, y, flags=EXACT)
    quotient = by_intrinsic("rint")(e, e.divide(e.subtract(x, remainder), y))
    signs_differ = b.xor(*(b.fcmp_ordered("<", value, zero, flags=EXACT) for value in (remainder, y)))
    rounded_up = b.and_(b.fcmp_ordered("!=", remainder, zero, flags=EXACT), signs_differ)
    quotient = b.select(rounded_up, e.subtract(quotient, e.constant(1.0)), quotient)
    quotient = b.select(b.fcmp_ordered("==", y, zero, flags=EXACT), e.divide(x, y), quotient)
    return quotient, b.select(rounded_up, e.add(remainder, y), remainder)


def comparisons(symbol: str) -> tuple[Callable, Callable]:
    """The comparisons of floats and of whole numbers; NaN is unequal to all, and neither above nor below."""

    def floats(e: LaneEmitter, x, y):
        compare = e.builder.fcmp_unordered if symbol == "!=" else e.builder.fcmp_ordered
        return compare(symbol, x, y, flags=EXACT)

    return floats, lambda e, x, y: e.builder.icmp_signed(symbol, x, y)


def extremes(symbol: str) -> tuple[Callable, Callable]:
    """The larger or the smaller of two numbers; NaN if either is NaN, as in NumPy."""
    floats_above, wholes_above = comparisons(symbol)

    def floats(e: LaneEmitter, x, y):
        first = e.builder.or_(floats_above(e, x, y), e.builder.fcmp_unordered("uno", x, x))
        return e.builder.select(first, x, y)

    return floats, lambda e, x, y: e.builder.select(wholes_above(e, x, y), x, y)


def absolute_whole(e: LaneEmitter, x):
    negative = e.builder.icmp_signed("<", x, e.whole(0))
    return e.builder.select(negative, e.builder.sub(e.whole(0), x), x)


def shift_left(e: LaneEmitter, x, n):
    return e.builder.select(e.builder.icmp_unsigned("<", n, e.whole(e.bits)), e.builder.shl(x, n), e.whole(0))


def shift_right(e: LaneEmitter, x, n):
    last_bit = e.whole(e.bits - 1)
    return e.builder.ashr(x, e.builder.select(e.builder.icmp_unsigned("<", n, last_bit), n, last_bit))


def is_true(e: LaneEmitter, x):
    if x.type == e.vector:
        return e.builder.fcmp_unordered("!=", x, e.constant(0.0), flags=EXACT)
    return e.builder.icmp_signed("!=", x, e.whole(0))


def last_if_true(e: LaneEmitter, x, y):
    """x and y, as Python computes it."""
    return e.builder.select(is_true(e, x), y, x)


def first_if_true(e: LaneEmitter, x, y):
    """x or y, as Python computes it."""
    return e.builder.select(is_true(e, x), x, y)


def negate(e: LaneEmitter, x):
    return e.builder.xor(x, e.truth(True))


def select(e: LaneEmitter, condition, x, y):
    return e.builder.select(condition, x, y)


def repeat_product(multiply: Callable, exponent: int) -> Callable:
    def emit(e: LaneEmitter, x):
        result = x
        for digit in bin(exponent)[3:]:
            result = multiply(e, result, result)
            result = multiply(e, result, x) if digit == "1" else result
        return result

    return emit


def by_builder(name: str) -> Callable:
    return lambda e, *values: getattr(e.builder, name)(*values)
