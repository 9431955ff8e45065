"""Rows in memory: copied, prefetched, and LANES rows at any addresses transposed or multiplied by a vector.

Addresses are plain integers, in bytes, and nothing is checked, as in vector.py.
"""

from collections.abc import Callable
from functools import partial

from llvmlite import ir
from numba import types

from fastattn.simd.constants import LINE, SIZE
from fastattn.simd.emit import F32, I32, I64, Emitter
from fastattn.simd.target import LANES, TARGET
from fastattn.simd.vector import make_intrinsic, make_routine, with_parameters


def _copy_floats(emitter: Emitter, source, target, width):
    builder = emitter.builder
    tail = builder.and_(width, I64(LANES - 1))
    whole = builder.mul(builder.sub(width, tail), I64(4))

    def copy(offset, none):
        emitter.store(emitter.load(builder.add(source, offset)), builder.add(target, offset))
        return none

    def copy_tail(offset, none):
        value = emitter.load_first(builder.add(source, whole), tail, emitter.constant(0.0))
        emitter.store_first(value, builder.add(target, whole), tail)
        return none

    emitter.loop(whole, SIZE, [], copy)
    emitter.loop(tail, LANES, [], copy_tail)


copy_floats = make_intrinsic(
    "copy_floats", types.void, (types.intp,) * 3, _copy_floats, "Copy ``width`` floats from one address to another."
)


def _prefetch_row(emitter: Emitter, address, size, locality: int):
    def ask(offset, none):
        emitter.prefetch(emitter.builder.add(address, offset), locality)
        return none

    emitter.loop(size, LINE, [], ask)


prefetch_row, prefetch_row_far = (
    make_intrinsic(
        name,
        types.void,
        (types.intp, types.intp),
        partial(_prefetch_row, locality=locality),
        "Prefetch the cache lines of ``size`` bytes from an address on into L1, or (far) L2.",
    )
    for name, locality in (("prefetch_row", 3), ("prefetch_row_far", 2))
)


