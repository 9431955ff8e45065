"""Recurrent states of a decoder instead of keys and values: the cells of a recurrent unit, or a running sum.

Row n continues the state ``previous_N[n]`` of a table and writes its own to ``rows_N[n]``. A step of many sequences and
whole sequences, whose rows continue one another, are the same loop, so their bits are the same. Bound by memory; a task
is a block of columns, which depends on no other, and takes it through all rows in order.
"""

import numpy as np
from numba import prange

from fastattn.kernels.activation import relu, sigmoid
from fastattn.runtime.jit import inner, kernel
from fastattn.simd.target import LANES
from fastattn.simd.vector import fma, load_part, splat, store_part


@inner
def load_state(states, row, row_bytes, at, left):
    """A part of the state in ``row``, zeros where that is negative."""
    zero = splat(np.float32(0))
    if row < 0:
        return zero
    return load_part(states + row * row_bytes + at, left, zero)


@kernel
def _ssru(inputs_NE, residual_ND, states_MW, previous_N, rows_N, columns, y_ND):
    N, D = residual_ND.shape
    values, residual, y = inputs_NE.ctypes.data, residual_ND.ctypes.data, y_ND.ctypes.data
    states, state_row = states_MW.ctypes.data, states_MW.shape[1] * 4
    for block in prange(0, -(-D // columns)):
        zero = splat(np.float32(0))
        for n in range(N):
            for d in range(block * columns, min((block + 1) * columns, D), LANES):
                left, at, place = D - d, d * 4, (n * D + d) * 4
                value = load_part(values + n * D * 8 + at, left, zero)
                forget = sigmoid(load_part(values + n * D * 8 + D * 4 + at, left, zero))
                before = load_state(states, np.int64(previous_N[n]), state_row, at, left)
                cell = fma(forget, before - value, value)
                store_part(cell, states + np.int64(rows_N[n]) * state_row + at, left)
                store_part(relu(cell) + load_part(residual + place, left, zero), y + place, left)


@kernel
def _running_average(x_ND, states_MW, previous_N, rows_N, positions_N, columns, y_ND):
    N, D = x_ND.shape
    x, y = x_ND.ctypes.data, y_ND.ctypes.data
    states, state_row = states_MW.ctypes.data, states_MW.shape[1] * 4
    for block in prange(0, -(-D // columns)):
        zero = splat(np.float32(0))
        for n in range(N):
            count = splat(np.float32(positions_N[n] + 1))
            for d in range(block * columns, min((block + 1) * columns, D), LANES):
                left, at, place = D - d, d * 4, (n * D + d) * 4
                before = load_state(states, np.int64(previous_N[n]), state_row, at, left)
                total = before + load_part(x + place, left, zero)
                store_part(total, states + np.int64(rows_N[n]) * state_row + at, left)
                store_part(total / count, y + place, left)
