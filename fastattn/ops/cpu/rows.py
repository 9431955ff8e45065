"""Operations on whole rows, in NumPy, which is as fast as a loop of ours: they are bound by memory."""

from collections.abc import Sequence

import numpy as np

from fastattn.ops.cpu.attention.memory import writeable
from fastattn.runtime.recording import unrecordable


def empty(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array of that shape, C-contiguous, of any values."""
    return np.empty(shape, dtype)


def as_rows(x: np.ndarray) -> np.ndarray:
    """A caller's array as rows: C-contiguous and aligned, a copy where it must be."""
    return writeable(np.require(x, requirements=["C", "A"]))


def take_rows(x_ND: np.ndarray, rows_R: np.ndarray) -> np.ndarray:
    """The rows of those numbers, int64, in their order: x_RD. Numbers may repeat."""
    unrecordable()
    return x_ND[rows_R]


def concatenate_rows(parts: Sequence[np.ndarray]) -> np.ndarray:
    """The rows of all parts, of which there is at least one, end to end; of one part: the part itself."""
    first, *others = parts
    if not others:
        return first
    unrecordable()
    return np.concatenate(parts)


def add_rows(x_ND: np.ndarray, y_ND: np.ndarray) -> np.ndarray:
    """x + y."""
    unrecordable()
    return x_ND + y_ND


def scale_rows(x_ND: np.ndarray, factor: float) -> np.ndarray:
    """x * factor."""
    unrecordable()
    return x_ND * x_ND.dtype.type(factor)


def average_heads(weights: np.ndarray, heads: int) -> np.ndarray:
    """The mean of the first ``heads`` heads of attention weights, [B, H, T, S] or [R, H, S]; float32, without H."""
    unrecordable()
    return weights[:, :heads].mean(axis=1)


def neighbours(x_ND: np.ndarray, starts_B1: np.ndarray, before: int, after: int) -> np.ndarray:
    """Each row with those before and after it in its sentence, zeros beyond its ends: [N, (before + 1 + after) D]."""
    unrecordable()
    N, D = x_ND.shape
    near_NMD = np.zeros((N, before + 1 + after, D), x_ND.dtype)
    for m, distance in enumerate(range(-before, after + 1)):
        if abs(distance) < N:
            near_NMD[max(-distance, 0) : N - max(distance, 0), m] = x_ND[max(distance, 0) : N + min(distance, 0)]
    places_N = np.arange(N) - np.repeat(starts_B1[:-1], np.diff(starts_B1))
    lengths_N = np.repeat(np.diff(starts_B1), np.diff(starts_B1))
    found_NM = places_N[:, None] + np.arange(-before, after + 1)
    near_NMD[(found_NM < 0) | (found_NM >= lengths_N[:, None])] = 0
    return near_NMD.reshape(N, (before + 1 + after) * D)
