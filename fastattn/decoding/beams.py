"""Sentences in progress, and their beams as arrays."""

from dataclasses import dataclass, fields

import numpy as np

from fastattn.decoding.capacity import expected_rows
from fastattn.decoding.jobs import Hypothesis, Job
from fastattn.ops.protocol import OutputSubset
from fastattn.scheduling.request import Ticket


class Sentence:
    """A job in progress.

    memory_slot  of the cache
    slots_R  its slots in the cache, one for each beam
    key      of its random samples
    subset, subset_offsets  the outputs that it chooses from, and where they lie; None: all tokens
    expected  rows of the cache that it will about fill
    before   the input position before the target's first token
    """

    def __init__(self, ticket: Ticket, memory_slot: int, slots_R: np.ndarray, key: int, subset: OutputSubset | None):
        self.ticket, self.memory_slot, self.slots_R, self.key, self.subset = ticket, memory_slot, slots_R, key, subset
        self.job: Job = ticket.job
        self.expected, self.before = expected_rows(self.job), len(self.job.start) - 1
        self.subset_offsets = (0, 0, 0) if subset is None else subset.place
        self.hypotheses: list[Hypothesis] = []


@dataclass
class Beams:
    """B sentences in progress with R beams each: one array for each property."""

    sentences_B: np.ndarray  # of Sentence
    slots_BR: np.ndarray  # of the cache
    steps_B: np.ndarray  # tokens produced so far
    positions_B: np.ndarray  # of the next input
    limits_B: np.ndarray
    finished_B: np.ndarray  # hypotheses so far
    top_finished_B: np.ndarray  # whether the best beam has ever ended
    scores_BR: np.ndarray
    tokens_BR: np.ndarray
    diverged_BR: np.ndarray  # beams whose token differed from the favoured prefix
    subsets_B3: np.ndarray  # where the sentences' OutputSubsets lie, if they have any

    def select(self, chosen_B: np.ndarray) -> "Beams":
        return Beams(*(getattr(self, f.name)[chosen_B] for f in fields(self)))

    def joined(self, other: "Beams") -> "Beams":
        return Beams(*(np.concatenate([getattr(self, f.name), getattr(other, f.name)]) for f in fields(self)))
