"""What a score is made of, known when the kernel is compiled by the type of ``product`` and ``details``:

dot products            0, which are multiplied by the scale's factor; uint16 [0]: in bfloat16, values as well
additive attention      [H, D + 1] of ``vector_factors``; flags_BH: whether a head's queries and keys are exponentials
disentangled attention  the tables and the layout of ``PackedDistances``: dot products, and more of them

Additive attention's scores (Bahdanau 2015) of a tile of query rows and packed keys are v . tanh(q + k): ``add_keys``
stands where ``multiply_keys`` of tiles.py does: the same rows, packed keys and scores, and v besides. Queries and keys
may be exponentials, e**2q and e**2k (``exponentiate``): an element then costs half a division and a few multiply-adds
instead of a tanh. No sum of a query and a key is ever stored. One Zen 5 core (AVX-512), ns for each of T S D elements
at T = S = 512, D = 128, the whole attention: 0.124 with tanh, 0.057 with exponentials and a division each, 0.043 with
one for two, as with one for four. np.tanh alone: 0.39.

Disentangled attention's scores (He 2021) are a content's products with the rows of the distance to another:

    score(t, s) = q_t k_s' + q_t p(s - t)' + k_s r(s - t)'

p are keys of distances (content to position), r queries of them (position to content); a model may lack either. The
rows lie by distance, so neither product is gathered: the scores q_t p' of a query lie side by side for adjacent keys,
those k_s r' of a key for adjacent queries. The first are a tile of the query rows times the packed p of the tile's
distances. The second are computed for a strip of query rows at once, since ROWS rows would need as many distances as
keys: a tile of keys times the packed r, DISTANCE_KEYS keys at a time, and transposed into the strip, one row a query.
One core with AVX-512, at (8, 12, 512, 64): 2.2 times the time of plain attention, and twice its products.
"""

import numpy as np
from numba import types

from fastattn.kernels.attention.arguments import (
    COLUMNS,
    DISTANCE_KEYS,
    KEYS,
    LONG,
    ROWS,
    STRIP,
    VECTORS,
    WIDE,
    AdditiveHead,
    DistanceHead,
)
from fastattn.kernels.attention.scores import vectors_of
from fastattn.kernels.attention.tiles import (
    columns_of,
    half_score_tile,
    multiply_keys,
    multiply_narrow_keys,
    multiply_narrow_values,
    multiply_values,
    narrow_panels,
    narrow_row,
    narrow_values,
    score_tile,
    tiles_of,
)
from fastattn.runtime.jit import inner, inner_overload
from fastattn.simd.arguments import SIZE
from fastattn.simd.attention import make_tanh_tile
from fastattn.simd.rows import copy_floats, transpose
from fastattn.simd.target import LANES
from fastattn.simd.vector import address, exp, load, load_part, maximum, minimum, splat, store, store_part

# e**(2 x) of these is a float32, and so is its inverse. Beyond, x is cut: tanh(a + b) is still 1 where a is cut to 44
# and no b is below -35.
CUT = 44.0
PART = ROWS // 2  # rows whose sums stay in registers with all that a division needs

exponential_tile, half_exponential_tile = (make_tanh_tile(PART, vectors, True) for vectors in (VECTORS, 1))
plain_tile, half_plain_tile = (make_tanh_tile(PART, vectors, False) for vectors in (VECTORS, 1))


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
        for i in range(0, ROWS, PART):
            rows, target = query + i * width * 4, score + (i * KEYS + c) * 4
            if head.exponential:
                if span.stop - c > LANES:
                    exponential_tile(rows, width * 4, panel, COLUMNS * 4, width, factors, target, KEYS * 4)
                else:
                    half_exponential_tile(rows, width * 4, panel, COLUMNS * 4, width, factors, target, KEYS * 4)
            elif span.stop - c > LANES:
                plain_tile(rows, width * 4, panel, COLUMNS * 4, width, factors, target, KEYS * 4)
            else:
                half_plain_tile(rows, width * 4, panel, COLUMNS * 4, width, factors, target, KEYS * 4)


@inner
def distances_of_head(tables_XHP, layout_L, h):
    """A head's part of ``PackedDistances``."""
    _, H, P = tables_XHP.shape
    first = address(tables_XHP) + h * P * 4
    keys = first if layout_L[0] != 0 else 0
    queries = first + layout_L[0] * H * P * 4 if layout_L[1] != 0 else 0
    return DistanceHead(keys, queries, layout_L[2], layout_L[3], layout_L[4])


@inner
def within(distance, bound):
    """The distance, or the farthest of the same rows."""
    return max(min(distance, bound), -bound)


