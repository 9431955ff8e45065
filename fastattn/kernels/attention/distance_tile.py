"""Disentangled attention's scores (He 2021): a content's products with the rows of the distance to another.

    score(t, s) = q_t k_s' + q_t p(s - t)' + k_s r(s - t)'

p are keys of distances (content to position), r queries of them (position to content); a model may lack either. The
rows lie by distance, so neither product is gathered: the scores q_t p' of a query lie side by side for adjacent keys,
those k_s r' of a key for adjacent queries. The first are a tile of the query rows times the packed p of the tile's
distances. The second are computed for a strip of query rows at once, since ROWS rows would need as many distances as
keys: a tile of keys times the packed r, DISTANCE_KEYS keys at a time, and transposed into the strip, one row a query.

One core with AVX-512, at (8, 12, 512, 64): 2.2 times the time of plain attention, and twice its products.
"""

from fastattn.kernels.attention.arguments import COLUMNS, DISTANCE_KEYS, KEYS, LONG, ROWS, STRIP, WIDE, DistanceHead
from fastattn.kernels.attention.scores import vectors_of
from fastattn.kernels.attention.tiles import half_score_tile, score_tile, tiles_of
from fastattn.runtime.jit import inner
from fastattn.simd.arguments import SIZE
from fastattn.simd.rows import copy_floats, transpose
from fastattn.simd.target import LANES
from fastattn.simd.vector import address, load, store


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
