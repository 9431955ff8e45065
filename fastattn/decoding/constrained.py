"""Searches whose answers have to match something: each row chooses from the ids that may follow its tokens."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fastattn.arguments.steps import NO_EDITS, Edits
from fastattn.decoding.batch import DecodingBatch
from fastattn.decoding.candidates import HOPELESS, CandidateRows
from fastattn.decoding.jobs import Beams, Sentence
from fastattn.errors import InputError
from fastattn.models.decoder import Decoder, OutputProjection
from fastattn.ops.protocol import OutputSubset
from fastattn.scheduling.request import Ticket


class ConstrainedOutput:
    """An OutputProjection onto the ids that each row may choose.

    allowed_RV  bool
    end_id      what a row without any chooses, at a score worse than all others
    """

    def __init__(self, output: OutputProjection, allowed_RV: np.ndarray, end_id: int):
        self.output, self.allowed_RV, self.end_id = output, allowed_RV, end_id

    def all_log_probs(
        self, hidden_RD: np.ndarray, edits: Edits = NO_EDITS, subsets_R: Sequence[OutputSubset] | None = None
    ) -> np.ndarray:
        """log_probs_RV of every next token: a softmax over the allowed ones."""
        log_probs_RV = np.array(self.output.all_log_probs(hidden_RD, edits, subsets_R))
        self.output.check(not np.isnan(log_probs_RV).any())
        for row_V, allowed_V in zip(log_probs_RV, self.allowed_RV):
            row_V[~allowed_V] = -np.inf
            best = row_V.max()
            if best > -np.inf:
                row_V -= best + np.log(np.exp(row_V[allowed_V] - best).sum())
            else:
                row_V[self.end_id] = HOPELESS
        return log_probs_RV

    def top_k(
        self,
        hidden_RD: np.ndarray,
        k: int,
        edits: Edits = NO_EDITS,
        subsets_R: Sequence[OutputSubset] | None = None,
        normalized: bool = True,
    ) -> tuple[np.ndarray, np.ndarray]:
        """(log_probs_Rk, ids_Rk) of the k most probable, best first, then -inf and -1; always normalized."""
        log_probs_RV = self.all_log_probs(hidden_RD, edits, subsets_R)
        best_Rk, ids_Rk = np.full((len(log_probs_RV), k), -np.inf, np.float32), np.full((len(log_probs_RV), k), -1)
        for row_V, best_k, ids_k in zip(log_probs_RV, best_Rk, ids_Rk):
            left = np.flatnonzero(row_V > -np.inf)
            if len(left) > k:
                left = left[row_V[left] >= np.partition(row_V[left], len(left) - k)[len(left) - k]]
            left = left[np.argsort(-row_V[left], kind="stable")[:k]]
            best_k[: len(left)], ids_k[: len(left)] = row_V[left], left
        return best_Rk, ids_Rk.astype(np.int32)


class ConstrainedBatch(DecodingBatch):
    """A batch of sentences that have constraints, each its own.

    A beam without enough allowed continuations goes on with placeholders, at -inf: they never end, and are no
    hypotheses.
    """

    def sentence(self, ticket: Ticket, memory_slot: int, slots_R: np.ndarray | None = None) -> Sentence:
        sentence = super().sentence(ticket, memory_slot, slots_R)
        sentence.matcher = ticket.job.constraint()
        return sentence

    def _recorded_steps(self, model: Decoder) -> None:
        """None: each step waits for what its tokens allow."""

    def _rows(self, beams: Beams, width: int) -> CandidateRows:
        rows, output = super()._rows(beams, width), self.choice.model.output
        allowed_BV = [self._allowed(beams, b, r) for b in range(len(beams.steps_B)) for r in range(width)]
        rows.output = ConstrainedOutput(output, np.array(allowed_BV), self.end_ids[0])
        return rows

    def _allowed(self, beams: Beams, b: int, r: int) -> np.ndarray:
        """Which ids may follow the tokens of a sentence's beam."""
        sentence: Sentence = beams.sentences_B[b]
        nothing_V = np.zeros(self.choice.model.sizes.vocabulary, bool)
        if beams.scores_BR[b, r] == -np.inf or sentence.ticket.is_over:
            return nothing_V
        slot, end = int(sentence.slots_R[r]), int(beams.positions_B[b]) + 1
        try:
            allowed_V: np.ndarray = sentence.matcher.allowed(self.cache.tokens(slot, sentence.before + 1, end).tolist())
        except InputError as error:
            self.scheduler.fail(sentence.ticket, error)
            return nothing_V
        return allowed_V

    def _move_on(self, beams: Beams, scores_BC: np.ndarray, ids_BC: np.ndarray, *rest: Any) -> Beams | None:
        self._live_BC = scores_BC > -np.inf
        placeholder = next(index for index in range(len(self.end_ids) + 1) if index not in self.end_ids)
        return super()._move_on(beams, scores_BC, np.where(self._live_BC, ids_BC, np.int32(placeholder)), *rest)

    def _stopped(self, beams: Beams, ids_BC: np.ndarray, parents_BC: np.ndarray) -> np.ndarray:
        return super()._stopped(beams, ids_BC, parents_BC) & self._live_BC

    def _close(self, sentence: Sentence) -> None:
        sentence.hypotheses = [found for found in sentence.hypotheses if found.log_probability != -np.inf]
        super()._close(sentence)
