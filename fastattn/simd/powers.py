"""Logarithms and powers of any float32, emitted for lanes and for scalars alike."""

from fastattn.simd.emit import EXACT, EXP2, Emitter

# (log(1 + f) - f + f**2 / 2) / f**3 on sqrt(1/2) - 1 .. sqrt(2) - 1 (Cephes logf), highest power first.
LOG = (
    7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
    -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
)  # fmt: skip
LOG2_E = 1.4426950408889634


def _reduced(e: Emitter, x):
    """x = (1 + f) 2**n with sqrt(1/2) <= 1 + f < sqrt(2): (f, n, log(1 + f)) for a positive, finite x."""
    b = e.builder
    small = b.fcmp_ordered("<", x, e.constant(2.0**-126), flags=EXACT)
    x = b.select(small, e.multiply(x, e.constant(2.0**23)), x)
    bits = b.bitcast(x, e.integers)
    n = b.ashr(b.sub(bits, e.integer(0x3F3504F3)), e.integer(23))
    f = e.subtract(b.bitcast(b.sub(bits, b.shl(n, e.integer(23))), e.vector), e.constant(1.0))
    n = e.subtract(b.sitofp(n, e.vector), b.select(small, e.constant(23.0), e.constant(0.0)))
    square = e.multiply(f, f)
    rest = e.fma(square, e.constant(-0.5), e.multiply(e.multiply(e.polynomial(f, LOG), f), square))
    return f, n, rest


def _ends(e: Emitter, x, value):
    """A logarithm where it is no number: -inf at 0, NaN below, x itself for inf and NaN."""
    b, zero, infinity = e.builder, e.constant(0.0), e.constant(float("inf"))
    value = b.select(b.fcmp_unordered("<", x, infinity, flags=EXACT), value, x)
    value = b.select(b.fcmp_ordered("==", x, zero, flags=EXACT), e.constant(float("-inf")), value)
    value = b.select(b.fcmp_ordered("<", x, zero, flags=EXACT), e.constant(float("nan")), value)
    return b.select(b.fcmp_unordered("uno", x, x), x, value)


def log(e: Emitter, x):
    """The natural logarithm to 2 ulp."""
    f, n, rest = _reduced(e, x)
    value = e.fma(n, e.constant(0.693359375), e.add(f, e.fma(n, e.constant(-2.12194440e-4), rest)))
    return _ends(e, x, value)


def log2(e: Emitter, x):
    """The logarithm to the base 2, exact for powers of 2."""
    f, n, rest = _reduced(e, x)
    return _ends(e, x, e.fma(e.add(f, rest), e.constant(LOG2_E), n))


def exp2(e: Emitter, x):
    """2**x for all float32, exact for whole numbers; 0 for -inf, inf on overflow, NaN stays."""
    b = e.builder
    x = e.minimum(e.constant(129.0), e.maximum(e.constant(-151.0), x))  # in this order NaN passes
    shift = e.constant(12582912.0)
    shifted = e.add(x, shift)
    f = e.subtract(x, e.subtract(shifted, shift))
    p = e.fma(f, e.polynomial(f, EXP2), e.constant(1.0))
    bits = b.bitcast(shifted, e.integers)
    whole = b.sub(bits, e.integer(0x4B400000))
    half = b.ashr(whole, e.integer(1))
    for part in (half, b.sub(whole, half)):
        p = e.multiply(p, b.bitcast(b.shl(b.add(part, e.integer(127)), e.integer(23)), e.vector))
    return p


def power(e: Emitter, x, y):
    """x**y as 2**(y log2 x): a relative error of about 1e-7 times the result's exponent.

    Of x < 0 it has a value for whole y only, else NaN; x**0 and 1**y are 1 for any x and y.
    """
    b, zero, one = e.builder, e.constant(0.0), e.constant(1.0)
    value = exp2(e, e.multiply(y, log2(e, e.absolute(x))))
    half = e.multiply(y, e.constant(0.5))
    negative, odd = b.fcmp_ordered("<", x, zero, flags=EXACT), _is_fraction(e, half)
    value = b.select(b.and_(negative, odd), e.subtract(e.constant(-0.0), value), value)
    value = b.select(b.and_(negative, _is_fraction(e, y)), e.constant(float("nan")), value)
    certain = b.or_(
        b.fcmp_ordered("==", y, zero, flags=EXACT),
        b.fcmp_ordered("==", x, one, flags=EXACT),
    )
    return b.select(certain, one, value)


def _is_fraction(e: Emitter, x):
    return e.builder.fcmp_ordered("!=", x, e.call(f"llvm.floor.v{e.target.lanes}f32", e.vector, x), flags=EXACT)
