"""Elementary functions of float32, emitted for lanes and for scalars alike."""

from fastattn.simd.arguments import LOG2_E
from fastattn.simd.emit import EXACT, SHIFT, Emitter

# (2**f - 1) / f on |f| <= 1/2, minimax in relative error (9e-8), highest power first.
EXP2 = (1.3264727e-3, 9.6715129e-3, 5.55073375e-2, 2.40222421e-1, 6.93146978e-1)
# The same to 1.0e-4, a 19th of the rounding to bfloat16.
ROUGH_EXP2 = (0.05500894, 0.24221099, 0.69328294)
# e**r - 1 - r over r**2 on |r| <= ln 2 / 2 (Cephes expf), highest power first.
EXP = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
# erf(x) / x in 2 (x / ERF_BOUND)^2 - 1, minimax in relative error (5e-8), highest power first; erf is 1 at the bound.
ERF_BOUND = 3.8
ERF = (
    0.00111471501, -0.00276698545, 0.00208687363, -0.00309233693, 0.01027676,
    -0.0185622592, 0.0265081078, -0.0388198383, 0.0551085733, -0.0725454539,
    0.0908260196, -0.111182436, 0.137739822, -0.185641289, 0.372107625,
)  # fmt: skip
# tanh(x) is x TANH_ODD(x^2) / TANH_EVEN(x^2), a minimax rational function, highest power first.
TANH_BOUND = 7.90531110763549805
TANH_ODD = (
    -2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08,
    1.48572235717979e-05, 6.37261928875436e-04, 4.89352455891786e-03,
)  # fmt: skip
TANH_EVEN = (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03)
# (log(1 + f) - f + f**2 / 2) / f**3 on sqrt(1/2) - 1 .. sqrt(2) - 1 (Cephes logf), highest power first.
LOG = (
    7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
    -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
)  # fmt: skip


def scale_by_power(e: Emitter, p, n):
    """p 2**n for integers n, by two factors, each within the exponent's range."""
    b = e.builder
    half = b.ashr(n, e.integer(1))
    for exponent in (half, b.sub(n, half)):
        bits = b.shl(b.add(exponent, e.integer(127)), e.integer(23))
        p = e.multiply(p, b.bitcast(bits, e.vector))
    return p


def polynomial(e: Emitter, x, coefficients):
    """Horner's rule, highest power first."""
    highest, *lower = coefficients
    value = e.constant(highest)
    for c in lower:
        value = e.fma(value, x, e.constant(c))
    return value


def exp(e: Emitter, x):
    """e**x to 2 ulp for all float32: 0 for -inf, inf on overflow, NaN stays.

    Cody and Waite reduction x = n ln 2 + r with |r| <= ln 2 / 2, a polynomial in r, and 2**n.
    """
    x = e.minimum(e.constant(89.0), e.maximum(e.constant(-104.0), x))  # in this order NaN passes
    shift = e.constant(SHIFT)
    shifted = e.fma(x, e.constant(LOG2_E), shift)
    n = e.subtract(shifted, shift)
    r = e.fma(n, e.constant(-0.693359375), x)
    r = e.fma(n, e.constant(2.12194440e-4), r)
    p = polynomial(e, r, EXP)
    p = e.add(e.fma(e.multiply(r, r), p, r), e.constant(1.0))
    return scale_by_power(e, p, e.low_bits(shifted))


def _fraction_power(e: Emitter, x, rough: bool = False):
    """(2**(x - n), n + SHIFT), where n is the integer nearest to x."""
    shift = e.constant(SHIFT)
    shifted = e.add(x, shift)
    f = e.subtract(x, e.subtract(shifted, shift))
    return e.fma(f, polynomial(e, f, ROUGH_EXP2 if rough else EXP2), e.constant(1.0)), shifted


def exp2(e: Emitter, x, rough: bool = False):
    """2**x for x <= 127, to 2 ulp where the result is normal; exactly 0 for x <= -127, so for -inf. NaN stays.

    It is cheaper than exp: a softmax has x <= 0 only, and includes log2(e) in the scale of its scores. A ``rough``
    result, which bfloat16 will round, has a relative error of 1.0e-4.
    """
    b = e.builder
    # in this order NaN passes; at -127 the exponent of the result becomes that of zero
    p, shifted = _fraction_power(e, e.maximum(e.constant(-127.0), x), rough)
    exponent = b.shl(b.bitcast(shifted, e.integers), e.integer(23))
    return b.bitcast(b.add(b.bitcast(p, e.integers), exponent), e.vector)


def erf(e: Emitter, x):
    """erf(x), relative error below 4e-7: x P(x^2) with x clipped to the bound, where erf is 1.

    A rational function would need a division, which takes as long as ten multiplications. P's argument is mapped to
    -1 .. 1, so that its coefficients are small.
    """
    x = e.minimum(e.constant(ERF_BOUND), e.maximum(e.constant(-ERF_BOUND), x))  # in this order NaN passes
    inside = e.fma(e.multiply(x, x), e.constant(2 / ERF_BOUND**2), e.constant(-1.0))
    return e.multiply(x, polynomial(e, inside, ERF))


