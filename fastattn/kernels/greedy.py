"""What greedy search does between two steps, for all rows: take the tokens that were chosen, choose the next ones.

One task: a few nanoseconds a row.
"""

import numpy as np
from numba import prange

from fastattn.ops.step_rows import ENOUGH, FAULT, LIVE, OVER, STOP, USED
from fastattn.runtime.jit import kernel


@kernel
def _take(inputs, progress, history_RS, written_RS, tokens_M, fresh_F, counts):
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
    _, steps_R, limits_R, chosen_R, scores_R, is_over_R = progress
    for _ in prange(0, 1):
        for r in range(counts[LIVE]):
            if is_over_R[r] == 0:
                value = values_R1[r, 0]
                if normalized:
                    value -= log_sums_R[r]
                # NaN shows in a sum; among the best logits infinities do, too
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
