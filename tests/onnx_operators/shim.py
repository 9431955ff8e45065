"""Stands in for arguments that fastattn.attention is about to have."""

import itertools

import numpy as np

import fastattn


def widen(a):
    return (a.astype(np.uint32) << 16).view(np.float32) if a.dtype == np.uint16 else a.astype(np.float32)


def attention(
    query,
    key,
    value,
    *,
    layout,
    window=None,
    mask=None,
    bias=None,
    offset=None,
    causal=False,
    score_mod=None,
    return_weights=False,
    **more,
):
    dtype = query.dtype
    q, k, v = (np.ascontiguousarray(widen(a).transpose(0, 2, 1, 3)) for a in (query, key, value))
    B, T, H, K = q.shape
    S = k.shape[1]
    bias = np.broadcast_to(np.float32(0) if bias is None else bias, (B, H, T, S)).copy()
    if mask is not None:
        bias[~np.broadcast_to(mask, bias.shape)] = -np.inf
    p = np.arange(T)[:, None] + np.broadcast_to(0 if offset is None else offset, B).reshape(B, 1, 1, 1)
    s = np.arange(S)
    if window:
        left, right = window
        seen = np.ones(p.shape[:3] + (S,), bool)
        if left is not None:
            seen &= p - left <= s
        if right is not None:
            seen &= s <= p + right
        bias[~np.broadcast_to(seen, bias.shape)] = -np.inf
    if score_mod is not None:
        scale = more.get("scale") or K**-0.5
        kk = np.repeat(k, H // k.shape[2], axis=2)
        scores = np.einsum("bthk,bshk->bhts", q, kk) * np.float32(scale)
        for at in itertools.product(*map(range, scores.shape)):
            bias[at] += np.float32(score_mod(scores[at], *at)) - scores[at]
    r = fastattn.attention(
        q, k, v, bias=bias, causal=causal, offset=offset if causal else None, return_weights=return_weights, **more
    )
    out, w = r if return_weights else (r, None)
    out = out.transpose(0, 2, 1, 3)
    if dtype == np.uint16:
        bits = np.ascontiguousarray(out).view(np.uint32)
        out = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    else:
        out = out.astype(dtype)
    return (out, w) if return_weights else out