def tanh(e: Emitter, x):
    """tanh(x), relative error below 4e-7: x P(x^2) / Q(x^2) with x clipped to the bound, as in erf."""
    x = e.minimum(e.constant(TANH_BOUND), e.maximum(e.constant(-TANH_BOUND), x))
    square = e.multiply(x, x)
    numerator = e.multiply(x, polynomial(e, square, TANH_ODD))
    return e.divide(numerator, polynomial(e, square, TANH_EVEN))


def accurate_tanh(e: Emitter, x):
    """tanh(x) close to that of a caller's own libraries: relative error below 4e-7, from 0.55 on below 1.2e-7.

    From 0.55 on it is 1 - 2 t / (1 + t) with t = e**-2|x|, which reaches exactly 1, and the sign of x. NaN stays.
    """
    b, unit = e.builder, e.constant(1.0)
    magnitude = e.absolute(x)
    t = exp2(e, e.multiply(magnitude, e.constant(-2 * LOG2_E)))
    large = e.subtract(unit, e.divide(e.add(t, t), e.add(unit, t)))
    sign = b.and_(b.bitcast(x, e.integers), e.integer(-0x80000000))
    large = b.bitcast(b.or_(b.bitcast(large, e.integers), sign), e.vector)
    return b.select(b.fcmp_ordered("<", magnitude, e.constant(0.55), flags=EXACT), tanh(e, x), large)


def _split_logarithm(e: Emitter, x):
    """(f, n, log(1 + f) - f) of a positive, finite x = (1 + f) 2**n with sqrt(1/2) <= 1 + f < sqrt(2)."""
    b = e.builder
    small = b.fcmp_ordered("<", x, e.constant(2.0**-126), flags=EXACT)
    x = b.select(small, e.multiply(x, e.constant(2.0**23)), x)
    bits = b.bitcast(x, e.integers)
    n = b.ashr(b.sub(bits, e.integer(0x3F3504F3)), e.integer(23))
    f = e.subtract(b.bitcast(b.sub(bits, b.shl(n, e.integer(23))), e.vector), e.constant(1.0))
    n = e.subtract(b.sitofp(n, e.vector), b.select(small, e.constant(23.0), e.constant(0.0)))
    square = e.multiply(f, f)
    tail = e.fma(square, e.constant(-0.5), e.multiply(e.multiply(polynomial(e, f, LOG), f), square))
    return f, n, tail


def _with_special_values(e: Emitter, x, value):
    """A logarithm's value, but -inf at 0, NaN below 0, and x itself for inf and NaN."""
    b, zero, infinity = e.builder, e.constant(0.0), e.constant(float("inf"))
    value = b.select(b.fcmp_unordered("<", x, infinity, flags=EXACT), value, x)
    value = b.select(b.fcmp_ordered("==", x, zero, flags=EXACT), e.constant(float("-inf")), value)
    value = b.select(b.fcmp_ordered("<", x, zero, flags=EXACT), e.constant(float("nan")), value)
    return b.select(b.fcmp_unordered("uno", x, x), x, value)


def log(e: Emitter, x):
    """The natural logarithm to 2 ulp."""
    f, n, tail = _split_logarithm(e, x)
    value = e.fma(n, e.constant(0.693359375), e.add(f, e.fma(n, e.constant(-2.12194440e-4), tail)))
    return _with_special_values(e, x, value)


def log2(e: Emitter, x):
    """The logarithm to the base 2, exact for powers of 2."""
    f, n, tail = _split_logarithm(e, x)
    return _with_special_values(e, x, e.fma(e.add(f, tail), e.constant(LOG2_E), n))


def exp2_of_any(e: Emitter, x):
    """2**x for all float32, exact for whole numbers; 0 for -inf, inf on overflow, NaN stays."""
    x = e.minimum(e.constant(129.0), e.maximum(e.constant(-151.0), x))  # in this order NaN passes
    p, shifted = _fraction_power(e, x)
    return scale_by_power(e, p, e.low_bits(shifted))


def power(e: Emitter, x, y):
    """x**y as 2**(y log2 x): a relative error of about 1e-7 times the result's exponent.

    For x < 0 and a y that is not whole the power is NaN; x**0 and 1**y are 1 for any x and y.
    """
    b, zero, unit = e.builder, e.constant(0.0), e.constant(1.0)
    value = exp2_of_any(e, e.multiply(y, log2(e, e.absolute(x))))
    half = e.multiply(y, e.constant(0.5))
    negative, odd = b.fcmp_ordered("<", x, zero, flags=EXACT), _is_fraction(e, half)
    value = b.select(b.and_(negative, odd), e.subtract(e.constant(-0.0), value), value)
    value = b.select(b.and_(negative, _is_fraction(e, y)), e.constant(float("nan")), value)
    is_one = b.or_(*(b.fcmp_ordered("==", *pair, flags=EXACT) for pair in ((y, zero), (x, unit))))
    return b.select(is_one, unit, value)


def _is_fraction(e: Emitter, x):
    return e.builder.fcmp_ordered("!=", x, e.call(f"llvm.floor.v{e.target.lanes}f32", e.vector, x), flags=EXACT)
