"""Attention over whole sentences, and over tables of keys and values."""

from typing import NamedTuple

import numpy as np

from fastattn.arguments.attention import Heads, KeyIndex, PositionBias, RaggedBatch
from fastattn.spec.rounding import as_floats


def softmax_in_place(scores: np.ndarray) -> np.ndarray:
    """Softmax over the last axis, in place; zeros for a row that is -inf throughout."""
    top = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    top[np.isneginf(top)] = 0
    scores -= top
    np.exp(scores, out=scores)
    total = scores.sum(axis=-1, keepdims=True)
    total[total == 0] = 1
    scores /= total
    return scores


class Distances(NamedTuple):
    """Rows of distances, see ``pack_distances``."""

    key_HLK: np.ndarray | None
    query_HLK: np.ndarray | None


def pack_distances(key_LE: np.ndarray | None, query_LE: np.ndarray | None, heads: Heads) -> Distances:
    H, K = heads.query_heads, heads.width
    return Distances(*(None if x_LE is None else _heads_first(x_LE, 0, H, K) for x_LE in (key_LE, query_LE)))


def distance_scores(query_HTK: np.ndarray, key_HSK: np.ndarray, distances: Distances) -> np.ndarray:
    """scores_HTS: the products of queries and of keys with rows of distances, without the scale."""
    (H, T, _), S = query_HTK.shape, key_HSK.shape[1]
    scores_HTS = np.zeros((H, T, S), query_HTK.dtype)
    distance_TS = np.arange(S) - np.arange(T)[:, None]
    for rows_HLK, formula, content_HNK in (
        (distances.key_HLK, "htk,htsk->hts", query_HTK),
        (distances.query_HLK, "hsk,htsk->hts", key_HSK),
    ):
        if rows_HLK is not None:
            farthest = rows_HLK.shape[1] // 2
            rows_HTSK = rows_HLK[:, np.clip(distance_TS, -farthest, farthest) + farthest]
            scores_HTS += np.einsum(formula, content_HNK, rows_HTSK)
    return scores_HTS


def scores_of(
    query_GJTK: np.ndarray, key_GSK: np.ndarray, heads: Heads, distances: Distances | None = None
) -> np.ndarray:
    """scores_HTS, scaled and capped, for J query heads of each key head."""
    G, J, T, K = query_GJTK.shape
    scores_HTS = (query_GJTK @ key_GSK[:, None].swapaxes(2, 3)).reshape(G * J, T, key_GSK.shape[1])
    if distances is not None:
        scores_HTS += distance_scores(query_GJTK[:, 0], key_GSK, distances)
    scores_HTS *= K**-0.5 if heads.scale is None else heads.scale
    if heads.softcap:
        scores_HTS = np.tanh(scores_HTS / heads.softcap) * heads.softcap
    return scores_HTS


def _heads_first(x_NE: np.ndarray, column: int, heads: int, head_width: int) -> np.ndarray:
    """A view [heads, N, K] of the heads from ``column`` on."""
    return x_NE[:, column : column + heads * head_width].reshape(len(x_NE), heads, head_width).transpose(1, 0, 2)


def seen_around(
    query_starts_B1: np.ndarray, lengths_B: np.ndarray, offset_B: np.ndarray, before: int, after: int
) -> np.ndarray:
    sentences_N = np.repeat(np.arange(len(lengths_B)), np.diff(query_starts_B1))
    positions_N = np.arange(query_starts_B1[-1]) - query_starts_B1[:-1][sentences_N]
    positions_N += offset_B[sentences_N % len(offset_B)]
    stops_N = lengths_B[sentences_N].astype(np.int64)
    if after >= 0:
        stops_N = np.minimum(stops_N, positions_N + after + 1)
    firsts_N = np.maximum(positions_N - before, 0) if before >= 0 else np.zeros_like(stops_N)
    return np.stack([firsts_N, stops_N], axis=1)


