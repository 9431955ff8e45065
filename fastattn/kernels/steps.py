"""A decoder's state between steps: rows of its key-value cache, recurrent states, the tokens of greedy search.

Rows of keys and values are stored as they are or rounded: reading them bounds a step's attention, so half the bytes
take half the time.

Row n of recurrent states continues the state ``previous_N[n]`` of a table and writes its own to ``rows_N[n]``. The same
loop computes a step of many sequences and whole sequences, whose rows continue one another, so both have the same bits.
Memory bounds the loop; a task takes a block of columns, which depends on no other block, through all rows in order.

The work of greedy search between two steps is one task: a few nanoseconds a row.
"""

import numpy as np
from numba import prange, types

from fastattn.arguments.steps import ENOUGH, FAULT, LIVE, OVER, STOP, USED
from fastattn.kernels.activation import relu, sigmoid
from fastattn.kernels.norm import ROW_BLOCK
from fastattn.runtime.jit import inner, inner_overload, kernel
from fastattn.simd.memory import load_part, store_part, store_scalar
from fastattn.simd.rows import copy_floats
from fastattn.simd.target import LANES
from fastattn.simd.tile import nearest_bfloat16, store_first_bfloat16, store_first_float16, store_first_int8
from fastattn.simd.vector import absolute, fma, larger_magnitude, largest_magnitude, splat


@inner
def write_heads(values, target, width, head_width):
    """Write floats as int8 multiples of their head's scale: its greatest magnitude / 127, written behind the head."""
    zero = splat(np.float32(0))
    for first in range(0, width, head_width):
        head, target_head, peaks = values + first * 4, target + first + first // head_width * 4, zero
        for d in range(0, head_width, LANES):
            peaks = larger_magnitude(absolute(load_part(head + d * 4, head_width - d, zero)), peaks)
        peak = largest_magnitude(peaks)
        scale = peak / np.float32(127)
        inverse = splat(np.float32(1) / scale if scale > 0 else np.float32(0))
        for d in range(0, head_width, LANES):
            value = load_part(head + d * 4, head_width - d, zero) * inverse
            store_first_int8(value, target_head + d, min(LANES, head_width - d))
        store_scalar(scale, target_head + head_width)


@inner_overload
def write_row(table, values, target, width, head_width):
    """Write ``width`` floats to the address ``target`` in the type of ``table``."""
    if table.dtype == types.int8:
        return lambda table, values, target, width, head_width: write_heads(values, target, width, head_width)
    if table.dtype == types.float32:
        return lambda table, values, target, width, head_width: copy_floats(values, target, width)
    store_first = store_first_float16 if table.dtype == types.int16 else store_first_bfloat16

    def write_rounded(table, values, target, width, head_width):
        for d in range(0, width, LANES):
            value = load_part(values + d * 4, width - d, splat(np.float32(0)))
            store_first(value, target + d * 2, min(LANES, width - d))

    return write_rounded


