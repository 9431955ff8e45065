"""Products with the keys and values of a few rows, where they are in memory: reading them is what takes the time.

The sums have the order, and so the bits, of those over packed keys and values: a step is a row of the whole sentence.
``key`` and ``value`` are the sentence's HeadRows, ``like`` an array of their dtype; key s is a tile's first.
"""

from fastattn.kernels.attention.arguments import KEYS
from fastattn.kernels.attention.tiles import columns_of
from fastattn.runtime.jit import inner
from fastattn.simd.rows import AHEAD, make_add_rows, make_dot_columns, prefetch_row
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