def _interleave(emitter: Emitter, a, b, width: int) -> tuple:
    """(even, odd): runs of ``width`` lanes alternately of a and b, from the even and from the odd runs of both."""
    lanes = range(emitter.target.lanes)
    even = [i if i // width % 2 == 0 else i - width + emitter.target.lanes for i in lanes]
    odd = [i + width if i // width % 2 == 0 else i + emitter.target.lanes for i in lanes]
    shuffle = emitter.builder.shuffle_vector
    return tuple(shuffle(a, b, ir.Constant(emitter.integers, order)) for order in (even, odd))


def emit_transpose(emitter: Emitter, rows: list) -> list:
    """Transpose LANES vectors as the rows of a square matrix, by swaps of ever larger off-diagonal blocks."""
    width = 1
    while width < len(rows):
        swapped = list(rows)
        for i in range(len(rows)):
            if i // width % 2 == 0:
                swapped[i], swapped[i + width] = _interleave(emitter, rows[i], rows[i + width], width)
        rows, width = swapped, 2 * width
    return rows


def emit_lane_sums(emitter: Emitter, rows: list, add):
    """One vector whose lane i is the sum of the lanes of rows[i], in the same order for every i."""
    width = 1
    while len(rows) > 1:
        rows = [add(*_interleave(emitter, a, b, width)) for a, b in zip(rows[::2], rows[1::2], strict=True)]
        width *= 2
    return rows[0]


def _make_transpose(whole: bool):
    def emit(emitter, source, source_row, rows, columns, target, target_row):
        builder = emitter.builder
        last = builder.sub(rows, I64(1))
        loaded = []
        for i in range(LANES):
            row = builder.select(builder.icmp_signed("<", I64(i), rows), I64(i), last)
            address = builder.add(source, builder.mul(source_row, row))
            if whole:
                loaded.append(emitter.load(address))
            else:
                loaded.append(emitter.load_first(address, columns, emitter.constant(0.0)))
        for i, vector in enumerate(emit_transpose(emitter, loaded)):
            emitter.store(vector, builder.add(target, builder.mul(target_row, I64(i))))

    name = "transpose" if whole else "transpose_first"
    return make_routine(name, (types.intp,) * 6, emit, "A square of LANES rows and columns; see below.")


# transpose(source, source_row, rows, columns, target, target_row): a square of LANES rows and columns. Only ``rows``
# rows are read, at least 1; copies of the last replace missing ones. transpose_first reads ``columns`` columns
# only and fills the rest with zeros; transpose reads LANES of them whatever ``columns`` is.
transpose = _make_transpose(whole=True)
transpose_first = _make_transpose(whole=False)


class Element:
    """Reads a table's values, ``size`` bytes each, as float32 vectors, whole or in part.

    A table is an array of float32, of uint16 for bfloat16, or of int16 for float16, which Numba lacks.
    """

    def __init__(self, table):
        self.name, self.size = {
            "float32": ("float32", 4),
            "uint16": ("bfloat16", 2),
            "int16": ("float16", 2),
        }[str(table.dtype)]

    def load(self, emitter: Emitter, address):
        return emitter.load(address) if self.size == 4 else self._load_narrow(emitter, address)

    def load_first(self, emitter: Emitter, address, count):
        if self.size == 4:
            return emitter.load_first(address, count, emitter.constant(0.0))
        return self._load_narrow(emitter, address, count)

    def _load_narrow(self, emitter: Emitter, address, count=None):
        load = emitter.load_bfloat16 if self.name == "bfloat16" else emitter.load_float16
        return load(address, count)


def make_table_routine(name: str, count: int, emit: Callable, documentation: str):
    """As ``make_routine``, of an array and ``count`` numbers, from ``emit(element, emitter, *values)``.

    element  says how values of the array's type are read; nothing else of the array is used
    """

    def typer(typing_context, table, *numbers):
        element = Element(table)

        def generate(context, builder, kind, arguments):
            called = f"fastattn.{name}_{element.name}"
            Emitter(builder, TARGET).call_once(called, arguments[1:], partial(emit, element))
            return context.get_dummy_value()

        return types.void(table, *[types.intp] * count), generate

    return with_parameters(name, 1 + count, typer, documentation)


def make_dot_rows(queries: int):
    """The intrinsic ``dot_rows(table, query, query_row, rows, row_size, index, width, out, out_row)``.

    out[q, j] becomes the dot product of query q, ``width`` floats, and row index[j], ``width`` values of the type of
    ``table`` (see Element), for ``queries`` (a power of two, at most LANES) queries and LANES / queries indices, int32.
    ``rows`` is the address of row 0; query_row, row_size and out_row are distances in
    bytes. The order of a sum depends on ``width`` only.
    """
    keys = LANES // queries

    def emit_dots(element, emitter, query, query_row, rows, row_size, index, width, out, out_row):
        builder = emitter.builder
        queries_at = [builder.add(query, builder.mul(query_row, I64(q))) for q in range(queries)]
        rows_at = [emit_row_address(emitter, rows, row_size, index, I64(4 * j)) for j in range(keys)]
        tail = builder.and_(width, I64(LANES - 1))
        whole = builder.mul(builder.sub(width, tail), I64(4))
        zero = emitter.constant(0.0)

        def add(sums, ends, parts):
            new = []
            for part in parts:
                new += [emitter.fma(part, end, sums[len(new) + j]) for j, end in enumerate(ends)]
            return new

        def in_row(start, offset):  # address of the value whose float32 would be at ``offset`` bytes
            return builder.add(start, offset if element.size == 4 else builder.lshr(offset, I64(1)))

        def add_whole(offset, sums):
            ends = [element.load(emitter, in_row(row, offset)) for row in rows_at]
            return add(sums, ends, [emitter.load(builder.add(q, offset)) for q in queries_at])

        def add_tail(offset, sums):
            ends = [element.load_first(emitter, in_row(row, whole), tail) for row in rows_at]
            return add(sums, ends, [emitter.load_first(builder.add(q, whole), tail, zero) for q in queries_at])

        sums = emitter.loop(whole, 4 * LANES, [zero] * LANES, add_whole)
        result = emit_lane_sums(emitter, emitter.loop(tail, LANES, sums, add_tail), emitter.add)
        part = ir.VectorType(F32, keys)
        for q in range(queries):
            order = ir.Constant(ir.VectorType(I32, keys), list(range(q * keys, (q + 1) * keys)))
            place = builder.add(out, builder.mul(out_row, I64(q)))
            builder.store(builder.shuffle_vector(result, result, order), emitter.pointer(place, part)).align = 4

    return make_table_routine(f"dot_rows_{queries}", 8, emit_dots, "See make_dot_rows.")


def make_add_rows(sums: int, vectors: int):
    """The intrinsic ``add_rows(table, weight, weight_row, rows, row_size, index, count, width, out, out_row)``.

    out[q] += weight[q, s] * row index[s], for s = 0, 1, ... below ``count`` in this order, for ``sums`` rows of out,
    padded to whole vectors; ``vectors`` of each are in registers at a time. ``rows`` is the address of row 0 of values
    of the type of ``table`` (as in ``make_dot_rows``), index is int32.
    """

    def emit_sums(element, emitter, weight, weight_row, rows, row_size, index, count, width, out, out_row):
        builder = emitter.builder
        weights_at = [builder.add(weight, builder.mul(weight_row, I64(q))) for q in range(sums)]
        out_at = [builder.add(out, builder.mul(out_row, I64(q))) for q in range(sums)]
        size = builder.mul(count, I64(4))

        def add_part(offset, number, load):
            """Add to ``number`` vectors of every sum from the byte ``offset`` on."""
            places = [builder.add(at, builder.add(offset, I64(n * LANES * 4))) for at in out_at for n in range(number)]

            def body(s, values):
                inside = offset if element.size == 4 else builder.lshr(offset, I64(1))
                row = builder.add(emit_row_address(emitter, rows, row_size, index, s), inside)
                parts = [load(emitter, builder.add(row, I64(n * LANES * element.size))) for n in range(number)]
                new = []
                for at in weights_at:
                    factor = emitter.splat(emitter.load_scalar(builder.add(at, s)))
                    new += [emitter.fma(factor, part, values[len(new) + n]) for n, part in enumerate(parts)]
                return new

            for value, place in zip(emitter.loop(size, 4, [emitter.load(p) for p in places], body), places):
                emitter.store(value, place)

        chunk = vectors * LANES
        whole = builder.sub(width, builder.urem(width, I64(chunk)))
        rest = builder.mul(builder.sub(width, whole), I64(4))
        first = builder.mul(whole, I64(4))

        def add_chunk(offset, none):
            add_part(offset, vectors, element.load)
            return none

        def add_vector(offset, none):
            left = builder.sdiv(builder.sub(rest, offset), I64(4))
            add_part(builder.add(first, offset), 1, partial(element.load_first, count=left))
            return none

        emitter.loop(first, chunk * 4, [], add_chunk)
        emitter.loop(rest, LANES * 4, [], add_vector)

    return make_table_routine(f"add_rows_{sums}_{vectors}", 9, emit_sums, "See make_add_rows.")


def emit_row_address(emitter: Emitter, rows, row_size, index, offset):
    """The address of the row whose number, an int32, is at ``index`` + ``offset``."""
    builder = emitter.builder
    number = builder.load(emitter.pointer(builder.add(index, offset), I32))
    number.align = 4
    return builder.add(rows, builder.mul(builder.sext(number, I64), row_size))


def _widen_row(element: Element, emitter: Emitter, source, target, width):
    builder = emitter.builder

    def widen(offset, none):
        left = builder.sub(width, offset)
        value = element.load_first(emitter, builder.add(source, builder.mul(offset, I64(element.size))), left)
        emitter.store_part(value, builder.add(target, builder.mul(offset, I64(4))), left)
        return none

    emitter.loop(width, LANES, [], widen)


widen_row = make_table_routine(
    "widen_row", 3, _widen_row, "Write ``width`` values of the type of the table, narrow ones, as float32."
)
