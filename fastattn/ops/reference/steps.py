"""What a decoder keeps between steps: tables of keys and values, recurrent states, the tokens of greedy search."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from fastattn.arguments.steps import ENOUGH, FAULT, LIVE, OVER, STOP, USED, Edits, StepRows, SubsetRows
from fastattn.ops.reference.matmul import ReferenceLinear, sigmoid
from fastattn.ops.reference.project import ReferenceSubset, project_top_k
from fastattn.spec.rounding import as_floats, bfloat16_bits, float16_bits, quantize


def empty_table(rows: int, width: int, dtype: np.dtype) -> np.ndarray:
    return np.empty((rows, width), dtype)


def extend_table(table_ME: np.ndarray, rows: int) -> np.ndarray:
    return np.concatenate([table_ME, empty_table(rows - len(table_ME), table_ME.shape[1], table_ME.dtype)])


def gather_table(table_ME: np.ndarray, rows_N: np.ndarray, rows: int) -> np.ndarray:
    return extend_table(table_ME[rows_N], rows)


def write_rows(
    table_ME: np.ndarray, rows_N: np.ndarray, values_NE: np.ndarray, first_column: int, head_width: int = 0
) -> None:
    values_NE = values_NE[:, first_column:]
    bits: dict[type, Callable] = {np.uint16: bfloat16_bits, np.int16: float16_bits}
    bits[np.int8] = partial(_int8_heads, head_width=head_width)
    stored_NE = bits.get(table_ME.dtype.type, np.asarray)(values_NE)
    table_ME[rows_N, : stored_NE.shape[1]] = stored_NE


def _int8_heads(values_NE: np.ndarray, head_width: int) -> np.ndarray:
    """int8 [N, heads * (head width + 4)]: a head's values as multiples of its scale, then the scale's bytes."""
    heads_MK = values_NE.astype(np.float32).reshape(-1, head_width)
    quantized = quantize(heads_MK, "a head")
    scales_M4 = quantized.multipliers_F[:, None].view(np.int8)
    return np.concatenate([quantized.values_FD, scales_M4], axis=1).reshape(len(values_NE), -1)


def round_rows(values_NE: np.ndarray, first_column: int) -> None:
    values_NE[:, first_column:] = as_floats(bfloat16_bits(values_NE[:, first_column:]))


def ssru(
    inputs_NE: np.ndarray, residual_ND: np.ndarray, states_MW: np.ndarray, previous_N: np.ndarray, rows_N: np.ndarray
) -> np.ndarray:
    D = residual_ND.shape[1]
    y_ND = np.empty_like(residual_ND)
    for n, (previous, row) in enumerate(zip(previous_N, rows_N)):
        forget_D = sigmoid(inputs_NE[n, D:])
        previous_D = states_MW[previous, :D] if previous >= 0 else np.zeros_like(forget_D)
        states_MW[row, :D] = forget_D * previous_D + (1 - forget_D) * inputs_NE[n, :D]
        y_ND[n] = np.maximum(states_MW[row, :D], 0) + residual_ND[n]
    return y_ND


def running_average(
    x_ND: np.ndarray, states_MW: np.ndarray, previous_N: np.ndarray, rows_N: np.ndarray, positions_N: np.ndarray
) -> np.ndarray:
    D = x_ND.shape[1]
    y_ND = np.empty_like(x_ND)
    for n, (previous, row) in enumerate(zip(previous_N, rows_N)):
        states_MW[row, :D] = x_ND[n] + (states_MW[previous, :D] if previous >= 0 else 0)
        y_ND[n] = states_MW[row, :D] / x_ND.dtype.type(positions_N[n] + 1)
    return y_ND


def recorder() -> None:
    """None: no call is recorded."""


def take_tokens(rows: StepRows, history_RS: np.ndarray, written_RS: np.ndarray, tokens_M: np.ndarray) -> None:
    live_rows, used_rows = rows.counts[LIVE], rows.counts[USED]
    running = np.flatnonzero(rows.is_over_R[:live_rows] == 0)
    fresh = rows.fresh_F[used_rows : used_rows + len(running)]
    slots, positions = rows.slots_R[running], rows.positions_R[running] + 1
    history_RS[slots, positions] = written_RS[slots, positions] = fresh
    tokens_M[fresh] = rows.tokens_R[running] = rows.chosen_R[running]
    rows.positions_R[running], rows.lengths_R[running], rows.rows_R[running] = positions, positions + 1, fresh
    rows.previous_R[running] = np.where(positions > 0, history_RS[slots, positions - 1], -1)
    rows.steps_R[running] += 1
    rows.counts[USED] += len(running)
    for array in rows.inputs:
        array[live_rows:] = array[0]


def pick_tokens(
    hidden_RD: np.ndarray,
    outputs: ReferenceLinear | Sequence[ReferenceSubset] | SubsetRows,
    edits: Edits,
    normalized: bool,
    ends_E: np.ndarray,
    rows: StepRows,
) -> None:
    assert not isinstance(outputs, SubsetRows), "SubsetRows hold addresses"
    values_R1, ids_R1 = project_top_k(hidden_RD, outputs, 1, edits, normalized)
    running = np.flatnonzero(rows.is_over_R[: rows.counts[LIVE]] == 0)
    values, ids = values_R1[running, 0], np.maximum(ids_R1[running, 0], 0)
    rows.scores_R[running] += values
    rows.chosen_R[running] = ids
    is_over = np.isin(ids, ends_E) | (rows.steps_R[running] + 1 >= rows.limits_R[running])
    rows.is_over_R[running] = is_over
    rows.counts[OVER] += np.count_nonzero(is_over)
    rows.counts[FAULT] |= (np.isnan(values) if normalized else ~np.isfinite(values)).any()
    rows.counts[STOP] |= rows.counts[FAULT] or rows.counts[OVER] >= rows.counts[ENOUGH]
