"""Operations on ranges of whole numbers: what a mask says of a whole tile of queries and keys at once.

A RANGE holds a number's least and greatest value, a TRUTH whether it may be true (1) and whether it may be false (2).
Numbers in lanes wrap around beyond 32 bits; a range that leaves them therefore becomes that of all numbers.
"""

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from fastattn.simd.emit import I64
from fastattn.simd.lanes import LaneEmitter, is_scalar_whole
from fastattn.simd.vector import register_form

I1, I8 = ir.IntType(1), ir.IntType(8)
_LEAST, _MOST = I64(-(2**63)), I64(2**63 - 1)
_NARROW = I64(-(2**31)), I64(2**31 - 1)


class Range(types.Type):
    """The least and the greatest value of a number, int64 each."""

    def __init__(self):
        super().__init__(name="range of int64")


class Truth(types.Type):
    """Whether something may be true and may be false."""

    def __init__(self):
        super().__init__(name="truth of a range")


RANGE, TRUTH = Range(), Truth()
IN_RANGES = (RANGE, TRUTH)
_PAIR = ir.LiteralStructType([I64, I64])


register_form(Range, _PAIR)
register_form(Truth, I8)
COMPARISONS = {"less", "less_equal", "greater", "greater_equal", "equal", "not_equal"}
_NUMBERS = {"add": 2, "subtract": 2, "multiply": 2, "floor_divide": 2, "remainder": 2, "maximum": 2, "minimum": 2}
_NUMBERS |= {"negative": 1, "absolute": 1, "to_whole": 1}
_AND, _OR, _XOR, _NOT = (
    {"bit_and", "logical_and", "and"},
    {"bit_or", "logical_or", "or"},
    {"bit_xor", "logical_xor"},
    {"invert"},
)
_TRUTHS = _AND | _OR | _XOR | _NOT | {"logical_not", "truth", "truths_in_lanes"}


def unknown(kind):
    """Of all numbers, or of either truth."""
    return I8(3) if kind == TRUTH else ir.Constant(_PAIR, [_LEAST, _MOST])


def _is_number(kind) -> bool:
    return kind == RANGE or is_scalar_whole(kind)


def _is_truth(kind) -> bool:
    return kind == TRUTH or isinstance(kind, types.Boolean)


def range_result(name: str, kinds: tuple):
    """The type of an operation with a range or its truth among the operands; None where there is none."""
    if name in COMPARISONS and all(map(_is_number, kinds)):
        return TRUTH
    if _NUMBERS.get(name) == len(kinds) and all(map(_is_number, kinds)):
        divided = name in ("floor_divide", "remainder")
        return None if divided and kinds[1] == RANGE else RANGE
    if name in _TRUTHS and all(map(_is_truth, kinds)):
        return TRUTH
    if name == "where" and _is_truth(kinds[0]):
        if all(map(_is_truth, kinds)):
            return TRUTH
        return RANGE if all(map(_is_number, kinds[1:])) else None
    return None


def emit_range(name: str, builder: ir.IRBuilder, kinds: tuple, values: tuple):
    """The operation that ``range_result`` has typed."""
    r = _Ranges(builder)
    if name in COMPARISONS:
        return r.compare(name, *(r.ends(*pair) for pair in zip(values, kinds)))
    if name in _NUMBERS:
        ends = [r.ends(*pair) for pair in zip(values, kinds)]
        return r.pair(*r.narrow(getattr(r, name)(*ends), ends))
    if name == "where":
        may = r.may(values[0], kinds[0])
        if _is_truth(kinds[1]):
            return r.where_truth(may, r.may(values[1], kinds[1]), r.may(values[2], kinds[2]))
        ends = [r.ends(*pair) for pair in zip(values[1:], kinds[1:])]
        return r.pair(*r.narrow(r.where_range(may, *ends), ends))
    return r.truths(name, [r.may(*pair) for pair in zip(values, kinds)])


