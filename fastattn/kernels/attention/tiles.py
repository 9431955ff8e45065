"""Tiles of attention over whole sentences: packed keys and values, their products, and the online softmax between.

A tile is ROWS query rows by up to KEYS keys, in tile registers NARROW_ROWS rows. Addresses are in bytes. ``like`` is an
array of the type of queries, keys and values: float32, or uint16 for bfloat16, int16 for float16, which Numba lacks.
Tiles compute in float32.

A few rows read keys and values in place (``key`` and ``value``, the sentence's HeadRows; key s is a tile's first key),
since most of the time goes to reading them. Their sums have the order of sums over packed keys and values, so a step
has the bits of its row of the whole sentence.

The type of ``product`` and ``details`` says, when the kernel is compiled, what a score is:

dot products            0: in float32; uint16 [0]: in bfloat16, like the products with values
additive attention      [H, D + 1] of ``vector_factors``; flags_BH: whether a head's queries and keys are exponentials
disentangled attention  the tables and the layout of ``PackedDistances``: dot products, and products with distances

Additive attention's scores (Bahdanau 2015) are v . tanh(q + k): ``add_keys`` takes the rows, packed keys and scores of
``multiply_keys``, and v. Queries and keys may be exponentials, e**2q and e**2k (``exponentiate``): an element then
costs half a division and a few multiply-adds instead of a tanh. No sum of a query and a key is stored. One Zen 5 core
(AVX-512), ns for each of T S D elements at T = S = 512, D = 128, the whole attention: 0.124 with tanh, 0.057 with
exponentials and a division each, 0.043 with a division for two elements, as with one for four. np.tanh alone: 0.39.

Disentangled attention's scores (He 2021) are products of contents, and of a content with the rows of a distance:

    score(t, s) = q_t k_s' + q_t p(s - t)' + k_s r(s - t)'

p are keys of distances (content to position), r queries of them (position to content); a model may lack either. The
rows lie by distance, so neither product needs a gather: the scores q_t p' of a query lie side by side for adjacent
keys, the scores k_s r' of a key for adjacent queries. The first are a tile of the query rows times the packed p of the
tile's distances. The second go for a strip of query rows at once, since ROWS rows would need as many distances as keys:
a tile of keys times the packed r, DISTANCE_KEYS keys at a time, transposed into the strip, one row a query. One core
with AVX-512, at (8, 12, 512, 64): 2.2 times the time of plain attention, and twice its products.
"""

from collections import namedtuple

import numpy as np
from numba import types

from fastattn.kernels.attention.arguments import (
    CHUNK_FLOATS,
    COLUMNS,
    DISTANCE_KEYS,
    KEYS,
    NARROW_ROWS,
    NARROW_STEP,
    ROWS,
    SCORE_ROW,
    STRIP,
    TILE_FLOATS,
    VECTORS,
    whole_columns,
    whole_tiles,
)
from fastattn.kernels.attention.scores import multiply_row, vectors_of
from fastattn.runtime.jit import inner, inner_overload
from fastattn.simd.amx import configure_tiles, release_tiles
from fastattn.simd.amx_attention import amx_scores, make_amx_values
from fastattn.simd.arguments import SIZE
from fastattn.simd.attention import make_exponentials, make_row_maxima, make_tanh_tile
from fastattn.simd.memory import address, load, load_first, load_part, load_scalar, store, store_part, store_scalar
from fastattn.simd.rows import (
    AHEAD,
    copy_floats,
    make_add_rows,
    make_dot_columns,
    prefetch_row,
    transpose,
    transpose_first,
    widen_row,
)
from fastattn.simd.target import LANES, TARGET
from fastattn.simd.tile import make_tile, pair_bfloat16, store_bfloat16, store_first_bfloat16, store_first_float16
from fastattn.simd.vector import exp, exp2, lane, maximum, minimum, splat