@kernel
def _write(table_ME, rows_N, values_NE, first_column, head_width):
    """Write row n of the values, from ``first_column`` on, to row ``rows_N[n]`` of the table."""
    N, E = values_NE.shape
    values, table = values_NE.ctypes.data + first_column * 4, table_ME.ctypes.data
    row_bytes = table_ME.shape[1] * table_ME.itemsize
    for block in prange(0, -(-N // ROW_BLOCK)):
        for n in range(block * ROW_BLOCK, min(N, (block + 1) * ROW_BLOCK)):
            source, target = values + n * E * 4, table + rows_N[n] * row_bytes
            write_row(table_ME, source, target, E - first_column, head_width)


@kernel
def _round_in_place(values_NE, first_column):
    N, E = values_NE.shape
    for block in prange(0, -(-N // ROW_BLOCK)):
        zero = splat(np.float32(0))
        for n in range(block * ROW_BLOCK, min(N, (block + 1) * ROW_BLOCK)):
            row = values_NE.ctypes.data + n * E * 4
            for d in range(first_column, E, LANES):
                store_part(nearest_bfloat16(load_part(row + d * 4, E - d, zero)), row + d * 4, E - d)


@inner
def load_state(states, row, row_bytes, column_offset, count):
    """``count`` values of the state in row ``row``, from an offset in bytes on; zeros for a negative row."""
    zero = splat(np.float32(0))
    if row < 0:
        return zero
    return load_part(states + row * row_bytes + column_offset, count, zero)


@kernel
def _ssru(inputs_NE, residual_ND, states_MW, previous_N, rows_N, columns, y_ND):
    """c = f c' + (1 - f) v, y = relu(c) + residual; a row of inputs has v, then the forget gate before its sigmoid."""
    N, D = residual_ND.shape
    values, residual, y = inputs_NE.ctypes.data, residual_ND.ctypes.data, y_ND.ctypes.data
    states, row_bytes = states_MW.ctypes.data, states_MW.shape[1] * 4
    for block in prange(0, -(-D // columns)):
        zero = splat(np.float32(0))
        for n in range(N):
            for d in range(block * columns, min((block + 1) * columns, D), LANES):
                count, column_offset, offset = D - d, d * 4, (n * D + d) * 4
                value = load_part(values + n * D * 8 + column_offset, count, zero)
                forget = sigmoid(load_part(values + n * D * 8 + D * 4 + column_offset, count, zero))
                old_state = load_state(states, np.int64(previous_N[n]), row_bytes, column_offset, count)
                cell = fma(forget, old_state - value, value)
                store_part(cell, states + np.int64(rows_N[n]) * row_bytes + column_offset, count)
                store_part(relu(cell) + load_part(residual + offset, count, zero), y + offset, count)


@kernel
def _running_average(x_ND, states_MW, previous_N, rows_N, positions_N, columns, y_ND):
    """A state is the sum of the rows up to a position; y is its mean."""
    N, D = x_ND.shape
    x, y = x_ND.ctypes.data, y_ND.ctypes.data
    states, row_bytes = states_MW.ctypes.data, states_MW.shape[1] * 4
    for block in prange(0, -(-D // columns)):
        zero = splat(np.float32(0))
        for n in range(N):
            divisor = splat(np.float32(positions_N[n] + 1))
            for d in range(block * columns, min((block + 1) * columns, D), LANES):
                count, column_offset, offset = D - d, d * 4, (n * D + d) * 4
                old_state = load_state(states, np.int64(previous_N[n]), row_bytes, column_offset, count)
                total = old_state + load_part(x + offset, count, zero)
                store_part(total, states + np.int64(rows_N[n]) * row_bytes + column_offset, count)
                store_part(total / divisor, y + offset, count)


@kernel
def _take(inputs, progress, history_RS, written_RS, tokens_M, fresh_F, counts):
    """Make the chosen tokens the inputs of a step, each with a fresh row of the cache; see StepRows."""
    tokens_R, positions_R, rows_R, previous_R, lengths_R = inputs
    slots_R, steps_R, _, chosen_R, _, is_over_R = progress
    for _ in prange(0, 1):
        live = counts[LIVE]
        for r in range(live):
            if is_over_R[r] == 0:
                slot, position, row = slots_R[r], np.int64(positions_R[r]) + 1, fresh_F[counts[USED]]
                counts[USED] += 1
                history_RS[slot, position] = row
                written_RS[slot, position] = row
                tokens_M[row] = chosen_R[r]
                tokens_R[r], positions_R[r], lengths_R[r], rows_R[r] = chosen_R[r], position, position + 1, row
                previous_R[r] = history_RS[slot, position - 1] if position > 0 else -1
                steps_R[r] += 1
        for r in range(live, len(tokens_R)):
            tokens_R[r], positions_R[r], lengths_R[r] = tokens_R[0], positions_R[0], lengths_R[0]
            rows_R[r], previous_R[r] = rows_R[0], previous_R[0]


@kernel
def _pick(values_R1, ids_R1, log_sums_R, normalized, ends_E, progress, counts):
    """Choose the best token of each row, and note which rows are over; see StepRows."""
    _, steps_R, limits_R, chosen_R, scores_R, is_over_R = progress
    for _ in prange(0, 1):
        for r in range(counts[LIVE]):
            if is_over_R[r] == 0:
                value = values_R1[r, 0]
                if normalized:
                    value -= log_sums_R[r]
                # a NaN among a row's logits makes their log-sum NaN; without log-sums an infinite best logit is a fault
                if np.isnan(value) or not normalized and np.isinf(value):
                    counts[FAULT] = 1
                    counts[STOP] = 1
                token = max(ids_R1[r, 0], np.int32(0))
                scores_R[r] += value
                chosen_R[r] = token
                ends = steps_R[r] + 1 >= limits_R[r]
                for e in range(len(ends_E)):
                    ends = ends or token == ends_E[e]
                if ends:
                    is_over_R[r] = 1
                    counts[OVER] += 1
        if counts[OVER] >= counts[ENOUGH]:
            counts[STOP] = 1
