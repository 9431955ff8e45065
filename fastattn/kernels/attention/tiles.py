"""Tiles of attention over whole sentences: packed keys and values, products with them, the online softmax between.

A tile is ROWS query rows by up to KEYS keys. Addresses are in bytes. ``like`` is an array of the type of queries, keys
and values: float32, or uint16 for bfloat16, int16 for float16, which Numba lacks. All is computed in float32.

A few rows read keys and values where they are in memory (``key`` and ``value``, the sentence's HeadRows; key s is a
tile's first): reading them is what takes the time. The sums have the order, and so the bits, of those over packed keys
and values: a step is a row of the whole sentence.
"""

import numpy as np
from numba import types

from fastattn.kernels.attention.arguments import COLUMNS, KEYS, ROWS, VECTORS, whole_columns, whole_tiles
from fastattn.kernels.attention.scores import multiply_row, vectors_of
from fastattn.runtime.jit import inner, inner_overload
from fastattn.simd.arguments import SIZE
from fastattn.simd.attention import make_exponentials, make_row_maxima
from fastattn.simd.rows import (
    AHEAD,
    make_add_rows,
    make_dot_columns,
    prefetch_row,
    transpose,
    transpose_first,
    widen_row,
)
from fastattn.simd.target import LANES, TARGET
from fastattn.simd.tile import make_tile, pair_bfloat16, store_bfloat16, store_first_bfloat16, store_first_float16
from fastattn.simd.vector import exp2, lane, load, load_first, load_scalar, splat, store, store_index, store_scalar

score_tile = make_tile(ROWS, VECTORS)
half_score_tile = make_tile(ROWS, 1)  # for the last keys if they fit
value_tile = make_tile(ROWS, VECTORS, accumulate=True)
narrow_score_tile, half_narrow_score_tile = (make_tile(ROWS, n, precision="bfloat16") for n in (VECTORS, 1))
narrow_value_tile = make_tile(ROWS, VECTORS, accumulate=True, precision="bfloat16")
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


# Products in bfloat16, whose operands take the first half of the room that those in float32 had.


@inner
def narrow_row(row, count):
    """Round ``count`` floats, whole vectors, in place."""
    for k in range(0, count, LANES):
        store_bfloat16(load(row + k * 4), row + k * 2)


@inner
def narrow_panels(panels, count, size, steps):
    """Make pairs of ``count`` panels' first ``steps`` rows, in place; panels are ``size`` bytes."""
    for panel in range(panels, panels + count * size, size):
        for k in range(0, steps, 2):
            source, target = panel + k * COLUMNS * 4, panel + k * COLUMNS * 2
            for j in range(0, COLUMNS, LANES):
                store(pair_bfloat16(load(source + j * 4), load(source + (COLUMNS + j) * 4)), target + j * 4)


