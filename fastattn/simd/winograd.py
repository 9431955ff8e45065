"""Transforms of 3x3 convolutions of stride 1: 2x2 places of 4x4 pixels by 16 products instead of 36.

Lavin and Gray 2015, "Fast Algorithms for Convolutional Neural Networks", F(2x2, 3x3).
"""

from numba import types

from fastattn.simd.emit import I64
from fastattn.simd.vector import make_routine

PIXELS = 4  # of a patch's side


def _both_ways(transform, square) -> list[list]:
    """The transform of each row, then of each column."""
    columns = [transform(*column) for column in zip(*(transform(*row) for row in square))]
    return [list(row) for row in zip(*columns)]


def _emit_patch(emitter, table, size, out, distance) -> None:
    """tile(table, size, out, distance): ``size`` bytes of the 16 numbers of a patch, ``distance`` bytes apart.

    table  addresses of its pixels, int64 [4, 4]
    """
    b = emitter.builder
    pixels = [[emitter.read(b.add(table, I64(8 * (PIXELS * i + j))), I64) for j in range(4)] for i in range(4)]
    places = [[b.add(out, b.mul(distance, I64(PIXELS * i + j))) for j in range(4)] for i in range(4)]

    def transform(w, x, y, z):
        return emitter.subtract(w, y), emitter.add(x, y), emitter.subtract(y, x), emitter.subtract(x, z)

    def body(at):
        values = _both_ways(transform, [[emitter.load(b.add(pixel, at)) for pixel in row] for row in pixels])
        for value_4, place_4 in zip(values, places):
            for value, place in zip(value_4, place_4):
                emitter.store(value, b.add(place, at))

    emitter.each(size, emitter.target.lanes * 4, body)


def _emit_places(emitter, products, distance, size, bias, out, row) -> None:
    """tile(products, distance, size, bias, out, row): ``size`` bytes of 2x2 places, rows at out, from 16 products."""
    b = emitter.builder
    sources = [[b.add(products, b.mul(distance, I64(PIXELS * i + j))) for j in range(4)] for i in range(4)]

    def transform(w, x, y, z):
        return emitter.add(emitter.add(w, x), y), emitter.subtract(emitter.subtract(x, y), z)

    def body(at):
        values = _both_ways(transform, [[emitter.load(b.add(source, at)) for source in line] for line in sources])
        start = emitter.load(b.add(bias, at))
        for value, place in zip(values[0] + values[1], emitter.row_addresses(out, row, 4)):
            emitter.store(emitter.add(value, start), b.add(place, at))

    emitter.each(size, emitter.target.lanes * 4, body)


patch_tile = make_routine("patch", (types.intp,) * 4, _emit_patch)
place_tile = make_routine("places", (types.intp,) * 6, _emit_places)
