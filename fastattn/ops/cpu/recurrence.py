"""Recurrent states of a decoder instead of keys and values; see ``kernels/recurrence.py``."""

import numpy as np

from fastattn.runtime.arena import empty
from fastattn.runtime.handle import kernel_named
from fastattn.runtime.threads import current_threads

_ssru, _running_average = kernel_named("recurrence", "_ssru"), kernel_named("recurrence", "_running_average")

COLUMNS = 64  # four cache lines of a row: a task has as many of them as there are for each thread
# Values that one thread finishes before another would have started: 5 to 10 us.
SMALL = 1 << 14


def _columns(x_ND: np.ndarray) -> int:
    """Of a task: all of them where there is little to do; whole vectors."""
    threads = 1 if x_ND.size <= SMALL else current_threads()
    return -(-x_ND.shape[1] // (COLUMNS * threads)) * COLUMNS


def ssru(
    inputs_NE: np.ndarray,
    residual_ND: np.ndarray,
    states_MW: np.ndarray,
    previous_N: np.ndarray,
    rows_N: np.ndarray,
) -> np.ndarray:
    """relu(c) + residual of a simpler simple recurrent unit (Kim 2019), c = s(f) c' + (1 - s(f)) x; float32 [N, D].

    inputs_NE   float32 [N, 2 D]: x, then f, of which s is the sigmoid.
    states_MW   float32, W >= D; c' is the row ``previous_N[n]``, or zeros where that is -1; c is written to
                ``rows_N[n]``. Both int32; rows follow those that they continue.
    """
    y_ND, columns = empty(residual_ND.shape), _columns(residual_ND)
    _ssru(inputs_NE, residual_ND, states_MW, previous_N, rows_N, columns, y_ND)
    return y_ND


def running_average(
    x_ND: np.ndarray, states_MW: np.ndarray, previous_N: np.ndarray, rows_N: np.ndarray, positions_N: np.ndarray
) -> np.ndarray:
    """The average of each row and those before it (Zhang 2018); float32 [N, D].

    states_MW    float32, W >= D: sums, continued and written as the states of ``ssru``.
    positions_N  int32: how many rows come before.
    """
    y_ND, columns = empty(x_ND.shape), _columns(x_ND)
    _running_average(x_ND, states_MW, previous_N, rows_N, positions_N, columns, y_ND)
    return y_ND
