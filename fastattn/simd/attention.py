"""The loops of attention over scores in memory: bytes that say which keys are visible, the softmax, additive scores.

Addresses are plain integers. Nothing checks them, as in memory.py.

Tiles of additive attention are sums of v tanh(a + b) over the inner dimension; as in a product's tile, the rows are
queries and the columns are packed keys. tanh(a + b) is 1 - 2 / (1 + A B), where A = e**2a is computed once a query and
B = e**2b once a key. A division takes as long as several multiply-adds, so two terms share one:

    v / p + w / q = (v q + w p) / (p q)

Each divisor is at least 1. A cap of 2**60 keeps p q from overflowing; beyond the cap, 2 / p changes no float32.
"""

from llvmlite import ir
from numba import types

from fastattn.simd.arguments import LOG2_E, SIZE
from fastattn.simd.elementary import accurate_tanh, exp2, tanh
from fastattn.simd.emit import F32, I32, I64, Emitter
from fastattn.simd.rows import ElementReader, emit_lane_sums, emit_row_address, emit_row_loops
from fastattn.simd.target import LANES, X86_TARGETS
from fastattn.simd.vector import as_array_routine, as_intrinsic, as_routine

_I, _BYTE = types.intp, ir.IntType(8)
_ZERO_OPERANDS, _ZERO_RESULTS = 1 << 6, 1 << 15  # of MXCSR
_BYTES = ir.VectorType(_BYTE, LANES)
TERMS_PER_DIVISION = 2
RUN = 16  # terms of a partial sum: one long sum loses more digits
TERM_BOUND = 2.0**60


def _control_word(emitter: Emitter, instruction: str, value=None):
    """Store MXCSR, or load it with ``value``; returns what is in memory then."""
    with emitter.builder.goto_entry_block():
        word = emitter.builder.alloca(I32)
    if value is not None:
        emitter.builder.store(value, word)
    emitter.call(f"llvm.x86.sse.{instruction}", ir.VoidType(), emitter.builder.bitcast(word, _BYTE.as_pointer()))
    return emitter.builder.load(word)


@as_intrinsic(types.int32)
def drop_subnormals(emitter: Emitter):
    """Take subnormal numbers for 0 in this thread until ``keep_subnormals``; returns the argument of that.

    An Intel core takes 150 cycles for an operation with a subnormal result, and sums of values that begin with the
    smallest weights have many: ALiBi's attention takes up to 5 times as long. Arm's cores need nothing.
    """
    if emitter.target.name not in X86_TARGETS:
        return I32(0)
    old = _control_word(emitter, "stmxcsr")
    _control_word(emitter, "ldmxcsr", emitter.builder.or_(old, I32(_ZERO_OPERANDS | _ZERO_RESULTS)))
    return old


@as_intrinsic(types.void, types.int32)
def keep_subnormals(emitter: Emitter, old):
    if emitter.target.name in X86_TARGETS:
        _control_word(emitter, "ldmxcsr", old)


@as_intrinsic(_I, _I)
def load_byte(emitter: Emitter, address):
    """The byte at an address."""
    return emitter.builder.zext(emitter.read(address, _BYTE, 1), I64)


@as_intrinsic(types.void, _I, _I)
def store_byte(emitter: Emitter, value, address):
    """Write the low byte of an integer."""
    emitter.store(emitter.builder.trunc(value, _BYTE), address, 1)


@as_intrinsic(types.void, _I, _I, _I)
def fill_bytes(emitter: Emitter, byte, target, count):
    """Write ``byte`` to ``count`` bytes, rounded up to a multiple of LANES."""
    builder = emitter.builder
    value = emitter.splat(builder.trunc(byte, _BYTE))
    emitter.for_each(count, LANES, lambda offset: emitter.store(value, builder.add(target, offset), 1))


@as_intrinsic(types.void, _I, _I, _I)
def copy_bytes(emitter: Emitter, source, target, count):
    """Copy ``count`` bytes from one address to another, and read none beyond: the last vector overlaps another."""
    builder = emitter.builder
    last = builder.sub(count, I64(LANES))

    def copy(offset, kind):
        emitter.store(emitter.read(builder.add(source, offset), kind, 1), builder.add(target, offset), 1)

    def copy_vector(offset):
        copy(builder.select(builder.icmp_signed("<", offset, last), offset, last), _BYTES)

    many = builder.icmp_signed(">=", count, I64(LANES))
    emitter.for_each(builder.select(many, count, I64(0)), LANES, copy_vector)
    emitter.for_each(builder.select(many, I64(0), count), 1, lambda offset: copy(offset, _BYTE))


