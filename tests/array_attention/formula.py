"""Attention by its formula in NumPy, in the dtype of its inputs, with every argument of fastattn.attention."""

import numpy as np

from tests.kernels.cases import near


def seen_keys(T, S, *, lengths_B, causal=False, offset_B=(0,), window=None, sinks=0):
    """bool [B, 1, T, S]."""
    t_T1, s_S = np.arange(T)[:, None], np.arange(S)
    left, right = (np.inf if side is None else side for side in window or (None, None))
    seen = []
    for length, offset in zip(lengths_B, offset_B):
        at_T1 = t_T1 + offset
        shown_TS = np.broadcast_to(s_S < length, (T, S))
        if causal:
            shown_TS = shown_TS & (s_S <= at_T1)
        one_TS = shown_TS & (s_S >= at_T1 - left) & (s_S <= at_T1 + right)
        seen.append(one_TS | (shown_TS & (s_S < sinks) & one_TS.any(axis=1, keepdims=True)))
    return np.array(seen).reshape(len(lengths_B), 1, T, S)


def attend(query, key, value, *, layout="BTHK", dtype=np.float64, **options):
    """(out in the layout, weights_BHTS, logsumexp_BHT) of arrays [B, T, H, K] or [B, H, T, K]."""
    if layout == "BHTK":
        query, key, value = (x.swapaxes(1, 2) for x in (query, key, value))
    (B, T, H, K), S = query.shape, key.shape[1]
    query, key, value = (x.astype(dtype) for x in (query, key, value))
    key, value = (np.repeat(x, H // x.shape[2], axis=2) for x in (key, value))
    scale = options.get("scale")
    scores = np.einsum("bthk,bshk->bhts", query, key) * dtype(K**-0.5 if scale is None else scale)
    if options.get("softcap"):
        with np.errstate(over="ignore"):
            scores = options["softcap"] * np.tanh(scores / options["softcap"])
    if options.get("score_mod"):
        scores = options["score_mod"](scores)
    if options.get("bias") is not None:
        scores = scores + options["bias"].astype(dtype)
    lengths_B = np.broadcast_to(S if options.get("lengths") is None else options["lengths"], (B,))
    offset = 0 if options.get("offset") is None else options["offset"]
    offset_B = lengths_B - T if isinstance(offset, str) else np.broadcast_to(offset, (B,))
    sinks = options.get("sinks")
    first = sinks if isinstance(sinks, int) else 0
    seen = seen_keys(
        T, S, lengths_B=lengths_B, causal=options.get("causal", False), offset_B=offset_B,
        window=options.get("window"), sinks=first,
    )  # fmt: skip
    if options.get("mask") is not None:
        seen = seen & options["mask"]
    scores = np.where(np.broadcast_to(seen, scores.shape), scores, -np.inf)
    logit = np.broadcast_to(-np.inf if sinks is None or isinstance(sinks, int) else sinks[:, None, None], (H, 1, 1))
    top = np.maximum(scores.max(axis=-1, keepdims=True, initial=-np.inf), logit.astype(dtype))
    shift = np.where(np.isneginf(top), 0, top)
    weights = np.exp(scores - shift)
    total = weights.sum(axis=-1, keepdims=True) + np.exp(logit - shift)
    with np.errstate(divide="ignore"):
        logs = (np.log(total) + shift)[..., 0]
    weights = weights / np.where(total == 0, 1, total)
    out = np.einsum("bhts,bshk->bthk", weights, value)
    return out.swapaxes(1, 2) if layout == "BHTK" else out, weights, logs


def check_near(got, formula):
    """The results are those of ``formula(dtype)`` in float64, within twice its error in float32, and a floor."""
    for results in zip(got, formula(np.float32), formula(np.float64)):
        near(*results)