def bias_values(bias: PositionBias, positions_T: np.ndarray, keys: int) -> np.ndarray:
    """bias_HTS of queries at ``positions_T`` and keys 0 .. keys - 1."""
    distance_TS = np.arange(keys) - positions_T[:, None]
    if bias.table_HL is not None:
        return bias.table_HL[:, distance_TS + bias.table_HL.shape[1] // 2]
    if bias.slopes_H is None:
        return np.zeros((1, *distance_TS.shape), bool)
    factor_TS = np.broadcast_to(np.arange(keys), distance_TS.shape) if bias.from_start else distance_TS
    return bias.slopes_H[:, None, None] * factor_TS.astype(bias.slopes_H.dtype)


def attention(
    query_NE: np.ndarray,
    key_ME: np.ndarray,
    value_ME: np.ndarray,
    batch: RaggedBatch,
    heads: Heads,
    *,
    bias_BHTS: np.ndarray | None = None,
    position_bias: PositionBias | None = None,
    distances: Distances | None = None,
    weights_BHTS: np.ndarray | None = None,
) -> np.ndarray:
    H, G, K, V = heads.query_heads, heads.key_heads, heads.width, heads.value_width or heads.width
    out_NF = np.empty((len(query_NE), H * V), query_NE.dtype)
    if weights_BHTS is not None:
        weights_BHTS[...] = 0
    query_starts_B1, key_starts_B1, seen_N2, sinks = batch
    for b in range(len(query_starts_B1) - 1):
        rows = slice(query_starts_B1[b], query_starts_B1[b + 1])
        keys = slice(key_starts_B1[b], key_starts_B1[b + 1])
        query_HTK = _heads_first(query_NE[rows], heads.query_column, H, K)
        key_GSK = _heads_first(key_ME[keys], heads.key_column, G, K)
        value_GSV = _heads_first(value_ME[keys], heads.value_column, G, V)
        T, S = query_HTK.shape[1], key_GSK.shape[1]
        scores_HTS = scores_of(query_HTK.reshape(G, H // G, T, K), key_GSK, heads, distances)
        if bias_BHTS is not None:
            bias_HTS = bias_BHTS[b if bias_BHTS.shape[0] > 1 else 0]
            # An axis of length one is broadcast; the slice does not change it.
            scores_HTS += bias_HTS[:, :T, :S]
        if position_bias is not None:
            scores_HTS += bias_values(position_bias, np.arange(T), S)
        if seen_N2 is not None:
            first_T1, stop_T1 = seen_N2[rows, :1], seen_N2[rows, 1:]
            s_S = np.arange(S)
            before_TS = (s_S < first_T1) & ((s_S >= sinks) | (first_T1 >= stop_T1))
            scores_HTS[:, before_TS | (s_S >= stop_T1)] = -np.inf
        softmax_in_place(scores_HTS)
        if weights_BHTS is not None:
            weights_BHTS[b, :, :T, :S] = scores_HTS
        out_HTV = (scores_HTS.reshape(G, H // G, T, S) @ value_GSV[:, None]).reshape(H, T, V)
        out_NF[rows] = out_HTV.transpose(1, 0, 2).reshape(T, H * V)
    return out_NF


def _floats_of(rows_SE: np.ndarray, width: int) -> np.ndarray:
    """A table's rows as floats; in an int8 table each head of ``width`` numbers has its scale behind it."""
    if rows_SE.dtype != np.int8:
        return as_floats(rows_SE)
    heads = rows_SE.shape[1] // (width + 4)
    rows_SHK = rows_SE[:, : heads * (width + 4)].reshape(len(rows_SE), heads, width + 4)
    scales_SH1 = np.ascontiguousarray(rows_SHK[..., width:]).view(np.float32)
    return (rows_SHK[..., :width] * scales_SH1).reshape(len(rows_SE), heads * width)


def attention_step(
    query_NE: np.ndarray,
    key_ME: np.ndarray,
    value_ME: np.ndarray,
    key_index: KeyIndex,
    heads: Heads,
    *,
    bias_NHS: np.ndarray | None = None,
    position_bias: PositionBias | None = None,
    weights_NHS: np.ndarray | None = None,
    vector_HK: np.ndarray | None = None,
) -> np.ndarray:
    index_RS, stops_N, rows_N, firsts_N, window = key_index
    H, G, K, V = heads.query_heads, heads.key_heads, heads.width, heads.value_width or heads.width
    out_NF = np.empty((len(query_NE), H * V), query_NE.dtype)
    if weights_NHS is not None:
        weights_NHS[...] = 0
    for n in range(len(query_NE)):
        first, stop = 0 if firsts_N is None else firsts_N[n], stops_N[n]
        if window:
            first = max(first, stop - window)
        index_S = index_RS[n if rows_N is None else rows_N[n], first:stop]
        query_HK = query_NE[n, heads.query_column : heads.query_column + H * K]
        key_GSK = _heads_first(_floats_of(key_ME[index_S], K), heads.key_column, G, K)
        value_GSV = _heads_first(_floats_of(value_ME[index_S], V), heads.value_column, G, V)
        # query heads that share a key head are treated as queries of one head
        if vector_HK is None:
            scores_HS = scores_of(query_HK.reshape(G, 1, H // G, K), key_GSK, heads).reshape(H, len(index_S))
        else:
            sums_HSK = query_HK.reshape(H, 1, K) + key_GSK.repeat(H // G, axis=0)
            scores_HS = (np.tanh(sums_HSK) @ vector_HK[:, :, None])[..., 0]
        if bias_NHS is not None:
            scores_HS += bias_NHS[n if bias_NHS.shape[0] > 1 else 0, :, first:stop]
        if position_bias is not None and len(index_S):
            scores_HS += bias_values(position_bias, np.array([stop - 1]), int(stop))[:, 0, first:]
        softmax_in_place(scores_HS)
        if weights_NHS is not None:
            weights_NHS[n, :, first:stop] = scores_HS
        out_NF[n] = (scores_HS.reshape(G, H // G, len(index_S)) @ value_GSV).reshape(-1)
    return out_NF
