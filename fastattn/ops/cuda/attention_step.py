"""Attention of queries over tables of keys: a decoder's step, and averages of what it attended to.

A block has one query and head, and PIECE of the keys that it sees, counted from its first one. Scores: SIDE threads
share a key and read SIDE adjacent columns at a time. Sums of values: each thread has one column and every SIDE-th key.
Where there is more than a piece, another kernel joins the pieces by the logs of their sums, as if there were one
(Milakov and Gimelshein 2018). So a row's bits depend on its own keys alone, wherever they lie in the table.
"""

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numba import cuda, float32, int64, uint32, uint64

from fastattn.arguments.attention import Heads, KeyIndex, PositionBias
from fastattn.ops import reference
from fastattn.ops.cuda import card
from fastattn.ops.cuda.attention import cleared, laid, terms_of
from fastattn.ops.cuda.card import SIDE, THREADS, TILE, device, none
from fastattn.ops.cuda.instructions import block_max, block_sum
from fastattn.ops.cuda.scores import INFINITY, LaidHeads, finished_score, reader, same_score, shift_of, start_of

PIECE = 4 * TILE
PITCH = SIDE + 1


class StepTables(NamedTuple):
    """What is read: queries, tables, and which rows of them each query sees, as ``KeyIndex`` has it."""

    query: LaidHeads
    key: LaidHeads
    value: LaidHeads
    index_RS: Any
    stops_N: Any
    rows_N: Any  # empty: n
    firsts_N: Any  # empty: 0
    most: int
    width: int
    value_width: int
    group: int  # query heads of a key head


@device
def _first_of(firsts_N, stops_N, most, n):
    first = firsts_N[n] if len(firsts_N) > 0 else int64(0)
    return max(first, stops_N[n] - most) if most > 0 else first


@lru_cache(8)
def _make_attend(dtype: Any) -> Any:
    """The kernel for tables of a type; blocks are (queries, heads, pieces)."""
    read = reader(dtype)

    @card.kernel_of(str(np.dtype(dtype)))
    def attend_piece(step, terms, weights_NHS, sums_NHPV, tops_NHP2):
        """sums: the exponentials times values; tops: the greatest score, and the sum of exponentials."""
        score_S = cuda.shared.array(PIECE, float32)
        part_RC = cuda.shared.array((SIDE, PITCH), float32)
        shared_T = cuda.shared.array(THREADS, float32)
        n, h, p = cuda.blockIdx.x, cuda.blockIdx.y, cuda.blockIdx.z
        thread = int64(uint32(cuda.threadIdx.x))
        r, c = thread // SIDE, thread % SIDE
        row = step.rows_N[n] if len(step.rows_N) > 0 else int64(n)
        first = _first_of(step.firsts_N, step.stops_N, step.most, n) + p * PIECE
        count, g = min(step.stops_N[n] - first, PIECE), h // step.group
        query = start_of(step.query, 0, n, h)

        greatest = float32(-INFINITY)
        for s0 in range(0, count, SIDE):  # SIDE keys, each by SIDE threads
            s, part = s0 + r, float32(0)
            if s < count:
                key = start_of(step.key, 0, int64(step.index_RS[row, first + s]), g)
                for d in range(c, step.width, SIDE):
                    one, other = step.query.array_X[uint64(query + d)], read(step.key.array_X[uint64(key + d)])
                    if len(terms.vector_HK) > 0:
                        part += terms.vector_HK[h, d] * math.tanh(one + other)
                    else:
                        part += one * other
            cuda.syncthreads()  # whoever still reads the parts before
            part_RC[r, c] = part
            cuda.syncthreads()
            if thread < SIDE and s0 + thread < count:
                s, score = s0 + thread, float32(0)
                for j in range(SIDE):
                    score += part_RC[thread, j]
                score = finished_score(score, terms, same_score, n, h, 0, first + s, step.stops_N[n] - 1)
                score_S[s] = score
                if score > greatest:
                    greatest = score
                if len(weights_NHS) > 0:
                    weights_NHS[n, h, first + s] = score  # a weight at the end
        top, total = block_max(greatest, shared_T), float32(0)
        for s in range(thread, count, THREADS):
            score_S[s] = math.exp(score_S[s] - shift_of(top))
            total += score_S[s]
        total = block_sum(total, shared_T)  # the exponentials are all there
        if thread == 0:
            tops_NHP2[n, h, p, 0], tops_NHP2[n, h, p, 1] = top, total

        for v0 in range(0, step.value_width, SIDE):
            v, part = v0 + c, float32(0)
            if v < step.value_width:
                for s in range(r, count, SIDE):
                    value = start_of(step.value, 0, int64(step.index_RS[row, first + s]), g)
                    part += score_S[s] * read(step.value.array_X[uint64(value + v)])
            cuda.syncthreads()
            part_RC[r, c] = part
            cuda.syncthreads()
            if thread < SIDE and v0 + thread < step.value_width:
                part = float32(0)
                for j in range(SIDE):
                    part += part_RC[j, thread]
                sums_NHPV[n, h, p, v0 + thread] = part

    return attend_piece


