"""Arguments of a decoder's steps: changes to logits, and the rows of greedy steps, which compiled code keeps up."""

from collections import namedtuple
from typing import Any, NamedTuple

import numpy as np


class Edits(NamedTuple):
    """Lists of ids, a row each, padded with -1; None where there is nothing to edit.

    cap            before all else a logit z becomes cap * tanh(z / cap); 0: no cap
    suppressed_RJ  int32 ids whose logits count as -inf.
    penalized_RJ   int32 ids, each once a row, whose logits are divided by ``penalty`` where they are positive and
                   multiplied by it where negative (Keskar 2019, section 4.1), before others are suppressed.
    amounts_RJ     float32: what is subtracted from each of these logits then; None: nothing.
    """

    suppressed_RJ: np.ndarray | None = None
    penalized_RJ: np.ndarray | None = None
    penalty: float = 1.0
    amounts_RJ: np.ndarray | None = None
    cap: float = 0.0

    def of(self, rows_n: np.ndarray) -> "Edits":
        """The edits of some of the rows."""
        lists = self.suppressed_RJ, self.penalized_RJ, self.amounts_RJ
        suppressed_RJ, penalized_RJ, amounts_RJ = (None if list_RJ is None else list_RJ[rows_n] for list_RJ in lists)
        return self._replace(suppressed_RJ=suppressed_RJ, penalized_RJ=penalized_RJ, amounts_RJ=amounts_RJ)


NO_EDITS = Edits()


# What ``counts`` holds: rows that are sentences, free rows of the cache that were used, rows that are over, how many of
# these are enough to stop, whether to stop, whether a logit was not a number.
LIVE, USED, OVER, ENOUGH, STOP, FAULT = range(6)


# What a step reads of its rows; see StepRows.
StepInputs = namedtuple("StepInputs", "tokens_R positions_R rows_R previous_R lengths_R")
# How far rows have come; see StepRows.
StepProgress = namedtuple("StepProgress", "slots_R steps_R limits_R chosen_R scores_R is_over_R")


class StepRows:
    """R rows; those from ``counts[LIVE]`` on repeat the first, so that a step may have more rows than sentences.

    A step reads      tokens, positions, rows (where it writes), previous (the row before; both of the cache's table of
                      target positions), and ``positions + 1``, which are ``lengths``
    for attention     slots and memory slots: rows of the cache's tables of histories and of memories; memory_lengths
    a row's progress  steps, limits: tokens produced so far, and at most; chosen, scores: the last one, and the sum of
                      log-probabilities; is_over
    subsets_R4        the row's number, and where its OutputSubset lies
    fresh_F           unused rows of the cache, which steps take in order
    counts            see above
    """

    def __init__(self, rows: int, fresh: int):
        self.tokens_R, self.positions_R, self.rows_R, self.previous_R = (np.zeros(rows, np.int32) for _ in range(4))
        self.lengths_R, self.slots_R, self.memory_slots_R, self.memory_lengths_R = (
            np.ones(rows, np.int64) for _ in range(4)
        )
        self.steps_R, self.limits_R = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
        self.chosen_R, self.scores_R = np.zeros(rows, np.int32), np.zeros(rows, np.float32)
        self.is_over_R = np.zeros(rows, np.int32)
        self.subsets_R4 = np.zeros((rows, 4), np.int64)
        self.subsets_R4[:, 0] = np.arange(rows)
        self.fresh_F, self.counts = np.zeros(fresh, np.int32), np.zeros(6, np.int64)

    def __len__(self) -> int:
        return len(self.tokens_R)

    def first(self, rows: int) -> "StepRows":
        """The first rows of these, in the same memory."""
        part = StepRows.__new__(StepRows)
        vars(part).update({name: array if name in _WHOLE else array[:rows] for name, array in vars(self).items()})
        return part

    @property
    def inputs(self) -> StepInputs:
        return StepInputs(self.tokens_R, self.positions_R, self.rows_R, self.previous_R, self.lengths_R)

    @property
    def shared(self) -> tuple[np.ndarray, ...]:
        """What rows that repeat the first one have of it from the beginning."""
        return self.slots_R, self.memory_slots_R, self.memory_lengths_R, self.subsets_R4[:, 1:]

    @property
    def progress(self) -> StepProgress:
        return StepProgress(self.slots_R, self.steps_R, self.limits_R, self.chosen_R, self.scores_R, self.is_over_R)


_WHOLE = "fresh_F", "counts"


class SubsetRows(NamedTuple):
    """The subsets that a step's rows choose from, which change from step to step.

    linear   of all of them
    rows_R4  those of StepRows, whose maker keeps the subsets
    columns  no subset has more
    """

    linear: Any
    rows_R4: np.ndarray
    columns: int
