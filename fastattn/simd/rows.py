"""Rows in memory: copies, prefetches, transposes of LANES rows, products of rows at any addresses with a few vectors.

Addresses are plain integers, in bytes. Nothing checks them, as in memory.py.
"""

from functools import partial

from numba import types

from fastattn.simd.arguments import LINE, SIZE
from fastattn.simd.emit import F32, I32, I64, Emitter
from fastattn.simd.target import LANES
from fastattn.simd.vector import as_array_routine, as_intrinsic, as_routine

AHEAD = 32  # rows from the one that is read to the one that is prefetched


@as_intrinsic(types.void, types.intp, types.intp, types.intp)
def copy_floats(emitter: Emitter, source, target, width):
    """Copy ``width`` floats from one address to another."""
    builder = emitter.builder
    tail = builder.and_(width, I64(LANES - 1))
    whole = builder.mul(builder.sub(width, tail), I64(4))

    def copy(offset):
        emitter.store(emitter.load(builder.add(source, offset)), builder.add(target, offset))

    def copy_tail(offset):
        value = emitter.load_first(builder.add(source, whole), tail, emitter.constant(0.0))
        emitter.store_first(value, builder.add(target, whole), tail)

    emitter.for_each(whole, SIZE, copy)
    emitter.for_each(tail, LANES, copy_tail)


def prefetch_lines(emitter: Emitter, address, size, locality: int = 2) -> None:
    """Prefetch the cache lines of ``size`` bytes (i64); localities are Emitter.prefetch's."""

    emitter.for_each(size, LINE, lambda offset: emitter.prefetch(emitter.builder.add(address, offset), locality))


@as_intrinsic(types.void, types.intp, types.intp)
def prefetch_row(emitter, address, size):
    """Prefetch the cache lines of ``size`` bytes from an address on into L1."""
    prefetch_lines(emitter, address, size, 3)


prefetch_row_far = as_intrinsic(types.void, types.intp, types.intp)(prefetch_lines)  # into L2


