"""Scores of stored rows against queries, as LLVM vector IR; the rows are read where they lie, not packed.

A row is read along its length, a vector at a time, and each vector meets every query of the tile. Sums stay in lanes
until the row's end, so a sum's order, and with it its bits, depend on its row and its query alone. A score is a key: an
int32 in the order of the scores, with NaN below all of them, so that floats and integers are compared alike.
"""

from dataclasses import dataclass

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from fastattn.simd.arithmetic import INT8
from fastattn.simd.constants import SIZE, WHOLE
from fastattn.simd.emit import EXACT, I32, I64, Emitter
from fastattn.simd.rows import emit_lane_sums
from fastattn.simd.target import LANES, TARGET
from fastattn.simd.tile import addresses

NO_KEY = -(1 << 31)  # of NaN
LEAST_NORM = 1e-12
IN_STEP = 4  # rows of a tile of one query that are read side by side: of 16 memory is read a tenth slower

_I8, _I16 = ir.IntType(8), ir.IntType(16)
_BYTES, _HALF, _PAIRS = (ir.VectorType(kind, n * LANES) for kind, n in ((_I8, 4), (_I8, 2), (_I16, 2)))


def _words(emitter: Emitter, address):
    value = emitter.builder.load(emitter.pointer(address, emitter.integers))
    value.align = 1
    return value


class _Floats:
    """Rows of float32; scores are dot products."""

    integer, query_bytes = False, 1

    def row(self, emitter: Emitter, words):
        return emitter.builder.bitcast(words, emitter.vector)

    def query(self, emitter: Emitter, address):
        return emitter.load(address)

    def add(self, emitter: Emitter, row, query, total):
        return emitter.fma(row, query, total)

    def add_square(self, emitter: Emitter, row, total):
        return emitter.fma(row, row, total)


class _Halves(_Floats):
    """Rows of float16, widened as they are read; queries are float32, two vectors of them for one of a row."""

    query_bytes = 2

    def row(self, emitter: Emitter, words):
        both = emitter.builder.bitcast(words, _PAIRS)
        places = (range(first, first + LANES) for first in (0, LANES))
        orders = [ir.Constant(emitter.integers, list(order)) for order in places]
        return [emitter.widen_float16(emitter.builder.shuffle_vector(both, both, order)) for order in orders]

    def query(self, emitter: Emitter, address):
        return [emitter.load(place) for place in (address, emitter.builder.add(address, I64(SIZE)))]

    def add(self, emitter: Emitter, row, query, total):
        return emitter.fma(row[1], query[1], emitter.fma(row[0], query[0], total))

    def add_square(self, emitter: Emitter, row, total):
        return self.add(emitter, row, row, total)


class _Bits:
    """Rows of bits; scores are minus the number of bits that differ."""

    integer, query_bytes = True, 1

    def row(self, emitter: Emitter, words):
        return words

    def query(self, emitter: Emitter, address):
        return _words(emitter, address)

    def add(self, emitter: Emitter, row, query, total):
        differing = emitter.builder.xor(row, query)
        return emitter.builder.sub(total, emitter.call(f"llvm.ctpop.v{LANES}i32", emitter.integers, differing))

    def add_square(self, emitter: Emitter, row, total):
        return total  # bits have no length, and nobody asks for it


@dataclass(frozen=True)
class _Integers:
    """Rows of int8 or uint8; scores are dot products.

    vpdpbusd multiplies unsigned bytes by signed ones: the rows have 128 added to them, or taken off, which the sums'
    starts make good.
    """

    signed: bool
    integer = True
    query_bytes = 1 if WHOLE else 2

    def row(self, emitter: Emitter, words):
        if WHOLE:
            return words, emitter.builder.xor(words, emitter.integer(-0x7F7F7F80))
        return words, self._halves(emitter, words)

    def query(self, emitter: Emitter, address):
        if WHOLE:
            return _words(emitter, address)
        more = emitter.builder.add(address, I64(SIZE))
        return [emitter.builder.bitcast(_words(emitter, place), _PAIRS) for place in (address, more)]

    def add(self, emitter: Emitter, row, query, total):
        if not WHOLE:
            return self._add_halves(emitter, row[1], query, total)
        operands = (row[1], query) if self.signed else (query, row[1])
        return INT8["vnni"].add(emitter, *operands, total)

    def add_square(self, emitter: Emitter, row, total):
        halves = self._halves(emitter, row[0])
        return self._add_halves(emitter, halves, halves, total)

    def _halves(self, emitter: Emitter, words) -> list:
        """The bytes as int16."""
        builder = emitter.builder
        whole = builder.bitcast(words, _BYTES)
        halves = []
        for first in (0, 2 * LANES):
            order = ir.Constant(ir.VectorType(I32, 2 * LANES), list(range(first, first + 2 * LANES)))
            half = builder.shuffle_vector(whole, whole, order)
            halves.append((builder.sext if self.signed else builder.zext)(half, _PAIRS))
        return halves

    def _add_halves(self, emitter: Emitter, row, query, total):
        arithmetic = INT8["pairs" if TARGET.int8 in ("pairs", "vnni") else "widened"]
        for one, other in zip(row, query, strict=True):
            total = arithmetic.add(emitter, one, other, total)
        return total


