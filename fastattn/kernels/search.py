"""Search: the rows of a corpus that are most similar to each query, without a score of any other being kept.

A part of the corpus is read in blocks that stay in the cache while every query meets them, so memory is read once
however many queries there are. Each part keeps a heap of every query's k best; the heaps' items are whole numbers in the
order of the results, so what is best of all depends on neither parts nor threads.
"""

from typing import NamedTuple

import numpy as np
from numba import prange

from fastattn.runtime.jit import inner, kernel
from fastattn.runtime.parts import make_scratch_parts, take_part
from fastattn.simd.scores import NO_KEY, QUERIES, ROWS, ROWS_OF_ONE, WHOLE, inverse_norms, make_score_tile
from fastattn.simd.target import LANES
from fastattn.simd.vector import (
    SIZE,
    address,
    load_index,
    load_integer,
    make_scratch,
    splat,
    store,
    store_index,
    store_integer,
)

BLOCK_BYTES = 96 << 10  # of rows, in L2 beside queries
LEAST_ROWS, MOST_ROWS = 64, 1024  # of a block
AHEAD_BYTES = 16 << 10  # from what is read to what is asked for meanwhile; 4 KiB and 32 KiB read up to a tenth slower
KEYS = ROWS * QUERIES  # of a tile
LAST_ID = 0xFFFFFFFF
EMPTY = np.iinfo(np.int64).min  # a heap's item that is no row

score_tile, score_tile_of_one = make_score_tile(ROWS, QUERIES), make_score_tile(ROWS_OF_ONE, 1)
keys_scratch = make_scratch(KEYS * 4)
table_scratch, scales_scratch = make_scratch(MOST_ROWS * 8), make_scratch(MOST_ROWS * 4)


@inner
def replace_least(heap, k, item):
    """Put an item into a heap of ``k`` in the place of the least, which is first."""
    at = 0
    while 2 * at + 1 < k:
        child = 2 * at + 1
        if child + 1 < k and load_integer(heap + (child + 1) * 8) < load_integer(heap + child * 8):
            child += 1
        if load_integer(heap + child * 8) >= item:
            break
        store_integer(load_integer(heap + child * 8), heap + at * 8)
        at = child
    store_integer(item, heap + at * 8)


@inner
def take_keys(bits, keys, thresholds, first, rows, query, heaps):
    """Take a tile's keys that ``bits`` says are above their threshold into their queries' heaps.

    first  (id of the tile's first row, the end of ids); what is beyond the end is no row
    rows   of the tile
    heaps  (address of the first query's, k, how many queries)
    """
    lane = 0
    while bits != 0:
        if bits & 1:
            q, row, key = lane // rows, first[0] + lane % rows, load_index(keys + lane * 4)
            heap = heaps[0] + (query + q) * heaps[1] * 8
            if row < first[1] and key > load_integer(heap) >> 32:
                replace_least(heap, heaps[1], (key << 32) | (LAST_ID - row))
                for n in range(q * rows, (q + 1) * rows):
                    store_index(load_integer(heap) >> 32, thresholds + n * 4)
        bits >>= 1
        lane += 1


@inner
def find_rows(corpus, first, count, padded, table):
    """The addresses of a block's rows to a table, and that of the last one up to ``padded`` rows."""
    place, N, row, last = corpus
    for r in range(padded):
        n = first + min(r, count - 1)
        store_integer(last if n == N - 1 else place + n * row, table + r * 8)


@inner
def set_thresholds(thresholds, heaps, queries, rows):
    """The least of each heap, for every row of a tile; nothing is above that of a query that is none."""
    for n in range(queries * rows):
        q = n // rows
        store_index(load_integer(heaps[0] + q * heaps[1] * 8) >> 32 if q < heaps[2] else 0x7FFFFFFF, thresholds + n * 4)