@card.kernel
def _join(sums_NHPV, tops_NHP2, firsts_N, stops_N, most, weights_NHS, out_NHV):
    """A block a query and head: the sums of its pieces, in the scale of the greatest score, over their total."""
    n, h = cuda.blockIdx.x, cuda.blockIdx.y
    thread, pieces = int64(uint32(cuda.threadIdx.x)), sums_NHPV.shape[2]
    top, total = float32(-INFINITY), float32(0)
    for p in range(pieces):
        top = max(top, tops_NHP2[n, h, p, 0])
    for p in range(pieces):
        total += tops_NHP2[n, h, p, 1] * math.exp(tops_NHP2[n, h, p, 0] - shift_of(top))
    inverse = float32(0)
    if total != 0:
        inverse = float32(1) / total
    for v in range(thread, out_NHV.shape[2], THREADS):
        value = float32(0)
        for p in range(pieces):
            value += sums_NHPV[n, h, p, v] * math.exp(tops_NHP2[n, h, p, 0] - shift_of(top))
        out_NHV[n, h, v] = value * inverse
    if len(weights_NHS) > 0:
        first = _first_of(firsts_N, stops_N, most, n)
        for s in range(first + thread, stops_N[n], THREADS):
            weights_NHS[n, h, s] = math.exp(weights_NHS[n, h, s] - shift_of(top)) * inverse


def attention_step(
    query_NE: np.ndarray,
    key_ME: np.ndarray,
    value_ME: np.ndarray,
    seen: KeyIndex,
    heads: Heads,
    *,
    bias_NHS: np.ndarray | None = None,
    position_bias: PositionBias | None = None,
    weights_NHS: np.ndarray | None = None,
    vector_HK: np.ndarray | None = None,
) -> np.ndarray:
    N, H, K, V = len(query_NE), heads.query_heads, heads.width, heads.value_width or heads.width
    pieces = max(-(-seen.index_RS.shape[1] // PIECE), 1)  # not of the stops, which in a recorded step are not known yet
    query, key = laid(query_NE, heads.query_column, K), laid(key_ME, heads.key_column, K)
    value = laid(value_ME, heads.value_column, V)
    lists = card.upload(seen.index_RS), card.upload(seen.stops_N)
    parts = card.optional(seen.rows_N, 1, np.int64), card.optional(seen.firsts_N, 1, np.int64)
    step = StepTables(query, key, value, *lists, *parts, seen.most, K, V, H // heads.key_heads)
    weights_NHS = none(3) if weights_NHS is None else cleared(card.upload(weights_NHS))
    sums_NHPV, tops_NHP2 = (card.empty((N, H, pieces, last), np.float32) for last in (V, 2))
    out_NHV = card.empty((N, H, V), np.float32)
    bias = None if bias_NHS is None else card.upload(bias_NHS).reshape((*bias_NHS.shape[:2], 1, bias_NHS.shape[2]))
    vector_HK = None if vector_HK is None else card.parameter(vector_HK)
    terms = terms_of(heads, bias, position_bias, vector_HK=vector_HK)
    card.launch(_make_attend(key_ME.dtype), (N, H, pieces), step, terms, weights_NHS, sums_NHPV, tops_NHP2)
    keys = step.firsts_N, step.stops_N, step.most
    card.launch(_join, (N, H), sums_NHPV, tops_NHP2, *keys, weights_NHS, out_NHV)
    return out_NHV.reshape((N, H * V))


def average_heads(weights: np.ndarray, heads: int) -> np.ndarray:
    return reference.average_heads(card.download(weights), heads)
