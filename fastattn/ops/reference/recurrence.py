"""Recurrent states of a decoder instead of keys and values: the cells of a recurrent unit, or a running sum."""

import numpy as np

from fastattn.ops.reference.activation import sigmoid


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
