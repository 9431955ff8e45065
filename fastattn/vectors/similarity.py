"""Similarities of two sets of vectors, of all with all or pair by pair: greater is more similar."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from fastattn.errors import InputError

_LEAST_NORM = 1e-12


def unit_length(x_ND: np.ndarray) -> np.ndarray:
    """The rows divided by their length; zero rows stay zero."""
    with np.errstate(over="ignore"):
        lengths_N1 = np.sqrt(np.square(x_ND).sum(axis=1, keepdims=True))
    if np.isinf(lengths_N1).any():  # the squares overflowed: as quotients of the row's greatest number they do not
        greatest_N1 = np.abs(x_ND).max(axis=1, keepdims=True)
        large_N1 = np.isinf(lengths_N1) & np.isfinite(greatest_N1)
        x_ND = x_ND / np.where(large_N1, greatest_N1, x_ND.dtype.type(1))
        lengths_N1 = np.where(large_N1, np.sqrt(np.square(x_ND).sum(axis=1, keepdims=True)), lengths_N1)
    return x_ND / np.maximum(lengths_N1, x_ND.dtype.type(_LEAST_NORM))


def _finite(products: Callable, a_ND: np.ndarray, b_ND: np.ndarray) -> np.ndarray:
    """Products of the rows; in float64 where float32 overflows."""
    with np.errstate(over="ignore", invalid="ignore"):
        found = products(a_ND, b_ND)
        return found if np.isfinite(found).all() else products(a_ND.astype(np.float64), b_ND.astype(np.float64))


def _products(a_AD: np.ndarray, b_BD: np.ndarray) -> np.ndarray:
    return a_AD @ b_BD.T


def _pairwise_products(a_ND: np.ndarray, b_ND: np.ndarray) -> np.ndarray:
    return np.einsum("nd,nd->n", a_ND, b_ND)


def _euclidean(a_AD: np.ndarray, b_BD: np.ndarray) -> np.ndarray:
    # In float64, since |a|^2 + |b|^2 - 2 ab cancels where a and b are close.
    a_AD, b_BD = a_AD.astype(np.float64), b_BD.astype(np.float64)
    squared_AB = np.square(a_AD).sum(axis=1)[:, None] + np.square(b_BD).sum(axis=1) - 2 * (a_AD @ b_BD.T)
    return -np.sqrt(np.maximum(squared_AB, 0))


def _manhattan(a_AD: np.ndarray, b_BD: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # beyond float32 it is infinite
        return -np.stack([np.abs(a_D - b_BD).sum(axis=1) for a_D in a_AD])


SIMILARITIES: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "cosine": lambda a_AD, b_BD: _products(unit_length(a_AD), unit_length(b_BD)),
    "dot": partial(_finite, _products),
    "euclidean": _euclidean,
    "manhattan": _manhattan,
}


def _pairwise_euclidean(a_ND: np.ndarray, b_ND: np.ndarray) -> np.ndarray:
    differences_ND = np.subtract(a_ND, b_ND, dtype=np.float64)
    return -np.sqrt(_pairwise_products(differences_ND, differences_ND))


def _pairwise_manhattan(a_ND: np.ndarray, b_ND: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # beyond float32 it is infinite
        return -np.abs(a_ND - b_ND).sum(axis=1)


PAIRWISE_SIMILARITIES: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "cosine": lambda a_ND, b_ND: _pairwise_products(unit_length(a_ND), unit_length(b_ND)),
    "dot": partial(_finite, _pairwise_products),
    "euclidean": _pairwise_euclidean,
    "manhattan": _pairwise_manhattan,
}


def similarity(a: np.ndarray, b: np.ndarray, function: str = "cosine") -> np.ndarray:
    """similarity_AB float32 of vectors a [A, D] or [D] with b [B, D] or [D]; distances are negative.

    function  "cosine", "dot", "euclidean" or "manhattan". Other names or shapes that do not fit are an InputError.
    """
    a_AD, b_BD = _of_one_width(a, b, function)
    if not len(a_AD) or not len(b_BD):
        return np.zeros((len(a_AD), len(b_BD)), np.float32)
    return _float32(SIMILARITIES[function](a_AD, b_BD))


def similarity_pairwise(a: np.ndarray, b: np.ndarray, function: str = "cosine") -> np.ndarray:
    """similarity_N float32 of each vector of a [N, D] or [D] with that of the same number in b; otherwise as above."""
    a_ND, b_ND = _of_one_width(a, b, function)
    if len(a_ND) != len(b_ND):
        raise InputError(f"pairs of vectors are expected, got shapes {np.shape(a)} and {np.shape(b)}")
    if not len(a_ND):
        return np.zeros(0, np.float32)
    return _float32(PAIRWISE_SIMILARITIES[function](a_ND, b_ND))


def _of_one_width(a: Any, b: Any, function: str) -> tuple[np.ndarray, np.ndarray]:
    """a_AD, b_BD. Raises InputError for what they or the function's name cannot be."""
    if function not in SIMILARITIES:
        raise InputError(f"unknown similarity {function!r}; known: {', '.join(SIMILARITIES)}")
    a_AD, b_BD = _vectors(a), _vectors(b)
    if a_AD.ndim != 2 or b_BD.ndim != 2 or a_AD.shape[1] != b_BD.shape[1]:
        raise InputError(f"vectors of one width are expected, got shapes {np.shape(a)} and {np.shape(b)}")
    return a_AD, b_BD


def _float32(found: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return found.astype(np.float32, copy=False)


def _vectors(x: Any) -> np.ndarray:
    """``x`` as float32 rows; float64 where a number is beyond float32."""
    try:
        array = np.asarray(x)
    except ValueError:  # lists of different lengths
        raise InputError("vectors of one width are expected, got lists of different lengths") from None
    if array.dtype.kind not in "iuf":
        raise InputError(f"vectors are expected, got {type(x).__name__} of {array.dtype}")
    with np.errstate(over="ignore"):
        rows = array.astype(np.float32, copy=False)
    if array.dtype.kind == "f" and array.dtype != np.float32 and (np.isinf(rows) & np.isfinite(array)).any():
        rows = array.astype(np.float64, copy=False)
    return np.atleast_2d(rows)
