"""Scores (B, H, T, S) of queries and keys."""

import numpy as np


def dot(query_BTHK: np.ndarray, key_BSHK: np.ndarray) -> np.ndarray:
    return query_BTHK.transpose(0, 2, 1, 3) @ key_BSHK.transpose(0, 2, 3, 1)


def scaled_dot(
    query_BTHK: np.ndarray,
    key_BSHK: np.ndarray,
    scale: float | None = None,
    softcap: float = 0.0,
    bias_BHTS: np.ndarray | None = None,
) -> np.ndarray:
    scores = dot(query_BTHK, key_BSHK) * (query_BTHK.shape[3] ** -0.5 if scale is None else scale)
    if softcap:
        scores = softcap * np.tanh(scores / softcap)
    return scores if bias_BHTS is None else scores + bias_BHTS


def content(query_BTHK: np.ndarray, key_BSHK: np.ndarray, sharpness: float = 1.0) -> np.ndarray:
    """Cosines; 0 for a vector of zeros."""
    query_length, key_length = (np.linalg.norm(x, axis=3).transpose(0, 2, 1) for x in (query_BTHK, key_BSHK))
    lengths = query_length[..., :, None] * key_length[..., None, :]
    return sharpness * dot(query_BTHK, key_BSHK) / np.where(lengths == 0, 1, lengths)


def general(query_BTHQ: np.ndarray, key_BSHK: np.ndarray, weight_HQK: np.ndarray) -> np.ndarray:
    return np.einsum("bthq,hqk,bshk->bhts", query_BTHQ, weight_HQK, key_BSHK, optimize=True)


def location(query_BTHK: np.ndarray, weight_HLK: np.ndarray, keys: int) -> np.ndarray:
    return np.einsum("bthk,hlk->bhtl", query_BTHK, weight_HLK[:, :keys], optimize=True)


def additive(
    query_BTHQ: np.ndarray,
    key_BSHK: np.ndarray,
    query_weight_HDQ: np.ndarray,
    key_weight_HDK: np.ndarray,
    vector_HD: np.ndarray,
    bias_HD: np.ndarray | None = None,
) -> np.ndarray:
    query_BHTD = query_BTHQ.transpose(0, 2, 1, 3) @ query_weight_HDQ.swapaxes(1, 2)
    key_BHSD = key_BSHK.transpose(0, 2, 1, 3) @ key_weight_HDK.swapaxes(1, 2)
    if bias_HD is not None:
        query_BHTD = query_BHTD + bias_HD[:, None]
    sums_BHTSD = query_BHTD[:, :, :, None] + key_BHSD[:, :, None]
    return (np.tanh(sums_BHTSD) @ vector_HD[:, None, :, None])[..., 0]


def graph(query_BTHK: np.ndarray, key_BSHK: np.ndarray, vector_HA: np.ndarray, slope: float = 0.2) -> np.ndarray:
    """LeakyReLU(a . [q; k]), a is twice as long as a query."""
    K = query_BTHK.shape[3]
    target_BHT = np.einsum("bthk,hk->bht", query_BTHK, vector_HA[:, :K])
    source_BHS = np.einsum("bshk,hk->bhs", key_BSHK, vector_HA[:, K:])
    sums_BHTS = target_BHT[..., None] + source_BHS[:, :, None]
    return np.where(sums_BHTS > 0, sums_BHTS, slope * sums_BHTS)