@inner
def multiply_distances(rows, table, width, first, last, score, step):
    """Write products of ROWS rows and the packed rows of columns ``first`` to ``last``, by whole vectors.

    score  where those of the panel of ``first`` begin
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
    t, strip = block_rows.first + i, scratch + ROWS * WIDE * 4
    chunk = strip + STRIP * KEYS * 4
    copies = chunk + DISTANCE_KEYS * LONG * 4
    rows = vectors_of(min(STRIP, tiles_of(block_rows.length) - i))
    for c in range(0, count, DISTANCE_KEYS):
        last = min(c + DISTANCE_KEYS, count) - 1
        base = (distances_of_keys(t, rows, s + c, s + last, bound)[0] + reach) // COLUMNS
        for j in range(c, last + 1, ROWS):
            for n in range(ROWS):
                copy_floats(key.address + (s + min(j + n, last)) * key.row_step, copies + n * width * 4, width)
            least, most = distances_of_keys(t, rows, s + j, s + min(j + ROWS - 1, last), bound)
            target = chunk + ((j - c) * LONG + ((least + reach) // COLUMNS - base) * COLUMNS) * 4
            multiply_distances(copies, head.queries, width, least + reach, most + reach, target, LONG * 4)
        for j in range(c, last + 1, LANES):
            for n in range(0, rows, LANES):
                column = within(t + n - s - j, bound) + reach - base * COLUMNS
                source = chunk + ((j - c) * LONG + column) * 4
                # the next key is one farther from each query
                transpose(source, (LONG - 1) * 4, last + 1 - j, LANES, strip + (n * KEYS + j) * 4, KEYS * 4)


@inner
def add_distances(head, position, query, span, score, scratch):
    """Add to the products of a tile's rows and a span of keys those with the distances' rows.

    Rows beyond the block's last query are copies of it.
    """
    bound, reach, s, t = head.bound, head.reach, position.key, position.query
    front, whole = span.front, span.whole
    first = within(s + front - t - ROWS + 1, bound) + reach
    if head.keys != 0:
        last = within(s + whole - LANES - t, bound) + LANES - 1 + reach
        multiply_distances(query, head.keys, head.width, first, last, scratch, WIDE * 4)
    strip = scratch + (ROWS * WIDE + position.row % STRIP * KEYS) * 4
    for n in range(ROWS):
        line, m = score + n * KEYS * 4, min(n, position.last_query - t)
        row, near = scratch + (n * WIDE + reach - first // COLUMNS * COLUMNS) * 4, strip + m * KEYS * 4
        for c in range(front, whole, LANES):
            total = load(line + c * 4)
            if head.keys != 0:
                total = total + load(row + within(s + c - t - m, bound) * 4)
            if head.queries != 0:
                total = total + load(near + c * 4)
            store(total, line + c * 4)


def _is_narrow(product):
    return not isinstance(product, types.Integer) and product.ndim == 1


def _is_dot(product):
    return isinstance(product, types.Integer) or _is_narrow(product)


def _is_disentangled(product):
    return not _is_dot(product) and product.ndim == 3


def _is_additive(product):
    return not _is_dot(product) and product.ndim == 2


@inner_overload
def is_dot(product):
    """Whether scores are dot products."""
    return (lambda product: True) if _is_dot(product) else (lambda product: False)


@inner_overload
def product_head(product, details, b, h):
    """A head's part of the details: an AdditiveHead or a DistanceHead."""
    if _is_dot(product):
        return lambda product, details, b, h: AdditiveHead(0, False)
    if _is_disentangled(product):
        return lambda product, details, b, h: distances_of_head(product, details, h)
    return lambda product, details, b, h: AdditiveHead(address(product) + h * product.shape[1] * 4, details[b, h] != 0)


# The tiles of additive attention are imported where it is: every start imports this.


@inner_overload
def prepare_queries(product, head, rows, count):
    """Make exponentials of ``count`` floats of queries, where the head's are; or round them."""
    if _is_narrow(product):
        return lambda product, head, rows, count: narrow_row(rows, count)
    if not _is_additive(product):
        return lambda product, head, rows, count: None
    from fastattn.kernels.attention.products import exponentiate

    def run(product, head, rows, count):
        if head.exponential:
            exponentiate(rows, count)

    return run


@inner_overload
def prepare_keys(product, head, keys, count, width):
    """Make exponentials of packed keys, where the head's are; or round them."""
    if _is_narrow(product):
        return lambda product, head, keys, count, width: narrow_panels(
            keys, columns_of(count) // COLUMNS, width * COLUMNS * 4, width
        )
    if not _is_additive(product):
        return lambda product, head, keys, count, width: None
    from fastattn.kernels.attention.products import exponentiate_keys

    def run(product, head, keys, count, width):
        if head.exponential:
            exponentiate_keys(keys, count, width)

    return run


@inner_overload
def prepare_values(product, values, count, columns):
    """Round packed values, where products are narrow."""
    if _is_narrow(product):
        return lambda product, values, count, columns: narrow_values(values, count, columns)
    return lambda product, values, count, columns: None


@inner_overload
def add_values(product, score, values, span, sums, columns):
    """Add the packed values of a span, weighted by a tile's exponentials, to the rows' sums."""
    if _is_narrow(product):
        return lambda product, score, values, span, sums, columns: multiply_narrow_values(
            score, values, span, sums, columns
        )
    return lambda product, score, values, span, sums, columns: multiply_values(score, values, span, sums, columns)


@inner_overload
def prepare_rows(product, block, i, s, count):
    """Compute what the tiles of a strip of rows, the block's from i on, take from its spare scratch for some keys."""
    if not _is_disentangled(product):
        return lambda product, block, i, s, count: None

    def run(product, block, i, s, count):
        if block.scores.head.queries != 0 and i % STRIP == 0:
            write_strip(block.scores.head, i, block.rows, s, count, block.key, block.scratch.spare)

    return run


@inner_overload
def score_keys(product, head, query, keys, width, span, scores, position, spare):
    """Write the scores of a tile's rows and the packed keys of a span, as ``multiply_keys`` does."""
    if _is_narrow(product):
        return lambda product, head, query, keys, width, span, scores, position, spare: multiply_narrow_keys(
            query - position.row * width * 2, keys, width, span, scores
        )
    if _is_dot(product):
        return lambda product, head, query, keys, width, span, scores, position, spare: multiply_keys(
            query, keys, width, span, scores
        )
    if _is_disentangled(product):

        def multiply_more(product, head, query, keys, width, span, scores, position, spare):
            multiply_keys(query, keys, width, span, scores)
            add_distances(head, position, query, span, scores, spare)

        return multiply_more
    from fastattn.kernels.attention.products import add_keys

    return lambda product, head, query, keys, width, span, scores, position, spare: add_keys(
        query, keys, width, span, scores, head
    )
