"""Search: scores of tiles of queries and rows; a sort finds the best of a piece of rows, the host the best of all."""

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numba import cuda, float32, int32

from fastattn.ops.cuda import card
from fastattn.ops.cuda.card import THREADS, TILE, device
from fastattn.ops.cuda.instructions import block_sum
from fastattn.ops.cuda.matmul import FEW_ROWS, Weights, WordRows, tile_product, tile_shape

PIECE = 8 * THREADS  # rows that a block sorts in shared memory, 16 KiB
SCORES = 1 << 26  # scores, and values of rows, that are on the card at a time: 256 MiB of each
QUERIES = 1 << 13  # queries at a time; the corpus is sent again for each further lot of queries
ABSENT = np.iinfo(np.int64).max


@card.kernel
def _lengths(corpus_ND, lengths_N):
    """Write lengths of rows, at least 1e-12; NaN where a square overflows float32, so that the row is never best."""
    shared_T = cuda.shared.array(THREADS, float32)
    n, t = cuda.blockIdx.x, cuda.threadIdx.x
    total = float32(0)
    for d in range(t, corpus_ND.shape[1], THREADS):
        value = float32(corpus_ND[n, d])
        total += value * value
    total = block_sum(total, shared_T)
    if t == 0:
        lengths_N[n] = max(math.sqrt(total), float32(1e-12)) if total < math.inf else float32(math.nan)


@device
def _finish(total, q, n, r, s, arguments):
    _, _, (lengths_N, scores_QN) = arguments
    if len(lengths_N) > 0:
        scores_QN[q, n] = float32(total) / lengths_N[n]
    else:
        scores_QN[q, n] = total


@lru_cache
def _scores_of(kind: str, few: bool) -> Any:
    """The kernel for a kind of numbers; zeros beyond the ends of rows add nothing."""
    compute, (ROWS, *_) = tile_product(kind, few, _finish), tile_shape(kind, few)

    @card.kernel_of(kind, few)
    def scores(queries, corpus, target):
        first, column = cuda.blockIdx.y * ROWS, cuda.blockIdx.x * TILE
        compute(queries, corpus, first, len(queries.words_NW), column, len(corpus.words_FW), target)

    return scores


@device
def _sort(score_S, index_S):
    """A bitonic sort (Batcher 1968) by the whole block: greatest scores first, equal scores by their indices."""
    size = 2
    while size <= PIECE:
        step = size // 2
        while step > 0:
            cuda.syncthreads()
            for pair in range(cuda.threadIdx.x, PIECE // 2, THREADS):
                low = 2 * pair - (pair & (step - 1))  # step is a power of two
                high = low + step
                a, b, p, q = score_S[low], score_S[high], index_S[low], index_S[high]
                if (b > a or (b == a and q < p)) == (low & size == 0):  # every second run is in reverse order
                    score_S[low], score_S[high], index_S[low], index_S[high] = b, a, q, p
            step //= 2
        size *= 2
    cuda.syncthreads()


@lru_cache
def _best_of(score_type: Any, least: Any) -> Any:
    """The kernel for scores of a type, all at least ``least``."""

    @card.kernel_of(str(score_type), str(least))
    def best(scores_QN, first, scores_QPk, ids_QPk):
        score_S = cuda.shared.array(PIECE, score_type)
        index_S = cuda.shared.array(PIECE, int32)
        q, p, t, N = cuda.blockIdx.x, cuda.blockIdx.y, cuda.threadIdx.x, scores_QN.shape[1]
        for s in range(t, PIECE, THREADS):
            n = p * PIECE + s
            is_number = n < N and scores_QN[q, n] == scores_QN[q, n]  # not NaN
            score_S[s], index_S[s] = (scores_QN[q, n], s) if is_number else (score_type(least), PIECE)
        _sort(score_S, index_S)
        for i in range(t, scores_QPk.shape[2], THREADS):
            scores_QPk[q, p, i] = score_S[i]
            ids_QPk[q, p, i] = first + p * PIECE + index_S[i] if index_S[i] < PIECE else ABSENT

    return best


def nearest_rows(
    queries_QD: np.ndarray, corpus_ND: np.ndarray, k: int, by_length: bool = False, bits: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    Q, N = len(queries_QD), len(corpus_ND)
    if Q > QUERIES:
        starts = range(0, Q, QUERIES)
        parts = [nearest_rows(queries_QD[q : q + QUERIES], corpus_ND, k, by_length, bits) for q in starts]
        return np.concatenate([scores for scores, _ in parts]), np.concatenate([ids for _, ids in parts])
    if bits:
        queries_QD, corpus_ND = queries_QD.view(np.uint8), corpus_ND.view(np.uint8)
    is_integer = corpus_ND.dtype.kind in "iu"
    is_int32 = is_integer and not by_length
    kind, few = "bits" if bits else "integers" if is_integer else "float32", Q <= FEW_ROWS
    scores_kernel, (rows, *_) = _scores_of(kind, few), tile_shape(kind, few)
    best_kernel = _best_of(int32, -(2**31) + 1) if is_int32 else _best_of(float32, -np.inf)
    dtype, queries = np.int32 if is_int32 else np.float32, WordRows(card.upload(queries_QD), card.no_array(1))
    scores_QC: np.ndarray = np.empty((Q, 0), dtype)
    ids_QC: np.ndarray = np.empty((Q, 0), np.int64)
    chunk_rows = max(SCORES // max(Q, corpus_ND.shape[1], 1) // PIECE, 1) * PIECE
    for first in range(0, N, chunk_rows):
        chunk_ND = card.upload(corpus_ND[first : first + chunk_rows])
        lengths_N = card.empty((len(chunk_ND) if by_length else 0,), np.float32)
        card.launch(_lengths, len(lengths_N), chunk_ND, lengths_N)
        scores_QN, pieces = card.empty((Q, len(chunk_ND)), dtype), -(-len(chunk_ND) // PIECE)
        corpus, blocks = Weights(chunk_ND, *[card.no_array(1)] * 3), (-(-len(chunk_ND) // TILE), -(-Q // rows))
        card.launch(scores_kernel, blocks, queries, corpus, (lengths_N, scores_QN))
        best_QPk, best_ids_QPk = (card.empty((Q, pieces, min(k, PIECE)), type_) for type_ in (dtype, np.int64))
        card.launch(best_kernel, (Q, pieces), scores_QN, first, best_QPk, best_ids_QPk)
        scores_QC = np.concatenate([scores_QC, card.download(best_QPk).reshape(Q, -1)], axis=1)
        ids_QC = np.concatenate([ids_QC, card.download(best_ids_QPk).reshape(Q, -1)], axis=1)
        order_Qk = np.lexsort((ids_QC, -scores_QC), axis=1)[:, :k]
        scores_QC, ids_QC = (np.take_along_axis(array, order_Qk, axis=1) for array in (scores_QC, ids_QC))
    absent_Qk = ids_QC == ABSENT
    return np.where(absent_Qk, -np.inf, scores_QC).astype(np.float32), np.where(absent_Qk, -1, ids_QC)
