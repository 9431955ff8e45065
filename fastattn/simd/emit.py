"""LLVM IR for vector arithmetic, for the intrinsics of vector.py and tile.py.

It needs a builder and a Target only, no Numba, so the same code can be generated for another CPU.
Operations carry the flag ``nsz`` because Numba's fast-math pass adds its flags where there are none.
"""

import struct
from itertools import islice

from llvmlite import ir

from fastattn.simd.target import Target

F32, I32, I64 = ir.FloatType(), ir.IntType(32), ir.IntType(64)
EXACT = ("nsz",)


def float32_constant(value: float) -> float:
    """The nearest float32, as a Python float for LLVM's text."""
    return struct.unpack("f", struct.pack("f", value))[0]


def nested(values, sizes) -> list:
    """The values in tuples of these sizes; 0: a value without a tuple."""
    given = iter(values)
    return [tuple(islice(given, size)) if size else next(given) for size in sizes]


class Emitter:
    """Emits operations on vectors of ``target.lanes`` float32 at the builder's position."""

    def __init__(self, builder: ir.IRBuilder, target: Target):
        self.builder = builder
        self.target = target
        self.vector = ir.VectorType(F32, target.lanes)
        self.integers = ir.VectorType(I32, target.lanes)

    def constant(self, value: float):
        return ir.Constant(self.vector, [float32_constant(value)] * self.target.lanes)

    def count_lanes(self):
        return ir.Constant(self.vector, [float(n) for n in range(self.target.lanes)])

    def integer(self, value: int):
        return ir.Constant(self.integers, [value] * self.target.lanes)

    def call(self, name: str, result, *arguments):
        kind = ir.FunctionType(result, [a.type for a in arguments])
        module = self.builder.module
        function = module.globals.get(name) or ir.Function(module, kind, name)
        return self.builder.call(function, arguments)

    def prefetch(self, address, locality: int = 2) -> None:
        """Prefetch a cache line, at any address, into L1 (locality 3) or L2 (locality 2)."""
        pointer, (read, data) = self.pointer(address, ir.IntType(8)), (I32(0), I32(1))
        self.call("llvm.prefetch.p0", ir.VoidType(), pointer, read, I32(locality), data)

    def call_once(self, name: str, arguments, emit, result=None, rare=False):
        """Call a function of that name; ``emit(emitter, *arguments)`` writes its body if there is none yet.

        For long code, so that a kernel contains and compiles it once; the name must include all that it depends on. A
        Numba tuple, an LLVM array, reaches ``emit`` as a tuple. A ``rare`` call is moved out of the way of other code:
        attention of short sentences takes 7% longer with a call in it that is never made.
        """
        sizes = [len(a.type) if isinstance(a.type, ir.ArrayType) else 0 for a in arguments]
        values = []
        for argument, size in zip(arguments, sizes, strict=True):
            values += [self.builder.extract_value(argument, i) for i in range(size)] or [argument]
        function = self.builder.module.globals.get(name)
        if function is None:
            kind = ir.FunctionType(ir.VoidType() if result is None else result, [v.type for v in values])
            function = ir.Function(self.builder.module, kind, name)
            function.linkage = "internal"
            function.attributes.add("noinline")
            if rare:
                function.attributes.add("cold")
            inside = ir.IRBuilder(function.append_basic_block())
            value = emit(Emitter(inside, self.target), *nested(function.args, sizes))
            if result is None:
                inside.ret_void()
            else:
                inside.ret(value)
        return self.builder.call(function, values)

    def add(self, a, b):
        return self.builder.fadd(a, b, flags=EXACT)

    def subtract(self, a, b):
        return self.builder.fsub(a, b, flags=EXACT)

    def multiply(self, a, b):
        return self.builder.fmul(a, b, flags=EXACT)

    def divide(self, a, b):
        return self.builder.fdiv(a, b, flags=EXACT)

    def fma(self, a, b, c):
        """a * b + c, fused if the CPU has the instruction."""
        if self.target.fma:
            return self.call(f"llvm.fma.v{self.target.lanes}f32", self.vector, a, b, c)
        return self.add(self.multiply(a, b), c)

    def maximum(self, a, b):
        """The larger; b if either is NaN (maxps)."""
        return self.builder.select(self.builder.fcmp_ordered(">", a, b, flags=EXACT), a, b)

    def larger_magnitude(self, a, b):
        """The larger of two non-negative values, NaN if either is: their bits are in the values' order, NaN last."""
        a, b = self.builder.bitcast(a, self.integers), self.builder.bitcast(b, self.integers)
        return self.builder.bitcast(self.builder.select(self.builder.icmp_signed(">", a, b), a, b), self.vector)

    def minimum(self, a, b):
        return self.builder.select(self.builder.fcmp_ordered("<", a, b, flags=EXACT), a, b)

    def absolute(self, a):
        bits = self.builder.bitcast(a, self.integers)
        return self.builder.bitcast(self.builder.and_(bits, self.integer(0x7FFFFFFF)), self.vector)

    def splat(self, scalar):
        undefined = ir.Constant(self.vector, ir.Undefined)
        one = self.builder.insert_element(undefined, scalar, I32(0))
        return self.builder.shuffle_vector(one, undefined, ir.Constant(self.integers, [0] * self.target.lanes))

    def pointer(self, address, pointee):
        return self.builder.inttoptr(address, pointee.as_pointer())

    def load(self, address):
        value = self.builder.load(self.pointer(address, self.vector))
        value.align = 4
        return value

    def load_integers(self, address):
        value = self.builder.load(self.pointer(address, self.integers))
        value.align = 4
        return value

    def load_scalar(self, address):
        value = self.builder.load(self.pointer(address, F32))
        value.align = 4
        return value

    def store(self, value, address):
        self.builder.store(value, self.pointer(address, self.vector)).align = 4

    def load_bfloat16(self, address, count=None):
        """LANES values of bfloat16 as float32; with a ``count`` (i64) only the first are read, the rest is zero."""
        if count is None:
            bits = self.builder.load(self.pointer(address, ir.VectorType(ir.IntType(16), self.target.lanes)))
            bits.align = 2
        else:
            bits = self._first_halves(address, count)
        wide = self.builder.shl(self.builder.zext(bits, self.integers), self.integer(16))
        return self.builder.bitcast(wide, self.vector)

    def load_float16(self, address, count=None):
        """LANES values of float16 as float32; with a ``count`` (i64) only the first are read, the rest is zero."""
        kind = ir.VectorType(ir.HalfType(), self.target.lanes)
        if count is None:
            value = self.builder.load(self.pointer(address, kind))
            value.align = 2
        else:
            value = self.builder.bitcast(self._first_halves(address, count), kind)
        return self.builder.fpext(value, self.vector)

    def widen_float16(self, bits):
        """LANES values of float16, i16, as float32; without an instruction for it by shifts, and exactly so too."""
        if self.target.float16:
            return self.builder.fpext(
                self.builder.bitcast(bits, ir.VectorType(ir.HalfType(), self.target.lanes)), self.vector
            )
        b = self.builder
        wide = b.zext(bits, self.integers)
        shifted = b.shl(b.and_(wide, self.integer(0x7FFF)), self.integer(13))
        # the exponents' biases differ by 112; the greatest exponent stays the greatest
        scaled = b.bitcast(b.fmul(b.bitcast(shifted, self.vector), self.constant(2.0**112)), self.integers)
        endless = b.icmp_unsigned(">=", shifted, self.integer(0x1F << 23))
        magnitude = b.select(endless, b.or_(shifted, self.integer(0x7F800000)), scaled)
        sign = b.shl(b.and_(wide, self.integer(0x8000)), self.integer(16))
        return b.bitcast(b.or_(magnitude, sign), self.vector)

    def store_first_float16(self, value, address, count):
        """Write the first ``count`` (i64) lanes as the nearest float16, ties to even."""
        narrow = self.builder.fptrunc(value, ir.VectorType(ir.HalfType(), self.target.lanes))
        kind = ir.VectorType(ir.IntType(16), self.target.lanes)
        name, bits = f"llvm.masked.store.v{self.target.lanes}i16.p0", self.builder.bitcast(narrow, kind)
        self.call(name, ir.VoidType(), bits, self.pointer(address, kind), I32(2), self.first_lanes(count))

    def _first_halves(self, address, count):
        """The first ``count`` 16-bit values at an address, then zeros."""
        kind = ir.VectorType(ir.IntType(16), self.target.lanes)
        name, zero = f"llvm.masked.load.v{self.target.lanes}i16.p0", ir.Constant(kind, [0] * self.target.lanes)
        return self.call(name, kind, self.pointer(address, kind), I32(2), self.first_lanes(count), zero)

    def round_to_integers(self, value):
        """The nearest integers, ties to even; |value| < 2**22. Adding 1.5 * 2**23 leaves them in the low bits."""
        shifted = self.add(value, self.constant(12582912.0))
        return self.builder.sub(self.builder.bitcast(shifted, self.integers), self.integer(0x4B400000))

    def store_narrow(self, integers, address, bits: int):
        """Write the low 8 or 16 bits of every lane, adjacent to each other."""
        kind = ir.VectorType(ir.IntType(bits), self.target.lanes)
        self.builder.store(self.builder.trunc(integers, kind), self.pointer(address, kind)).align = 1

    def round_to_bfloat16(self, value):
        """The bits of the nearest bfloat16, ties to even, in the upper half of every lane; NaN stays NaN."""
        b = self.builder
        bits = b.bitcast(value, self.integers)
        odd = b.and_(b.lshr(bits, self.integer(16)), self.integer(1))
        rounded = b.add(bits, b.add(odd, self.integer(0x7FFF)))
        unordered = b.fcmp_unordered("uno", value, value)
        return b.and_(b.select(unordered, self.integer(0x7FC00000), rounded), self.integer(-65536))

    def first_lanes(self, count):
        """Mask of the lanes below ``count`` (i64)."""
        lanes = ir.Constant(self.integers, list(range(self.target.lanes)))
        narrow = self.builder.trunc(count, I32)
        undefined = ir.Constant(self.integers, ir.Undefined)
        one = self.builder.insert_element(undefined, narrow, I32(0))
        zeros = ir.Constant(self.integers, [0] * self.target.lanes)
        return self.builder.icmp_signed("<", lanes, self.builder.shuffle_vector(one, undefined, zeros))

    def _masked(self, operation: str) -> str:
        return f"llvm.masked.{operation}.v{self.target.lanes}f32.p0"

    def load_first(self, address, count, fill):
        """The first ``count`` lanes from memory, the rest from ``fill`` (a vector); nothing past them is read."""
        pointer = self.pointer(address, self.vector)
        return self.call(self._masked("load"), self.vector, pointer, I32(4), self.first_lanes(count), fill)

    def store_first(self, value, address, count):
        pointer = self.pointer(address, self.vector)
        self.call(self._masked("store"), ir.VoidType(), value, pointer, I32(4), self.first_lanes(count))

    def load_part(self, address, left, fill):
        """``load`` if ``left`` (i64) is LANES or more, else ``load_first``, which is slow even for a whole vector."""
        with self.builder.if_else(self.builder.icmp_signed(">=", left, I64(self.target.lanes))) as (whole, part):
            with whole:
                all_lanes, after_all = self.load(address), self.builder.block
            with part:
                some_lanes, after_some = self.load_first(address, left, fill), self.builder.block
        value = self.builder.phi(self.vector)
        value.add_incoming(all_lanes, after_all)
        value.add_incoming(some_lanes, after_some)
        return value

    def store_part(self, value, address, left):
        with self.builder.if_else(self.builder.icmp_signed(">=", left, I64(self.target.lanes))) as (whole, part):
            with whole:
                self.store(value, address)
            with part:
                self.store_first(value, address, left)

    def fold(self, value, combine):
        """Combine all lanes pairwise, halves first, in a fixed order; returns a scalar."""
        width = self.target.lanes
        while width > 1:
            width //= 2
            lanes = [i + width if i < width else i for i in range(self.target.lanes)]
            value = combine(value, self.builder.shuffle_vector(value, value, ir.Constant(self.integers, lanes)))
        return self.builder.extract_element(value, I32(0))

    def loop(self, size, step: int, initial: list, body) -> list:
        """values = body(offset, values) for offset = 0, step, ... below ``size`` (i64); returns the last values."""
        builder = self.builder
        entry, block, done = builder.block, builder.append_basic_block("loop"), builder.append_basic_block("done")
        builder.cbranch(builder.icmp_signed(">", size, I64(0)), block, done)
        builder.position_at_end(block)
        offset = builder.phi(I64)
        values = [builder.phi(value.type) for value in initial]
        new = body(offset, values)
        following = builder.add(offset, I64(step))
        builder.cbranch(builder.icmp_signed("<", following, size), block, done)
        last = builder.block
        for phi, start, end in zip([offset, *values], [I64(0), *initial], [following, *new], strict=True):
            phi.add_incoming(start, entry)
            phi.add_incoming(end, last)
        builder.position_at_end(done)
        results = [builder.phi(value.type) for value in initial]
        for phi, start, end in zip(results, initial, new, strict=True):
            phi.add_incoming(start, entry)
            phi.add_incoming(end, last)
        return results

    def polynomial(self, x, coefficients):
        """Horner's rule, highest power first."""
        value = self.constant(coefficients[0])
        for c in coefficients[1:]:
            value = self.fma(value, x, self.constant(c))
        return value

    def exp(self, x):
        """e**x to 2 ulp for all float32: 0 for -inf, inf on overflow, NaN stays.

        Cody and Waite reduction x = n ln 2 + r with |r| <= ln 2 / 2, a polynomial in r, and 2**n in two factors
        so that neither leaves the exponent's range.
        """
        b = self.builder
        # ordered comparisons are false for NaN, which therefore passes both bounds
        low, high = self.constant(-104.0), self.constant(89.0)
        x = b.select(b.fcmp_ordered("<", x, low, flags=EXACT), low, x)
        x = b.select(b.fcmp_ordered(">", x, high, flags=EXACT), high, x)
        # adding 1.5 * 2**23 rounds to an integer, which is then in the low bits
        shift = self.constant(12582912.0)
        shifted = self.fma(x, self.constant(1.4426950408889634), shift)
        n = self.subtract(shifted, shift)
        r = self.fma(n, self.constant(-0.693359375), x)
        r = self.fma(n, self.constant(2.12194440e-4), r)
        p = self.polynomial(r, EXP)
        p = self.add(self.fma(self.multiply(r, r), p, r), self.constant(1.0))
        integer = b.sub(b.bitcast(shifted, self.integers), self.integer(0x4B400000))
        half = b.ashr(integer, self.integer(1))
        for part in (half, b.sub(integer, half)):
            bits = b.shl(b.add(part, self.integer(127)), self.integer(23))
            p = self.multiply(p, b.bitcast(bits, self.vector))
        return p

    def exp2(self, x):
        """2**x for x <= 127, to 2 ulp where the result is normal; exactly 0 for x <= -127, so for -inf. NaN stays.

        Cheaper than exp: a softmax has x <= 0 only, and includes log2(e) in the scale of its scores.
        """
        b = self.builder
        # in this order NaN passes; at the bound the exponent below becomes that of zero
        x = self.maximum(self.constant(-127.0), x)
        shift = self.constant(12582912.0)
        shifted = self.add(x, shift)
        f = self.subtract(x, self.subtract(shifted, shift))
        p = self.fma(f, self.polynomial(f, EXP2), self.constant(1.0))
        exponent = b.shl(b.bitcast(shifted, self.integers), self.integer(23))
        return b.bitcast(b.add(b.bitcast(p, self.integers), exponent), self.vector)

    def erf(self, x):
        """erf(x), relative error below 4e-7: x P(x^2) with x clipped to the bound, where erf is 1.

        It avoids the division of a rational function, which takes as long as ten multiplications. P's argument is
        mapped to -1 .. 1, which keeps its coefficients small.
        """
        # in this order NaN passes
        x = self.minimum(self.constant(ERF_BOUND), self.maximum(self.constant(-ERF_BOUND), x))
        inside = self.fma(self.multiply(x, x), self.constant(2 / ERF_BOUND**2), self.constant(-1.0))
        return self.multiply(x, self.polynomial(inside, ERF))

    def tanh(self, x):
        """tanh(x), relative error below 4e-7: x P(x^2) / Q(x^2) with x clipped to the bound, as in erf."""
        x = self.minimum(self.constant(TANH_BOUND), self.maximum(self.constant(-TANH_BOUND), x))
        square = self.multiply(x, x)
        numerator = self.multiply(x, self.polynomial(square, TANH_ODD))
        return self.divide(numerator, self.polynomial(square, TANH_EVEN))

    def accurate_tanh(self, x):
        """tanh(x) as a caller's own libraries have it: relative error below 4e-7, and 1.2e-7 from 1/2 on.

        There it is 1 - 2 t / (1 + t) of the magnitude, with t = e**-2x, which ends at 1. NaN stays.
        """
        b, one = self.builder, self.constant(1.0)
        magnitude = self.absolute(x)
        t = self.exp2(self.multiply(magnitude, self.constant(-2.8853900817779268)))
        large = self.subtract(one, self.divide(self.add(t, t), self.add(one, t)))
        sign = b.and_(b.bitcast(x, self.integers), self.integer(-0x80000000))
        large = b.bitcast(b.or_(b.bitcast(large, self.integers), sign), self.vector)
        return b.select(b.fcmp_ordered("<", magnitude, self.constant(0.55), flags=EXACT), self.tanh(x), large)


# (2**f - 1) / f on |f| <= 1/2, minimax in relative error (9e-8), highest power first.
EXP2 = (1.3264727e-3, 9.6715129e-3, 5.55073375e-2, 2.40222421e-1, 6.93146978e-1)
# e**r - 1 - r over r**2 on |r| <= ln 2 / 2 (Cephes expf), highest power first.
EXP = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
# erf(x) / x in 2 (x / ERF_BOUND)^2 - 1, minimax in relative error (5e-8), highest power first; erf is 1 at the bound.
ERF_BOUND = 3.8
ERF = (
    0.00111471501, -0.00276698545, 0.00208687363, -0.00309233693, 0.01027676,
    -0.0185622592, 0.0265081078, -0.0388198383, 0.0551085733, -0.0725454539,
    0.0908260196, -0.111182436, 0.137739822, -0.185641289, 0.372107625,
)  # fmt: skip
# tanh is a minimax rational, highest power first.
TANH_BOUND = 7.90531110763549805
TANH_ODD = (
    -2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08,
    1.48572235717979e-05, 6.37261928875436e-04, 4.89352455891786e-03,
)  # fmt: skip
TANH_EVEN = (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03)
