"""The key-value cache's tables: rows by number, laid out for fast reads by a step's attention.

Rows start at a cache line and lie an odd number of lines apart: at 4 KiB apart, the same head of many keys would have 8
places in L1. Memory pages are used only once written.
"""

import numpy as np

from fastattn.simd.constants import LINE


def empty_table(rows: int, width: int, dtype: np.dtype) -> np.ndarray:
    """A table [rows, W], C-contiguous, of any values, whose W is at least ``width``."""
    line = LINE // np.dtype(dtype).itemsize
    padded = (-(-width // line) | 1) * line
    room = np.empty(rows * padded + line, dtype)
    start = -room.ctypes.data % LINE // room.itemsize
    return room[start : start + rows * padded].reshape(rows, padded)


def extend_table(table_ME: np.ndarray, rows: int) -> np.ndarray:
    """A table of ``rows`` rows, more than this one's, that begins with them."""
    longer_ME = empty_table(rows, table_ME.shape[1], table_ME.dtype)
    longer_ME[: len(table_ME)] = table_ME
    return longer_ME


def gather_table(table_ME: np.ndarray, rows_N: np.ndarray, rows: int) -> np.ndarray:
    """A table of ``rows`` rows that begins with these of this one's."""
    gathered_ME = empty_table(rows, table_ME.shape[1], table_ME.dtype)
    np.take(table_ME, rows_N, axis=0, out=gathered_ME[: len(rows_N)], mode="clip")  # "raise" would copy twice
    return gathered_ME
