"""Tiles of attention over whole sentences: packed keys and values, products with them, the online softmax between.

A tile is ROWS query rows by up to KEYS keys. Addresses are in bytes.
"""

import numpy as np

from fastattn.kernels.attention.arguments import COLUMNS, KEYS, ROWS, VECTORS, whole_columns, whole_tiles
from fastattn.kernels.attention.scores import multiply_row, vectors_of
from fastattn.runtime.jit import inner
from fastattn.simd.arguments import SIZE
from fastattn.simd.attention import make_exponentials, make_row_maxima
from fastattn.simd.rows import prefetch_row, transpose, transpose_first
from fastattn.simd.target import LANES, TARGET
from fastattn.simd.tile import make_tile
from fastattn.simd.vector import exp2, lane, load, load_first, load_scalar, splat, store, store_scalar

score_tile = make_tile(ROWS, VECTORS)
half_score_tile = make_tile(ROWS, 1)  # for the last keys if they fit
value_tile = make_tile(ROWS, VECTORS, accumulate=True)
TOGETHER = ROWS if ROWS * 2 + 8 <= TARGET.registers else 1  # rows whose exponentials are taken at once
row_maxima, row_maximum = make_row_maxima(ROWS), make_row_maxima(1)
exponentials, exponentials_of_one = make_exponentials(TOGETHER), make_exponentials(1)

columns_of, tiles_of = inner(whole_columns), inner(whole_tiles)


@inner
def pack_keys(source, step, count, width, target):
    """Pack keys into panels of COLUMNS keys, transposed; copies of the last key pad the last panel."""
    padded = vectors_of(width)
    for s in range(0, count, LANES):
        panel = target + (s // COLUMNS * padded * COLUMNS + s % COLUMNS) * 4
        start = source + s * step
        for k in range(0, padded, LANES):
            block = panel + k * COLUMNS * 4
            if k + LANES <= width:
                transpose(start + k * 4, step, count - s, LANES, block, COLUMNS * 4)
            else:
                transpose_first(start + k * 4, step, count - s, width - k, block, COLUMNS * 4)


@inner
def pack_values(source, step, count, width, target):
    """Pack values into panels of KEYS rows and COLUMNS columns, padded with zeros."""
    zero = splat(np.float32(0))
    columns = columns_of(width)
    whole = width - width % LANES
    for s in range(count):
        start = source + s * step
        line = target + s * COLUMNS * 4
        for k in range(0, whole, LANES):
            store(load(start + k * 4), line + (k // COLUMNS * KEYS * COLUMNS + k % COLUMNS) * 4)
        for k in range(whole, columns, LANES):
            value = load_first(start + k * 4, width - k, zero) if k < width else zero
            store(value, line + (k // COLUMNS * KEYS * COLUMNS + k % COLUMNS) * 4)


@inner
def multiply_keys(query, keys, width, span, score):
    """Write the scores of a tile's rows and the packed keys of a span."""
    panel_width = vectors_of(width)
    for c in range(span.front, span.stop, COLUMNS):
        panel = keys + c * panel_width * 4
        if span.stop - c > LANES:
            score_tile(query, width * 4, panel, COLUMNS * 4, width, score + c * 4, KEYS * 4)
        else:
            half_score_tile(query, width * 4, panel, COLUMNS * 4, width, score + c * 4, KEYS * 4)


@inner
def multiply_values(score, values, span, sums, columns):
    """Add the packed values of a span, weighted by a tile's exponentials, to the rows' sums."""
    for c in range(0, columns, COLUMNS):
        panel = values + (c * KEYS + span.front * COLUMNS) * 4
        count = span.stop - span.front
        value_tile(score + span.front * 4, KEYS * 4, panel, COLUMNS * 4, count, sums + c * 4, columns * 4)


@inner
def take_exponentials(score, size, count, new_maxima, maxima, totals, sums, columns):
    """Replace scores of ``count`` rows by exponentials relative to their maxima, and add these to the rows' totals.

    If a maximum grew, the total and the sums relative to the previous one are rescaled first. ``size`` is in bytes, a
    row of ``sums`` has ``columns`` floats; the others are addresses for the first row.
    """
    for n in range(count):
        now, before = load_scalar(new_maxima + n * 4), load_scalar(maxima + n * 4)
        if now != before:
            store_scalar(now, maxima + n * 4)
            if before != np.float32(-np.inf):  # else the sums are still empty
                shrink = lane(exp2(splat(before - now)))
                multiply_row(totals + n * SIZE, shrink, totals + n * SIZE, LANES)
                multiply_row(sums + n * columns * 4, shrink, sums + n * columns * 4, columns)
        if now == np.float32(-np.inf):
            store_scalar(np.float32(0), new_maxima + n * 4)  # from here on it is what is subtracted
    if count == ROWS:
        for n in range(0, ROWS, TOGETHER):
            row = score + n * KEYS * 4
            exponentials(row, KEYS * 4, size, new_maxima + n * 4, totals + n * SIZE)
    else:
        for n in range(count):
            exponentials_of_one(score + n * KEYS * 4, 0, size, new_maxima + n * 4, totals + n * SIZE)


@inner
def prefetch_rows(address, step, first, stop, width):
    """Prefetch the cache lines of rows ``first`` to ``stop``."""
    for s in range(first, stop):
        prefetch_row(address + s * step, width * 4)