@kernel
def _search(staged_QW, starts_QR, corpus, width, cosine, block, heaps_PQk, scratch_PB):
    """The runs of blocks of the corpus, a part each, into the part's heaps; see search.

    staged_QW  queries as the tile takes them, a multiple of QUERIES of them or one
    starts_QR  int32, see make_score_tile
    corpus     (address, N, distance of rows, address of a copy of the last row that may be read beyond its end)
    width      (bytes of whole vectors, words that are left, address of their mask)
    block      rows of a block
    heaps_PQk  of each part, written; the queries that there are
    scratch_PB int32 thresholds of each part
    """
    tasks = (corpus[1] + block - 1) // block
    for part in prange(0, len(scratch_PB)):
        thresholds, first_task, last_task = take_part(scratch_PB, part, tasks)
        heaps = address(heaps_PQk) + part * heaps_PQk.strides[0], heaps_PQk.shape[2], heaps_PQk.shape[1]
        queries, query_row = len(staged_QW), staged_QW.strides[0]
        table, scales, keys = table_scratch(), scales_scratch(), keys_scratch()
        rows = ROWS_OF_ONE if queries == 1 else ROWS
        far = (1 + AHEAD_BYTES // max(1, abs(corpus[2]))) * corpus[2]
        set_thresholds(thresholds, heaps, queries, rows)
        for r in range(0, block, LANES):
            store(splat(np.float32(1)), scales + r * 4)
        for task in range(first_task, last_task):
            first, end = task * block, min(corpus[1], task * block + block)
            find_rows(corpus, first, end - first, block, table)
            for q in range(0, queries, QUERIES):
                query, above = address(staged_QW) + q * query_row, thresholds + q * rows * 4
                starts = address(starts_QR) + q * rows * 4
                ahead = 0 if q or cosine else far  # a row is asked for once
                for r in range(0, end - first, rows):
                    if cosine and q == 0 and r % LANES == 0:
                        inverse_norms(staged_QW, table + r * 8, width, scales + r * 4, far)
                    terms, ids = (starts, scales + r * 4, np.int64(cosine)), (first + r, end)
                    if queries == 1:
                        bits = score_tile_of_one(
                            staged_QW, table + r * 8, (query, query_row), width, terms, above, keys, ahead
                        )
                    else:
                        bits = score_tile(staged_QW, table + r * 8, (query, query_row), width, terms, above, keys, ahead)
                    if bits != 0:
                        take_keys(bits, keys, above, ids, rows, q, heaps)


class Staged(NamedTuple):
    """Queries as the kernel reads them: whole vectors, whole tiles."""

    queries_QW: np.ndarray
    starts_QR: np.ndarray


def _stage(queries_QD: np.ndarray, bits: bool) -> Staged:
    Q, D = queries_QD.shape
    many = 1 if Q == 1 else -(-Q // QUERIES) * QUERIES
    rows = ROWS_OF_ONE if Q == 1 else ROWS
    step = SIZE // queries_QD.itemsize
    integer = queries_QD.dtype != np.float32 and not bits
    dtype = np.dtype(np.int16) if integer and not WHOLE else queries_QD.dtype
    staged_QW = np.zeros((many, -(-D // step) * step), dtype)
    staged_QW[:Q, :D] = queries_QD
    starts_Q = np.zeros(many, np.int32)
    if integer and WHOLE:
        starts_Q = staged_QW.sum(axis=1, dtype=np.int32) * np.int32(-128 if queries_QD.dtype == np.int8 else 128)
    return Staged(
        staged_QW.view(np.uint32 if bits else queries_QD.dtype), np.repeat(starts_Q, rows).reshape(many, rows)
    )


def search(
    queries_QD: np.ndarray, corpus_ND: np.ndarray, k: int, function: str = "dot"
) -> tuple[np.ndarray, np.ndarray]:
    """(scores_Qk float32, ids_Qk int64): of each query, the k rows of the greatest scores, best first.

    queries_QD, corpus_ND  both float32, int8 or uint8; the rows of the corpus may be at any distance from each other,
                           their numbers are adjacent
    k                      at most N, which is below 2**32
    function               "dot"; "cosine", a length below 1e-12 counting as that; "hamming", minus the bits that differ
    Equal scores are in the order of ids. -inf and -1 where fewer than k scores are numbers. Integers of D up to 32,768
    are added and compared exactly.
    """
    Q, D, N = *queries_QD.shape, len(corpus_ND)
    if not Q or not k:
        return np.zeros((Q, k), np.float32), np.zeros((Q, k), np.int64)
    staged_QW, starts_QR = _stage(queries_QD, function == "hamming")
    row_bytes = D * corpus_ND.itemsize
    left = row_bytes % SIZE
    mask_W = np.where(np.arange(SIZE) < left, 255, 0).astype(np.uint8)
    last_W = np.zeros(row_bytes + 4, np.uint8)  # a row's last word may end in the row behind it
    last_W[:row_bytes] = np.ascontiguousarray(corpus_ND[-1]).view(np.uint8)
    corpus = corpus_ND.ctypes.data, N, corpus_ND.strides[0], last_W.ctypes.data
    width = row_bytes - left, -(-left // 4), mask_W.ctypes.data
    block = max(LEAST_ROWS, min(MOST_ROWS, BLOCK_BYTES // max(1, row_bytes) // LEAST_ROWS * LEAST_ROWS))
    scratch_PB = make_scratch_parts(-(-N // block), starts_QR.nbytes)
    heaps_PQk = np.full((len(scratch_PB), Q, k), EMPTY, np.int64)
    _search(staged_QW, starts_QR, corpus, width, function == "cosine", block, heaps_PQk, scratch_PB)
    items_Qk = -np.sort(-heaps_PQk.transpose(1, 0, 2).reshape(Q, -1))[:, :k]
    return _decoded(items_Qk, queries_QD, function)


def _decoded(items_Qk: np.ndarray, queries_QD: np.ndarray, function: str) -> tuple[np.ndarray, np.ndarray]:
    keys_Qk, absent_Qk = (items_Qk >> 32).astype(np.int32), items_Qk == EMPTY
    ids_Qk = np.where(absent_Qk, -1, LAST_ID - (items_Qk & LAST_ID))
    if function == "cosine" or queries_QD.dtype == np.float32:
        scores_Qk = np.where(keys_Qk < 0, keys_Qk ^ 0x7FFFFFFF, keys_Qk).view(np.float32)
    else:
        scores_Qk = keys_Qk.astype(np.float32)
    if function == "cosine":
        scores_Qk = scores_Qk * _inverse(queries_QD)[:, None]
    return np.where(absent_Qk, np.float32(-np.inf), scores_Qk), ids_Qk


def _inverse(queries_QD: np.ndarray) -> np.ndarray:
    return np.float32(1) / np.maximum(np.float32(1e-12), np.sqrt(np.square(queries_QD.astype(np.float64)).sum(axis=1)))
