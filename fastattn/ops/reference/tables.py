"""The key-value cache's tables: rows by number."""

import numpy as np


def empty_table(rows: int, width: int, dtype: np.dtype) -> np.ndarray:
    """A table [rows, width], uninitialized."""
    return np.empty((rows, width), dtype)


def extend_table(table_ME: np.ndarray, rows: int) -> np.ndarray:
    """A longer table of ``rows`` rows that begins with this one's."""
    return np.concatenate([table_ME, empty_table(rows - len(table_ME), table_ME.shape[1], table_ME.dtype)])


def gather_table(table_ME: np.ndarray, rows_N: np.ndarray, rows: int) -> np.ndarray:
    """A table of ``rows`` rows that begins with the rows ``rows_N`` of this one."""
    gathered_ME = empty_table(rows, table_ME.shape[1], table_ME.dtype)
    np.take(table_ME, rows_N, axis=0, out=gathered_ME[: len(rows_N)], mode="clip")  # "raise" would copy twice
    return gathered_ME
