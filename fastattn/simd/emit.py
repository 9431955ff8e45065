"""LLVM IR for vector arithmetic, for the intrinsics of vector.py and tile.py.

An Emitter needs a builder and a Target, no Numba, so it can generate code for another CPU. Operations carry the flag
``nsz`` because Numba's fast-math pass adds its flags to those that have none.
"""

import struct
from itertools import islice

from llvmlite import ir

from fastattn.simd.target import Target

F32, I32, I64 = ir.FloatType(), ir.IntType(32), ir.IntType(64)
EXACT = ("nsz",)
SHIFT = 1.5 * 2**23  # number + SHIFT has the nearest integer in its low bits


def suffix(kind) -> str:
    """A number's type in the names of LLVM's intrinsics."""
    return "f32" if kind == F32 else f"i{kind.width}"


def float32_constant(value: float) -> float:
    """The nearest float32, as a Python float for LLVM's text."""
    return struct.unpack("f", struct.pack("f", value))[0]


def grouped_values(values, forms) -> list:
    """The values, grouped into tuples of the classes ``forms``; None: a value without a tuple."""
    fields = iter(values)
    return [form(*islice(fields, len(form._fields))) if form else next(fields) for form in forms]


class BFloat(ir.types.Type):
    """LLVM's bfloat, which llvmlite does not name."""

    def __str__(self) -> str:
        return "bfloat"

    _to_string = __str__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BFloat)

    def __hash__(self) -> int:
        return hash(BFloat)


