"""A step of greedy search on the card: the rows take their chosen tokens, and later the best next ones are chosen.

One block does either, a thread for every THREADS-th row. After a stop neither changes anything, so that steps which the
host launched before it knew are without effect.
"""

import math

import numpy as np
from numba import cuda, int32, int64

from fastattn.arguments.steps import ENOUGH, FAULT, LIVE, OVER, STOP, USED, Edits, StepInputs, StepProgress, StepRows
from fastattn.ops.cuda import card
from fastattn.ops.cuda.card import THREADS
from fastattn.ops.cuda.project import NO_IDS, Outputs, choose
from fastattn.ops.cuda.recording import LaunchRecorder


@card.kernel
def _take(inputs, progress, history_RS, written_RS, tokens_M, fresh_F, counts):
    t = cuda.threadIdx.x
    live, used = counts[LIVE], counts[USED]
    is_on = counts[STOP] == 0
    cuda.syncthreads()  # all have read the counts
    if is_on:
        for r in range(t, live, THREADS):
            if progress.is_over_R[r] == 0:
                before = int32(0)  # rows that take a fresh row before this one
                for other in range(r):
                    before += progress.is_over_R[other] == 0
                row, slot = fresh_F[used + before], progress.slots_R[r]
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
    for r in range(live + t, len(inputs.tokens_R), THREADS):  # rows that repeat the first
        inputs.tokens_R[r] = inputs.tokens_R[0]
        inputs.positions_R[r] = inputs.positions_R[0]
        inputs.lengths_R[r] = inputs.lengths_R[0]
        inputs.rows_R[r] = inputs.rows_R[0]
        inputs.previous_R[r] = inputs.previous_R[0]


def take_tokens(rows: StepRows, history_RS: np.ndarray, written_RS: np.ndarray, tokens_M: np.ndarray) -> None:
    if card.recording.program is None:
        _at_once(lambda: take_tokens(rows, history_RS, written_RS, tokens_M), rows)
        return
    tables = (card.written(array) for array in (history_RS, written_RS, tokens_M))
    card.launch(_take, 1, *_progress(rows), *tables, card.upload(rows.fresh_F), card.written(rows.counts))


def _progress(rows: StepRows) -> tuple[StepInputs, StepProgress]:
    return StepInputs(*map(card.written, rows.inputs)), StepProgress(*map(card.written, rows.progress))


def _at_once(step, rows: StepRows) -> None:
    program = LaunchRecorder().record(step)
    assert program is not None
    program.run(1, rows.counts[STOP:])


@card.kernel
def _pick(values_R1, ids_R1, log_sums_R, normalized, ends_E, progress, counts):
    t = cuda.threadIdx.x
    live = counts[LIVE]
    is_on = counts[STOP] == 0
    cuda.syncthreads()
    if is_on:
        for r in range(t, live, THREADS):
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
        _at_once(lambda: pick_tokens(hidden_RD, outputs, edits, normalized, ends_E, rows), rows)
        return
    values_R1, ids_R1, _, log_sums_R = choose(hidden_RD, outputs, 1, edits, NO_IDS, normalized)
    arguments = values_R1, ids_R1, log_sums_R, normalized, card.upload(ends_E)
    card.launch(_pick, 1, *arguments, _progress(rows)[1], card.written(rows.counts))
