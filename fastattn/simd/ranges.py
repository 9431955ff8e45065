"""Operations on ranges of whole numbers, by which a mask answers for a whole tile of queries and keys at once.

A RANGE holds a number's least and greatest value, a TRUTH whether a condition may be true (1) and may be false (2).
Numbers in lanes wrap around beyond 32 bits, so a range that exceeds 32 bits becomes the range of all numbers.
"""

from collections import namedtuple

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from fastattn.simd.emit import I64
from fastattn.simd.lanes import LaneEmitter, is_scalar_whole
from fastattn.simd.vector import PlainType

I1, I8 = ir.IntType(1), ir.IntType(8)

# LLVM values: a number's least and greatest value; whether a condition may be true, and whether it may be false.
Ends = namedtuple("Ends", "least greatest")
Chances = namedtuple("Chances", "true false")
_ALL_NUMBERS, _INT32 = Ends(I64(-(2**63)), I64(2**63 - 1)), Ends(I64(-(2**31)), I64(2**31 - 1))

_PAIR = ir.LiteralStructType([I64, I64])
RANGE, TRUTH = PlainType("range of int64", _PAIR), PlainType("truth of a range", I8)
IN_RANGES = (RANGE, TRUTH)
COMPARISONS = {"less", "less_equal", "greater", "greater_equal", "equal", "not_equal"}
_NUMBERS = {"add": 2, "subtract": 2, "multiply": 2, "floor_divide": 2, "remainder": 2, "maximum": 2, "minimum": 2}
_NUMBERS |= {"negative": 1, "absolute": 1, "to_whole": 1}
_AND, _OR, _XOR = {"bit_and", "logical_and", "and"}, {"bit_or", "logical_or", "or"}, {"bit_xor", "logical_xor"}
_NOT, _UNCHANGED = {"invert", "logical_not"}, {"truth", "truths_in_lanes"}
_TRUTHS = _AND | _OR | _XOR | _NOT | _UNCHANGED


def unknown_value(type_):
    """The RANGE of all numbers, or the TRUTH that may be either."""
    return I8(3) if type_ == TRUTH else ir.Constant(_PAIR, _ALL_NUMBERS)


def _is_number(type_) -> bool:
    return type_ == RANGE or is_scalar_whole(type_)


def _is_truth(type_) -> bool:
    return type_ == TRUTH or isinstance(type_, types.Boolean)


def range_result(name: str, operand_types: tuple):
    """The type of an operation with a RANGE or a TRUTH among the operands; None where there is no such operation."""
    if name in COMPARISONS and all(map(_is_number, operand_types)):
        return TRUTH
    if _NUMBERS.get(name) == len(operand_types) and all(map(_is_number, operand_types)):
        divided = name in ("floor_divide", "remainder")
        return None if divided and operand_types[-1] == RANGE else RANGE
    if name in _TRUTHS and all(map(_is_truth, operand_types)):
        return TRUTH
    if name == "where":
        condition, *values = operand_types
        if _is_truth(condition) and all(map(_is_truth, values)):
            return TRUTH
        return RANGE if _is_truth(condition) and all(map(_is_number, values)) else None
    return None


def emit_range(name: str, builder: ir.IRBuilder, operand_types: tuple, values: tuple):
    """Emit the operation whose type ``range_result`` gives."""
    r, pairs = _Ranges(builder), list(zip(values, operand_types))
    if name in COMPARISONS:
        return r.compare(name, *(r.ends(*pair) for pair in pairs))
    if name == "where":
        condition, *pairs = pairs
        truth = r.chances(*condition)
        if all(_is_truth(type_) for _, type_ in pairs):
            return r.where_truth(truth, *(r.chances(*pair) for pair in pairs))
        ends = [r.ends(*pair) for pair in pairs]
        return r.number(r.where_range(truth, *ends), ends)
    if name in _NUMBERS:
        ends = [r.ends(*pair) for pair in pairs]
        return r.number(getattr(r, name)(*ends), ends)
    return r.truths(name, *(r.chances(*pair) for pair in pairs))