# By the dtype of staged queries; they are float32 for float16, too, and only seen as another.
COMPARISONS = {
    types.float32: _Floats(),
    types.uint16: _Halves(),
    types.int8: _Integers(True),
    types.uint8: _Integers(False),
    types.uint32: _Bits(),
}


def _emit_sums(emitter: Emitter, comparison, rows, width, queries, squares: bool, ahead) -> list:
    """Emit the loop along the rows; returns the sums of each query with all rows, and of the rows with themselves.

    width  (bytes of whole vectors, words that are left, address of their mask)
    ahead  how many bytes behind each row's place memory is prefetched
    """
    builder = emitter.builder
    whole, left, mask = width

    def add(offset, words, sums):
        values = [comparison.row(emitter, value) for value in words]
        place = builder.mul(offset, I64(comparison.query_bytes))
        operands = [comparison.query(emitter, builder.add(query, place)) for query in queries]
        pairs = [(value, operand) for operand in operands for value in values]
        new = [comparison.add(emitter, *pair, total) for pair, total in zip(pairs, sums)]
        if squares:
            new += [comparison.add_square(emitter, *pair) for pair in zip(values, sums[len(pairs) :], strict=True)]
        return new

    def places_at(offset):
        places = [builder.add(row, offset) for row in rows]
        for place in places:
            emitter.prefetch(builder.add(place, ahead), 3)
        return places

    def add_whole(offset, sums):
        return add(offset, [_words(emitter, place) for place in places_at(offset)], sums)

    def add_left(_, sums):
        kept, lanes = emitter.load_integers(mask), emitter.first_lanes(left)
        name, zero = f"llvm.masked.load.v{LANES}i32.p0", emitter.integer(0)
        words = []
        for place in places_at(whole):
            pointer = emitter.pointer(place, emitter.integers)
            words.append(builder.and_(emitter.call(name, emitter.integers, pointer, I32(1), lanes, zero), kept))
        return add(whole, words, sums)

    start = emitter.integer(0) if comparison.integer else emitter.constant(0.0)
    sums = emitter.loop(whole, SIZE, [start] * (len(rows) * (len(queries) + squares)), add_whole)
    return emitter.loop(left, LANES, sums, add_left)


def _lane_sums(emitter: Emitter, comparison, sums) -> list:
    add = emitter.builder.add if comparison.integer else emitter.add
    return [emit_lane_sums(emitter, sums[n : n + LANES], add) for n in range(0, len(sums), LANES)]


def _float_key(emitter: Emitter, value):
    """An int32 in the order of the floats; -0 is 0, NaN below all."""
    b = emitter.builder
    bits = b.bitcast(value, emitter.integers)
    key = b.xor(bits, b.lshr(b.ashr(bits, emitter.integer(31)), emitter.integer(1)))
    key = b.select(b.icmp_signed("==", key, emitter.integer(-1)), emitter.integer(0), key)
    return b.select(b.fcmp_unordered("uno", value, value, flags=EXACT), emitter.integer(NO_KEY), key)


def _emit_tile(emitter: Emitter, comparison, rows: int, queries: int, measured: bool, arguments):
    """Emit one tile; see make_score_tile."""
    builder = emitter.builder
    table, (query, query_row), width, (starts, scales, scaled), thresholds, out, ahead = arguments
    places = [_load_address(emitter, builder.add(table, I64(8 * r))) for r in range(rows)]
    query_places = [builder.add(query, builder.mul(query_row, I64(q))) for q in range(queries)]
    parts = _emit_parts(
        emitter, comparison, places, width, query_places, measured, ahead, rows if queries > 1 else IN_STEP
    )
    sums, squares = (_lane_sums(emitter, comparison, part) for part in parts)
    bits = ir.Constant(I64, 0)
    for n, total in enumerate(sums):
        skip = I64(n * SIZE)
        scale = _inverse_norm(emitter, squares[n]) if measured else _row_scales(emitter, scales, rows, n)
        if comparison.integer:
            total = builder.add(total, emitter.load_integers(builder.add(starts, skip)))
            product = emitter.multiply(builder.sitofp(total, emitter.vector), scale)
            wanted = builder.icmp_signed("!=", scaled, I64(0))
            key = builder.select(wanted, _float_key(emitter, product), total)
        else:
            key = _float_key(emitter, emitter.multiply(total, scale))
        builder.store(key, emitter.pointer(builder.add(out, skip), emitter.integers)).align = 4
        above = builder.icmp_signed(">", key, emitter.load_integers(builder.add(thresholds, skip)))
        found = builder.zext(builder.bitcast(above, ir.IntType(LANES)), I64)
        bits = builder.or_(bits, builder.shl(found, I64(n * LANES)))
    return bits


