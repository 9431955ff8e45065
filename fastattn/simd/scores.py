"""Scores of stored rows against queries, as LLVM vector IR; rows are read in place, unpacked.

A tile reads a row along its length, a vector at a time, and multiplies each vector by every query of the tile. Sums
stay in lanes until the row's end, so a sum's order and bits depend on its row and its query alone. A score becomes a
key: an int32 in the order of the scores, with NaN below all of them, so that floats and integers are compared alike.
"""

from dataclasses import dataclass

from llvmlite import ir
from numba import types

from fastattn.simd.arguments import SIZE, WHOLE_BYTES, Rows, RowWidth, Terms
from fastattn.simd.arithmetic import INT8, add_pairwise, load_words
from fastattn.simd.emit import EXACT, F32, I64, Emitter
from fastattn.simd.rows import emit_lane_sums
from fastattn.simd.target import LANES, TARGET
from fastattn.simd.vector import as_array_routine

NO_KEY = -(1 << 31)  # the key of NaN
LEAST_NORM = 1e-12
ROWS_IN_STEP = 4  # rows that a tile of one query reads side by side; 16 rows read memory a tenth slower

_BYTES, _PAIRS = ir.VectorType(ir.IntType(8), 4 * LANES), ir.VectorType(ir.IntType(16), 2 * LANES)


class _Floats:
    """Rows of float32; scores are dot products."""

    integer, query_bytes = False, 1  # whether sums are int32; bytes of a staged query for one of a row

    def row(self, emitter: Emitter, words):
        return emitter.builder.bitcast(words, emitter.vector)

    def query(self, emitter: Emitter, address):
        return emitter.load(address)

    def add(self, emitter: Emitter, row, query, total):
        return emitter.fma(row, query, total)

    def add_square(self, emitter: Emitter, row, total):
        return self.add(emitter, row, row, total)


class _Halves(_Floats):
    """Rows of float16, widened when read; queries are float32, two vectors for one vector of a row."""

    query_bytes = 2

    def row(self, emitter: Emitter, words):
        both = emitter.builder.bitcast(words, _PAIRS)
        return [emitter.widen_float16(emitter.pick(both, range(n, n + LANES))) for n in (0, LANES)]

    def query(self, emitter: Emitter, address):
        return [emitter.load(first) for first in (address, emitter.builder.add(address, I64(SIZE)))]

    def add(self, emitter: Emitter, row, query, total):
        return add_pairwise(emitter, row, query, total)


class _Bits:
    """Rows of bits; scores are minus the number of bits that differ."""

    integer, query_bytes = True, 1

    def row(self, emitter: Emitter, words):
        return words

    def query(self, emitter: Emitter, address):
        return load_words(emitter, address)

    def add(self, emitter: Emitter, row, query, total):
        differing = emitter.builder.xor(row, query)
        return emitter.builder.sub(total, emitter.call(f"llvm.ctpop.v{LANES}i32", emitter.integers, differing))

    def add_square(self, emitter: Emitter, row, total):
        return total  # bits have no length


