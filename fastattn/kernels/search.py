"""Search: the rows of a corpus that are most similar to each query; no other row's score is stored.

A part reads the corpus in blocks that stay in the cache while every query is compared with them, so it reads memory
once for any number of queries. Each part has a heap of every query's k best; the heaps' items are integers in the order
of the results, so the best of all parts depend on neither parts nor threads.

On a core of a Zen 5, for vectors of 384 numbers: one query reads float32 at 33 GB/s, int8 and bits at 31, the memory's
speed; 64 queries multiply float32 at 160 Gop/s, int8 at 570; 512 queries multiply float32 at 220, where the tile of
matrix products reaches 270. In float32, int8 and bits that is 1.3, 1.0 and 1.3 times as fast as faiss's flat indexes
for one query, 13, 9 and 3 times for 64.
"""

from collections import namedtuple

import numpy as np
from numba import prange

from fastattn.kernels.arguments import LAST_ID, MOST_ROWS
from fastattn.runtime.jit import inner, kernel, take_part
from fastattn.simd.arguments import QUERIES, ROWS, ROWS_OF_ONE, Rows, Terms
from fastattn.simd.memory import address, load_index, load_integer, make_scratch, store, store_index, store_integer
from fastattn.simd.scores import inverse_norms, make_score_tile
from fastattn.simd.target import LANES
from fastattn.simd.vector import splat

AHEAD_BYTES = 8 << 10  # from the bytes that are read to those that are prefetched
KEYS = ROWS * QUERIES  # keys of a tile: its scores as integers in the same order

score_tile, score_tile_of_one = make_score_tile(ROWS, QUERIES), make_score_tile(ROWS_OF_ONE, 1)
measured_tile = make_score_tile(ROWS_OF_ONE, 1, measured=True)
keys_scratch = make_scratch(KEYS * 4)
table_scratch, scales_scratch = make_scratch(MOST_ROWS * 8), make_scratch(MOST_ROWS * 4)

# Heaps of the queries' k best: the address of the first, k, and the number of queries.
Heaps = namedtuple("Heaps", "address k queries")
# A tile's first row, the end of the corpus, and the tile's number of rows.
TileRows = namedtuple("TileRows", "first end rows")


@inner
def replace_least(heap, k, item):
    """Replace the least item of a heap of ``k``, which is its first, by another."""
    hole = 0
    while 2 * hole + 1 < k:
        child = 2 * hole + 1
        if child + 1 < k and load_integer(heap + (child + 1) * 8) < load_integer(heap + child * 8):
            child += 1
        if load_integer(heap + child * 8) >= item:
            break
        store_integer(load_integer(heap + child * 8), heap + hole * 8)
        hole = child
    store_integer(item, heap + hole * 8)


@inner
def take_keys(bits, keys, thresholds, tile, query, heaps):
    """Take a tile's keys above their threshold, whose ``bits`` are 1, into their queries' heaps."""
    lane = 0
    while bits != 0:
        if bits & 1:
            q, row, key = lane // tile.rows, tile.first + lane % tile.rows, load_index(keys + lane * 4)
            heap = heaps.address + (query + q) * heaps.k * 8
            if row < tile.end and key > load_integer(heap) >> 32:
                replace_least(heap, heaps.k, (key << 32) | (LAST_ID - row))
                for n in range(q * tile.rows, (q + 1) * tile.rows):
                    store_index(load_integer(heap) >> 32, thresholds + n * 4)
        bits >>= 1
        lane += 1


@inner
def find_rows(corpus, first, count, padded, table):
    """Write the addresses of a block's rows to a table, and repeat the last up to ``padded`` rows."""
    for r in range(padded):
        row = corpus.address + (first + min(r, count - 1)) * corpus.distance
        store_integer(row if row < corpus.end else corpus.copied + row - corpus.end, table + r * 8)


@inner
def set_thresholds(thresholds, heaps, queries, rows):
    """Write the least of each heap for every row of a tile; queries that only pad a tile get the greatest int32."""
    for n in range(queries * rows):
        q = n // rows
        least = load_integer(heaps.address + q * heaps.k * 8) >> 32 if q < heaps.queries else 0x7FFFFFFF
        store_index(least, thresholds + n * 4)


@inner
def find_above(staged_QW, table, query, width, terms, thresholds, keys, ahead):
    """Write a tile's keys and return the bits of those above their threshold; see make_score_tile."""
    if len(staged_QW) > 1:
        return score_tile(staged_QW, table, query, width, terms, thresholds, keys, ahead)
    if terms.scaled:
        return measured_tile(staged_QW, table, query, width, terms, thresholds, keys, ahead)
    return score_tile_of_one(staged_QW, table, query, width, terms, thresholds, keys, ahead)


@kernel
def _search(staged_QW, starts_QR, corpus, width, by_length, block, heaps_PQk, scratch_PB):
    """Each part searches a run of the corpus's blocks and fills its own heaps; see ``ops/cpu/search.py``.

    staged_QW  queries as the tile takes them: one, or a multiple of QUERIES
    starts_QR  int32, see make_score_tile
    corpus     a Corpus; ``width`` is the RowWidth of its rows
    block      rows of a block
    heaps_PQk  written: each part's heaps, without those of queries that pad a tile
    scratch_PB  each part's thresholds, int32
    """
    tasks = (corpus.rows + block - 1) // block
    for part in prange(0, len(scratch_PB)):
        thresholds, first_task, last_task = take_part(scratch_PB, part, tasks)
        heaps = Heaps(address(heaps_PQk) + part * heaps_PQk.strides[0], heaps_PQk.shape[2], heaps_PQk.shape[1])
        table, scales, keys = table_scratch(), scales_scratch(), keys_scratch()
        queries, rows = len(staged_QW), ROWS_OF_ONE if len(staged_QW) == 1 else ROWS
        ahead_bytes = (1 + AHEAD_BYTES // max(1, abs(corpus.distance))) * corpus.distance
        set_thresholds(thresholds, heaps, queries, rows)
        for r in range(0, block, LANES):
            store(splat(np.float32(1)), scales + r * 4)
        for task in range(first_task, last_task):
            first, end = task * block, min(corpus.rows, task * block + block)
            find_rows(corpus, first, end - first, block, table)
            for q in range(0, queries, QUERIES):
                query = Rows(address(staged_QW) + q * staged_QW.strides[0], staged_QW.strides[0])
                tile_thresholds, starts = thresholds + q * rows * 4, address(starts_QR) + q * rows * 4
                # rows are prefetched once: prefetching the next block's rows in every tile of queries is slower
                ahead = ahead_bytes if queries == 1 or (q == 0 and not by_length) else 0
                for r in range(0, end - first, rows):
                    tile_table, terms = table + r * 8, Terms(starts, scales + r * 4, np.int64(by_length))
                    if by_length and queries > 1 and q == 0 and r % LANES == 0:
                        for n in range(r, r + rows, LANES):
                            inverse_norms(staged_QW, table + n * 8, width, scales + n * 4, ahead_bytes)
                    bits = find_above(staged_QW, tile_table, query, width, terms, tile_thresholds, keys, ahead)
                    if bits != 0:
                        take_keys(bits, keys, tile_thresholds, TileRows(first + r, end, rows), q, heaps)
