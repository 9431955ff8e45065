"""What a decoder keeps between steps: tables of keys and values, recurrent states, greedy tokens; recurrent layers.

Recurrent states: a block takes a run of rows in order, a thread for each column. Recurrent layers: the card computes
the products, and the reference computes gates and states on the host.

A step of greedy search: ``_take`` makes the chosen tokens the next inputs, ``_pick`` chooses the best next tokens. Each
runs as one block, a thread for every THREADS-th row. After a stop both change nothing, so steps that the host launches
before it reads the stop have no effect.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numba import cuda, float32, int32, int64

from fastattn.arguments.recurrent import Columns, States
from fastattn.arguments.steps import ENOUGH, FAULT, LIVE, OVER, STOP, USED, Edits, StepInputs, StepProgress, StepRows
from fastattn.errors import InputError
from fastattn.ops import reference
from fastattn.ops.cuda import card
from fastattn.ops.cuda.card import THREADS
from fastattn.ops.cuda.matmul import CardLinear, linear, nearest_bfloat16, relu, sigmoid
from fastattn.ops.cuda.project import NO_IDS, Outputs, choose
from fastattn.ops.cuda.recording import LaunchRecorder
from fastattn.ops.cuda.rows import copy_rows
from fastattn.ops.reference.recurrent import recur_by


def empty_table(rows: int, width: int, dtype: np.dtype) -> np.ndarray:
    if dtype == np.int8:
        raise InputError('cache_precision "int8" is the CPU\'s alone; on a card ask for "bfloat16"')
    return card.empty((rows, width), dtype)


def extend_table(table_ME: np.ndarray, rows: int) -> np.ndarray:
    longer_ME = empty_table(rows, table_ME.shape[1], table_ME.dtype)
    copy_rows(table_ME, None, longer_ME)
    return longer_ME


def gather_table(table_ME: np.ndarray, rows_N: np.ndarray, rows: int) -> np.ndarray:
    gathered_ME = empty_table(rows, table_ME.shape[1], table_ME.dtype)
    copy_rows(table_ME, rows_N, gathered_ME)
    return gathered_ME


@card.kernel
def _round(bits_NE, first_column):
    n, t = cuda.blockIdx.x, cuda.threadIdx.x
    for e in range(first_column + t, bits_NE.shape[1], THREADS):
        bits_NE[n, e] = nearest_bfloat16(bits_NE[n, e]) << 16


def round_rows(values_NE: np.ndarray, first_column: int) -> None:
    card.launch(_round, len(values_NE), card.upload(values_NE).view(np.uint32), first_column)


def runs_of(previous_N: np.ndarray, rows_N: np.ndarray) -> np.ndarray:
    """starts_C1 of runs, whose rows continue the row before; if a row continues another run's, all rows are one run."""
    if card.recording.program is not None:  # a step's rows continue those of the steps before
        return np.arange(len(rows_N) + 1)
    continues_N = np.zeros(len(rows_N), bool)
    continues_N[1:] = previous_N[1:] == rows_N[:-1]
    if np.isin(previous_N[~continues_N], rows_N).any():
        continues_N[1:] = True
    return np.append(np.flatnonzero(~continues_N), len(rows_N))