def _emit_parts(emitter: Emitter, comparison, rows, width, queries, squares: bool, ahead, in_step: int) -> tuple:
    """(sums of products, sums of squares) of rows of which so many are read side by side."""
    products, own = [], []
    for n in range(0, len(rows), in_step):
        some = rows[n : n + in_step]
        sums = _emit_sums(emitter, comparison, some, width, queries, squares, ahead)
        products += sums[: len(some) * len(queries)]
        own += sums[len(some) * len(queries) :]
    return products, own


def _inverse_norm(emitter: Emitter, square):
    """1 / length, from the sum of squares; NaN where that is infinite, since such a row has no cosine."""
    if square.type != emitter.vector:
        square = emitter.builder.sitofp(square, emitter.vector)
    root = emitter.call(f"llvm.sqrt.v{LANES}f32", emitter.vector, square)
    inverse = emitter.divide(emitter.constant(1.0), emitter.maximum(emitter.constant(LEAST_NORM), root))
    return emitter.add(inverse, emitter.subtract(square, square))


def _row_scales(emitter: Emitter, scales, rows: int, group: int):
    """The rows' factors in the lanes of a group of sums, which has the rows of one query after another."""
    if rows >= LANES:
        return emitter.load(emitter.builder.add(scales, I64(group * LANES % rows * 4)))
    kind = ir.VectorType(ir.FloatType(), rows)
    value = emitter.builder.load(emitter.pointer(scales, kind))
    value.align = 4
    order = ir.Constant(emitter.integers, [lane % rows for lane in range(LANES)])
    return emitter.builder.shuffle_vector(value, value, order)


def _load_address(emitter: Emitter, place):
    value = emitter.builder.load(emitter.pointer(place, I64))
    value.align = 8
    return value


def _emit_norms(emitter: Emitter, comparison, arguments) -> None:
    builder = emitter.builder
    table, width, out, ahead = arguments
    places = [_load_address(emitter, builder.add(table, I64(8 * r))) for r in range(LANES)]
    _, squares = _emit_parts(emitter, comparison, places, width, (), True, ahead, IN_STEP)
    emitter.store(_inverse_norm(emitter, *_lane_sums(emitter, comparison, squares)), out)


# Sizes of the tuples among a tile's arguments; 0: a number without a tuple.
_TILE, _NORMS = (0, 2, 3, 3, 0, 0, 0), (0, 3, 0, 0)


def make_score_tile(rows: int, queries: int, measured: bool = False):
    """The intrinsic ``tile(staged, table, query, width, terms, thresholds, out, ahead)``: keys of rows with queries.

    staged      the array of staged queries, for its dtype only. The others are addresses, or in bytes:
    table       of the ``rows`` rows' addresses.
    query       (address, row): the first query, and the distance between queries.
    width       (bytes of whole vectors, 4-byte words that are left, address of a mask of these): of a row.
    terms       (starts, scales, scaled): int32 added to sums of integers, of each row of each query; a float32 factor
                of each row; whether integers are multiplied by it, floats always are.
    thresholds  int32, of each row of each query.
    out         keys, the rows of one query after another, written.
    ahead       bytes between a row's place and what is prefetched.
    A ``measured`` tile, of one query, finds the factors itself, 1 / length of each row, and reads no scales.
    Returns a bit for each key, from the lowest on: whether it is greater than its threshold.
    """

    @intrinsic
    def tile(typing_context, staged, table, query, width, terms, thresholds, out, ahead):
        comparison = COMPARISONS[staged.dtype]

        def generate(context, builder, kind, arguments):
            def emit(emitter, *values):
                return _emit_tile(emitter, comparison, rows, queries, measured, values)

            name = f"fastattn.scores_{staged.dtype}_{rows}_{queries}_{measured}"
            return Emitter(builder, TARGET).call_once(name, arguments[1:], emit, I64)

        return types.intp(staged, *addresses(_TILE)), generate

    return tile


@intrinsic
def inverse_norms(typing_context, staged, table, width, out, ahead):
    """1 / length of LANES rows, float32 at ``out``; NaN where a square overflows. The others as make_score_tile's."""
    comparison = COMPARISONS[staged.dtype]

    def generate(context, builder, kind, arguments):
        def emit(emitter, *values):
            _emit_norms(emitter, comparison, values)

        Emitter(builder, TARGET).call_once(f"fastattn.norms_{staged.dtype}", arguments[1:], emit)
        return context.get_dummy_value()

    return types.void(staged, *addresses(_NORMS)), generate
