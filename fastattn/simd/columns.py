"""LANES rows at any distance read as columns, in registers: their products with a few other rows.

Each sum is in the order of the columns, as in a register tile, so it has the bits of that tile's.
"""

from fastattn.simd.emit import I64
from fastattn.simd.rows import Element, emit_along, emit_transpose
from fastattn.simd.target import LANES
from fastattn.simd.vector import make_array_routine

AHEAD = 32  # rows: those so much further on are prefetched


def make_dot_columns(queries: int):
    """The intrinsic ``dot_columns(table, query, query_row, rows, row_size, count, width, out, out_row)``.

    out[q, j] becomes the dot product of query q, ``width`` floats, and row j, ``width`` values of the type of ``table``
    (see Element), for ``queries`` queries and LANES rows from the address ``rows`` on. Only ``count`` rows are read, at
    least 1; the last stands for those beyond. query_row, row_size and out_row are distances in bytes.
    """

    def emit_dots(element, emitter, query, query_row, rows, row_size, count, width, out, out_row):
        builder = emitter.builder
        last = builder.sub(count, I64(1))
        numbers = [builder.select(builder.icmp_signed("<", I64(j), count), I64(j), last) for j in range(LANES)]
        rows_at = [builder.add(rows, builder.mul(number, row_size)) for number in numbers]
        queries_at, ahead = emitter.row_addresses(query, query_row, queries), builder.mul(row_size, I64(AHEAD))

        def add(sums, values, parts):
            for d, column in enumerate(emit_transpose(emitter, values)):
                lanes = [emitter.pick(part, [d] * LANES) for part in parts]
                sums = [emitter.fma(lane, column, total) for lane, total in zip(lanes, sums)]
            return sums

        sums = emit_along(element, emitter, rows_at, queries_at, width, [emitter.constant(0.0)] * queries, add, ahead)
        for value, place in zip(sums, emitter.row_addresses(out, out_row, queries)):
            emitter.store(value, place)

    return make_array_routine(f"dot_columns_{queries}", [None] * 8, Element, emit_dots)
