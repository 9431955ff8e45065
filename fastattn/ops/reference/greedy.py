"""What greedy search does between two steps."""

from collections.abc import Sequence

import numpy as np

from fastattn.ops.edits import Edits
from fastattn.ops.reference.output_subset import ReferenceSubset
from fastattn.ops.reference.packing import ReferenceLinear
from fastattn.ops.reference.project import project_top_k
from fastattn.ops.step_rows import ENOUGH, FAULT, LIVE, OVER, STOP, USED, StepRows, SubsetRows


def recorder() -> None:
    """Nothing is recorded."""


def take_tokens(rows: StepRows, history_RS: np.ndarray, written_RS: np.ndarray, tokens_M: np.ndarray) -> None:
    """Make the chosen token of each row that is not over its next input, at the next position, in a fresh row."""
    live, used = rows.counts[LIVE], rows.counts[USED]
    going = np.flatnonzero(rows.is_over_R[:live] == 0)
    fresh, slots, positions = rows.fresh_F[used : used + len(going)], rows.slots_R[going], rows.positions_R[going] + 1
    history_RS[slots, positions] = written_RS[slots, positions] = fresh
    tokens_M[fresh] = rows.tokens_R[going] = rows.chosen_R[going]
    rows.positions_R[going], rows.lengths_R[going], rows.rows_R[going] = positions, positions + 1, fresh
    rows.previous_R[going] = np.where(positions > 0, history_RS[slots, positions - 1], -1)
    rows.steps_R[going] += 1
    rows.counts[USED] += len(going)
    for array in rows.inputs:
        array[live:] = array[0]


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
    going = np.flatnonzero(rows.is_over_R[: rows.counts[LIVE]] == 0)
    values, ids = values_R1[going, 0], np.maximum(ids_R1[going, 0], 0)
    rows.scores_R[going] += values
    rows.chosen_R[going] = ids
    over = np.isin(ids, ends_E) | (rows.steps_R[going] + 1 >= rows.limits_R[going])
    rows.is_over_R[going] = over
    rows.counts[OVER] += np.count_nonzero(over)
    rows.counts[FAULT] |= (np.isnan(values) if normalized else ~np.isfinite(values)).any()
    rows.counts[STOP] |= rows.counts[FAULT] or rows.counts[OVER] >= rows.counts[ENOUGH]
