"""LANES rows at any distance read as columns, in registers: their products with a few other rows.

Each sum is in the order of the columns, as in a register tile, so it has the bits of that tile's.
"""

from llvmlite import ir

from fastattn.simd.emit import I64, Emitter
from fastattn.simd.rows import emit_transpose, make_table_routine
from fastattn.simd.target import LANES

AHEAD = 32  # rows: those so much further on are prefetched


def make_dot_columns(queries: int):
    """The intrinsic ``dot_columns(table, query, query_row, rows, row_size, count, width, out, out_row)``.

    out[q, j] becomes the dot product of query q, ``width`` floats, and row j, ``width`` values of the type of ``table``
    (see Element), for ``queries`` queries and LANES rows from the address ``rows`` on. Only ``count`` rows are read, at
    least 1; the last stands for those beyond. query_row, row_size and out_row are distances in bytes.
    """

    def emit_dots(element, emitter, query, query_row, rows, row_size, count, width, out, out_row):
        builder = emitter.builder
        queries_at = [builder.add(query, builder.mul(query_row, I64(q))) for q in range(queries)]
        last = builder.sub(count, I64(1))
        numbers = [builder.select(builder.icmp_signed("<", I64(j), count), I64(j), last) for j in range(LANES)]
        rows_at = [builder.add(rows, builder.mul(number, row_size)) for number in numbers]
        tail = builder.and_(width, I64(LANES - 1))
        whole = builder.mul(builder.sub(width, tail), I64(4))
        zero, ahead = emitter.constant(0.0), builder.mul(row_size, I64(AHEAD))

        def add(sums, columns, parts):
            for d, column in enumerate(columns):
                sums = [emitter.fma(_splat_lane(emitter, part, d), column, s) for part, s in zip(parts, sums)]
            return sums

        def in_row(start, offset):  # address of the value whose float32 would be at ``offset`` bytes
            return builder.add(start, offset if element.size == 4 else builder.lshr(offset, I64(1)))

        def add_whole(offset, sums):
            places = [in_row(row, offset) for row in rows_at]
            for place in places:
                emitter.prefetch(builder.add(place, ahead), locality=3)
            columns = emit_transpose(emitter, [element.load(emitter, place) for place in places])
            return add(sums, columns, [emitter.load(builder.add(q, offset)) for q in queries_at])

        def add_tail(offset, sums):
            ends = [element.load_first(emitter, in_row(row, whole), tail) for row in rows_at]
            return add(
                sums,
                emit_transpose(emitter, ends),
                [emitter.load_first(builder.add(q, whole), tail, zero) for q in queries_at],
            )

        sums = emitter.loop(whole, 4 * LANES, [zero] * queries, add_whole)
        for q, value in enumerate(emitter.loop(tail, LANES, sums, add_tail)):
            emitter.store(value, builder.add(out, builder.mul(out_row, I64(q))))

    return make_table_routine(f"dot_columns_{queries}", 8, emit_dots, "See make_dot_columns.")


def _splat_lane(emitter: Emitter, vector, lane: int):
    return emitter.builder.shuffle_vector(vector, vector, ir.Constant(emitter.integers, [lane] * LANES))
