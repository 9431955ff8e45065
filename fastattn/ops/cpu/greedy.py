"""What greedy search does between two steps, for all rows; see ``kernels/greedy.py``."""

from collections.abc import Sequence

import numpy as np

from fastattn.ops.cpu.logits import NO_TARGETS
from fastattn.ops.cpu.output_subset import OutputSubset
from fastattn.ops.cpu.packing import PackedLinear
from fastattn.ops.cpu.project import choose
from fastattn.ops.edits import Edits
from fastattn.ops.step_rows import StepRows, SubsetRows
from fastattn.runtime.handle import kernel_named

_take, _pick = kernel_named("greedy", "_take"), kernel_named("greedy", "_pick")


def take_tokens(rows: StepRows, history_RS: np.ndarray, written_RS: np.ndarray, tokens_M: np.ndarray) -> None:
    """Make the chosen token of each row that is not over its next input, at the next position, in a fresh row.

    history_RS, written_RS, tokens_M  the cache's tables of slots and of rows, int32, written
    """
    _take(rows.inputs, rows.progress, history_RS, written_RS, tokens_M, rows.fresh_F, rows.counts)


def pick_tokens(
    hidden_RD: np.ndarray,
    outputs: PackedLinear | Sequence[OutputSubset] | SubsetRows,
    edits: Edits,
    normalized: bool,
    ends_E: np.ndarray,
    rows: StepRows,
) -> None:
    """Choose the best next token of each row that is not over, as ``project_top_k`` does, and add it to the score.

    ends_E  int32: the tokens that end a row, as its limit does
    """
    values_R1, ids_R1, _, log_sums_R = choose(hidden_RD, outputs, 1, edits, NO_TARGETS, normalized)
    _pick(values_R1, ids_R1, log_sums_R, normalized, ends_E, rows.progress, rows.counts)