@as_intrinsic(types.void, _I, _I, _I)
def hide_unseen(emitter: Emitter, score, visible, size):
    """Set to -inf each score whose byte at ``visible`` is 0; ``size`` bytes of scores, whole vectors."""
    builder = emitter.builder
    hidden, zeros = emitter.constant(float("-inf")), ir.Constant(_BYTES, [0] * LANES)

    def hide(offset):
        address = builder.add(score, offset)
        flags = emitter.read(builder.add(visible, builder.lshr(offset, I64(2))), _BYTES, 1)
        mask = builder.icmp_unsigned("!=", flags, zeros)
        emitter.store(builder.select(mask, emitter.load(address), hidden), address)

    emitter.for_each(size, SIZE, hide)


def make_any_byte(rows: int, columns: int):
    """The intrinsic ``any_byte(address, row_size)``: whether any of ``rows`` x ``columns`` bytes is not 0."""
    kind, number = ir.VectorType(_BYTE, columns), ir.IntType(8 * columns)

    @as_intrinsic(types.boolean, _I, _I)
    def any_byte(emitter: Emitter, address, row_size):
        builder = emitter.builder
        value = emitter.read(address, kind, 1)
        for n in range(1, rows):
            value = builder.or_(value, emitter.read(builder.add(address, builder.mul(row_size, I64(n))), kind, 1))
        return builder.icmp_unsigned("!=", builder.bitcast(value, number), number(0))

    return any_byte


def make_row_maxima(rows: int):
    """The intrinsic ``row_maxima(x, x_row, size, top)``: top[i] = max(top[i], x[i, :]), float32.

    x  rows, x_row bytes apart, of which the first ``size`` bytes are read, whole vectors; NaN is ignored
    """

    def emit(emitter: Emitter, x, x_row, size, top):
        builder = emitter.builder
        starts = emitter.row_addresses(x, x_row, rows)
        addresses = [emitter.pointer(builder.add(top, I64(4 * i)), F32) for i in range(rows)]

        def body(offset, tops):
            values = [emitter.load(builder.add(start, offset)) for start in starts]
            return [emitter.maximum(value, t) for value, t in zip(values, tops, strict=True)]

        old_tops = [emitter.splat(builder.load(address)) for address in addresses]
        for address, value in zip(addresses, emitter.loop(size, SIZE, old_tops, body), strict=True):
            builder.store(emitter.fold(value, emitter.maximum), address)

    return as_routine(f"row_maxima_{rows}", *[_I] * 4)(emit)


@as_routine("cap_row", _I, _I, types.float32, rare=True)
def cap_row(emitter: Emitter, x, size, cap):
    """x = cap tanh(x / cap) on ``size`` bytes, whole vectors, at the address x; NaN for NaN and infinity.

    So an overflow of x shows as it does without a cap.
    """
    caps, zero = emitter.splat(cap), emitter.constant(0.0)
    inverse = emitter.divide(emitter.constant(1.0), caps)

    def body(offset):
        address = emitter.builder.add(x, offset)
        value = emitter.load(address)
        capped = emitter.multiply(caps, accurate_tanh(emitter, emitter.multiply(value, inverse)))
        emitter.store(emitter.fma(value, zero, capped), address)

    emitter.for_each(size, SIZE, body)


def make_exponentials(rows: int):
    """The intrinsic ``exponentials(x, x_row, size, shift, total)``: x[i, :] = 2**(x[i, :] - shift[i]), float32.

    x      rows, x_row bytes apart, whose first ``size`` bytes are replaced, whole vectors
    total  adjacent vectors, one a row, to which the results are added lane by lane
    Eight rows together are quicker than eight calls where vectors, sums and constants fit the registers.
    """

    def emit(emitter: Emitter, x, x_row, size, shift, total):
        builder = emitter.builder
        starts = emitter.row_addresses(x, x_row, rows)
        shifts = [emitter.splat(emitter.load_scalar(builder.add(shift, I64(4 * i)))) for i in range(rows)]
        total_addresses = [builder.add(total, I64(SIZE * i)) for i in range(rows)]

        def body(offset, sums):
            addresses = [builder.add(start, offset) for start in starts]
            values = [emitter.subtract(emitter.load(address), s) for address, s in zip(addresses, shifts, strict=True)]
            results = [exp2(emitter, value) for value in values]
            for address, result in zip(addresses, results, strict=True):
                emitter.store(result, address)
            return [emitter.add(so_far, result) for so_far, result in zip(sums, results, strict=True)]

        sums = emitter.loop(size, SIZE, [emitter.load(address) for address in total_addresses], body)
        for address, value in zip(total_addresses, sums, strict=True):
            emitter.store(value, address)

    return as_routine(f"exponentials_{rows}", *[_I] * 5)(emit)


