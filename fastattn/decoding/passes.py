"""Jobs of one pass over whole sequences: scores of given targets, and candidates for the next token."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fastattn.decoding.candidates import CandidateRows, Candidates
from fastattn.decoding.jobs import Job
from fastattn.models.decoder import Decoder


class Pass(ABC):
    """A job of one pass."""

    weight = 1  # as a Scheduler knows it

    @property
    @abstractmethod
    def length(self) -> int:
        """About how many rows it puts through the model."""

    @abstractmethod
    def fits_with(self, other: "Pass") -> bool:
        """Whether both can share a pass."""

    @abstractmethod
    def run(self, model: Decoder, jobs: Sequence[Any], end_id: int, unk_id: int) -> list[Any]:
        """The results of jobs that share a pass, this one among them."""


@dataclass(frozen=True, eq=False)
class Scoring(Pass):
    """A source and a target to be scored; the result is the log-probability of each token behind the first, float32.

    source  int32
    target  int32: start tokens, its tokens and, usually, its end token
    """

    source: np.ndarray
    target: np.ndarray

    @property
    def length(self) -> int:
        return len(self.source) + len(self.target)

    def fits_with(self, other: Pass) -> bool:
        return isinstance(other, Scoring)

    def run(self, model: Decoder, jobs: Sequence["Scoring"], end_id: int, unk_id: int) -> list[np.ndarray]:
        starts_B1 = np.cumsum([0, *(len(job.target) - 1 for job in jobs)])
        inputs_N = np.concatenate([job.target[:-1] for job in jobs]).astype(np.int32, copy=False)
        outputs_N = np.concatenate([job.target[1:] for job in jobs]).astype(np.int32, copy=False)
        hidden_ND, _ = model.prefill(inputs_N, starts_B1, model.encode([job.source for job in jobs]))
        log_probs_N = model.output.log_probs(hidden_ND, outputs_N)
        return [log_probs_N[starts_B1[b] : starts_B1[b + 1]] for b in range(len(jobs))]


@dataclass(frozen=True, eq=False)
class Expansion(Pass):
    """A sentence whose best next tokens are wanted; the result is [(log-probability, id), ...], never empty, no end."""

    job: Job

    @property
    def length(self) -> int:
        return len(self.job.source) + len(self.job.start) + len(self.job.prefix)

    def fits_with(self, other: Pass) -> bool:
        if not isinstance(other, Expansion):
            return False
        one, two = self.job, other.job
        return one.options == two.options and (one.allowed is None) == (two.allowed is None)

    def run(
        self, model: Decoder, jobs: Sequence["Expansion"], end_id: int, unk_id: int
    ) -> list[list[tuple[float, int]]]:
        sentences = [expansion.job for expansion in jobs]
        options = replace(self.job.options, min_decoding_length=1, sampling_topk=1)
        choice = Candidates(model, options, end_id, unk_id)
        inputs = [np.array([*job.start, *job.prefix], np.int32) for job in sentences]
        starts_B1 = np.cumsum([0, *map(len, inputs)])
        memory = model.encode([job.source for job in sentences])
        hidden_ND, _ = model.prefill(np.concatenate(inputs), starts_B1, memory)
        rows = CandidateRows(np.zeros(len(jobs), np.int64))
        if choice.shortlist is not None or self.job.allowed is not None:
            rows.subsets_R = [choice.select_outputs(job) for job in sentences]
        hidden_BD = model.ops.take_rows(hidden_ND, starts_B1[1:] - 1)
        found_log_probs_Bk, found_Bk = choice.best(hidden_BD, rows, options.num_hypotheses)
        kept_Bk = np.exp(found_log_probs_Bk) >= options.min_alternative_expansion_prob
        kept_Bk &= found_log_probs_Bk > -np.inf
        kept_Bk[:, 0] = True  # so that there is at least one translation
        both = zip(found_log_probs_Bk, found_Bk, kept_Bk)
        return [list(zip(log_probs_k[kept_k].tolist(), ids_k[kept_k].tolist())) for log_probs_k, ids_k, kept_k in both]
