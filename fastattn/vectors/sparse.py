"""Sparse vectors, which are compressed rows (CSR) of numbers that are mostly zero, and the vectors' similarities."""

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
    """Vectors of ``width`` columns from the (columns, numbers) of each row."""
    indptr = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([len(indices) for indices, _ in rows], out=indptr[1:])
    indices = np.concatenate([np.empty(0, np.int32), *(indices for indices, _ in rows)])
    data = np.concatenate([np.empty(0, np.float32), *(data for _, data in rows)])
    return SparseVectors(data, indices, indptr, (len(rows), width))


def checked_vectors(vectors: Any, width: int | None = None) -> SparseVectors:
    """``vectors``, SparseVectors or a CSR matrix such as scipy's, as SparseVectors; InputError for anything else.

    width  how many columns the vectors must have; None: any number
    """
    data, indices, indptr = (getattr(vectors, name, None) for name in ("data", "indices", "indptr"))
    shape: tuple[int, ...] = tuple(getattr(vectors, "shape", ()))
    if not (isinstance(data, np.ndarray) and isinstance(indices, np.ndarray) and isinstance(indptr, np.ndarray)):
        raise InputError(f"sparse vectors are expected, as encode returns them, got {type(vectors).__name__}")
    is_csr = len(shape) == 2 and indptr.shape == (shape[0] + 1,) and data.shape == indices.shape and data.ndim == 1
    if not is_csr or indptr[0] != 0 or indptr[-1] != len(data) or (np.diff(indptr) < 0).any():
        raise InputError("the arrays of sparse vectors do not fit each other")
    rows, columns = int(shape[0]), int(shape[1])
    if len(indices) and not 0 <= indices.min() <= indices.max() < columns:
        raise InputError(f"sparse vectors of {columns} columns have one numbered {indices.max()}")
    if width is not None and columns != width:
        raise InputError(f"sparse vectors of {width} columns are expected, got {columns}")
    return SparseVectors(data, indices, indptr, (rows, columns))


def sparse_similarity(a: Any, b: Any, name: str) -> np.ndarray:
    """similarity_AB float32 of two sets of vectors, by the function ``name`` of search.SIMILARITIES; float64 inside."""
    vectors_A = checked_vectors(a)
    vectors_B = checked_vectors(b, vectors_A.shape[1])
    similarity_AB = np.empty((len(vectors_A), len(vectors_B)), np.float64)
    b_values = vectors_B.data.astype(np.float64)
    for index in range(len(vectors_A)):
        columns, numbers = vectors_A.row(index)
        dense_V = np.zeros(vectors_A.shape[1])
        dense_V[columns] = numbers
        x, y = b_values, dense_V[vectors_B.indices]
        # Terms of the columns where both vectors have a number; the sums over each vector alone are added below.
        terms = x * y if name != "manhattan" else np.abs(x - y) - np.abs(x) - np.abs(y)
        similarity_AB[index] = _row_sums(vectors_B, terms)
    a_values = vectors_A.data.astype(np.float64)
    if name == "manhattan":
        lengths_A, lengths_B = _row_sums(vectors_A, np.abs(a_values)), _row_sums(vectors_B, np.abs(b_values))
        similarity_AB = -(lengths_A[:, None] + lengths_B + similarity_AB)
    elif name != "dot":
        squares_A, squares_B = _row_sums(vectors_A, a_values**2), _row_sums(vectors_B, b_values**2)
        if name == "euclidean":
            similarity_AB = -np.sqrt(np.maximum(squares_A[:, None] + squares_B - 2 * similarity_AB, 0))
        else:
            lengths_AB = np.sqrt(squares_A)[:, None] * np.sqrt(squares_B)
            similarity_AB = np.divide(similarity_AB, lengths_AB, out=np.zeros_like(similarity_AB), where=lengths_AB > 0)
    return similarity_AB.astype(np.float32)


def _row_sums(vectors: SparseVectors, values: np.ndarray) -> np.ndarray:
    rows = np.repeat(np.arange(len(vectors)), np.diff(vectors.indptr))
    return np.bincount(rows, values, minlength=len(vectors))