def _emit_sum_of_quotients(emitter: Emitter, numerators: list, denominators: list):
    """The sum of numerators[n] / denominators[n], with one division."""
    while len(denominators) > 1:
        pairs = range(0, len(denominators), 2)
        products = [emitter.multiply(numerators[n], denominators[n + 1]) for n in pairs]
        numerators = [emitter.fma(numerators[n + 1], denominators[n], products[n // 2]) for n in pairs]
        denominators = [emitter.multiply(denominators[n], denominators[n + 1]) for n in pairs]
    (numerator,), (denominator,) = numerators, denominators
    return emitter.divide(numerator, denominator)


def make_tanh_tile(rows: int, vectors: int, exponential: bool):
    """The intrinsic ``tile(query, query_row, panel, panel_row, steps, factors, out, out_row)``; a row is in bytes.

    out[i, j] = sum over p of v[p] tanh(query[i, p] + panel[p, j]), or, where ``exponential``, of
    v[p] (1 - 2 / (1 + query[i, p] panel[p, j])), for ``rows`` rows and ``vectors`` vectors of columns.

    steps    the length of the sums.
    factors  steps + 1 floats: -2 v, then the sum of v.
    """

    def emit(emitter, query, query_row, panel, panel_row, steps, factors, out, out_row):
        builder, lanes = emitter.builder, emitter.target.lanes
        unit, most = emitter.constant(1.0), emitter.constant(TERM_BOUND)
        starts = emitter.row_addresses(query, query_row, rows)
        size = builder.mul(steps, I64(4))

        def add(offset, sums, count: int):
            """Add ``count`` steps to the sums; the first step lies ``offset`` bytes behind the start of each row."""
            offsets = [builder.add(offset, I64(4 * n)) for n in range(count)]
            lines = [builder.add(panel, builder.mul(builder.lshr(step, I64(2)), panel_row)) for step in offsets]
            weights = [emitter.splat(emitter.load_scalar(builder.add(factors, step))) for step in offsets]
            new_sums: list[ir.Value] = []
            keys = [[emitter.load(builder.add(line, I64(j * lanes * 4))) for line in lines] for j in range(vectors)]
            for start in starts:
                values = [emitter.splat(emitter.load_scalar(builder.add(start, step))) for step in offsets]
                for operands in keys:
                    total = sums[len(new_sums)]
                    if exponential:
                        divisors = [emitter.fma(a, b, unit) for a, b in zip(values, operands)]
                        divisors = [emitter.minimum(most, divisor) for divisor in divisors]  # in this order NaN passes
                        total = emitter.add(total, _emit_sum_of_quotients(emitter, weights, divisors))
                    else:
                        for weight, a, b in zip(weights, values, operands):
                            total = emitter.fma(weight, tanh(emitter, emitter.add(a, b)), total)
                    new_sums.append(total)
            return new_sums

        terms = TERMS_PER_DIVISION if exponential else 1
        tail_size = builder.mul(builder.urem(steps, I64(terms)), I64(4))
        whole_size = builder.sub(size, tail_size)
        zero = emitter.constant(0.0)
        initial_sum = emitter.splat(emitter.load_scalar(builder.add(factors, size))) if exponential else zero

        def add_run(start, sums):
            remaining = builder.sub(whole_size, start)
            size = builder.select(builder.icmp_signed("<", remaining, I64(4 * RUN)), remaining, I64(4 * RUN))
            zeros = [zero] * len(sums)
            run = emitter.loop(size, 4 * terms, zeros, lambda at, partial: add(builder.add(start, at), partial, terms))
            return [emitter.add(*totals) for totals in zip(sums, run)]

        sums = emitter.loop(whole_size, 4 * RUN, [initial_sum] * (rows * vectors), add_run)
        if terms > 1:
            sums = emitter.loop(tail_size, 4, sums, lambda offset, sums: add(builder.add(whole_size, offset), sums, 1))
        for n, value in enumerate(sums):
            row, column = builder.mul(out_row, I64(n // vectors)), I64(n % vectors * lanes * 4)
            address = builder.add(out, builder.add(row, column))
            emitter.store(value if exponential else emitter.multiply(value, emitter.constant(-0.5)), address)

    name = f"tanh_tile_{rows}_{vectors}_{'exponential' if exponential else 'plain'}"
    return as_routine(name, *[_I] * 8)(emit)


@as_array_routine("additive_rows", [None] * 7, ElementReader)
def additive_rows(reader: ElementReader, emitter: Emitter, query, vector, rows, row_size, index, width, out):
    """``dot_rows`` of one query for additive attention: v . tanh(query + row), times log2(e)."""

    def add(sums, keys, query_and_v):
        q, factor = query_and_v
        return [emitter.fma(factor, tanh(emitter, emitter.add(q, key)), total) for key, total in zip(keys, sums)]

    key_rows = [emit_row_address(emitter, rows, row_size, index, I64(4 * j)) for j in range(LANES)]
    sums = emit_row_loops(reader, emitter, key_rows, [query, vector], width, [emitter.constant(0.0)] * LANES, add)
    emitter.store(emitter.multiply(emit_lane_sums(emitter, sums, emitter.add), emitter.constant(LOG2_E)), out)
