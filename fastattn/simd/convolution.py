"""Tiles of convolutions of images, whose pixels are rows: by runs of taps, by single channels, by patches of pixels."""

from numba import types

from fastattn.simd.arguments import Panels, Rows
from fastattn.simd.emit import I64
from fastattn.simd.target import TARGET
from fastattn.simd.tile import arithmetic_of, emit_sums
from fastattn.simd.vector import as_array_routine, as_routine


def make_run_tile(rows: int, vectors: int = TARGET.vectors):
    """The intrinsic ``tile(weights, table, runs, steps, panels, out, bias)`` of rows that consist of runs; float32.

    weights  an array of packed weights, for its dtype only.
    table    addresses, int64 [runs, rows]: a row of A is made of ``runs`` runs of ``steps`` numbers each.
    panels   Panels: one.
    out      Rows, written: ``vectors`` vectors each, whose sums start from the bias.
    """

    def emit(arithmetic, emitter, table, runs, steps, panels, out, bias):
        builder, columns = emitter.builder, [I64(j * emitter.target.lanes * 4) for j in range(vectors)]
        b_step = I64(emitter.target.columns * arithmetic.b_bytes)

        def add(_, values):
            entries, b, ahead, *sums = values
            a_rows = [emitter.read(builder.add(entries, I64(8 * n)), I64) for n in range(rows)]
            sums = emit_sums(emitter, arithmetic, a_rows, [b], b_step, steps, sums, vectors, (ahead, panels.ahead_step))
            b = builder.add(b, builder.mul(steps, b_step))
            ahead = builder.add(ahead, builder.mul(steps, panels.ahead_step))
            return [builder.add(entries, I64(8 * rows)), b, ahead, *sums]

        starts = [emitter.load(builder.add(bias, column)) for column in columns] * rows
        _, _, _, *sums = emitter.loop(runs, 1, [table, panels.address, panels.ahead, *starts], add)
        targets = [builder.add(row, column) for row in emitter.row_addresses(*out, rows) for column in columns]
        for value, target in zip(sums, targets, strict=True):
            emitter.store(value, target)

    return as_array_routine(f"run_{rows}_{vectors}", [None, None, None, Panels, Rows, None], arithmetic_of)(emit)


def make_filter_tile(rows: int):
    """The intrinsic ``tile(weights, table, taps, skip, channels, filters, bias, out)`` of depthwise filters.

    weights   an array of float32, for its dtype only.
    table     addresses of pixels, int64 [taps, rows].
    skip      the byte at which the first channel begins in a pixel, in a row of filters and in the bias.
    channels  the number of channels from ``skip`` on; the tile takes zeros for a panel's further columns.
    filters   Rows: one a tap.
    out       Rows, written: a panel's columns each.
    """

    def emit(_, emitter, table, taps, skip, channels, filters, bias, out):
        builder, lanes, vectors = emitter.builder, emitter.target.lanes, emitter.target.vectors
        zero = emitter.constant(0.0)

        def line(address, load):
            return [load(builder.add(address, I64(j * lanes * 4)), j) for j in range(vectors)]

        def sums_by(load):
            def add(_, values):
                entries, row, *sums = values
                weights = line(row, load) * rows
                pixels = [builder.add(emitter.read(builder.add(entries, I64(8 * n)), I64), skip) for n in range(rows)]
                pixels = [value for pixel in pixels for value in line(pixel, load)]
                sums = [emitter.fma(*operands) for operands in zip(pixels, weights, sums, strict=True)]
                return [builder.add(entries, I64(8 * rows)), builder.add(row, filters.distance), *sums]

            starts = line(builder.add(bias, skip), load) * rows
            _, _, *sums = emitter.loop(taps, 1, [table, builder.add(filters.address, skip), *starts], add)
            for n, row in enumerate(emitter.row_addresses(*out, rows)):
                for j, value in enumerate(sums[n * vectors : (n + 1) * vectors]):
                    emitter.store(value, builder.add(row, I64(j * lanes * 4)))

        with builder.if_else(builder.icmp_signed(">=", channels, I64(emitter.target.columns))) as (whole, part):
            with whole:
                sums_by(lambda address, _: emitter.load(address))
            with part:
                sums_by(lambda address, j: emitter.load_first(address, builder.sub(channels, I64(j * lanes)), zero))

    forms = [None, None, None, None, Rows, None, Rows]
    return as_array_routine(f"filter_{rows}", forms, arithmetic_of)(emit)


# Transforms of 3x3 convolutions of stride 1: 2x2 outputs of 4x4 pixels by 16 products instead of 36.
# Lavin and Gray 2015, "Fast Algorithms for Convolutional Neural Networks", F(2x2, 3x3).
PIXELS = 4  # pixels of a patch's side


def _both_ways(transform, square) -> list[list]:
    """The transform of each row, then of each column."""
    columns = [transform(*column) for column in zip(*(transform(*row) for row in square))]
    return [list(row) for row in zip(*columns)]


@as_routine("patch", *[types.intp] * 4)
def patch_tile(emitter, table, size, out, distance) -> None:
    """Write ``size`` bytes of each of a patch's 16 transformed pixels, ``distance`` bytes apart.

    table  addresses of the patch's pixels, int64 [4, 4]
    """
    b = emitter.builder
    pixels = [[emitter.read(b.add(table, I64(8 * (PIXELS * i + j))), I64) for j in range(4)] for i in range(4)]
    targets = [[b.add(out, b.mul(distance, I64(PIXELS * i + j))) for j in range(4)] for i in range(4)]

    def transform(w, x, y, z):
        return emitter.subtract(w, y), emitter.add(x, y), emitter.subtract(y, x), emitter.subtract(x, z)

    def body(offset):
        values = _both_ways(transform, [[emitter.load(b.add(pixel, offset)) for pixel in row] for row in pixels])
        for value_4, target_4 in zip(values, targets):
            for value, target in zip(value_4, target_4):
                emitter.store(value, b.add(target, offset))

    emitter.for_each(size, emitter.target.lanes * 4, body)


@as_routine("places", *[types.intp] * 6)
def place_tile(emitter, products, distance, size, bias, out, row) -> None:
    """Write ``size`` bytes of each of a patch's 2x2 outputs, plus the bias, from its 16 products to rows of ``out``."""
    b = emitter.builder
    sources = [[b.add(products, b.mul(distance, I64(PIXELS * i + j))) for j in range(4)] for i in range(4)]

    def transform(w, x, y, z):
        return emitter.add(emitter.add(w, x), y), emitter.subtract(emitter.subtract(x, y), z)

    def body(offset):
        values = _both_ways(transform, [[emitter.load(b.add(source, offset)) for source in line] for line in sources])
        start = emitter.load(b.add(bias, offset))
        for value, target in zip(values[0] + values[1], emitter.row_addresses(out, row, 4)):
            emitter.store(emitter.add(value, start), b.add(target, offset))

    emitter.for_each(size, emitter.target.lanes * 4, body)
