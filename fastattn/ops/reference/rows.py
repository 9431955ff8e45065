"""Operations on whole rows."""

from collections.abc import Sequence

import numpy as np


def empty(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array of NaN, which shows any value that is read before it is written."""
    return np.full(shape, np.nan, dtype)


def as_rows(x: np.ndarray) -> np.ndarray:
    """A caller's array as rows."""
    return np.ascontiguousarray(x)


def take_rows(x_ND: np.ndarray, rows_R: np.ndarray) -> np.ndarray:
    """The rows with these numbers, in their order."""
    return np.take(x_ND, rows_R, axis=0)


def concatenate_rows(parts: Sequence[np.ndarray]) -> np.ndarray:
    """The rows of all parts end to end."""
    return np.concatenate(parts)


def add_rows(x_ND: np.ndarray, y_ND: np.ndarray) -> np.ndarray:
    """x + y."""
    return np.add(x_ND, y_ND)


def scale_rows(x_ND: np.ndarray, factor: float) -> np.ndarray:
    """x * factor."""
    return np.multiply(x_ND, factor, dtype=x_ND.dtype)


def average_heads(weights: np.ndarray, heads: int) -> np.ndarray:
    """The mean of the first ``heads`` heads of attention weights, [B, H, T, S] or [R, H, S]."""
    return sum(weights[:, h] for h in range(heads)) / weights.dtype.type(heads)


def neighbours(x_ND: np.ndarray, starts_B1: np.ndarray, before: int, after: int) -> np.ndarray:
    """Each row with those before and after it in its sentence, zeros beyond its ends: [N, (before + 1 + after) D]."""
    parts = [np.empty((0, (before + 1 + after) * x_ND.shape[1]), x_ND.dtype)]
    for start, end in zip(starts_B1, starts_B1[1:]):
        padded_MD = np.pad(x_ND[start:end], ((before, after), (0, 0)))
        parts.append(np.concatenate([padded_MD[m : m + end - start] for m in range(before + 1 + after)], axis=1))
    return np.concatenate(parts)