@dataclass(frozen=True)
class _Integers:
    """Rows of int8 or uint8; scores are dot products. A row is its words and its operand for a product with a query.

    vpdpbusd multiplies unsigned bytes by signed ones: the operand is the row plus or minus 128, which the sums' start
    values correct.
    """

    signed: bool
    integer = True
    query_bytes = 1 if WHOLE_BYTES else 2

    def row(self, emitter: Emitter, words):
        if WHOLE_BYTES:
            return words, emitter.builder.xor(words, emitter.integer(-0x7F7F7F80))
        return words, self._halves(emitter, words)

    def query(self, emitter: Emitter, address):
        if WHOLE_BYTES:
            return load_words(emitter, address)
        second = emitter.builder.add(address, I64(SIZE))
        return [emitter.builder.bitcast(load_words(emitter, first), _PAIRS) for first in (address, second)]

    def add(self, emitter: Emitter, row, query, total):
        _, operand = row
        if not WHOLE_BYTES:
            return self._add_halves(emitter, operand, query, total)
        operands = (operand, query) if self.signed else (query, operand)
        return INT8["vnni"].add(emitter, *operands, total)

    def add_square(self, emitter: Emitter, row, total):
        words, _ = row
        halves = self._halves(emitter, words)
        return self._add_halves(emitter, halves, halves, total)

    def _halves(self, emitter: Emitter, words) -> list:
        """A vector's bytes as int16, in two vectors."""
        builder = emitter.builder
        all_bytes, extend = builder.bitcast(words, _BYTES), builder.sext if self.signed else builder.zext
        halves = (emitter.pick(all_bytes, range(first, first + 2 * LANES)) for first in (0, 2 * LANES))
        return [extend(half, _PAIRS) for half in halves]

    def _add_halves(self, emitter: Emitter, row, query, total):
        arithmetic = INT8["pairs" if TARGET.int8 in ("pairs", "vnni") else "widened"]
        for halves in zip(row, query, strict=True):
            total = arithmetic.add(emitter, *halves, total)
        return total


# By the dtype of staged queries, which for rows of float16 are float32, viewed as uint16.
COMPARISONS = {
    types.float32: _Floats(),
    types.uint16: _Halves(),
    types.int8: _Integers(True),
    types.uint8: _Integers(False),
    types.uint32: _Bits(),
}


def comparison_of(staged):
    return COMPARISONS[staged.dtype]


def _emit_sums(emitter: Emitter, comparison, rows, width, queries, squares: bool, ahead) -> list:
    """Emit the loop along the rows; returns the sums of each query with all rows, and of the rows with themselves.

    ahead  bytes from those that the loop reads of a row to those that it prefetches
    """
    builder = emitter.builder

    def add(offset, words, sums):
        values = [comparison.row(emitter, value) for value in words]
        query_offset = builder.mul(offset, I64(comparison.query_bytes))
        operands = [comparison.query(emitter, builder.add(query, query_offset)) for query in queries]
        pairs = [(value, operand) for operand in operands for value in values]
        new_sums = [comparison.add(emitter, *pair, total) for pair, total in zip(pairs, sums)]
        if squares:
            new_sums += [comparison.add_square(emitter, *pair) for pair in zip(values, sums[len(pairs) :], strict=True)]
        return new_sums

    def addresses_and_prefetch(offset):
        addresses = [builder.add(row, offset) for row in rows]
        for address in addresses:
            emitter.prefetch(builder.add(address, ahead), 3)
        return addresses

    def add_whole(offset, sums):
        return add(offset, [load_words(emitter, address) for address in addresses_and_prefetch(offset)], sums)

    def add_tail(_, sums):
        mask, zero = emitter.load_integers(width.mask), emitter.integer(0)
        words = [emitter.load_first(first, width.tail, zero, 1) for first in addresses_and_prefetch(width.whole)]
        return add(width.whole, [builder.and_(word, mask) for word in words], sums)

    start = emitter.integer(0) if comparison.integer else emitter.constant(0.0)
    sums = emitter.loop(width.whole, SIZE, [start] * (len(rows) * (len(queries) + squares)), add_whole)
    return emitter.loop(width.tail, LANES, sums, add_tail)


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


def _emit_grouped_sums(emitter: Emitter, comparison, rows, width, queries, squares: bool, ahead, in_step: int) -> tuple:
    """(sums of products, sums of squares) of the rows, ``in_step`` of them side by side."""
    products, square_sums = [], []
    for n in range(0, len(rows), in_step):
        group = rows[n : n + in_step]
        sums = _emit_sums(emitter, comparison, group, width, queries, squares, ahead)
        products += sums[: len(group) * len(queries)]
        square_sums += sums[len(group) * len(queries) :]
    return products, square_sums


