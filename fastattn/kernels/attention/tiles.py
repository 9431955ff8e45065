"""Tiles of attention over whole sentences: packed keys and values, products with them, the online softmax between.

A tile is ROWS query rows by up to KEYS keys. Addresses are in bytes.
"""

import numpy as np

from fastattn.kernels.attention.constants import COLUMNS, KEYS, ROWS, VECTORS, whole_columns
from fastattn.kernels.attention.scores import multiply_row
from fastattn.runtime.jit import inner
from fastattn.simd.constants import SIZE
from fastattn.simd.rows import prefetch_row, transpose, transpose_first
from fastattn.simd.softmax import make_exponentials, make_row_maxima
from fastattn.simd.target import LANES, TARGET
from fastattn.simd.tile import make_tile
from fastattn.simd.vector import exp2, lane, load, load_first, load_scalar, splat, store, store_scalar

score_tile = make_tile(ROWS, VECTORS)
half_score_tile = make_tile(ROWS, 1)  # for the last keys if they fit
value_tile = make_tile(ROWS, VECTORS, accumulate=True)
TOGETHER = ROWS if ROWS * 2 + 8 <= TARGET.registers else 1  # rows whose exponentials are taken at once
row_maxima, row_maximum = make_row_maxima(ROWS), make_row_maxima(1)
exponentials, exponentials_of_one = make_exponentials(TOGETHER), make_exponentials(1)


columns_of = inner(whole_columns)


@inner
def pack_keys(source, row, count, width, target):
    """Pack keys into panels of COLUMNS keys, transposed; copies of the last key pad the last panel."""
    padded = (width + LANES - 1) // LANES * LANES
    for s in range(0, count, LANES):
        panel = target + (s // COLUMNS * padded * COLUMNS + s % COLUMNS) * 4
        start = source + s * row
        for k in range(0, padded, LANES):
            block = panel + k * COLUMNS * 4
            if k + LANES <= width:
                transpose(start + k * 4, row, count - s, LANES, block, COLUMNS * 4)
            else:
                transpose_first(start + k * 4, row, count - s, width - k, block, COLUMNS * 4)


@inner
def pack_values(source, row, count, width, target):
    """Pack values into panels of KEYS rows and COLUMNS columns, padded with zeros."""
    zero = splat(np.float32(0))
    columns = columns_of(width)
    whole = width - width % LANES
    for s in range(count):
        start = source + s * row
        line = target + s * COLUMNS * 4
        for k in range(0, whole, LANES):
            store(load(start + k * 4), line + (k // COLUMNS * KEYS * COLUMNS + k % COLUMNS) * 4)
        for k in range(whole, columns, LANES):
            value = load_first(start + k * 4, width - k, zero) if k < width else zero
            store(value, line + (k // COLUMNS * KEYS * COLUMNS + k % COLUMNS) * 4)


@inner
def multiply_keys(query, keys, width, front, stop, score):
    """Write the scores of a tile's rows and the packed keys ``front`` to ``stop``, padded to whole vectors.

    front  a multiple of COLUMNS
    """
    panel_width = (width + LANES - 1) // LANES * LANES
    for c in range(front, stop, COLUMNS):
        panel = keys + c * panel_width * 4
        if stop - c > LANES:
            score_tile(query, width * 4, panel, COLUMNS * 4, width, score + c * 4, KEYS * 4)
        else:
            half_score_tile(query, width * 4, panel, COLUMNS * 4, width, score + c * 4, KEYS * 4)


@inner
def multiply_values(score, values, front, stop, sums, columns):
    """Add the packed values ``front`` to ``stop``, weighted by a tile's exponentials, to the rows' sums."""
    for c in range(0, columns, COLUMNS):
        panel = values + (c * KEYS + front * COLUMNS) * 4
        value_tile(score + front * 4, KEYS * 4, panel, COLUMNS * 4, stop - front, sums + c * 4, columns * 4)


@inner
def take_exponentials(score, size, count, new_tops, top, total, sums, columns):
    """Replace scores of ``count`` rows by exponentials relative to their maxima, and add these to the rows' totals.

    If a maximum grew, the total and the sums relative to the previous one are rescaled first. ``size`` is in bytes, a
    row of ``sums`` has ``columns`` floats; the others are addresses for the first row.
    """
    for n in range(count):
        now, before = load_scalar(new_tops + n * 4), load_scalar(top + n * 4)
        if now != before:
            store_scalar(now, top + n * 4)
            if before != np.float32(-np.inf):  # else the sums are still empty
                shrink = lane(exp2(splat(before - now)))
                multiply_row(total + n * SIZE, shrink, total + n * SIZE, LANES)
                multiply_row(sums + n * columns * 4, shrink, sums + n * columns * 4, columns)
        if now == np.float32(-np.inf):
            store_scalar(np.float32(0), new_tops + n * 4)  # from here on it is what is subtracted
    if count == ROWS:
        for n in range(0, ROWS, TOGETHER):
            row = score + n * KEYS * 4
            exponentials(row, KEYS * 4, size, new_tops + n * 4, total + n * SIZE)
    else:
        for n in range(count):
            exponentials_of_one(score + n * KEYS * 4, 0, size, new_tops + n * 4, total + n * SIZE)


@inner
def prefetch_rows(address, row, first, stop, width):
    """Prefetch the cache lines of rows ``first`` to ``stop``."""
    for s in range(first, stop):
        prefetch_row(address + s * row, width * 4)
