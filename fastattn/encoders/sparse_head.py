"""From an encoder's last hidden states to sparse vectors over its vocabulary: SPLADE (Formal 2021)."""

from collections.abc import Iterator

import numpy as np

from fastattn.errors import CheckpointError
from fastattn.models.head import Head
from fastattn.spec.text_spec import SPARSE_ACTIVATIONS, SPARSE_POOLINGS, SparseText

# Numbers of dense vectors that are there at once, 16 MB: those of some texts, whose zeros are dropped before the next.
MOST_NUMBERS = 1 << 22
# Rows of a text whose numbers are there at once, where they are added up.
SUM_ROWS = 32


class SparseHead:
    """Makes sparse vectors of what ``head`` gives each token; CheckpointError for settings that are not known."""

    def __init__(self, head: Head, text: SparseText):
        for kind, value, known in (
            ("pooling", text.pooling, SPARSE_POOLINGS),
            ("activation", text.activation, SPARSE_ACTIVATIONS),
        ):
            if value not in known:
                raise CheckpointError(f"unknown {kind} {value!r} of sparse vectors; known: {', '.join(known)}")
        self._head, self._text = head, text

    def rows(self, rows_ND: np.ndarray, starts_B1: np.ndarray, most: int | None) -> list[tuple[np.ndarray, np.ndarray]]:
        """(columns int32, ascending, numbers float32 above 0) of each sentence.

        most  how many of its greatest numbers a sentence keeps, of equal ones those of the lower columns; None: all
        Raises CheckpointError where the weights give NaN or infinity.
        """
        make = self._largest if self._text.pooling == "max" else self._sums
        step = max(1, MOST_NUMBERS // self._head.spec.outputs)
        found = []
        for first in range(0, len(starts_B1) - 1, step):
            for columns, numbers in make(rows_ND, starts_B1[first : first + step + 1]):
                if not np.isfinite(numbers).all():
                    raise CheckpointError("the model's output is not a number: its weights hold NaN, or overflow")
                if most is not None and len(columns) > most:
                    kept = np.sort(np.argsort(-numbers, kind="stable")[:most])
                    columns, numbers = columns[kept], numbers[kept]
                found.append((columns.astype(np.int32), numbers))
        return found

    def _largest(self, rows_ND: np.ndarray, starts_B1: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for peaks_V in self._head.peaks(rows_ND, starts_B1):  # the activation keeps their order
            columns = np.flatnonzero(peaks_V)
            yield columns, self._activated(peaks_V[columns])

    def _sums(self, rows_ND: np.ndarray, starts_B1: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for start, end in zip(starts_B1, starts_B1[1:]):
            total_V = np.zeros(self._head.spec.outputs, np.float32)
            for first in range(start, end, SUM_ROWS):
                numbers_TV = self._head(rows_ND, np.array([first, min(first + SUM_ROWS, end)]))
                total_V += self._activated(np.maximum(numbers_TV, 0)).sum(axis=0)
            columns = np.flatnonzero(total_V)
            yield columns, total_V[columns]

    def _activated(self, numbers: np.ndarray) -> np.ndarray:
        logarithms = np.log1p(numbers)
        return np.asarray(logarithms if self._text.activation == "relu" else np.log1p(logarithms))