score_tile = make_tile(ROWS, VECTORS)
half_score_tile = make_tile(ROWS, 1)  # for the last keys if one vector holds them
value_tile = make_tile(ROWS, VECTORS, accumulate=True)
narrow_score_tile, half_narrow_score_tile = (make_tile(ROWS, n, precision="bfloat16") for n in (VECTORS, 1))
narrow_value_tile = make_tile(ROWS, VECTORS, accumulate=True, precision="bfloat16")
EXPONENTIAL_ROWS = ROWS if ROWS * 2 + 8 <= TARGET.registers else 1  # rows whose exponentials are taken at once
row_maxima, row_maximum = make_row_maxima(ROWS), make_row_maxima(1)
exponentials, exponentials_of_one = make_exponentials(EXPONENTIAL_ROWS), make_exponentials(1)
amx_values = make_amx_values(KEYS, SCORE_ROW)
FEW = 4  # rows that read keys in place; more rows are quicker with packed keys
VALUE_VECTORS = 4 if TARGET.rows * TARGET.vectors > FEW * 4 else 2  # vectors of each row's sum, in registers
dot_columns, dot_columns_of_few = make_dot_columns(1), make_dot_columns(FEW)
add_rows, add_rows_of_few = make_add_rows(1, VALUE_VECTORS), make_add_rows(FEW, VALUE_VECTORS)
# e**(2 CUT) and its inverse are float32. ``exponentiate`` cuts x at +-CUT: tanh(a + b) is still 1 where a is cut and
# b is not below -35.
CUT = 44.0
ADDITIVE_ROWS = ROWS // 2  # rows of additive scores, whose sums stay in registers with all that a division needs
exponential_tile, half_exponential_tile = (make_tanh_tile(ADDITIVE_ROWS, vectors, True) for vectors in (VECTORS, 1))
plain_tile, half_plain_tile = (make_tanh_tile(ADDITIVE_ROWS, vectors, False) for vectors in (VECTORS, 1))

# Additive attention: the address of ``vector_factors``, 0 where scores are products; whether queries and keys are
# exponentials.
AdditiveHead = namedtuple("AdditiveHead", "factors exponential")
# Disentangled attention: packed keys and queries of distances; the width of their rows; ``bound``, the greatest
# distance in whole vectors; ``reach``, the column of the distance 0.
DistanceHead = namedtuple("DistanceHead", "keys queries width bound reach")

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
            score_tile(query, width * 4, panel, COLUMNS * 4, width, score + c * 4, SCORE_ROW)
        else:
            half_score_tile(query, width * 4, panel, COLUMNS * 4, width, score + c * 4, SCORE_ROW)


# Products in bfloat16: pairs of adjacent values, of keys along a row and of values down a column, lie side by side.


@inner
def narrow_keys(count):
    """``count`` keys rounded up to whole steps of the products with values."""
    return (count + NARROW_STEP - 1) // NARROW_STEP * NARROW_STEP


@inner_overload
def begin_products(product):
    """Configure this thread's tile registers if narrow products use them, until ``end_products``."""
    return (lambda product: configure_tiles(NARROW_ROWS)) if _in_registers(product) else lambda product: None


@inner_overload
def end_products(product):
    return (lambda product: release_tiles()) if _in_registers(product) else lambda product: None


@inner
def narrow_row(source, factor, target, width):
    """Write ``width`` floats times ``factor`` as bfloat16, in whole vectors; source and target may be one."""
    multiplier = splat(factor)
    for k in range(0, width, LANES):
        store_bfloat16(load(source + k * 4) * multiplier, target + k * 2)


