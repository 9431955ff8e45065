"""How alike the vectors of two sets are: a matrix, greater where they are more alike."""

from collections.abc import Callable
from typing import Any

import numpy as np

from fastattn.errors import InputError

_LEAST_NORM = 1e-12


def unit_length(x_ND: np.ndarray) -> np.ndarray:
    """The rows divided by their length; a row of zeros stays so."""
    return x_ND / np.maximum(np.sqrt(np.square(x_ND).sum(axis=1, keepdims=True)), x_ND.dtype.type(_LEAST_NORM))


def _dot(a_AD: np.ndarray, b_BD: np.ndarray) -> np.ndarray:
    return a_AD @ b_BD.T


def _cosine(a_AD: np.ndarray, b_BD: np.ndarray) -> np.ndarray:
    return unit_length(a_AD) @ unit_length(b_BD).T


def _euclidean(a_AD: np.ndarray, b_BD: np.ndarray) -> np.ndarray:
    # In float64, since |a|^2 + |b|^2 - 2 ab cancels where a and b are close.
    a_AD, b_BD = a_AD.astype(np.float64), b_BD.astype(np.float64)
    squared_AB = np.square(a_AD).sum(axis=1)[:, None] + np.square(b_BD).sum(axis=1) - 2 * (a_AD @ b_BD.T)
    return -np.sqrt(np.maximum(squared_AB, 0))


def _manhattan(a_AD: np.ndarray, b_BD: np.ndarray) -> np.ndarray:
    return -np.stack([np.abs(a_D - b_BD).sum(axis=1) for a_D in a_AD])


SIMILARITIES: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "cosine": _cosine,
    "dot": _dot,
    "euclidean": _euclidean,
    "manhattan": _manhattan,
}


def similarity(a: np.ndarray, b: np.ndarray, function: str = "cosine") -> np.ndarray:
    """similarity_AB float32 of vectors a [A, D] or [D] with b [B, D] or [D]; distances are negative.

    function  "cosine", "dot", "euclidean" or "manhattan". Other names or shapes that do not fit are an InputError.
    """
    if function not in SIMILARITIES:
        raise InputError(f"unknown similarity {function!r}; known: {', '.join(SIMILARITIES)}")
    a_AD, b_BD = _vectors(a), _vectors(b)
    if a_AD.ndim != 2 or b_BD.ndim != 2 or a_AD.shape[1] != b_BD.shape[1]:
        raise InputError(f"vectors of one width are expected, got shapes {np.shape(a)} and {np.shape(b)}")
    if not len(a_AD) or not len(b_BD):
        return np.zeros((len(a_AD), len(b_BD)), np.float32)
    return SIMILARITIES[function](a_AD, b_BD).astype(np.float32, copy=False)


def _vectors(x: Any) -> np.ndarray:
    """``x`` as float32 rows."""
    try:
        array = np.asarray(x)
    except ValueError:  # lists of different lengths
        raise InputError("vectors of one width are expected, got lists of different lengths") from None
    if array.dtype.kind not in "iuf":
        raise InputError(f"vectors are expected, got {type(x).__name__} of {array.dtype}")
    return np.atleast_2d(array.astype(np.float32, copy=False))