@inner
def narrow_values(values, count, columns):
    """``narrow_panels`` of ``count`` packed values; behind an odd one is a row of zeros."""
    for c in range(0, columns, COLUMNS):
        if count % 2 == 1:
            for j in range(0, COLUMNS, LANES):
                store(splat(np.float32(0)), values + (c * KEYS + count * COLUMNS + j) * 4)
    narrow_panels(values, columns // COLUMNS, KEYS * COLUMNS * 4, count)


@inner
def multiply_narrow_keys(query, keys, width, span, score):
    """``multiply_keys`` of whole vectors."""
    for c in range(span.front, span.stop, COLUMNS):
        panel, target = keys + c * width * 4, score + c * 4
        if span.stop - c > LANES:
            narrow_score_tile(query, width * 2, panel, COLUMNS * 4, width // 2, target, KEYS * 4)
        else:
            half_narrow_score_tile(query, width * 2, panel, COLUMNS * 4, width // 2, target, KEYS * 4)


@inner
def multiply_narrow_values(score, values, span, sums, columns):
    """``multiply_values`` of a span of all packed keys; the exponentials are rounded in place."""
    for n in range(ROWS):
        narrow_row(score + n * KEYS * 4, span.whole)
    for c in range(0, columns, COLUMNS):
        steps = (span.stop + 1) // 2
        narrow_value_tile(score, KEYS * 4, values + c * KEYS * 4, COLUMNS * 4, steps, sums + c * 4, columns * 4)


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


@inner_overload
def scale_row(like, source, factor, target, width):
    """Write a row times ``factor`` as float32."""
    if like.dtype == types.float32:
        return lambda like, source, factor, target, width: multiply_row(source, factor, target, width)

    def run(like, source, factor, target, width):
        widen_row(like, source, target, width)
        multiply_row(target, factor, target, width)

    return run


@inner_overload
def widened(like, source, step, count, width, target):
    """(address, step) of ``count`` rows as float32: the rows themselves, or those written to ``target``."""
    if like.dtype == types.float32:
        return lambda like, source, step, count, width, target: (source, step)

    def run(like, source, step, count, width, target):
        for n in range(count):
            widen_row(like, source + n * step, target + n * width * 4, width)
        return target, width * 4

    return run


@inner_overload
def write_row(like, source, factor, target, width):
    """Write a row of float32, in scratch of whole vectors, times ``factor`` in the type of ``like``."""
    if like.dtype == types.float32:
        return lambda like, source, factor, target, width: multiply_row(source, factor, target, width)
    store_first = store_first_float16 if like.dtype == types.int16 else store_first_bfloat16

    def narrow(like, source, factor, target, width):
        multiplier = splat(factor)
        for k in range(0, width, LANES):
            store_first(load(source + k * 4) * multiplier, target + k * 2, min(LANES, width - k))

    return narrow


FEW = 4  # rows; more are quicker with packed keys
VALUE_VECTORS = 4 if TARGET.rows * TARGET.vectors > FEW * 4 else 2  # of each sum, in registers

dot_columns, dot_columns_of_few = make_dot_columns(1), make_dot_columns(FEW)
add_rows, add_rows_of_few = make_add_rows(1, VALUE_VECTORS), make_add_rows(FEW, VALUE_VECTORS)


@inner
def write_indices(indices):
    """Write the numbers of KEYS adjacent rows."""
    for n in range(KEYS):
        store_index(n, indices + n * 4)


@inner
def multiply_keys_of_few(like, query, count, key, s, width, span, score):
    """Write the scores of ``count`` rows and a span of keys; the last key stands for those beyond the stop."""
    for c in range(span.front, span.stop, LANES):
        rows, step, keys = key.address + (s + c) * key.row_step, key.row_step, span.stop - c
        if count == 1:
            dot_columns(like, query, width * 4, rows, step, keys, width, score + c * 4, KEYS * 4)
        else:
            dot_columns_of_few(like, query, width * 4, rows, step, keys, width, score + c * 4, KEYS * 4)


@inner
def multiply_values_of_few(like, score, count, value, s, width, span, sums, indices):
    """Add the values of a span, weighted by the exponentials of ``count`` rows, to their sums."""
    step, columns = value.row_step, columns_of(width)
    most = KEYS if step == width * like.itemsize else LANES
    for c in range(span.front, span.stop, most):
        rows, weight, keys = value.address + (s + c) * step, score + c * 4, min(most, span.stop - c)
        if most == LANES:  # rows apart are nothing that the hardware's prefetcher knows
            prefetch_values(like, rows + AHEAD * step, step, width)
        if count == 1:
            add_rows(like, weight, KEYS * 4, rows, step, indices, keys, width, sums, columns * 4)
        else:
            add_rows_of_few(like, weight, KEYS * 4, rows, step, indices, keys, width, sums, columns * 4)


@inner
def prefetch_values(like, rows, step, width):
    """Prefetch LANES rows of values."""
    for n in range(LANES):
        prefetch_row(rows + n * step, width * like.itemsize)
