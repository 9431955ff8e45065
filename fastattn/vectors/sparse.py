"""Sparse vectors: compressed rows (CSR) of numbers that are mostly zero, and their similarities."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fastattn.errors import FastattnError, InputError


@dataclass(frozen=True, eq=False)
class SparseVectors:
    """Vectors [B, V], of which only numbers other than zero are stored: row b has entries indptr[b] to indptr[b + 1].

    data     float32, the numbers
    indices  int32, their columns, ascending within a row
    indptr   int64 [B + 1]
    shape    (B, V)
    """

    data: np.ndarray
    indices: np.ndarray
    indptr: np.ndarray
    shape: tuple[int, int]

    def __len__(self) -> int:
        return self.shape[0]

    def row(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """(columns, numbers) of the row."""
        entries = slice(int(self.indptr[number]), int(self.indptr[number + 1]))
        return self.indices[entries], self.data[entries]

    def to_dense(self) -> np.ndarray:
        """float32 [B, V], zeros included."""
        dense_BV = np.zeros(self.shape, np.float32)
        dense_BV[np.repeat(np.arange(len(self)), np.diff(self.indptr)), self.indices] = self.data
        return dense_BV

    def to_scipy(self) -> Any:
        """A ``scipy.sparse.csr_matrix`` of the same arrays; needs scipy."""
        try:
            from scipy.sparse import csr_matrix
        except ImportError:
            raise FastattnError('scipy is not installed: pip install scipy, or take format="csr"') from None
        return csr_matrix((self.data, self.indices, self.indptr), shape=self.shape)


def join_rows(rows: list[tuple[np.ndarray, np.ndarray]], width: int) -> SparseVectors:
    """Vectors of ``width`` columns from each one's (columns, numbers)."""
    indptr = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([len(indices) for indices, _ in rows], out=indptr[1:])
    indices = np.concatenate([np.empty(0, np.int32), *(indices for indices, _ in rows)])
    data = np.concatenate([np.empty(0, np.float32), *(data for _, data in rows)])
    return SparseVectors(data, indices, indptr, (len(rows), width))


def checked_vectors(vectors: Any, width: int | None = None) -> SparseVectors:
    """``vectors``, SparseVectors or a CSR matrix such as scipy's, as SparseVectors; InputError for anything else.

    width  how many columns they must have; None: any number
    """
    data, indices, indptr = (getattr(vectors, name, None) for name in ("data", "indices", "indptr"))
    shape: tuple[int, ...] = tuple(getattr(vectors, "shape", ()))
    if not (isinstance(data, np.ndarray) and isinstance(indices, np.ndarray) and isinstance(indptr, np.ndarray)):
        raise InputError(f"sparse vectors are expected, as encode returns them, got {type(vectors).__name__}")
    fit = len(shape) == 2 and indptr.shape == (shape[0] + 1,) and data.shape == indices.shape and data.ndim == 1
    if not fit or indptr[0] != 0 or indptr[-1] != len(data) or (np.diff(indptr) < 0).any():
        raise InputError("the arrays of sparse vectors do not fit each other")
    checked = SparseVectors(data, indices, indptr, (int(shape[0]), int(shape[1])))
    if len(checked.indices) and not 0 <= checked.indices.min() <= checked.indices.max() < checked.shape[1]:
        raise InputError(f"sparse vectors of {checked.shape[1]} columns have one numbered {checked.indices.max()}")
    if width is not None and checked.shape[1] != width:
        raise InputError(f"sparse vectors of {width} columns are expected, got {checked.shape[1]}")
    return checked


def sparse_similarity(a: Any, b: Any, name: str) -> np.ndarray:
    """similarity_AB float32 of two sets of vectors, by a function of search.SIMILARITIES; sums are in float64."""
    first = checked_vectors(a)
    second = checked_vectors(b, first.shape[1])
    similarity_AB = np.empty((len(first), len(second)), np.float64)
    values = second.data.astype(np.float64)
    for number in range(len(first)):
        columns, numbers = first.row(number)
        dense_V = np.zeros(first.shape[1])
        dense_V[columns] = numbers
        dense = dense_V[second.indices]
        # over the columns where both vectors have a number; below come the sums over each vector alone
        shared = values * dense if name != "manhattan" else np.abs(values - dense) - np.abs(values) - np.abs(dense)
        similarity_AB[number] = _sums(second, shared)
    if name == "manhattan":
        lengths_A, lengths_B = (_sums(vectors, np.abs(vectors.data.astype(np.float64))) for vectors in (first, second))
        similarity_AB = -(lengths_A[:, None] + lengths_B + similarity_AB)
    elif name != "dot":
        squares_A, squares_B = (_sums(vectors, vectors.data.astype(np.float64) ** 2) for vectors in (first, second))
        if name == "euclidean":
            similarity_AB = -np.sqrt(np.maximum(squares_A[:, None] + squares_B - 2 * similarity_AB, 0))
        else:
            lengths_AB = np.sqrt(squares_A)[:, None] * np.sqrt(squares_B)
            zeros_AB = np.zeros_like(similarity_AB)
            similarity_AB = np.divide(similarity_AB, lengths_AB, out=zeros_AB, where=lengths_AB > 0)
    return similarity_AB.astype(np.float32)


def _sums(vectors: SparseVectors, values: np.ndarray) -> np.ndarray:
    owners = np.repeat(np.arange(len(vectors)), np.diff(vectors.indptr))
    return np.bincount(owners, values, minlength=len(vectors))