class _Ranges:
    """Emits the operations, on Ends and Chances."""

    def __init__(self, builder: ir.IRBuilder):
        self.builder, self.scalars = builder, LaneEmitter(builder, False)

    def ends(self, value, type_) -> Ends:
        if type_ == RANGE:
            return Ends(self.builder.extract_value(value, 0), self.builder.extract_value(value, 1))
        scalar = self.scalars.result(self.scalars.as_wholes(value, type_))
        return Ends(scalar, scalar)

    def chances(self, value, type_) -> Chances:
        b = self.builder
        if type_ == TRUTH:
            return Chances(b.trunc(value, I1), b.trunc(b.lshr(value, I8(1)), I1))
        return Chances(value, b.not_(value))

    def pair(self, least, greatest):
        value = self.builder.insert_value(ir.Constant(_PAIR, ir.Undefined), least, 0)
        return self.builder.insert_value(value, greatest, 1)

    def truth(self, true, false):
        b = self.builder
        return b.or_(b.zext(true, I8), b.shl(b.zext(false, I8), I8(1)))

    def below(self, x, y):
        return self.builder.icmp_signed("<", x, y)

    def least(self, first, *values):
        for value in values:
            first = self.builder.select(self.below(value, first), value, first)
        return first

    def greatest(self, first, *values):
        for value in values:
            first = self.builder.select(self.below(first, value), value, first)
        return first

    def number(self, result: Ends, operands):
        """The RANGE of a result: that of all numbers if the result or an operand does not fit 32 bits."""
        b, all_fit = self.builder, I1(1)
        for least, greatest in (result, *operands):
            both = b.icmp_signed(">=", least, _INT32.least), b.icmp_signed("<=", greatest, _INT32.greatest)
            all_fit = b.and_(all_fit, b.and_(*both))
        return self.pair(*self.select(all_fit, result, _ALL_NUMBERS))

    def select(self, condition, x: Ends, y: Ends) -> Ends:
        return Ends(*(self.builder.select(condition, *ends) for ends in zip(x, y)))

    def compare(self, name, x: Ends, y: Ends):
        b = self.builder
        if name in ("greater", "greater_equal"):
            name, x, y = {"greater": "less", "greater_equal": "less_equal"}[name], y, x
        if name == "less":
            return self.truth(self.below(x.least, y.greatest), b.not_(self.below(x.greatest, y.least)))
        if name == "less_equal":
            return self.truth(b.not_(self.below(y.greatest, x.least)), self.below(y.least, x.greatest))
        meet = b.not_(b.or_(self.below(x.greatest, y.least), self.below(y.greatest, x.least)))
        differ = b.icmp_signed("!=", self.least(x.least, y.least), self.greatest(x.greatest, y.greatest))
        return self.truth(meet, differ) if name == "equal" else self.truth(differ, meet)

    # For operands of more than 32 bits any result is right: ``number`` replaces it.

    def add(self, x: Ends, y: Ends) -> Ends:
        return Ends(self.builder.add(x.least, y.least), self.builder.add(x.greatest, y.greatest))

    def subtract(self, x: Ends, y: Ends) -> Ends:
        return Ends(self.builder.sub(x.least, y.greatest), self.builder.sub(x.greatest, y.least))

    def multiply(self, x: Ends, y: Ends) -> Ends:
        products = [self.builder.mul(a, b) for a in x for b in y]
        return Ends(self.least(*products), self.greatest(*products))

    def negative(self, x: Ends) -> Ends:
        return Ends(self.builder.neg(x.greatest), self.builder.neg(x.least))

    def to_whole(self, x: Ends) -> Ends:
        return x

    def absolute(self, x: Ends) -> Ends:
        least, greatest = self.negative(x)
        return Ends(self.greatest(x.least, least, I64(0)), self.greatest(x.greatest, greatest))

    def maximum(self, x: Ends, y: Ends) -> Ends:
        return Ends(self.greatest(x.least, y.least), self.greatest(x.greatest, y.greatest))

    def minimum(self, x: Ends, y: Ends) -> Ends:
        return Ends(self.least(x.least, y.least), self.least(x.greatest, y.greatest))

    def _divided(self, x: Ends, divisor) -> tuple[Ends, Ends]:
        """The quotients and the remainders of both ends, divided by a scalar."""
        a = self.scalars
        results = [a.floor_divided(a.splat(end), a.splat(divisor)) for end in x]
        quotients, remainders = (Ends(*map(a.result, pair)) for pair in zip(*results))
        return quotients, remainders

    def _if_positive(self, divisor, ends: Ends) -> Ends:
        """The ends of a result; those of all numbers unless the divisor is positive."""
        return self.select(self.builder.icmp_signed(">", divisor, I64(0)), ends, _ALL_NUMBERS)

    def floor_divide(self, x: Ends, y: Ends) -> Ends:
        quotients, _ = self._divided(x, y.least)
        return self._if_positive(y.least, quotients)

    def remainder(self, x: Ends, y: Ends) -> Ends:
        b, divisor = self.builder, y.least
        quotients, remainders = self._divided(x, divisor)
        same_quotient = b.icmp_signed("==", *quotients)
        return self._if_positive(divisor, self.select(same_quotient, remainders, Ends(I64(0), b.sub(divisor, I64(1)))))

    def where_range(self, condition: Chances, x: Ends, y: Ends) -> Ends:
        both = Ends(self.least(x.least, y.least), self.greatest(x.greatest, y.greatest))
        return self.select(condition.false, self.select(condition.true, both, y), x)

    def where_truth(self, condition: Chances, x: Chances, y: Chances):
        b = self.builder
        return self.truth(*(b.or_(b.and_(condition.true, p), b.and_(condition.false, q)) for p, q in zip(x, y)))

    def truths(self, name, x: Chances, y: Chances | None = None):
        b = self.builder
        if y is None:
            return self.truth(x.false, x.true) if name in _NOT else self.truth(*x)
        if name in _AND:
            return self.truth(b.and_(x.true, y.true), b.or_(x.false, y.false))
        if name in _OR:
            return self.truth(b.or_(x.true, y.true), b.and_(x.false, y.false))
        differ = b.or_(b.and_(x.true, y.false), b.and_(x.false, y.true))
        return self.truth(differ, b.or_(b.and_(x.true, y.true), b.and_(x.false, y.false)))


@intrinsic
def make_range(typing_context, first, last):
    """The RANGE of two int64."""

    def generate(context, builder, signature, values):
        return _Ranges(builder).pair(*values)

    return RANGE(types.int64, types.int64), generate


@intrinsic
def truth_bits(typing_context, truth):
    """1 if a TRUTH or a plain truth value may be true, 2 if it may be false, 3 if it may be either."""

    def generate(context, builder, signature, values):
        r, (value,) = _Ranges(builder), values
        return builder.zext(r.truth(*r.chances(value, truth)), I64)

    return (types.int64(truth), generate) if _is_truth(truth) else None
