"""Attention to keys of each query's own, a block a query of a head: the best key, a graph's neighbours, windows."""

import math
from typing import Any, NamedTuple

import numpy as np
from numba import cuda, float32, int32, int64

from fastattn.ops.cuda import card
from fastattn.ops.cuda.blocks import block_max, block_sum
from fastattn.ops.cuda.card import THREADS


@card.kernel
def _choose(query_BTHK, key_BSGK, seen_BT2, vector_HK, bias_BHTS, factor, best_BHT):
    score_N = cuda.shared.array(THREADS, float32)
    key_N = cuda.shared.array(THREADS, int32)
    _, T, H, K = query_BTHK.shape
    b, t, h, thread = cuda.blockIdx.x // T, cuda.blockIdx.x % T, cuda.blockIdx.y, cuda.threadIdx.x
    g = h // (H // key_BSGK.shape[2])
    score_N[thread], key_N[thread] = float32(-math.inf), -1
    for s in range(seen_BT2[b, t, 0] + thread, seen_BT2[b, t, 1], THREADS):
        score = float32(0)
        for k in range(K):
            if len(vector_HK) > 0:
                score += vector_HK[h, k] * math.tanh(query_BTHK[b, t, h, k] + key_BSGK[b, s, g, k])
            else:
                score += query_BTHK[b, t, h, k] * key_BSGK[b, s, g, k]
        score *= factor
        if len(bias_BHTS) > 0:  # an axis of 1 is every place's
            B1, H1, T1, S1 = bias_BHTS.shape
            score += bias_BHTS[min(b, B1 - 1), min(h, H1 - 1), min(t, T1 - 1), min(s, S1 - 1)]
        if score > score_N[thread]:
            score_N[thread], key_N[thread] = score, s
    half = THREADS // 2
    while half > 0:
        cuda.syncthreads()
        if thread < half:
            score, s = score_N[thread + half], key_N[thread + half]
            if score > score_N[thread] or (score == score_N[thread] and s < key_N[thread]):
                score_N[thread], key_N[thread] = score, s
        half //= 2
    if thread == 0:
        best_BHT[b, h, t] = key_N[0]


def best_keys(
    query_BTHK: np.ndarray,
    key_BSGK: np.ndarray,
    *,
    seen_BT2: np.ndarray,
    factor: float = 1.0,
    vector_HK: np.ndarray | None = None,
    bias_BHTS: np.ndarray | None = None,
) -> np.ndarray:
    """The key of each query's greatest score, int64 (B, H, T), the first of equal ones; -1 where it sees none."""
    B, T, H, _ = query_BTHK.shape
    best_BHT = card.empty((B, H, T), np.int64)
    arrays = card.upload(query_BTHK), card.upload(key_BSGK), card.upload(seen_BT2), card.optional(vector_HK, 2)
    factor = np.float32(factor if vector_HK is None else 1)
    card.launch(_choose, (B * T, H), *arrays, card.optional(bias_BHTS, 4), factor, best_BHT)
    return card.download(best_BHT)


class NodeScores(NamedTuple):
    """Scores factor q . k, or where there are targets LeakyReLU(target + source), whose slope below 0 is the factor."""

    query_NHK: Any
    key_MGK: Any
    target_NH: Any
    source_MH: Any
    factor: Any


class Bells(NamedTuple):
    """exp(-(s - centre)**2 spread) of key s of a query's sentence; of no centres 1."""

    centre_NH: Any
    spread: Any
    queries: int  # of a sentence
    keys: int


class Kept(NamedTuple):
    """Where weights go: that of key e of head h of query n to ``offset_NH[n, h] + e step``; of no weights nowhere."""

    weights_W: Any
    offset_NH: Any
    step: int


@cuda.jit(device=True)
def _score(scores, n, h, g, m):
    if len(scores.target_NH) > 0:
        score = scores.target_NH[n, h] + scores.source_MH[m, h]
        return score if score > 0 else scores.factor * score
    score = float32(0)
    for k in range(scores.query_NHK.shape[2]):
        score += scores.query_NHK[n, h, k] * scores.key_MGK[m, g, k]
    return scores.factor * score


