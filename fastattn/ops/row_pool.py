"""Rows of keys and values, or of states, which caches take by number and give back."""

from collections.abc import Sequence

import numpy as np

from fastattn.ops.protocol import Ops


class RowPool:
    """Tables of rows, one table a layer; a row is taken and given back by its number, in all layers.

    rows    how many to begin with; the pool doubles when rows run out. A page takes memory once it is written.
    layers  for each layer a table [M, E] or wider, from ``empty_table``
    """

    def __init__(self, ops: Ops, widths: Sequence[int], dtype: np.dtype, rows: int):
        self.ops = ops
        self.layers = [ops.empty_table(rows, width, dtype) for width in widths]
        self._free_rows = np.arange(rows, dtype=np.int32)  # the first ``free_count`` are numbers of unused rows
        self.free_count = rows

    @property
    def rows(self) -> int:
        return len(self._free_rows)

    def take(self, count: int) -> np.ndarray:
        """The numbers of ``count`` unused rows, int32."""
        if count > self.free_count:
            self._grow(count - self.free_count)
        self.free_count -= count
        return self._free_rows[self.free_count : self.free_count + count].copy()

    def give_back(self, rows: np.ndarray) -> None:
        self._free_rows[self.free_count : self.free_count + len(rows)] = rows
        self.free_count += len(rows)

    def free_unused(self, is_used_M: np.ndarray) -> None:
        """Free all rows that are not marked in ``is_used_M``."""
        unused_rows = np.flatnonzero(~is_used_M)
        self._free_rows[: len(unused_rows)] = unused_rows
        self.free_count = len(unused_rows)

    def keep_only(self, rows_K: np.ndarray, rows: int) -> None:
        """Shrink to ``rows`` rows: the rows numbered ``rows_K`` move to the front, all further rows are free."""
        for layer, values_ME in enumerate(self.layers):
            self.layers[layer] = self.ops.gather_table(values_ME, rows_K, rows)
        self.free_count = rows - len(rows_K)
        self._free_rows = np.arange(rows, dtype=np.int32)
        self._free_rows[: self.free_count] += len(rows_K)

    def _grow(self, shortage: int) -> None:
        old_rows = self.rows
        new_rows = max(2 * old_rows, old_rows + shortage)
        for layer, values_ME in enumerate(self.layers):
            self.layers[layer] = self.ops.extend_table(values_ME, new_rows)
        free_rows, free_count = np.empty(new_rows, np.int32), self.free_count + new_rows - old_rows
        free_rows[: self.free_count] = self._free_rows[: self.free_count]
        free_rows[self.free_count : free_count] = np.arange(old_rows, new_rows)
        self._free_rows, self.free_count = free_rows, free_count