class Emitter:
    """Emits operations on vectors of ``target.lanes`` float32 at the builder's position."""

    def __init__(self, builder: ir.IRBuilder, target: Target):
        self.builder = builder
        self.target = target
        self.vector = ir.VectorType(F32, target.lanes)
        self.integers = ir.VectorType(I32, target.lanes)
        self.halves = ir.VectorType(ir.IntType(16), target.lanes)
        self.float16 = ir.VectorType(ir.HalfType(), target.lanes)

    def constant(self, value: float):
        return ir.Constant(self.vector, [float32_constant(value)] * self.target.lanes)

    def count_lanes(self):
        """0, 1, 2 and so on, lane by lane."""
        return ir.Constant(self.vector, [float(n) for n in range(self.target.lanes)])

    def integer(self, value: int):
        return ir.Constant(self.integers, [value] * self.target.lanes)

    def call(self, name: str, result, *arguments):
        kind = ir.FunctionType(result, [a.type for a in arguments])
        module = self.builder.module
        function = module.globals.get(name) or ir.Function(module, kind, name)
        return self.builder.call(function, arguments)

    def pick(self, vector, lanes, second=None):
        """The lanes with these numbers; the numbers of the lanes of ``second`` follow those of ``vector``."""
        order = list(lanes)
        indices = ir.Constant(ir.VectorType(I32, len(order)), order)
        return self.builder.shuffle_vector(vector, vector if second is None else second, indices)

    def splat(self, scalar):
        """A scalar of any type in every lane."""
        undefined = ir.Constant(ir.VectorType(scalar.type, self.target.lanes), ir.Undefined)
        single = self.builder.insert_element(undefined, scalar, I32(0))
        return self.pick(single, [0] * self.target.lanes, undefined)

    def row_addresses(self, first, distance, count: int) -> list:
        """The addresses of ``count`` rows, ``distance`` bytes apart."""
        return [self.builder.add(first, self.builder.mul(distance, I64(n))) for n in range(count)]

    def prefetch(self, address, locality: int = 2) -> None:
        """Prefetch a cache line, at any address, into L1 (locality 3) or L2 (locality 2)."""
        pointer, (read, data) = self.pointer(address, ir.IntType(8)), (I32(0), I32(1))
        self.call("llvm.prefetch.p0", ir.VoidType(), pointer, read, I32(locality), data)

    def call_once(self, name: str, arguments, emit, result=None, rare=False, forms=None):
        """Call the function ``name``; ``emit(emitter, *arguments)`` writes its body if the module has none yet.

        So a kernel contains and compiles long code once; the name must include all that the code depends on. LLVM moves
        a ``rare`` call out of the way of other code: another call that never happens makes attention of short sentences
        take 7% longer.

        forms  for each argument the class of its tuple, which is an array to LLVM, or None for a number
        """
        forms, values = forms or [None] * len(arguments), []
        for argument, form in zip(arguments, forms, strict=True):
            fields = range(len(form._fields)) if form else ()
            values += [self.builder.extract_value(argument, i) for i in fields] or [argument]
        function = self.builder.module.globals.get(name)
        if function is None:
            kind = ir.FunctionType(ir.VoidType() if result is None else result, [v.type for v in values])
            function = ir.Function(self.builder.module, kind, name)
            function.linkage = "internal"
            function.attributes.add("noinline")
            if rare:
                function.attributes.add("cold")
            body_builder = ir.IRBuilder(function.append_basic_block())
            value = emit(Emitter(body_builder, self.target), *grouped_values(function.args, forms))
            body_builder.ret_void() if result is None else body_builder.ret(value)
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
        """The larger of two non-negative values, NaN if either is: their bits have the values' order, NaN last."""
        a, b = self.builder.bitcast(a, self.integers), self.builder.bitcast(b, self.integers)
        return self.builder.bitcast(self.builder.select(self.builder.icmp_signed(">", a, b), a, b), self.vector)

    def minimum(self, a, b):
        """The smaller; b if either is NaN."""
        return self.builder.select(self.builder.fcmp_ordered("<", a, b, flags=EXACT), a, b)

    def absolute(self, a):
        """The magnitude, lane by lane."""
        bits = self.builder.bitcast(a, self.integers)
        return self.builder.bitcast(self.builder.and_(bits, self.integer(0x7FFFFFFF)), self.vector)

    def pointer(self, address, pointee):
        return self.builder.inttoptr(address, pointee.as_pointer())

    def read(self, address, kind, align: int = 4):
        """The value of an LLVM type at an address."""
        value = self.builder.load(self.pointer(address, kind))
        value.align = align
        return value

    def store(self, value, address, align: int = 4) -> None:
        """Write a vector, or a value of another type, to an address."""
        self.builder.store(value, self.pointer(address, value.type)).align = align

    def load_first(self, address, count, fill, align: int = 4):
        """A vector of the first ``count`` lanes in memory, which alone are read, and further lanes of ``fill``."""
        name = f"llvm.masked.load.v{self.target.lanes}{suffix(fill.type.element)}.p0"
        return self.call(name, fill.type, self.pointer(address, fill.type), I32(align), self.first_lanes(count), fill)

    def store_first(self, value, address, count, align: int = 4) -> None:
        """Write the first ``count`` lanes of a vector to an address."""
        name = f"llvm.masked.store.v{self.target.lanes}{suffix(value.type.element)}.p0"
        pointer = self.pointer(address, value.type)
        self.call(name, ir.VoidType(), value, pointer, I32(align), self.first_lanes(count))

    def load(self, address):
        """The vector at an address."""
        return self.read(address, self.vector)

    def load_integers(self, address):
        return self.read(address, self.integers)

    def load_scalar(self, address):
        """The float32 at an address."""
        return self.read(address, F32)

    def _load_narrow(self, address, count, bits: int):
        """LANES integers of 8 or 16 bits; with a ``count`` (i64) only so many are read, and further lanes are 0."""
        kind, align = ir.VectorType(ir.IntType(bits), self.target.lanes), bits // 8
        if count is None:
            return self.read(address, kind, align)
        return self.load_first(address, count, ir.Constant(kind, [0] * self.target.lanes), align)

    def load_bfloat16(self, address, count=None):
        """LANES values of bfloat16 as float32; ``count`` as in ``_load_narrow``."""
        wide = self.builder.zext(self._load_narrow(address, count, 16), self.integers)
        return self.builder.bitcast(self.builder.shl(wide, self.integer(16)), self.vector)

    def load_int8(self, address, count=None):
        """As ``load_bfloat16``, of int8."""
        return self.builder.sitofp(self._load_narrow(address, count, 8), self.vector)

    def load_float16(self, address, count=None):
        """As ``load_bfloat16``, of float16."""
        value = self.builder.bitcast(self._load_narrow(address, count, 16), self.float16)
        return self.builder.fpext(value, self.vector)

    def widen_float16(self, bits):
        """LANES values of float16, as i16, to float32; CPUs without an instruction use shifts, which are exact too."""
        if self.target.float16:
            return self.builder.fpext(self.builder.bitcast(bits, self.float16), self.vector)
        b = self.builder
        wide = b.zext(bits, self.integers)
        shifted = b.shl(b.and_(wide, self.integer(0x7FFF)), self.integer(13))
        # the exponents' biases differ by 112; infinity and NaN keep the greatest exponent
        scaled = b.bitcast(b.fmul(b.bitcast(shifted, self.vector), self.constant(2.0**112)), self.integers)
        is_special = b.icmp_unsigned(">=", shifted, self.integer(0x1F << 23))
        magnitude = b.select(is_special, b.or_(shifted, self.integer(0x7F800000)), scaled)
        sign = b.shl(b.and_(wide, self.integer(0x8000)), self.integer(16))
        return b.bitcast(b.or_(magnitude, sign), self.vector)

    def store_first_float16(self, value, address, count):
        """Write the first ``count`` (i64) lanes as the nearest float16, ties to even."""
        narrow = self.builder.fptrunc(value, self.float16)
        self.store_first(self.builder.bitcast(narrow, self.halves), address, count, 2)

    def round_to_integers(self, value):
        """The nearest integers, ties to even; |value| < 2**22."""
        return self.low_bits(self.add(value, self.constant(SHIFT)))

    def low_bits(self, shifted):
        """The integers of numbers to which SHIFT was added."""
        return self.builder.sub(self.builder.bitcast(shifted, self.integers), self.integer(0x4B400000))

    def store_narrow(self, integers, address, bits: int):
        """Write the low 8 or 16 bits of every lane, adjacent to each other."""
        self.store(self.builder.trunc(integers, ir.VectorType(ir.IntType(bits), self.target.lanes)), address, 1)

    def round_to_bfloat16(self, value):
        """The bits of the nearest bfloat16, ties to even, in the upper half of every lane; NaN stays NaN."""
        b = self.builder
        bits = b.bitcast(value, self.integers)
        odd = b.and_(b.lshr(bits, self.integer(16)), self.integer(1))
        rounded = b.add(bits, b.add(odd, self.integer(0x7FFF)))
        unordered = b.fcmp_unordered("uno", value, value)
        return b.and_(b.select(unordered, self.integer(0x7FC00000), rounded), self.integer(-65536))

    def bfloat16_bits(self, value):
        """The bits of the nearest bfloat16, 16 a lane."""
        return self.builder.trunc(self.builder.lshr(self.round_to_bfloat16(value), self.integer(16)), self.halves)

    def bfloat16_operands(self, value):
        """``bfloat16_bits`` for products, which take subnormal numbers for 0, as does the CPU's instruction if any."""
        if not self.target.rounds:
            return self.bfloat16_bits(value)
        return self.builder.bitcast(
            self.builder.fptrunc(value, ir.VectorType(BFloat(), self.target.lanes)), self.halves
        )

    def first_lanes(self, count):
        """The mask of the lanes below ``count`` (i64)."""
        lanes = ir.Constant(self.integers, list(range(self.target.lanes)))
        return self.builder.icmp_signed("<", lanes, self.splat(self.builder.trunc(count, I32)))

    def load_part(self, address, count, fill):
        """``load`` if ``count`` (i64) is at least LANES, else ``load_first``, which is slow even for a whole vector."""
        with self.builder.if_else(self.builder.icmp_signed(">=", count, I64(self.target.lanes))) as (whole, part):
            with whole:
                all_lanes, after_all = self.load(address), self.builder.block
            with part:
                some_lanes, after_some = self.load_first(address, count, fill), self.builder.block
        value = self.builder.phi(self.vector)
        value.add_incoming(all_lanes, after_all)
        value.add_incoming(some_lanes, after_some)
        return value

    def store_part(self, value, address, count):
        """Write a whole vector, or its first ``count`` lanes."""
        with self.builder.if_else(self.builder.icmp_signed(">=", count, I64(self.target.lanes))) as (whole, part):
            with whole:
                self.store(value, address)
            with part:
                self.store_first(value, address, count)

    def fold(self, value, combine):
        """Combine all lanes pairwise, halves first, in a fixed order; returns a scalar."""
        width = self.target.lanes
        while width > 1:
            width //= 2
            lanes = [i + width if i < width else i for i in range(self.target.lanes)]
            value = combine(value, self.pick(value, lanes))
        return self.builder.extract_element(value, I32(0))

    def for_each(self, size, step: int, body) -> None:
        """Call ``body(offset)`` for offset = 0, step, ... below ``size`` (i64)."""

        def without_values(offset, values):
            body(offset)
            return values

        self.loop(size, step, [], without_values)

    def loop(self, size, step: int, initial: list, body) -> list:
        """values = body(offset, values) for offset = 0, step, ... below ``size`` (i64); returns the last values."""
        builder = self.builder
        entry, block, after = builder.block, builder.append_basic_block("loop"), builder.append_basic_block("done")
        builder.cbranch(builder.icmp_signed(">", size, I64(0)), block, after)
        builder.position_at_end(block)
        offset = builder.phi(I64)
        values = [builder.phi(value.type) for value in initial]
        new_values = body(offset, values)
        next_offset = builder.add(offset, I64(step))
        builder.cbranch(builder.icmp_signed("<", next_offset, size), block, after)
        end_block = builder.block
        for phi, start, end in zip([offset, *values], [I64(0), *initial], [next_offset, *new_values], strict=True):
            phi.add_incoming(start, entry)
            phi.add_incoming(end, end_block)
        builder.position_at_end(after)
        results = [builder.phi(value.type) for value in initial]
        for phi, start, end in zip(results, initial, new_values, strict=True):
            phi.add_incoming(start, entry)
            phi.add_incoming(end, end_block)
        return results
