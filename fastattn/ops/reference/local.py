"""Attention to a few keys around a place of each query's own: Luong 2015, local-p, equations 7 to 10."""

import numpy as np

from fastattn.ops.reference.attention import softmax


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
    """out_BTHV: a softmax over a window of keys, times exp(-(s - centre)**2 spread), times the values."""
    group, s_S = query_BTHK.shape[2] // key_BSGK.shape[2], np.arange(key_BSGK.shape[1])
    key_BSHK, value_BSHV = (np.repeat(x, group, axis=2) for x in (key_BSGK, value_BSGV))
    scores_BTHS = scale * np.einsum("bthk,bshk->bths", query_BTHK, key_BSHK)
    scores_BTHS[(s_S < windows_BTH2[..., :1]) | (s_S >= windows_BTH2[..., 1:])] = -np.inf
    found_BTHS = softmax(scores_BTHS) * np.exp(-np.square(s_S - centre_BTH[..., None]) * spread)
    if weights_BHTS is not None:
        weights_BHTS[...] = found_BTHS.transpose(0, 2, 1, 3)
    return np.einsum("bths,bshv->bthv", found_BTHS, value_BSHV).astype(query_BTHK.dtype)
