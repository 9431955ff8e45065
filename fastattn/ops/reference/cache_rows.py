"""Writes rows of keys and values to the key-value cache's tables."""

import numpy as np

from fastattn.spec.rounding import as_floats, bfloat16_bits, float16_bits


def write_rows(table_ME: np.ndarray, rows_N: np.ndarray, values_NE: np.ndarray, first_column: int) -> None:
    """Copy row n of the values, from ``first_column`` on, to row rows_N[n] of the table.

    A table of uint16 takes bfloat16, one of int16 float16.
    """
    values_NE, bits = values_NE[:, first_column:], {np.uint16: bfloat16_bits, np.int16: float16_bits}
    rounded = bits.get(table_ME.dtype.type, np.asarray)
    table_ME[rows_N, : values_NE.shape[1]] = rounded(values_NE)


def round_rows(values_NE: np.ndarray, first_column: int) -> None:
    """Round values from ``first_column`` on to the nearest bfloat16, in place."""
    values_NE[:, first_column:] = as_floats(bfloat16_bits(values_NE[:, first_column:]))