def _launch_runs(kernel: Any, x_NE: np.ndarray, states: Sequence[np.ndarray], operand: np.ndarray, width: int) -> Any:
    states_MW, previous_N, rows_N = states
    starts_C1, y_ND = runs_of(previous_N, rows_N), card.empty((len(x_NE), width), np.float32)
    arrays = map(card.upload, (x_NE, states_MW, previous_N, rows_N, starts_C1, operand))
    card.launch(kernel, (len(starts_C1) - 1, -(-width // THREADS)), *arrays, y_ND)
    return y_ND


@card.kernel
def _ssru(inputs_NE, states_MW, previous_N, rows_N, starts_C1, residual_ND, y_ND):
    c, d, D = cuda.blockIdx.x, cuda.blockIdx.y * THREADS + cuda.threadIdx.x, y_ND.shape[1]
    if d < D:
        for n in range(starts_C1[c], starts_C1[c + 1]):
            value, forget = inputs_NE[n, d], sigmoid(inputs_NE[n, D + d])
            previous = states_MW[previous_N[n], d] if previous_N[n] >= 0 else float32(0)
            cell = forget * previous + (float32(1) - forget) * value
            states_MW[rows_N[n], d] = cell
            y_ND[n, d] = residual_ND[n, d] + relu(cell)


def ssru(
    inputs_NE: np.ndarray, residual_ND: np.ndarray, states_MW: np.ndarray, previous_N: np.ndarray, rows_N: np.ndarray
) -> np.ndarray:
    states = states_MW, previous_N, rows_N
    return _launch_runs(_ssru, inputs_NE, states, residual_ND, residual_ND.shape[1])


@card.kernel
def _average(x_ND, states_MW, previous_N, rows_N, starts_C1, positions_N, y_ND):
    c, d = cuda.blockIdx.x, cuda.blockIdx.y * THREADS + cuda.threadIdx.x
    if d < y_ND.shape[1]:
        for n in range(starts_C1[c], starts_C1[c + 1]):
            previous = states_MW[previous_N[n], d] if previous_N[n] >= 0 else float32(0)
            total = previous + x_ND[n, d]
            states_MW[rows_N[n], d] = total
            y_ND[n, d] = total / float32(positions_N[n] + 1)


def running_average(
    x_ND: np.ndarray, states_MW: np.ndarray, previous_N: np.ndarray, rows_N: np.ndarray, positions_N: np.ndarray
) -> np.ndarray:
    return _launch_runs(_average, x_ND, (states_MW, previous_N, rows_N), positions_N, x_ND.shape[1])


def _product(packed: CardLinear) -> Callable[[np.ndarray], np.ndarray]:
    return lambda x_ND: card.download(linear(card.upload(x_ND), packed))


def _on_host(array: np.ndarray) -> np.ndarray:
    return array if isinstance(array, np.ndarray) else card.download(array)


def recur(
    inputs_NE: np.ndarray, weights: Sequence[CardLinear], cell: str, units: int, starts_B1: np.ndarray, states: States
) -> np.ndarray:
    before_MW, after_MW = (_on_host(table) for table in (states.before_MW, states.after_MW))
    host_states = states._replace(before_MW=before_MW, after_MW=after_MW)
    hidden_NH = recur_by(list(map(_product, weights)), _on_host(inputs_NE), cell, units, starts_B1, host_states)
    if after_MW is not states.after_MW:
        card.send(after_MW, states.after_MW)
    return card.upload(hidden_NH)


def join_columns(parts: Sequence[Columns]) -> np.ndarray:
    return card.upload(reference.join_columns([part._replace(rows_MW=_on_host(part.rows_MW)) for part in parts]))


@card.kernel
def _take(inputs, progress, history_RS, written_RS, tokens_M, fresh_F, counts):
    t = cuda.threadIdx.x
    live_rows, used_rows = counts[LIVE], counts[USED]
    is_running = counts[STOP] == 0
    cuda.syncthreads()  # all threads have read the counts
    if is_running:
        for r in range(t, live_rows, THREADS):
            if progress.is_over_R[r] == 0:
                earlier_rows = int32(0)  # how many rows before this one take a fresh row too
                for earlier in range(r):
                    earlier_rows += progress.is_over_R[earlier] == 0
                row, slot = fresh_F[used_rows + earlier_rows], progress.slots_R[r]
                position = inputs.positions_R[r] + int32(1)
                history_RS[slot, position] = row
                written_RS[slot, position] = row
                tokens_M[row] = progress.chosen_R[r]
                inputs.tokens_R[r] = progress.chosen_R[r]
                inputs.positions_R[r] = position
                inputs.lengths_R[r] = position + 1
                inputs.rows_R[r] = row
                inputs.previous_R[r] = history_RS[slot, position - 1] if position > 0 else int32(-1)
                progress.steps_R[r] += 1
                cuda.atomic.add(counts, USED, int64(1))
    cuda.syncthreads()
    for r in range(live_rows + t, len(inputs.tokens_R), THREADS):  # rows that repeat the first
        inputs.tokens_R[r] = inputs.tokens_R[0]
        inputs.positions_R[r] = inputs.positions_R[0]
        inputs.lengths_R[r] = inputs.lengths_R[0]
        inputs.rows_R[r] = inputs.rows_R[0]
        inputs.previous_R[r] = inputs.previous_R[0]


def take_tokens(rows: StepRows, history_RS: np.ndarray, written_RS: np.ndarray, tokens_M: np.ndarray) -> None:
    if card.recording.program is None:
        _record_and_run(lambda: take_tokens(rows, history_RS, written_RS, tokens_M), rows)
        return
    tables = (card.written_copy(array) for array in (history_RS, written_RS, tokens_M))
    card.launch(_take, 1, *_written_copies(rows), *tables, card.upload(rows.fresh_F), card.written_copy(rows.counts))


def _written_copies(rows: StepRows) -> tuple[StepInputs, StepProgress]:
    return StepInputs(*map(card.written_copy, rows.inputs)), StepProgress(*map(card.written_copy, rows.progress))


def _record_and_run(step, rows: StepRows) -> None:
    program = LaunchRecorder().record(step)
    assert program is not None
    program.run(1, rows.counts[STOP:])


@card.kernel
def _pick(values_R1, ids_R1, log_sums_R, normalized, ends_E, progress, counts):
    t = cuda.threadIdx.x
    live_rows = counts[LIVE]
    is_running = counts[STOP] == 0
    cuda.syncthreads()
    if is_running:
        for r in range(t, live_rows, THREADS):
            if progress.is_over_R[r] == 0:
                value, token = values_R1[r, 0], max(ids_R1[r, 0], int32(0))
                if normalized:
                    value -= log_sums_R[r]
                progress.scores_R[r] += value
                progress.chosen_R[r] = token
                is_over = progress.steps_R[r] + 1 >= progress.limits_R[r]
                for e in range(len(ends_E)):
                    is_over = is_over or token == ends_E[e]
                if is_over:
                    progress.is_over_R[r] = 1
                    cuda.atomic.add(counts, OVER, int64(1))
                if math.isnan(value) or (not normalized and math.isinf(value)):
                    cuda.atomic.max(counts, FAULT, int64(1))
    cuda.syncthreads()
    if t == 0 and (counts[FAULT] > 0 or counts[OVER] >= counts[ENOUGH]):
        counts[STOP] = 1


def pick_tokens(
    hidden_RD: np.ndarray, outputs: Outputs, edits: Edits, normalized: bool, ends_E: np.ndarray, rows: StepRows
) -> None:
    if card.recording.program is None:
        _record_and_run(lambda: pick_tokens(hidden_RD, outputs, edits, normalized, ends_E, rows), rows)
        return
    values_R1, ids_R1, _, log_sums_R = choose(hidden_RD, outputs, 1, edits, NO_IDS, normalized)
    arguments = values_R1, ids_R1, log_sums_R, normalized, card.upload(ends_E)
    _, progress = _written_copies(rows)
    card.launch(_pick, 1, *arguments, progress, card.written_copy(rows.counts))
