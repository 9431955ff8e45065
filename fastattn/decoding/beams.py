"""The sentences that a search is at, as arrays."""

from dataclasses import dataclass, fields

import numpy as np


@dataclass
class Beams:
    """The sentences in progress, B of them with R beams each; one array a property."""

    sentences_B: np.ndarray  # their places in the cache
    steps_B: np.ndarray  # tokens produced so far, and the position of the next input
    limits_B: np.ndarray
    finished_B: np.ndarray  # hypotheses so far
    top_finished_B: np.ndarray  # whether the best beam has ever ended
    scores_BR: np.ndarray
    tokens_BR: np.ndarray
    diverged_BR: np.ndarray  # places whose token was not the one wished for

    def select(self, chosen_B: np.ndarray) -> "Beams":
        return Beams(*(getattr(self, f.name)[chosen_B] for f in fields(self)))

    def joined(self, other: "Beams") -> "Beams":
        return Beams(*(np.concatenate([getattr(self, f.name), getattr(other, f.name)]) for f in fields(self)))
