"""What a decoder keeps between steps: tables of keys and values, recurrent states, the tokens of greedy search."""

from collections.abc import Sequence

import numpy as np

from fastattn.ops.reference.matmul import ReferenceLinear, sigmoid
from fastattn.ops.reference.project import ReferenceSubset, project_top_k
from fastattn.ops.steps import Edits, StepRows, SubsetRows, add_tokens, take_tokens  # noqa: F401  one is an operation
from fastattn.spec.rounding import as_floats, bfloat16_bits, float16_bits


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


def ssru(
    inputs_NE: np.ndarray,
    residual_ND: np.ndarray,
    states_MW: np.ndarray,
    previous_N: np.ndarray,
    rows_N: np.ndarray,
) -> np.ndarray:
    """relu(c) + residual of a simpler simple recurrent unit (Kim 2019), c = s(f) c' + (1 - s(f)) x, a row at a time.

    inputs_NE  x, then f; s is the sigmoid.
    states_MW  W >= D; c' is the row ``previous_N[n]``, or zeros if that is -1; c is written to ``rows_N[n]``.
    """
    D = residual_ND.shape[1]
    y_ND = np.empty_like(residual_ND)
    for n, (previous, row) in enumerate(zip(previous_N, rows_N)):
        forget_D = sigmoid(inputs_NE[n, D:])
        before_D = states_MW[previous, :D] if previous >= 0 else np.zeros_like(forget_D)
        states_MW[row, :D] = forget_D * before_D + (1 - forget_D) * inputs_NE[n, :D]
        y_ND[n] = np.maximum(states_MW[row, :D], 0) + residual_ND[n]
    return y_ND


def running_average(
    x_ND: np.ndarray, states_MW: np.ndarray, previous_N: np.ndarray, rows_N: np.ndarray, positions_N: np.ndarray
) -> np.ndarray:
    """The average of each row and the ``positions_N`` before it (Zhang 2018); their sums are states as in ``ssru``."""
    D = x_ND.shape[1]
    y_ND = np.empty_like(x_ND)
    for n, (previous, row) in enumerate(zip(previous_N, rows_N)):
        states_MW[row, :D] = x_ND[n] + (states_MW[previous, :D] if previous >= 0 else 0)
        y_ND[n] = states_MW[row, :D] / x_ND.dtype.type(positions_N[n] + 1)
    return y_ND


def recorder() -> None:
    """Nothing is recorded."""


def pick_tokens(
    hidden_RD: np.ndarray,
    outputs: ReferenceLinear | Sequence[ReferenceSubset] | SubsetRows,
    edits: Edits,
    normalized: bool,
    ends_E: np.ndarray,
    rows: StepRows,
) -> None:
    """Choose the best next token of each row that is not over, as ``project_top_k`` does, and add it to the score."""
    assert not isinstance(outputs, SubsetRows), "which are addresses"
    values_R1, ids_R1 = project_top_k(hidden_RD, outputs, 1, edits, normalized)
    add_tokens(values_R1[:, 0], ids_R1[:, 0], normalized, ends_E, rows)
