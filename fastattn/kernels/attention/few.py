"""Products with the keys and values of a few rows, where they are in memory: reading them is what takes the time.

The sums have the order, and so the bits, of those over packed keys and values: a step is a row of the whole sentence.
Tuples: key and value (address of the sentence's first row, distance of rows), span (front, stop) of a tile's keys.
"""

from fastattn.kernels.attention.constants import KEYS
from fastattn.runtime.jit import inner
from fastattn.simd.columns import AHEAD, make_dot_columns
from fastattn.simd.rows import make_add_rows, prefetch_row
from fastattn.simd.target import LANES, TARGET
from fastattn.simd.vector import store_index

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
def multiply_keys_of_few(table, query, count, key, s, width, span, score):
    """Write the scores of ``count`` rows and a span of keys, up to whole vectors; key s is the tile's first.

    The last key stands for those beyond the stop.
    """
    front, stop = span
    for c in range(front, stop, LANES):
        rows, row = key[0] + (s + c) * key[1], key[1]
        if count == 1:
            dot_columns(table, query, width * 4, rows, row, stop - c, width, score + c * 4, KEYS * 4)
        else:
            dot_columns_of_few(table, query, width * 4, rows, row, stop - c, width, score + c * 4, KEYS * 4)


@inner
def multiply_values_of_few(table, score, count, value, s, width, span, sums, columns, indices):
    """Add the values of a span, weighted by the exponentials of ``count`` rows, to their sums."""
    front, stop = span
    row, step = value[1], KEYS if value[1] == width * table.itemsize else LANES
    for c in range(front, stop, step):
        rows, weight, keys = value[0] + (s + c) * row, score + c * 4, min(step, stop - c)
        if step == LANES:  # rows apart are nothing that the hardware's prefetcher knows
            prefetch_values(table, rows + AHEAD * row, row, width)
        if count == 1:
            add_rows(table, weight, KEYS * 4, rows, row, indices, keys, width, sums, columns * 4)
        else:
            add_rows_of_few(table, weight, KEYS * 4, rows, row, indices, keys, width, sums, columns * 4)


@inner
def prefetch_values(table, rows, row, width):
    """Prefetch LANES rows of values."""
    for n in range(LANES):
        prefetch_row(rows + n * row, width * table.itemsize)
