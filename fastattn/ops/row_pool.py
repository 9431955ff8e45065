"""Rows of keys and values, or of states, which caches take by number and give back."""

from collections.abc import Sequence

import numpy as np

from fastattn.ops.protocol import Ops


class RowPool:
    """Tables of rows, one table a layer; a row is taken and given back by its number, in all layers.

    rows    how many to begin with; the pool doubles when they run out. A page takes memory once it is written.
    layers  for each layer a table [M, E] or wider, from ``empty_table``
    """

    def __init__(self, ops: Ops, widths: Sequence[int], dtype: np.dtype, rows: int):
        self.ops = ops
        self.layers = [ops.empty_table(rows, width, dtype) for width in widths]
        self._free = np.arange(rows, dtype=np.int32)
        self._free_count = rows

    @property
    def rows(self) -> int:
        return len(self._free)

    @property
    def free(self) -> int:
        """How many rows are unused."""
        return self._free_count

    def take(self, count: int) -> np.ndarray:
        """The numbers of ``count`` unused rows, int32."""
        if count > self._free_count:
            self._grow(count - self._free_count)
        self._free_count -= count
        return self._free[self._free_count : self._free_count + count].copy()

    def give_back(self, rows: np.ndarray) -> None:
        """Return rows to the pool."""
        self._free[self._free_count : self._free_count + len(rows)] = rows
        self._free_count += len(rows)

    def free_unused(self, used_M: np.ndarray) -> None:
        """Free all rows that are not marked in ``used_M``."""
        unused = np.flatnonzero(~used_M)
        self._free[: len(unused)] = unused
        self._free_count = len(unused)

    def keep_only(self, kept_M: np.ndarray, rows: int) -> None:
        """Shrink to ``rows`` rows: those numbered ``kept_M`` move to the front, all others become free."""
        for layer, values_ME in enumerate(self.layers):
            self.layers[layer] = self.ops.gather_table(values_ME, kept_M, rows)
        self._free = np.arange(rows, dtype=np.int32)
        self._free[: rows - len(kept_M)] += len(kept_M)
        self._free_count = rows - len(kept_M)

    def _grow(self, shortage: int) -> None:
        old_rows = self.rows
        new_rows = max(2 * old_rows, old_rows + shortage)
        for layer, values_ME in enumerate(self.layers):
            self.layers[layer] = self.ops.extend_table(values_ME, new_rows)
        free = np.empty(new_rows, np.int32)
        free[: self._free_count] = self._free[: self._free_count]
        free[self._free_count : self._free_count + new_rows - old_rows] = np.arange(old_rows, new_rows)
        self._free, self._free_count = free, self._free_count + new_rows - old_rows
