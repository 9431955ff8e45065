"""Arguments of a decoder's steps: changes to logits, and the rows of greedy steps, which compiled code updates."""

from collections import namedtuple
from typing import Any, NamedTuple

import numpy as np


class Edits(NamedTuple):
    """Changes to logits by lists of ids, those of each row padded with -1; None: no ids. They apply in this order:

    cap            a logit z becomes cap * tanh(z / cap); 0: no cap
    biased_J       in every row the logits of these int32 ids, each once, gain the float32 ``biases_J``
    penalized_RJ   the logits of these int32 ids, each once a row, are divided by ``penalty`` where they are
                   positive and multiplied by it where negative (Keskar 2019, section 4.1)
    amounts_RJ     float32, subtracted from the logits of the penalized ids; None: nothing
    suppressed_RJ  the logits of these int32 ids become -inf
    """

    suppressed_RJ: np.ndarray | None = None
    penalized_RJ: np.ndarray | None = None
    penalty: float = 1.0
    amounts_RJ: np.ndarray | None = None
    cap: float = 0.0
    biased_J: np.ndarray = np.empty(0, np.int32)
    biases_J: np.ndarray = np.empty(0, np.float32)

    def of(self, rows_n: np.ndarray) -> "Edits":
        """The edits of some of the rows, which the fields of two axes have."""
        return Edits._make(part[rows_n] if isinstance(part, np.ndarray) and part.ndim == 2 else part for part in self)


NO_EDITS = Edits()

# Indices of ``StepRows.counts``: how many rows have a sentence, how many of ``fresh_F`` are used, how many rows are
# over, at how many of these the steps stop; whether to stop; whether a logit was not a number.
LIVE, USED, OVER, ENOUGH, STOP, FAULT = range(6)

StepInputs = namedtuple("StepInputs", "tokens_R positions_R rows_R previous_R lengths_R")  # what a step reads
# The arrays of StepRows that say how far rows have come.
StepProgress = namedtuple("StepProgress", "slots_R steps_R limits_R chosen_R scores_R is_over_R")


class StepRows:
    """R rows of a step; rows from ``counts[LIVE]`` on, more than there are sentences, repeat the first.

    inputs         tokens; positions; lengths, which are positions + 1; rows of the cache's table of target positions:
                   ``rows_R``, which the step writes, and ``previous_R``, that of the position before
    for attention  slots and memory slots: rows of the cache's tables of histories and of memories; memory_lengths
    progress       steps: tokens so far; limits: the greatest number of tokens; chosen: the last token; scores: the
                   sum of log-probabilities; is_over: whether the sentence has ended
    subsets_R4     the row's number, and ``entry`` of its OutputSubset
    fresh_F        unused rows of the cache, which steps take in order
    counts         int64, at the indices LIVE, USED, ...
    """

    def __init__(self, rows: int, fresh: int):
        self.tokens_R, self.positions_R, self.rows_R, self.previous_R = (np.zeros(rows, np.int32) for _ in range(4))
        self.lengths_R, self.slots_R, self.memory_lengths_R = (np.ones(rows, np.int64) for _ in range(3))
        self.memory_slots_R = np.ones(rows, np.int64)
        self.steps_R, self.limits_R = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
        self.chosen_R, self.is_over_R = np.zeros(rows, np.int32), np.zeros(rows, np.int32)
        self.scores_R = np.zeros(rows, np.float32)
        self.subsets_R4 = np.zeros((rows, 4), np.int64)
        self.subsets_R4[:, 0] = np.arange(rows)
        self.fresh_F, self.counts = np.zeros(fresh, np.int32), np.zeros(6, np.int64)

    def __len__(self) -> int:
        return len(self.tokens_R)

    def first(self, rows: int) -> "StepRows":
        """The first ``rows`` rows, in the same memory."""
        first = StepRows.__new__(StepRows)
        vars(first).update({name: array if name in _NOT_BY_ROW else array[:rows] for name, array in vars(self).items()})
        return first

    @property
    def inputs(self) -> StepInputs:
        return StepInputs(self.tokens_R, self.positions_R, self.rows_R, self.previous_R, self.lengths_R)

    @property
    def constant_arrays(self) -> tuple[np.ndarray, ...]:
        """The arrays that steps do not change, so that their repeated rows are copied only once."""
        return self.slots_R, self.memory_slots_R, self.memory_lengths_R, self.subsets_R4[:, 1:]

    @property
    def progress(self) -> StepProgress:
        return StepProgress(self.slots_R, self.steps_R, self.limits_R, self.chosen_R, self.scores_R, self.is_over_R)


_NOT_BY_ROW = "fresh_F", "counts"  # the arrays of StepRows without an axis of rows


class SubsetRows(NamedTuple):
    """The subsets of outputs that a step's rows choose from; a row's subset may change from step to step.

    linear   the RowLinear of all subsets
    rows_R4  ``StepRows.subsets_R4``; the maker of the StepRows keeps the subsets alive
    columns  the padded number of ids of the largest subset
    """

    linear: Any
    rows_R4: np.ndarray
    columns: int
