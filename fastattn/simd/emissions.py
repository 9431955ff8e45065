"""What operations on Numba's types emit, from an LaneEmitter and operands of one kind, for lanes and for one alone."""

from collections.abc import Callable

from fastattn.simd.emit import EXACT
from fastattn.simd.lanes import LaneEmitter


def rounded(a: LaneEmitter, name: str, x):
    return a.call(f"llvm.{name}.v{a.lanes}f32", a.vector, x)


def floor_divided(a: LaneEmitter, x, y):
    """(quotient, remainder) of floats as NumPy has them, the remainder exact; floor(x / y) is often one too large.

    The C library's fmod does it, lane by lane.
    """
    b, zero = a.builder, a.constant(0.0)
    rest = b.frem(x, y, flags=EXACT)
    quotient = rounded(a, "rint", a.divide(a.subtract(x, rest), y))
    signs_differ = b.xor(*(b.fcmp_ordered("<", value, zero, flags=EXACT) for value in (rest, y)))
    below = b.and_(b.fcmp_ordered("!=", rest, zero, flags=EXACT), signs_differ)
    quotient = b.select(below, a.subtract(quotient, a.constant(1.0)), quotient)
    quotient = b.select(b.fcmp_ordered("==", y, zero, flags=EXACT), a.divide(x, y), quotient)
    return quotient, b.select(below, a.add(rest, y), rest)


def is_nan(a: LaneEmitter, x):
    return a.builder.fcmp_unordered("uno", x, x)


def extreme(symbol: str) -> tuple[Callable, Callable]:
    """The larger or smaller; NaN if either is, as in NumPy."""

    def floats(a: LaneEmitter, x, y):
        first = a.builder.or_(a.builder.fcmp_ordered(symbol, x, y, flags=EXACT), is_nan(a, x))
        return a.builder.select(first, x, y)

    def wholes(a: LaneEmitter, x, y):
        return a.builder.select(a.builder.icmp_signed(symbol, x, y), x, y)

    return floats, wholes


def to_wholes(a: LaneEmitter, x):
    return a.call(f"llvm.fptosi.sat.v{a.lanes}i{a.bits}.v{a.lanes}f32", a.wholes, x)


def shift_left(a: LaneEmitter, x, n):
    return a.builder.select(a.builder.icmp_unsigned("<", n, a.whole(a.bits)), a.builder.shl(x, n), a.whole(0))


def shift_right(a: LaneEmitter, x, n):
    most = a.whole(a.bits - 1)
    return a.builder.ashr(x, a.builder.select(a.builder.icmp_unsigned("<", n, most), n, most))


def is_true(a: LaneEmitter, x):
    if x.type == a.vector:
        return a.builder.fcmp_unordered("!=", x, a.constant(0.0), flags=EXACT)
    return a.builder.icmp_signed("!=", x, a.whole(0))


def last_if_true(a: LaneEmitter, x, y):
    return a.builder.select(is_true(a, x), y, x)


def first_if_true(a: LaneEmitter, x, y):
    return a.builder.select(is_true(a, x), x, y)


def negated(a: LaneEmitter, x):
    return a.builder.xor(x, a.truth(True))


def negative_float(a: LaneEmitter, x):
    return a.subtract(a.constant(-0.0), x)


def select(a: LaneEmitter, condition, x, y):
    return a.builder.select(condition, x, y)


def repeated(multiply: Callable, exponent: int) -> Callable:
    def emit(a: LaneEmitter, x):
        result = x
        for digit in bin(exponent)[3:]:
            result = multiply(a, result, result)
            result = multiply(a, result, x) if digit == "1" else result
        return result

    return emit


def by_builder(name: str) -> Callable:
    return lambda a, *values: getattr(a.builder, name)(*values)