def _inverse_norm(emitter: Emitter, square):
    """1 / length, from the sum of squares; NaN where the sum is infinite, since such a row has no cosine."""
    if square.type != emitter.vector:
        square = emitter.builder.sitofp(square, emitter.vector)
    root = emitter.call(f"llvm.sqrt.v{LANES}f32", emitter.vector, square)
    inverse = emitter.divide(emitter.constant(1.0), emitter.maximum(emitter.constant(LEAST_NORM), root))
    return emitter.add(inverse, emitter.subtract(square, square))


def _row_scales(emitter: Emitter, scales, rows: int, group: int):
    """The rows' factors in the lanes of a group of sums, which has all rows of a query, then those of the next."""
    if rows >= LANES:
        return emitter.load(emitter.builder.add(scales, I64(group * LANES % rows * 4)))
    value = emitter.read(scales, ir.VectorType(F32, rows))
    return emitter.pick(value, [lane % rows for lane in range(LANES)])


def _row_addresses(emitter: Emitter, table, rows: int) -> list:
    """The addresses of rows that a table lists."""
    return [emitter.read(emitter.builder.add(table, I64(8 * r)), I64, 8) for r in range(rows)]


@as_array_routine("norms", (None, RowWidth, None, None), comparison_of)
def inverse_norms(comparison, emitter: Emitter, table, width, out, ahead) -> None:
    """1 / length of LANES rows, float32 at ``out``; NaN where a square overflows. See make_score_tile."""
    rows = _row_addresses(emitter, table, LANES)
    _, squares = _emit_grouped_sums(emitter, comparison, rows, width, (), True, ahead, ROWS_IN_STEP)
    emitter.store(_inverse_norm(emitter, *_lane_sums(emitter, comparison, squares)), out)


def make_score_tile(rows: int, queries: int, measured: bool = False):
    """The intrinsic ``tile(staged, table, query, width, terms, thresholds, out, ahead)``: keys of rows with queries.

    staged      the array of staged queries, for its dtype only.
    table       the address of a table of the ``rows`` rows' addresses.
    query       Rows: the queries.
    width       RowWidth.
    terms       Terms.
    thresholds  the address of an int32 for each row of each query.
    out         the address of keys, the rows of one query after another, written.
    ahead       bytes from those that the tile reads of a row to those that it prefetches.
    A ``measured`` tile, of one query, computes the factors itself, 1 / length of each row, and reads no scales.
    Returns a bit for each key, from the lowest on: whether the key is greater than its threshold.
    """

    def emit(comparison, emitter, table, query, width, terms, thresholds, out, ahead):
        builder = emitter.builder
        query_rows = emitter.row_addresses(query.address, query.distance, queries)
        key_rows, in_step = _row_addresses(emitter, table, rows), rows if queries > 1 else ROWS_IN_STEP
        both_sums = _emit_grouped_sums(emitter, comparison, key_rows, width, query_rows, measured, ahead, in_step)
        sums, squares = (_lane_sums(emitter, comparison, vectors) for vectors in both_sums)
        bits = ir.Constant(I64, 0)
        for n, total in enumerate(sums):
            skip = I64(n * SIZE)
            scale = _inverse_norm(emitter, squares[n]) if measured else _row_scales(emitter, terms.scales, rows, n)
            if comparison.integer:
                total = builder.add(total, emitter.load_integers(builder.add(terms.starts, skip)))
                product = emitter.multiply(builder.sitofp(total, emitter.vector), scale)
                scaled = builder.icmp_signed("!=", terms.scaled, I64(0))
                key = builder.select(scaled, _float_key(emitter, product), total)
            else:
                key = _float_key(emitter, emitter.multiply(total, scale))
            emitter.store(key, builder.add(out, skip))
            above = builder.icmp_signed(">", key, emitter.load_integers(builder.add(thresholds, skip)))
            lanes_above = builder.zext(builder.bitcast(above, ir.IntType(LANES)), I64)
            bits = builder.or_(bits, builder.shl(lanes_above, I64(n * LANES)))
        return bits

    forms = None, Rows, RowWidth, Terms, None, None, None
    return as_array_routine(f"scores_{rows}_{queries}_{measured}", forms, comparison_of, types.intp)(emit)