def _interleave(emitter: Emitter, a, b, width: int) -> tuple:
    """(even, odd): the even runs of ``width`` lanes, alternately from a and b, and likewise the odd runs."""
    lanes = range(emitter.target.lanes)
    even = [i if i // width % 2 == 0 else i - width + emitter.target.lanes for i in lanes]
    odd = [i + width if i // width % 2 == 0 else i + emitter.target.lanes for i in lanes]
    return emitter.pick(a, even, b), emitter.pick(a, odd, b)


def emit_transpose(emitter: Emitter, rows: list) -> list:
    """Transpose LANES vectors as the rows of a square matrix, by swaps of ever larger off-diagonal blocks."""
    width = 1
    while width < len(rows):
        next_rows = list(rows)
        for i in range(len(rows)):
            if i // width % 2 == 0:
                next_rows[i], next_rows[i + width] = _interleave(emitter, rows[i], rows[i + width], width)
        rows, width = next_rows, 2 * width
    return rows


def emit_lane_sums(emitter: Emitter, rows: list, add):
    """One vector whose lane i is the sum of the lanes of rows[i], in the same order for every i."""
    width = 1
    while len(rows) > 1:
        rows = [add(*_interleave(emitter, a, b, width)) for a, b in zip(rows[::2], rows[1::2], strict=True)]
        width *= 2
    (sums,) = rows
    return sums


def _make_transpose(whole: bool):
    def emit(emitter, source, source_row, rows, columns, target, target_row):
        """Transpose a square of LANES rows and columns; see ``transpose``."""
        builder = emitter.builder
        last = builder.sub(rows, I64(1))
        loaded = []
        for i in range(LANES):
            row = builder.select(builder.icmp_signed("<", I64(i), rows), I64(i), last)
            address = builder.add(source, builder.mul(source_row, row))
            zero = emitter.constant(0.0)
            loaded.append(emitter.load(address) if whole else emitter.load_first(address, columns, zero))
        for i, vector in enumerate(emit_transpose(emitter, loaded)):
            emitter.store(vector, builder.add(target, builder.mul(target_row, I64(i))))

    name = "transpose" if whole else "transpose_first"
    return as_routine(name, *[types.intp] * 6)(emit)


# transpose(source, source_row, rows, columns, target, target_row): a square of LANES rows and columns. It reads only
# ``rows`` rows, at least 1; copies of the last row replace missing rows. transpose_first reads only ``columns`` columns
# and takes zeros for all others; transpose reads LANES columns whatever ``columns`` is.
transpose = _make_transpose(whole=True)
transpose_first = _make_transpose(whole=False)


class ElementReader:
    """Reads a table's values, ``size`` bytes each, as float32 vectors, whole or in part.

    A table is an array of float32, of uint16 for bfloat16, of int16 for float16, which Numba lacks, or of int8. Behind
    a row of int8 lies the row's scale, a float32.
    """

    def __init__(self, table):
        loads = {"uint16": "load_bfloat16", "int16": "load_float16", "int8": "load_int8"}
        self._narrow_load, self.has_scales = loads.get(str(table.dtype)), str(table.dtype) == "int8"
        self.size = table.dtype.bitwidth // 8 if self._narrow_load else 4

    def address(self, emitter: Emitter, row, offset):
        """The address of the value whose float32 would be ``offset`` bytes from a row's start."""
        return emitter.builder.add(row, emitter.builder.lshr(offset, I64({4: 0, 2: 1, 1: 2}[self.size])))

    def scale(self, emitter: Emitter, row, width):
        """The scale of a row of int8."""
        return emitter.read(emitter.builder.add(row, width), F32, 1)

    def load(self, emitter: Emitter, address):
        return getattr(emitter, self._narrow_load)(address) if self._narrow_load else emitter.load(address)

    def load_first(self, emitter: Emitter, address, count):
        if self._narrow_load:
            return getattr(emitter, self._narrow_load)(address, count)
        return emitter.load_first(address, count, emitter.constant(0.0))


def emit_row_loops(reader: ElementReader, emitter: Emitter, rows, queries, width, sums: list, add, ahead=None) -> list:
    """Emit the loops along the ``width`` values of rows of a table and of queries, float32, all at addresses.

    add    (sums, a vector of each row, a vector of each query) -> new sums
    ahead  bytes from those that the loop reads of the rows to those that it prefetches
    """
    builder = emitter.builder
    tail = builder.and_(width, I64(LANES - 1))
    whole = builder.mul(builder.sub(width, tail), I64(4))

    def add_whole(offset, sums):
        addresses = [reader.address(emitter, row, offset) for row in rows]
        for address in addresses if ahead is not None else ():
            emitter.prefetch(builder.add(address, ahead), locality=3)
        values = [reader.load(emitter, address) for address in addresses]
        return add(sums, values, [emitter.load(builder.add(query, offset)) for query in queries])

    def add_tail(_, sums):
        values = [reader.load_first(emitter, reader.address(emitter, row, whole), tail) for row in rows]
        zero = emitter.constant(0.0)
        return add(sums, values, [emitter.load_first(builder.add(query, whole), tail, zero) for query in queries])

    return emitter.loop(tail, LANES, emitter.loop(whole, SIZE, sums, add_whole), add_tail)


def make_dot_rows(queries: int):
    """The intrinsic ``dot_rows(table, query, query_row, rows, row_size, index, width, out, out_row)``.

    out[q, j] becomes the dot product of query q, ``width`` floats, and row index[j], ``width`` values of the type of
    ``table`` (see ElementReader). ``queries`` is a power of two, at most LANES; there are LANES / queries indices,
    int32. ``rows`` is the address of row 0; query_row, row_size and out_row are distances in bytes. The order of a sum
    depends on ``width`` alone.
    """
    keys = LANES // queries

    def emit_dots(reader, emitter, query, query_row, rows, row_size, index, width, out, out_row):
        def add(sums, row_vectors, query_vectors):
            pairs = [(query_vector, row_vector) for query_vector in query_vectors for row_vector in row_vectors]
            return [emitter.fma(*pair, total) for pair, total in zip(pairs, sums, strict=True)]

        query_rows = emitter.row_addresses(query, query_row, queries)
        key_rows = [emit_row_address(emitter, rows, row_size, index, I64(4 * j)) for j in range(keys)]
        sums = emit_row_loops(reader, emitter, key_rows, query_rows, width, [emitter.constant(0.0)] * LANES, add)
        result = emit_lane_sums(emitter, sums, emitter.add)
        if reader.has_scales:
            scales = emitter.constant(0.0)
            for n, row in enumerate(key_rows * queries):
                scales = emitter.builder.insert_element(scales, reader.scale(emitter, row, width), I32(n))
            result = emitter.multiply(result, scales)
        for q, target in enumerate(emitter.row_addresses(out, out_row, queries)):
            emitter.store(emitter.pick(result, range(q * keys, (q + 1) * keys)), target)

    return as_array_routine(f"dot_rows_{queries}", [None] * 8, ElementReader)(emit_dots)


def make_add_rows(sums: int, vectors: int):
    """The intrinsic ``add_rows(table, weight, weight_row, rows, row_size, index, count, width, out, out_row)``.

    out[q] += weight[q, s] * row index[s], for s = 0, 1, ... below ``count`` in this order, for ``sums`` rows of out,
    padded to whole vectors, of which registers hold ``vectors`` at a time. ``rows`` is the address of row 0 of values
    of the type of ``table`` (as in ``make_dot_rows``), index is int32.
    """

    def emit_sums(reader, emitter, *arguments):
        weight, weight_row, rows, row_size, index, count, width, out, out_row = arguments
        builder = emitter.builder
        size = builder.mul(count, I64(4))
        weight_rows, out_rows = (emitter.row_addresses(*pair, sums) for pair in ((weight, weight_row), (out, out_row)))

        def add_vectors(offset, number, load):
            """Add to ``number`` vectors of every sum from the byte ``offset`` on."""
            targets = [builder.add(row, builder.add(offset, I64(n * SIZE))) for row in out_rows for n in range(number)]

            def body(s, totals):
                start = emit_row_address(emitter, rows, row_size, index, s)
                row = reader.address(emitter, start, offset)
                values = [load(emitter, builder.add(row, I64(n * LANES * reader.size))) for n in range(number)]
                new_totals = []
                for weights in weight_rows:
                    factor = emitter.load_scalar(builder.add(weights, s))
                    if reader.has_scales:
                        factor = emitter.multiply(factor, reader.scale(emitter, start, width))
                    factor = emitter.splat(factor)
                    new_totals += [emitter.fma(factor, x, totals[len(new_totals) + n]) for n, x in enumerate(values)]
                return new_totals

            starts = [emitter.load(target) for target in targets]
            for total, target in zip(emitter.loop(size, 4, starts, body), targets):
                emitter.store(total, target)

        chunk = vectors * LANES
        whole = builder.sub(width, builder.urem(width, I64(chunk)))
        tail_size = builder.mul(builder.sub(width, whole), I64(4))
        first = builder.mul(whole, I64(4))

        def add_chunk(offset):
            add_vectors(offset, vectors, reader.load)

        def add_vector(offset):
            remaining = builder.sdiv(builder.sub(tail_size, offset), I64(4))
            add_vectors(builder.add(first, offset), 1, partial(reader.load_first, count=remaining))

        emitter.for_each(first, chunk * 4, add_chunk)
        emitter.for_each(tail_size, SIZE, add_vector)

    return as_array_routine(f"add_rows_{sums}_{vectors}", [None] * 9, ElementReader)(emit_sums)


def emit_row_address(emitter: Emitter, rows, row_size, index, offset):
    """The address of the row whose number is the int32 at ``index`` + ``offset``."""
    builder = emitter.builder
    number = emitter.read(builder.add(index, offset), I32)
    return builder.add(rows, builder.mul(builder.sext(number, I64), row_size))


@as_array_routine("widen_row", [None] * 3, ElementReader)
def widen_row(reader: ElementReader, emitter: Emitter, source, target, width):
    """Write ``width`` narrow values of the type of the table as float32."""
    builder = emitter.builder

    def widen(offset):
        count = builder.sub(width, offset)
        value = reader.load_first(emitter, builder.add(source, builder.mul(offset, I64(reader.size))), count)
        emitter.store_part(value, builder.add(target, builder.mul(offset, I64(4))), count)

    emitter.for_each(width, LANES, widen)


def make_dot_columns(queries: int):
    """The intrinsic ``dot_columns(table, query, query_row, rows, row_size, count, width, out, out_row)``.

    out[q, j] becomes the dot product of query q, ``width`` floats, and row j, ``width`` values of the type of ``table``
    (see ElementReader), for ``queries`` queries and LANES rows from the address ``rows`` on. It reads only ``count``
    rows, at least 1; the last one stands for further rows. query_row, row_size and out_row are distances in bytes. Each
    sum has the order of the columns, and so the bits of a register tile.
    """

    def emit_dots(reader, emitter, query, query_row, rows, row_size, count, width, out, out_row):
        builder = emitter.builder
        last = builder.sub(count, I64(1))
        numbers = [builder.select(builder.icmp_signed("<", I64(j), count), I64(j), last) for j in range(LANES)]
        key_rows = [builder.add(rows, builder.mul(number, row_size)) for number in numbers]
        query_rows, ahead = emitter.row_addresses(query, query_row, queries), builder.mul(row_size, I64(AHEAD))

        def add(sums, row_vectors, query_vectors):
            for d, column in enumerate(emit_transpose(emitter, row_vectors)):
                lanes = [emitter.pick(query_vector, [d] * LANES) for query_vector in query_vectors]
                sums = [emitter.fma(lane, column, total) for lane, total in zip(lanes, sums)]
            return sums

        zeros = [emitter.constant(0.0)] * queries
        sums = emit_row_loops(reader, emitter, key_rows, query_rows, width, zeros, add, ahead)
        for value, target in zip(sums, emitter.row_addresses(out, out_row, queries)):
            emitter.store(value, target)

    return as_array_routine(f"dot_columns_{queries}", [None] * 8, ElementReader)(emit_dots)
