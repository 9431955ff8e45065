"""Writes rows of keys and values to the key-value cache's tables, as they are or rounded."""

import numpy as np

from fastattn.runtime.handle import kernel_named

_write, _round_in_place = kernel_named("cache_rows", "_write"), kernel_named("cache_rows", "_round_in_place")


def round_rows(values_NE: np.ndarray, first_column: int) -> None:
    """Round values, float32 and C-contiguous, from ``first_column`` on to the nearest bfloat16, in place."""
    _round_in_place(values_NE, first_column)


def write_rows(table_ME: np.ndarray, rows_N: np.ndarray, values_NE: np.ndarray, first_column: int) -> None:
    """Copy row n of the values, from ``first_column`` on, to the start of row rows_N[n] of the table.

    table_ME   written, C-contiguous like values_NE, float32: float32; uint16, which takes the nearest bfloat16; or, on
               targets that convert float16, int16, which takes the nearest of these.
    rows_N     int32, inside the table and all different; nothing is checked here.
    """
    _write(table_ME, rows_N, values_NE, first_column)
