"""Masks that broadcast to (B, H, T, S): True where a query sees a key."""

from collections.abc import Sequence

import numpy as np


def padded(lengths_B: np.ndarray, keys: int) -> np.ndarray:
    return (np.arange(keys) < np.asarray(lengths_B)[:, None])[:, None, None]


def causal(queries: int, keys: int, offset_B: Sequence[int] = (0,)) -> np.ndarray:
    places_BT1 = np.arange(queries)[:, None] + np.asarray(offset_B)[:, None, None]
    return (np.arange(keys) <= places_BT1)[:, None]


def restricted(queries: int, keys: int, size: int) -> np.ndarray:
    first_T1 = np.arange(queries)[:, None] - size // 2
    return (np.arange(keys) >= first_T1) & (np.arange(keys) < first_T1 + size)


def local_monotonic(queries: int, keys: int, distance: int) -> np.ndarray:
    return np.abs(np.arange(keys) - np.arange(queries)[:, None]) <= distance


def sentences(query_starts: Sequence[int], key_starts: Sequence[int]) -> np.ndarray:
    query_T, key_S = (np.repeat(np.arange(len(starts) - 1), np.diff(starts)) for starts in (query_starts, key_starts))
    return query_T[:, None] == key_S


def neighbours(starts: Sequence[int], indices: Sequence[int], keys: int) -> np.ndarray:
    mask_TS = np.zeros((len(starts) - 1, keys), bool)
    for t, (first, stop) in enumerate(zip(starts[:-1], starts[1:])):
        mask_TS[t, indices[first:stop]] = True
    return mask_TS


def predicted_places(query_BTHK: np.ndarray, weight_HDK: np.ndarray, vector_HD: np.ndarray, keys_B: np.ndarray):
    """p_BTH = S sigmoid(v . tanh(W q)) (Luong 2015, equation 9)."""
    hidden_BTHD = np.tanh(np.einsum("bthk,hdk->bthd", query_BTHK, weight_HDK, optimize=True))
    return np.asarray(keys_B, query_BTHK.dtype)[:, None, None] / (1 + np.exp(-(hidden_BTHD * vector_HD).sum(axis=3)))


def local_predictive(places_BTH: np.ndarray, keys: int, distance: float) -> np.ndarray:
    return np.abs(np.arange(keys) - places_BTH.transpose(0, 2, 1)[..., None]) <= distance


def gaussian(places_BTH: np.ndarray, keys: int, distance: float) -> np.ndarray:
    """Luong 2015, equation 10's second factor."""
    off_BHTS = np.arange(keys).astype(places_BTH.dtype) - places_BTH.transpose(0, 2, 1)[..., None]
    return np.exp(-(off_BHTS**2) / (2 * (distance / 2) ** 2))