class _Ranges:
    """Emits them; a number is (least, greatest), a truth (whether it may be true, may be false)."""

    def __init__(self, builder: ir.IRBuilder):
        self.builder = builder

    def ends(self, value, kind):
        if kind == RANGE:
            return self.builder.extract_value(value, 0), self.builder.extract_value(value, 1)
        a = LaneEmitter(self.builder, False)
        scalar = a.result(a.as_wholes(value, kind))
        return scalar, scalar

    def may(self, value, kind):
        b = self.builder
        if kind == TRUTH:
            return b.trunc(value, I1), b.trunc(b.lshr(value, I8(1)), I1)
        return value, b.not_(value)

    def pair(self, least, greatest):
        value = self.builder.insert_value(ir.Constant(_PAIR, ir.Undefined), least, 0)
        return self.builder.insert_value(value, greatest, 1)

    def truth(self, true, false):
        b = self.builder
        return b.or_(b.zext(true, I8), b.shl(b.zext(false, I8), I8(1)))

    def below(self, x, y):
        return self.builder.icmp_signed("<", x, y)

    def least(self, first, *others):
        for other in others:
            first = self.builder.select(self.below(other, first), other, first)
        return first

    def greatest(self, first, *others):
        for other in others:
            first = self.builder.select(self.below(first, other), other, first)
        return first

    def narrow(self, result, operands):
        """The result, or all numbers if it or an operand does not fit 32 bits."""
        b, fits = self.builder, I1(1)
        for least, greatest in (result, *operands):
            inside = b.and_(b.icmp_signed(">=", least, _NARROW[0]), b.icmp_signed("<=", greatest, _NARROW[1]))
            fits = b.and_(fits, inside)
        return b.select(fits, result[0], _LEAST), b.select(fits, result[1], _MOST)

    def compare(self, name, x, y):
        b = self.builder
        if name in ("greater", "greater_equal"):
            name, x, y = {"greater": "less", "greater_equal": "less_equal"}[name], y, x
        if name == "less":
            return self.truth(self.below(x[0], y[1]), b.not_(self.below(x[1], y[0])))
        if name == "less_equal":
            return self.truth(b.not_(self.below(y[1], x[0])), self.below(y[0], x[1]))
        meet = b.not_(b.or_(self.below(x[1], y[0]), self.below(y[1], x[0])))
        differ = b.or_(b.icmp_signed("!=", self.least(x[0], y[0]), self.greatest(x[1], y[1])), I1(0))
        return self.truth(meet, differ) if name == "equal" else self.truth(differ, meet)

    # Operands of more than 32 bits give whatever they give: ``narrow`` replaces it.

    def add(self, x, y):
        return self.builder.add(x[0], y[0]), self.builder.add(x[1], y[1])

    def subtract(self, x, y):
        return self.builder.sub(x[0], y[1]), self.builder.sub(x[1], y[0])

    def multiply(self, x, y):
        products = [self.builder.mul(one, other) for one in x for other in y]
        return self.least(*products), self.greatest(*products)

    def negative(self, x):
        return self.builder.neg(x[1]), self.builder.neg(x[0])

    def to_whole(self, x):
        return x

    def absolute(self, x):
        least, greatest = self.negative(x)
        return self.greatest(x[0], least, I64(0)), self.greatest(x[1], greatest)

    def maximum(self, x, y):
        return self.greatest(x[0], y[0]), self.greatest(x[1], y[1])

    def minimum(self, x, y):
        return self.least(x[0], y[0]), self.least(x[1], y[1])

    def _quotients(self, x, divisor):
        a = LaneEmitter(self.builder, False)
        return [a.floor_divided(a.spread(end), a.spread(divisor)) for end in x]

    def _if_positive(self, divisor, ends):
        positive = self.builder.icmp_signed(">", divisor, I64(0))
        return (
            self.builder.select(positive, ends[0], _LEAST),
            self.builder.select(positive, ends[1], _MOST),
        )

    def floor_divide(self, x, y):
        a, divisor = LaneEmitter(self.builder, False), y[0]
        return self._if_positive(divisor, [a.result(quotient) for quotient, _ in self._quotients(x, divisor)])

    def remainder(self, x, y):
        a, b, divisor = LaneEmitter(self.builder, False), self.builder, y[0]
        (first, low), (last, high) = [[a.result(v) for v in pair] for pair in self._quotients(x, divisor)]
        same = b.icmp_signed("==", first, last)
        ends = b.select(same, low, I64(0)), b.select(same, high, b.sub(divisor, I64(1)))
        return self._if_positive(divisor, ends)

    def where_range(self, condition, x, y):
        b = self.builder
        true, false = condition
        low = b.select(false, b.select(true, self.least(x[0], y[0]), y[0]), x[0])
        return low, b.select(false, b.select(true, self.greatest(x[1], y[1]), y[1]), x[1])

    def where_truth(self, condition, x, y):
        b = self.builder
        return self.truth(*(b.or_(b.and_(condition[0], x[i]), b.and_(condition[1], y[i])) for i in (0, 1)))

    def truths(self, name, operands):
        b = self.builder
        if name in ("truth", "truths_in_lanes"):
            return self.truth(*operands[0])
        if name in _NOT | {"logical_not"}:
            return self.truth(*operands[0][::-1])
        (true, false), (other_true, other_false) = operands
        if name in _AND:
            return self.truth(b.and_(true, other_true), b.or_(false, other_false))
        if name in _OR:
            return self.truth(b.or_(true, other_true), b.and_(false, other_false))
        differ = b.or_(b.and_(true, other_false), b.and_(false, other_true))
        return self.truth(differ, b.or_(b.and_(true, other_true), b.and_(false, other_false)))


@intrinsic
def make_range(typing_context, first, last):
    """The RANGE of two int64."""

    def generate(context, builder, kind, values):
        return _Ranges(builder).pair(*values)

    return RANGE(types.int64, types.int64), generate


@intrinsic
def truth_bits(typing_context, truth):
    """1 if it may be true, 2 if it may be false, 3 if either; of a TRUTH or a plain truth value."""

    def generate(context, builder, kind, values):
        r = _Ranges(builder)
        return builder.zext(r.truth(*r.may(values[0], truth)), I64)

    return (types.int64(truth), generate) if _is_truth(truth) else None
