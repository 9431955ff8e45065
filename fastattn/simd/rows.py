"""Blocks of LANES rows that lie anywhere: transposed into columns, or multiplied by one vector.

Addresses are plain integers, in bytes, and nothing is checked, as in vector.py.
"""

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from fastattn.simd.emit import I32, I64, Emitter
from fastattn.simd.target import LANES, TARGET
from fastattn.simd.vector import VECTOR


def _interleave(emitter: Emitter, a, b, width: int) -> tuple:
    """Runs of ``width`` lanes of a and b in turn: from the even runs of both, and from the odd ones."""
    lanes = range(emitter.target.lanes)
    even = [i if i // width % 2 == 0 else i - width + emitter.target.lanes for i in lanes]
    odd = [i + width if i // width % 2 == 0 else i + emitter.target.lanes for i in lanes]
    shuffle = emitter.builder.shuffle_vector
    return tuple(shuffle(a, b, ir.Constant(emitter.integers, order)) for order in (even, odd))


def emit_transpose(emitter: Emitter, rows: list) -> list:
    """LANES vectors as the rows of a square matrix, transposed: swaps of ever larger blocks off the diagonal."""
    width = 1
    while width < len(rows):
        swapped = list(rows)
        for i in range(len(rows)):
            if i // width % 2 == 0:
                swapped[i], swapped[i + width] = _interleave(emitter, rows[i], rows[i + width], width)
        rows, width = swapped, 2 * width
    return rows


def emit_lane_sums(emitter: Emitter, rows: list):
    """One vector whose lane i is the sum of the lanes of rows[i], in the same order for every i."""
    width = 1
    while len(rows) > 1:
        rows = [emitter.add(*_interleave(emitter, a, b, width)) for a, b in zip(rows[::2], rows[1::2], strict=True)]
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

    @intrinsic
    def transpose(typing_context, source, source_row, rows, columns, target, target_row):
        def generate(context, builder, kind, arguments):
            name = "fastattn.transpose" if whole else "fastattn.transpose_first"
            Emitter(builder, TARGET).call_once(name, arguments, emit)
            return context.get_dummy_value()

        return types.void(*[types.intp] * 6), generate

    return transpose


# transpose(source, source_row, rows, columns, target, target_row): a square of LANES rows and columns. Only ``rows``
# rows are read, 1 at least; the last stands for those that are missing. transpose_first reads ``columns`` columns
# only and takes zeros for the rest; transpose reads LANES of them whatever ``columns`` is.
transpose = _make_transpose(whole=True)
transpose_first = _make_transpose(whole=False)


@intrinsic
def dot_rows(typing_context, query, rows, row_size, index, width):
    """Lane i: the dot product of the query and row index[i], both ``width`` floats; LANES indices are read, int32.

    ``rows`` is the address of row 0, ``row_size`` the distance of rows in bytes.
    """

    def generate(context, builder, kind, arguments):
        emitter = Emitter(builder, TARGET)
        return emitter.call_once("fastattn.dot_rows", arguments, _emit_dot_rows, emitter.vector)

    return VECTOR(*[types.intp] * 5), generate


def _emit_dot_rows(emitter: Emitter, query, rows, row_size, index, width):
    builder = emitter.builder
    addresses = []
    for i in range(LANES):
        number = builder.load(emitter.pointer(builder.add(index, I64(4 * i)), I32))
        number.align = 4
        addresses.append(builder.add(rows, builder.mul(builder.sext(number, I64), row_size)))
    tail = builder.and_(width, I64(LANES - 1))
    whole = builder.mul(builder.sub(width, tail), I64(4))
    zero = emitter.constant(0.0)

    def add_whole(offset, sums):
        part = emitter.load(builder.add(query, offset))
        return [
            emitter.fma(part, emitter.load(builder.add(a, offset)), s) for a, s in zip(addresses, sums, strict=True)
        ]

    def add_tail(offset, sums):
        part = emitter.load_first(builder.add(query, whole), tail, zero)
        ends = [emitter.load_first(builder.add(a, whole), tail, zero) for a in addresses]
        return [emitter.fma(part, end, s) for end, s in zip(ends, sums, strict=True)]

    sums = emitter.loop(whole, 4 * LANES, [zero] * LANES, add_whole)
    return emit_lane_sums(emitter, emitter.loop(tail, LANES, sums, add_tail))
