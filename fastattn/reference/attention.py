"""Attention of whole sentences, and of one query a row over a table of keys."""

import numpy as np

from fastattn.rounding import as_floats


def softmax(scores: np.ndarray) -> np.ndarray:
    """Softmax over the last axis, in place; a row of nothing but -inf gives zeros."""
    top = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    top[np.isneginf(top)] = 0
    scores -= top
    np.exp(scores, out=scores)
    total = scores.sum(axis=-1, keepdims=True)
    total[total == 0] = 1
    scores /= total
    return scores


def _heads_first(x_NE: np.ndarray, column: int, heads: int, head_width: int) -> np.ndarray:
    """[heads, N, K] view of the heads that start at ``column``."""
    return x_NE[:, column : column + heads * head_width].reshape(len(x_NE), heads, head_width).transpose(1, 0, 2)


def attention(
    query_NE: np.ndarray,
    key_ME: np.ndarray,
    value_ME: np.ndarray,
    query_starts_B1: np.ndarray,
    key_starts_B1: np.ndarray,
    *,
    heads: int,
    key_heads: int,
    head_width: int,
    query_column: int = 0,
    key_column: int = 0,
    value_column: int = 0,
    causal: bool = False,
    offset_B: np.ndarray | None = None,
    scale: float | None = None,
    bias_BHTS: np.ndarray | None = None,
    weights_BHTS: np.ndarray | None = None,
) -> np.ndarray:
    """Multi-head attention (Vaswani 2017) over a ragged batch, a sentence at a time: out_NF, F = heads * head_width.

    Head h of query row n is query[n, query_column + h K : + K]; its keys are of key head h // (heads // key_heads).
    causal        query t sees keys s <= t + offset[b], the offset being 0 where none is given.
    bias_BHTS     broadcast to (B, H, T, S), added after the scale; -inf hides a key.
    weights_BHTS  written where given: the softmax weights, 0 beyond a sentence's ends.
    A query that sees no key yields zeros.
    """
    scale = head_width**-0.5 if scale is None else scale
    out_NF = np.empty((len(query_NE), heads * head_width), query_NE.dtype)
    if weights_BHTS is not None:
        weights_BHTS[...] = 0
    for b in range(len(query_starts_B1) - 1):
        rows = slice(query_starts_B1[b], query_starts_B1[b + 1])
        keys = slice(key_starts_B1[b], key_starts_B1[b + 1])
        query_HTK = _heads_first(query_NE[rows], query_column, heads, head_width)
        key_GSK = _heads_first(key_ME[keys], key_column, key_heads, head_width)
        value_GSK = _heads_first(value_ME[keys], value_column, key_heads, head_width)
        T, S = query_HTK.shape[1], key_GSK.shape[1]
        query_GJTK = query_HTK.reshape(key_heads, heads // key_heads, T, head_width)
        scores_HTS = (query_GJTK @ key_GSK[:, None].swapaxes(2, 3)).reshape(heads, T, S)
        scores_HTS *= scale
        if bias_BHTS is not None:
            bias_HTS = bias_BHTS[b if bias_BHTS.shape[0] > 1 else 0]
            # An axis of length one is broadcast; the slice leaves it alone.
            scores_HTS += bias_HTS[:, :T, :S]
        if causal:
            offset = 0 if offset_B is None else int(offset_B[b])
            hidden_TS = np.arange(S) > np.arange(T)[:, None] + offset
            scores_HTS[:, hidden_TS] = -np.inf
        softmax(scores_HTS)
        if weights_BHTS is not None:
            weights_BHTS[b, :, :T, :S] = scores_HTS
        out_GJTK = scores_HTS.reshape(key_heads, heads // key_heads, T, S) @ value_GSK[:, None]
        out_NF[rows] = out_GJTK.reshape(heads, T, head_width).transpose(1, 0, 2).reshape(T, heads * head_width)
    return out_NF


def attention_step(
    query_RE: np.ndarray,
    key_ME: np.ndarray,
    value_ME: np.ndarray,
    index_RS: np.ndarray,
    lengths_R: np.ndarray,
    *,
    heads: int,
    key_heads: int,
    head_width: int,
    query_column: int = 0,
    key_column: int = 0,
    value_column: int = 0,
    scale: float | None = None,
    bias_RHS: np.ndarray | None = None,
    weights_RHS: np.ndarray | None = None,
) -> np.ndarray:
    """Attention of one query a row over a table of keys: row r sees key[index[r, s]] for s < lengths[r]; out_RF.

    Beams share and reorder their history through ``index_RS``; the keys are never copied in the cache itself.
    ``bias_RHS`` and ``weights_RHS`` as in ``attention``, without the query axis.
    """
    scale = head_width**-0.5 if scale is None else scale
    out_RF = np.empty((len(query_RE), heads * head_width), query_RE.dtype)
    if weights_RHS is not None:
        weights_RHS[...] = 0
    for r in range(len(query_RE)):
        index_S = index_RS[r, : lengths_R[r]]
        query_GJK = query_RE[r, query_column : query_column + heads * head_width].reshape(
            key_heads, heads // key_heads, head_width
        )
        key_GSK = _heads_first(as_floats(key_ME[index_S]), key_column, key_heads, head_width)
        value_GSK = _heads_first(as_floats(value_ME[index_S]), value_column, key_heads, head_width)
        scores_HS = (query_GJK @ key_GSK.swapaxes(1, 2)).reshape(heads, len(index_S))
        scores_HS *= scale
        if bias_RHS is not None:
            scores_HS += bias_RHS[r if bias_RHS.shape[0] > 1 else 0, :, : len(index_S)]
        softmax(scores_HS)
        if weights_RHS is not None:
            weights_RHS[r, :, : len(index_S)] = scores_HS
        out_RF[r] = (scores_HS.reshape(key_heads, heads // key_heads, len(index_S)) @ value_GSK).reshape(-1)
    return out_RF