@inner
def pack_narrow_keys(source, step, count, width, target, spare):
    """``pack_keys`` of pairs of bfloat16: a word of two values takes the place of a float."""
    for s in range(count):
        narrow_row(source + s * step, np.float32(1), spare + s * width * 2, width)
    pack_keys(spare, width * 2, count, width // 2, target)


@inner
def pack_narrow_values(source, step, count, width, target):
    """``pack_values`` of pairs of rows in bfloat16; rows of zeros fill the last NARROW_STEP."""
    zero, columns = splat(np.float32(0)), columns_of(width)
    for s in range(0, narrow_keys(count), 2):
        start, line = source + s * step, target + s * COLUMNS * 2
        for k in range(0, columns, LANES):
            first = load_part(start + k * 4, width - k, zero) if s < count and k < width else zero
            second = load_part(start + step + k * 4, width - k, zero) if s + 1 < count and k < width else zero
            store(pair_bfloat16(first, second), line + (k // COLUMNS * KEYS * COLUMNS * 2) + k % COLUMNS * 4)


@inner
def rescale(count, new_maxima, maxima, totals, sums, columns):
    """Rescale the totals and the sums of ``count`` rows whose maxima grew, and turn maxima into what is subtracted.

    A row of ``sums`` has ``columns`` floats; all other arguments are addresses for the first row.
    """
    for n in range(count):
        maximum, previous = load_scalar(new_maxima + n * 4), load_scalar(maxima + n * 4)
        if maximum != previous:
            store_scalar(maximum, maxima + n * 4)
            if previous != np.float32(-np.inf):  # else the sums are still empty
                shrink = lane(exp2(splat(previous - maximum)))
                multiply_row(totals + n * SIZE, shrink, totals + n * SIZE, LANES)
                multiply_row(sums + n * columns * 4, shrink, sums + n * columns * 4, columns)
        if maximum == np.float32(-np.inf):
            store_scalar(np.float32(0), new_maxima + n * 4)  # from here on the value that is subtracted


@inner_overload
def take_exponentials(product, score, size, count, shifts, totals):
    """Replace scores of ``count`` rows by exponentials relative to ``shifts``, and add these to the rows' totals.

    ``size`` is in bytes; the other arguments are addresses for the first row. ``add_values`` does it in tile registers.
    """
    is_later = _in_registers(product)

    def run(product, score, size, count, shifts, totals):
        if count < ROWS:
            for n in range(count):
                exponentials_of_one(score + n * SCORE_ROW, 0, size, shifts + n * 4, totals + n * SIZE)
        elif not is_later:
            for n in range(0, ROWS, EXPONENTIAL_ROWS):
                exponentials(score + n * SCORE_ROW, SCORE_ROW, size, shifts + n * 4, totals + n * SIZE)

    return run


@inner
def prefetch_rows(rows, step, first, stop, width):
    """Prefetch the cache lines of rows ``first`` to ``stop``."""
    for s in range(first, stop):
        prefetch_row(rows + s * step, width * 4)


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


@inner
def multiply_keys_of_few(like, query, count, key, s, width, span, score):
    """Write the scores of ``count`` rows and a span of keys; the last key stands for keys beyond the stop."""
    for c in range(span.front, span.stop, LANES):
        rows, step, keys = key.address + (s + c) * key.row_step, key.row_step, span.stop - c
        if count == 1:
            dot_columns(like, query, width * 4, rows, step, keys, width, score + c * 4, SCORE_ROW)
        else:
            dot_columns_of_few(like, query, width * 4, rows, step, keys, width, score + c * 4, SCORE_ROW)


@inner
def multiply_values_of_few(like, score, count, value, s, width, span, sums, indices):
    """Add the values of a span, weighted by the exponentials of ``count`` rows, to their sums."""
    step, columns = value.row_step, columns_of(width)
    step_keys = KEYS if step == width * like.itemsize else LANES
    for c in range(span.front, span.stop, step_keys):
        rows, weight, keys = value.address + (s + c) * step, score + c * 4, min(step_keys, span.stop - c)
        if step_keys == LANES:  # the hardware's prefetcher does not foresee rows that lie apart
            prefetch_values(like, rows + AHEAD * step, step, width)
        if count == 1:
            add_rows(like, weight, SCORE_ROW, rows, step, indices, keys, width, sums, columns * 4)
        else:
            add_rows_of_few(like, weight, SCORE_ROW, rows, step, indices, keys, width, sums, columns * 4)


@inner
def prefetch_values(like, rows, step, width):
    """Prefetch LANES rows of values."""
    for n in range(LANES):
        prefetch_row(rows + n * step, width * like.itemsize)


@inner
def exponentiate(floats, count):
    """x = e**(2 x) of ``count`` floats at an address, each cut to CUT; NaN stays."""
    zero, low, high = splat(np.float32(0)), splat(np.float32(-CUT)), splat(np.float32(CUT))
    for n in range(0, count, LANES):
        value = minimum(high, maximum(low, load_part(floats + n * 4, count - n, zero)))
        store_part(exp(value + value), floats + n * 4, count - n)


@inner
def exponentiate_keys(keys, count, width):
    """``exponentiate`` of ``count`` keys that ``pack_keys`` packed."""
    panel_width = vectors_of(width)
    for c in range(0, count, COLUMNS):
        exponentiate(keys + c * panel_width * 4, width * COLUMNS)


@inner
def add_keys(query, keys, width, span, score, head):
    """Write the scores of a tile's rows and the packed keys of a span; ``head`` is an AdditiveHead."""
    factors = head.factors
    panel_width = vectors_of(width)
    for c in range(span.front, span.stop, COLUMNS):
        panel = keys + c * panel_width * 4
        for i in range(0, ROWS, ADDITIVE_ROWS):
            rows, target = query + i * width * 4, score + i * SCORE_ROW + c * 4
            if head.exponential:
                if span.stop - c > LANES:
                    exponential_tile(rows, width * 4, panel, COLUMNS * 4, width, factors, target, SCORE_ROW)
                else:
                    half_exponential_tile(rows, width * 4, panel, COLUMNS * 4, width, factors, target, SCORE_ROW)
            elif span.stop - c > LANES:
                plain_tile(rows, width * 4, panel, COLUMNS * 4, width, factors, target, SCORE_ROW)
            else:
                half_plain_tile(rows, width * 4, panel, COLUMNS * 4, width, factors, target, SCORE_ROW)


@inner
def within(distance, bound):
    """The distance, or the nearest within the bound."""
    return max(min(distance, bound), -bound)


@inner
def multiply_distances(rows, table, width, first, last, score, step):
    """Write products of ROWS rows and the packed rows of columns ``first`` to ``last``, by whole vectors.

    score  the address for the panel of ``first``
    """
    panels = first // COLUMNS * COLUMNS
    for c in range(panels, last + 1, COLUMNS):
        panel, target = table + c * width * 4, score + (c - panels) * 4
        if c + LANES <= first:
            half_score_tile(rows, width * 4, panel + SIZE, COLUMNS * 4, width, target + SIZE, step)
        elif last - c >= LANES:
            score_tile(rows, width * 4, panel, COLUMNS * 4, width, target, step)
        else:
            half_score_tile(rows, width * 4, panel, COLUMNS * 4, width, target, step)


@inner
def distances_of_keys(t, rows, first, last, bound):
    """The least and the greatest distance t - s that ``write_strip`` reads for rows from t on and keys of a chunk."""
    tail = LANES - 1
    least = min(max(t - last, -bound - tail), bound - tail)
    return least, max(min(t + rows - 1 - first, bound + tail), tail - bound)


@inner
def write_strip(head, i, block_rows, s, count, key, scratch):
    """Write the position-to-content scores of a strip of rows, the block's from i on, and ``count`` keys from s on."""
    width, bound, reach = head.width, head.bound, head.reach
    t, strip = block_rows.first + i, scratch + ROWS * TILE_FLOATS * 4
    chunk = strip + STRIP * KEYS * 4
    copies = chunk + DISTANCE_KEYS * CHUNK_FLOATS * 4
    rows = vectors_of(min(STRIP, tiles_of(block_rows.length) - i))
    for c in range(0, count, DISTANCE_KEYS):
        last = min(c + DISTANCE_KEYS, count) - 1
        base = (distances_of_keys(t, rows, s + c, s + last, bound)[0] + reach) // COLUMNS
        for j in range(c, last + 1, ROWS):
            for n in range(ROWS):
                copy_floats(key.address + (s + min(j + n, last)) * key.row_step, copies + n * width * 4, width)
            least, greatest = distances_of_keys(t, rows, s + j, s + min(j + ROWS - 1, last), bound)
            target = chunk + ((j - c) * CHUNK_FLOATS + ((least + reach) // COLUMNS - base) * COLUMNS) * 4
            multiply_distances(copies, head.queries, width, least + reach, greatest + reach, target, CHUNK_FLOATS * 4)
        for j in range(c, last + 1, LANES):
            for n in range(0, rows, LANES):
                column = within(t + n - s - j, bound) + reach - base * COLUMNS
                source = chunk + ((j - c) * CHUNK_FLOATS + column) * 4
                # the next key is one farther from each query
                transpose(source, (CHUNK_FLOATS - 1) * 4, last + 1 - j, LANES, strip + (n * KEYS + j) * 4, KEYS * 4)


@inner
def add_distances(head, position, query, span, score, scratch):
    """Add the products with the distances' rows to those of a tile's rows and a span of keys.

    Rows beyond the block's last query are copies of it.
    """
    bound, reach, s, t = head.bound, head.reach, position.key, position.query
    front, whole = span.front, span.whole
    first = within(s + front - t - ROWS + 1, bound) + reach
    if head.keys != 0:
        last = within(s + whole - LANES - t, bound) + LANES - 1 + reach
        multiply_distances(query, head.keys, head.width, first, last, scratch, TILE_FLOATS * 4)
    strip = scratch + (ROWS * TILE_FLOATS + position.row % STRIP * KEYS) * 4
    for n in range(ROWS):
        line, m = score + n * SCORE_ROW, min(n, position.last_query - t)
        row, strip_row = scratch + (n * TILE_FLOATS + reach - first // COLUMNS * COLUMNS) * 4, strip + m * KEYS * 4
        for c in range(front, whole, LANES):
            total = load(line + c * 4)
            if head.keys != 0:
                total = total + load(row + within(s + c - t - m, bound) * 4)
            if head.queries != 0:
                total = total + load(strip_row + c * 4)
            store(total, line + c * 4)


def _score_kind(product) -> str:
    """The kind of score, by the Numba type of ``product``: see the top of the file."""
    return "exact" if isinstance(product, types.Integer) else ("rounded", "additive", "disentangled")[product.ndim - 1]


def _in_registers(product) -> bool:
    return _score_kind(product) == "rounded" and "bfloat16" in TARGET.tiles


@inner_overload
def is_dot(product):
    """Whether scores are dot products."""
    dot = _score_kind(product) in ("exact", "rounded")
    return (lambda product: True) if dot else (lambda product: False)


@inner_overload
def tile_rows(product):
    """Rows of a tile."""
    height = NARROW_ROWS if _score_kind(product) == "rounded" else ROWS
    return lambda product: height


@inner_overload
def whole_keys(product, stop):
    """``stop`` keys rounded up to whole vectors of a row of scores, of which tile registers take two."""
    step = NARROW_STEP if _in_registers(product) else LANES
    return lambda product, stop: (stop + step - 1) // step * step


@inner_overload
def product_head(product, details, b, h):
    """A head's part of the details: an AdditiveHead or a DistanceHead."""

    def disentangled(product, details, b, h):
        (_, H, P), layout_L = product.shape, details
        first = address(product) + h * P * 4
        keys = first if layout_L[0] != 0 else 0
        queries = first + layout_L[0] * H * P * 4 if layout_L[1] != 0 else 0
        return DistanceHead(keys, queries, layout_L[2], layout_L[3], layout_L[4])

    def additive(product, details, b, h):
        return AdditiveHead(address(product) + h * product.shape[1] * 4, details[b, h] != 0)

    def dot(product, details, b, h):
        return AdditiveHead(0, False)

    return {"disentangled": disentangled, "additive": additive}.get(_score_kind(product), dot)


@inner_overload
def prepare_query(product, head, like, source, factor, target, width, few):
    """Write a query times ``factor`` as its tile's products take it; a block of ``few`` rows takes float32."""

    def exact(product, head, like, source, factor, target, width, few):
        scale_row(like, source, factor, target, width)

    def rounded(product, head, like, source, factor, target, width, few):
        if few:
            scale_row(like, source, factor, target, width)
        else:
            narrow_row(source, factor, target, width)

    def additive(product, head, like, source, factor, target, width, few):
        scale_row(like, source, factor, target, width)
        if head.exponential:
            exponentiate(target, width)

    return {"rounded": rounded, "additive": additive}.get(_score_kind(product), exact)


@inner_overload
def prepare_keys(product, head, source, step, count, width, target, spare):
    """Pack keys for the products, as exponentials if the head's keys are some."""
    if _score_kind(product) == "rounded":
        return lambda product, head, source, step, count, width, target, spare: pack_narrow_keys(
            source, step, count, width, target, spare
        )

    def run(product, head, source, step, count, width, target, spare):
        pack_keys(source, step, count, width, target)
        if head.exponential:
            exponentiate_keys(target, count, width)

    def plain(product, head, source, step, count, width, target, spare):
        pack_keys(source, step, count, width, target)

    return run if _score_kind(product) == "additive" else plain


@inner_overload
def prepare_values(product, source, step, count, width, target):
    """Pack values for the products."""
    if _score_kind(product) == "rounded":
        return lambda product, source, step, count, width, target: pack_narrow_values(
            source, step, count, width, target
        )
    return lambda product, source, step, count, width, target: pack_values(source, step, count, width, target)


@inner_overload
def add_values(product, score, count, values, span, shifts, totals, sums, columns):
    """Add the packed values of a span, weighted by a tile's exponentials, to the sums of ``count`` rows.

    Where products are narrow, the span has all packed keys, and the exponentials are rounded in place; those of tile
    registers are also taken here, and added to the totals.
    """

    def rounded(product, score, count, values, span, shifts, totals, sums, columns):
        for n in range(ROWS):
            narrow_row(score + n * SCORE_ROW, np.float32(1), score + n * SCORE_ROW, span.whole)
        steps = narrow_keys(span.stop) // 2
        for c in range(0, columns, COLUMNS):
            narrow_value_tile(score, SCORE_ROW, values + c * KEYS * 2, COLUMNS * 4, steps, sums + c * 4, columns * 4)

    def exact(product, score, count, values, span, shifts, totals, sums, columns):
        for c in range(0, columns, COLUMNS):
            panel = values + (c * KEYS + span.front * COLUMNS) * 4
            count = span.stop - span.front
            value_tile(score + span.front * 4, SCORE_ROW, panel, COLUMNS * 4, count, sums + c * 4, columns * 4)

    def in_registers(product, score, count, values, span, shifts, totals, sums, columns):
        amx_values(score, count, span.whole, shifts, totals, values, columns, sums)

    if _in_registers(product):
        return in_registers
    return rounded if _score_kind(product) == "rounded" else exact


@inner_overload
def prepare_rows(product, block, i, s, count):
    """Write the position-to-content scores of a strip of rows, if one begins with the block's row i."""

    def run(product, block, i, s, count):
        if block.scores.head.queries != 0 and i % STRIP == 0:
            write_strip(block.scores.head, i, block.rows, s, count, block.key, block.scratch.spare)

    return run if _score_kind(product) == "disentangled" else lambda product, block, i, s, count: None


@inner_overload
def score_keys(product, head, query, keys, width, span, scores, position, spare):
    """Write the scores of a tile's rows and the packed keys of a span, as ``multiply_keys`` does."""

    def rounded(product, head, query, keys, width, span, scores, position, spare):
        panel_width = vectors_of(width // 2)
        for c in range(span.front, span.stop, COLUMNS):
            panel, target = keys + c * panel_width * 4, scores + c * 4
            if span.stop - c > LANES:
                narrow_score_tile(query, width * 4, panel, COLUMNS * 4, width // 2, target, SCORE_ROW)
            else:
                half_narrow_score_tile(query, width * 4, panel, COLUMNS * 4, width // 2, target, SCORE_ROW)

    def exact(product, head, query, keys, width, span, scores, position, spare):
        multiply_keys(query, keys, width, span, scores)

    def disentangled(product, head, query, keys, width, span, scores, position, spare):
        multiply_keys(query, keys, width, span, scores)
        add_distances(head, position, query, span, scores, spare)

    def additive(product, head, query, keys, width, span, scores, position, spare):
        add_keys(query, keys, width, span, scores, head)

    def in_registers(product, head, query, keys, width, span, scores, position, spare):
        amx_scores(query, width * 4, keys, width * COLUMNS * 2, width // 2, span.whole, scores, SCORE_ROW)

    if _in_registers(product):
        return in_registers
    forms = {"exact": exact, "rounded": rounded, "additive": additive, "disentangled": disentangled}
    return forms[_score_kind(product)]