@cuda.jit(device=True)
def _bell(bells, n, h, e):
    if len(bells.centre_NH) == 0:
        return float32(1)
    distance = float32(e - n // bells.queries * bells.keys) - bells.centre_NH[n, h]
    return math.exp(-(distance * distance * bells.spread))


@card.kernel
def _attend(spans_NH2, indices_E, scores, bells, value_MGV, kept, out_NHV):
    """Keys are indices[first:stop] of a span, or without indices first to stop; THREADS at a time, one a thread.

    The softmax so far is of the keys so far: where a greater score comes, sums shrink (Milakov 2018).
    """
    shared_T = cuda.shared.array(THREADS, float32)
    weight_T = cuda.shared.array(THREADS, float32)
    key_T = cuda.shared.array(THREADS, int64)
    n, h, t = cuda.blockIdx.x, cuda.blockIdx.y, cuda.threadIdx.x
    first, stop, V = spans_NH2[n, h, 0], spans_NH2[n, h, 1], out_NHV.shape[2]
    g = h // (out_NHV.shape[1] // value_MGV.shape[1])
    for v in range(t, V, THREADS):
        out_NHV[n, h, v] = float32(0)
    top, shift, total = float32(-math.inf), float32(0), float32(0)
    for start in range(first, stop, THREADS):
        e, score = start + t, float32(-math.inf)
        cuda.syncthreads()  # whoever still adds up the keys before
        if e < stop:
            key_T[t] = indices_E[e] if len(indices_E) > 0 else e
            score = _score(scores, n, h, g, key_T[t])
            if len(kept.weights_W) > 0:
                kept.weights_W[kept.offset_NH[n, h] + e * kept.step] = score
        greatest = max(top, block_max(score, shared_T))
        shift = greatest if greatest > -math.inf else float32(0)
        weight, shrink = math.exp(score - shift), math.exp(top - shift)
        total = total * shrink + block_sum(weight, shared_T)
        weight_T[t] = weight * _bell(bells, n, h, e)
        cuda.syncthreads()
        for v in range(t, V, THREADS):
            added = float32(0)
            for i in range(min(THREADS, stop - start)):
                added += weight_T[i] * value_MGV[key_T[i], g, v]
            out_NHV[n, h, v] = out_NHV[n, h, v] * shrink + added
        top = greatest
    if total == 0:
        total = float32(1)
    for v in range(t, V, THREADS):
        out_NHV[n, h, v] /= total
    if len(kept.weights_W) > 0:
        for e in range(first + t, stop, THREADS):  # written above by the thread that reads it
            place = kept.offset_NH[n, h] + e * kept.step
            kept.weights_W[place] = math.exp(kept.weights_W[place] - shift) / total * _bell(bells, n, h, e)


def _run(spans_NH2, indices_E, scores, bells, value_MGV, offset_NH, step, weights):
    """out_NHV, a NumPy array; ``weights`` are written if given, 0 where there is no key."""
    N, H, _ = spans_NH2.shape
    kept_W = card.upload(np.zeros(0 if weights is None else weights.size, np.float32))
    kept = Kept(kept_W, card.upload(offset_NH), step)
    scores = NodeScores(*map(card.upload, scores[:4]), np.float32(scores.factor))
    out_NHV = card.empty((N, H, value_MGV.shape[2]), np.float32)
    arrays = card.upload(np.ascontiguousarray(spans_NH2)), card.optional(indices_E, 1, np.int64)
    card.launch(_attend, (N, H), *arrays, scores, bells, card.upload(value_MGV), kept, out_NHV)
    if weights is not None:
        weights[...] = card.download(kept_W).reshape(weights.shape)
    return card.download(out_NHV)


_NONE_2, _NONE_3 = np.empty((0, 0), np.float32), np.empty((0, 0, 0), np.float32)


def graph_attention(
    value_MHV: np.ndarray,
    starts_N1: np.ndarray,
    indices_E: np.ndarray,
    *,
    terms: tuple[np.ndarray, np.ndarray] | None = None,
    dots: tuple[np.ndarray, np.ndarray] | None = None,
    factor: float,
    weights_EH: np.ndarray | None = None,
) -> np.ndarray:
    """out_NHV: node n's softmax over its neighbours indices[starts[n]:starts[n + 1]], and their weighted values.

    Scores are LeakyReLU(target + source) of terms, whose slope is the factor, or factor q . k of dots.
    """
    N, H = len(starts_N1) - 1, value_MHV.shape[1]
    spans_NH2 = np.repeat(np.stack([starts_N1[:-1], starts_N1[1:]], axis=1)[:, None], H, axis=1)
    (query_NHK, key_MHK), (target_NH, source_MH) = dots or (_NONE_3, _NONE_3), terms or (_NONE_2, _NONE_2)
    scores = NodeScores(query_NHK, key_MHK, target_NH, source_MH, factor)
    bells = Bells(card.upload(_NONE_2), np.float32(0), 1, 0)
    offset_NH = np.broadcast_to(np.arange(H), (N, H))
    return _run(spans_NH2, indices_E, scores, bells, value_MHV, offset_NH, H, weights_EH)


def local_attention(
    query_BTHK: np.ndarray,
    key_BSGK: np.ndarray,
    value_BSGV: np.ndarray,
    centre_BTH: np.ndarray,
    windows_BTH2: np.ndarray,
    *,
    scale: float,
    spread: float,
    weights_BHTS: np.ndarray | None = None,
) -> np.ndarray:
    """out_BTHV: the softmax of scale q k over a window of keys, times exp(-(s - centre)**2 spread), times values."""
    (B, T, H, K), (_, S, G, V) = query_BTHK.shape, value_BSGV.shape
    firsts_B111 = np.arange(B).reshape(B, 1, 1, 1) * S  # keys are counted through all sentences
    rows_BTH1 = ((np.arange(B)[:, None, None] * H + np.arange(H)) * T + np.arange(T)[:, None])[..., None]
    scores = NodeScores(query_BTHK.reshape(-1, H, K), key_BSGK.reshape(-1, G, K), _NONE_2, _NONE_2, scale)
    bells = Bells(card.upload(centre_BTH.reshape(B * T, H)), np.float32(spread), T, S)
    spans_NH2 = (windows_BTH2 + firsts_B111).reshape(B * T, H, 2)
    offset_NH = (rows_BTH1 * S - firsts_B111).reshape(B * T, H)
    value_MGV = value_BSGV.reshape(B * S, G, V)
    return _run(spans_NH2, None, scores, bells, value_MGV, offset_NH, 1, weights_BHTS).reshape(B, T, H, V)
