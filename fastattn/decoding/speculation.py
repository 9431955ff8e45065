"""Speculation: one pass over proposed tokens shows which of them single steps would have chosen.

A pass over a token and the proposal behind the token is a chunk, which has the bits of as many steps. The choice behind
a token, even a sample, depends on the sequence and the position alone (``search.py``). So an answer's tokens and
log-probabilities are those of single steps, whatever was proposed. Speculative decoding: Leviathan 2023, whose rule for
random choices is not needed; look-up: Saxena 2023, "Prompt Lookup Decoding".
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile
from typing import NamedTuple

import numpy as np

from fastattn.decoding.prompts import MOST_CHUNK, fair_shares, own_slots
from fastattn.decoding.search import Job, best_candidates
from fastattn.decoding.step import Beams, DecodingBatch, Sentence
from fastattn.layers.key_value_cache import LEAST_ROWS, KeyValueCache, common_length
from fastattn.models.decoder import Decoder
from fastattn.scheduling.state import WorkerSlot

# Rows of a step with proposals. SmolLM-135M's steps of 2, 4, 8 and 16 rows take 1.03, 1.06, 1.25 and 2.2 times the
# seconds of one row in float32, 1.1, 1.2, 1.5 and 2.5 times in int8: above 8, rows cost as much as they can save.
MOST_ROWS = 8
LEAST_MATCH, LONGEST_MATCH = 2, 8  # how many of the last tokens the look-up compares


def look_up(tokens_T: np.ndarray, count: int) -> list[int]:
    """``count`` tokens that follow the longest earlier match of the last tokens; the latest of several such matches.

    Where the sequence ends, the proposal begins again. [] if fewer than ``LEAST_MATCH`` tokens match.
    """
    matches_M, length = np.flatnonzero(tokens_T[:-1] == tokens_T[-1]), 0  # the last position of each match so far
    while len(matches_M) and length < LONGEST_MATCH:
        length += 1
        latest, matches_M = int(matches_M[-1]), matches_M[matches_M >= length]
        matches_M = matches_M[tokens_T[matches_M - length] == tokens_T[-1 - length]]
    return np.resize(tokens_T[latest + 1 :], count).tolist() if length >= LEAST_MATCH else []


def choose_behind(batch: DecodingBatch, inputs: Beams, counts_B: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(log_probs_N1, ids_N1): the choice behind each input, by one step of this batch alone.

    inputs    beams moved on to each input: ``counts_B`` inputs of each sentence, one behind the other
    Several rows of a recorded step may be of one sentence, since the step computes its rows in order.
    """
    if batch.recorded_steps is not None and batch.recorded_steps.suits(inputs.steps_B):
        results = batch.recorded_steps.run(replace(inputs, scores_BR=np.zeros_like(inputs.scores_BR)), None, 1)
        if results is not None:
            return results[1:]
        batch.recorded_steps = None
    positions_N, firsts_B = inputs.positions_B.astype(np.int32), np.cumsum(counts_B) - counts_B
    slots_B, tokens_N = inputs.slots_BR[firsts_B, 0], inputs.tokens_BR[:, 0]
    hidden_ND, _ = batch.choice.model.step(batch.cache, slots_B, tokens_N, positions_N, False, counts_B)
    return batch.choice.best(hidden_ND, batch.candidate_rows(inputs, 1), 1, batch.options.needs_log_probs)


class Draft:
    """A smaller model with the same tokens, which proposes its own choices by a batch's options and random numbers.

    The draft model's cache has a slot for each sentence. Its vocabulary may be padded to more or fewer ids than
    ``vocabulary``, the number that the larger model has: a proposal ends before an id that the larger model lacks.
    """

    def __init__(self, model: Decoder, vocabulary: int, scheduler: WorkerSlot, job: Job, end_id: int, unk_id: int):
        self._vocabulary = vocabulary
        self.model, self.cache = model, KeyValueCache(model.ops, model.sizes, LEAST_ROWS, 0)
        self._batch = DecodingBatch(model, self.cache, scheduler, job, end_id, unk_id)
        self._slots: dict[Sentence, tuple[int, np.ndarray]] = {}

    def propose(self, beams: Beams, tokens: Sequence[np.ndarray], counts: Sequence[int]) -> list[list[int]]:
        """At most ``counts[b]`` tokens that follow tokens[b]; none until the draft model has read tokens[b] whole."""
        proposals, counts_B = [list[int]() for _ in tokens], np.array(counts)
        if limit := self.model.sizes.max_positions:  # a choice behind the last position has none for its own input
            counts_B = np.minimum(counts_B, limit - beams.positions_B)
        vocabulary = self.model.sizes.vocabulary
        if vocabulary < self._vocabulary:
            counts_B = np.where([tokens_T.max() < vocabulary for tokens_T in tokens], counts_B, 0)
            tokens = [np.minimum(tokens_T, vocabulary - 1) for tokens_T in tokens]
        if counts_B.max() <= 0:
            return proposals
        beams = replace(beams, slots_BR=self._slots_of(beams.sentences_B.tolist())[:, None])
        hidden_BD, is_whole_B = self._read(beams.slots_BR[:, 0], tokens)
        active_b = np.flatnonzero((counts_B > 0) & is_whole_B)
        ids_b1 = self._batch.choice.best(hidden_BD, self._batch.candidate_rows(beams, 1), 1, False)[1][active_b]
        for offset in range(1, int(counts_B.max()) + 1):
            for b, token in zip(active_b.tolist(), ids_b1[:, 0].tolist()):
                proposals[b].append(token)
            goes_on_b = counts_B[active_b] > offset
            if not goes_on_b.any():
                break
            active_b = active_b[goes_on_b]
            inputs = replace(beams.select(active_b).moved_by(offset), tokens_BR=ids_b1[goes_on_b])
            _, ids_b1 = choose_behind(self._batch, inputs, np.ones(len(active_b), np.int64))
        return [list(takewhile(self._vocabulary.__gt__, ids)) for ids in proposals]

    def _slots_of(self, sentences: Sequence[Sentence]) -> np.ndarray:
        """slots_B of the sentences; frees the slots of all other sentences."""
        for sentence in self._slots.keys() - set(sentences):
            self.cache.release(*self._slots.pop(sentence))
        for sentence in sentences:
            if sentence not in self._slots:
                self._slots[sentence] = own_slots(self.cache, 1)
        return np.concatenate([self._slots[sentence][1] for sentence in sentences])

    def _read(self, slots_B: np.ndarray, tokens: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Read a chunk of the tokens that slots lack: (hidden_BD of each slot's last token, whether none is unread)."""
        cache, firsts, limit = self.cache, [], self.model.sizes.max_positions or None
        tokens = [tokens_T[:limit] for tokens_T in tokens]
        for slot, tokens_T in zip(slots_B.tolist(), tokens):
            cached_T = cache.tokens(slot, 0, cache.length(slot))
            firsts.append(common_length(cached_T, tokens_T[:-1]))  # the choice needs the last hidden state
            cache.cut(slot, firsts[-1])
        unread = [len(tokens_T) - first for tokens_T, first in zip(tokens, firsts)]
        counts = fair_shares(unread, max(MOST_CHUNK, len(unread)))
        starts_B1 = np.cumsum([0, *counts])
        read_N = np.concatenate([ids[first : first + count] for ids, first, count in zip(tokens, firsts, counts)])
        firsts_B = np.array(firsts, np.int64)
        hidden_ND, _ = self.model.prefill(read_N, starts_B1, cache=cache, slots_B=slots_B, firsts_B=firsts_B)
        return self.model.ops.take_rows(hidden_ND, starts_B1[1:] - 1), np.equal(counts, unread)


class _StepInputs(NamedTuple):
    """The inputs of a step: for each sentence the next input, then the proposal."""

    beams: Beams  # one for each input, as ``choose_behind`` takes them
    counts_B: np.ndarray  # how many inputs each sentence has
    offsets_N: np.ndarray  # each input's position among its sentence's inputs
    proposals_N: np.ndarray  # the proposed token behind each input, or -1


class SpeculativeBatch(DecodingBatch):
    """A batch of sentences, one beam each, with proposals: from their own tokens, or from a draft model."""

    _inputs: _StepInputs

    def __init__(self, model: Decoder, cache: KeyValueCache, scheduler: WorkerSlot, job: Job, end_id: int, unk_id: int):
        super().__init__(model, cache, scheduler, job, end_id, unk_id)
        draft, size = job.speculate, model.sizes.vocabulary
        self._draft = Draft(draft, size, scheduler, job, end_id, unk_id) if isinstance(draft, Decoder) else None

    def run(self) -> bool:
        """Make a step of this batch alone."""
        inputs = self._step_inputs()
        if len(inputs.offsets_N) > len(inputs.counts_B) or not super().run():
            self._accept(inputs, *choose_behind(self, inputs.beams, inputs.counts_B))
        return True

    def inputs(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """The inputs of the next step, as in DecodingBatch, with the proposal behind each token."""
        self._inputs = inputs = self._step_inputs()
        positions_N, tokens_N = inputs.beams.positions_B.astype(np.int32), inputs.beams.tokens_BR[:, 0]
        return inputs.beams.slots_BR[inputs.offsets_N == 0, 0], tokens_N, positions_N, inputs.counts_B

    def advance(self, hidden_ND: np.ndarray) -> None:
        """Move each sentence on by a token or several, from the hidden states of a step."""
        rows = self.candidate_rows(self._inputs.beams, 1)
        self._accept(self._inputs, *self.choice.best(hidden_ND, rows, 1, self.options.needs_log_probs))

    def _step_inputs(self) -> _StepInputs:
        beams = self.beams
        assert beams is not None
        proposals = self._propose(beams)
        counts_B = np.array([1 + len(ids) for ids in proposals])
        owners_N = np.repeat(np.arange(len(counts_B)), counts_B)
        offsets_N = np.arange(len(owners_N)) - (np.cumsum(counts_B) - counts_B)[owners_N]
        proposals_N = np.concatenate([[*ids, -1] for ids in proposals]).astype(np.int32)
        inputs = beams.select(owners_N).moved_by(offsets_N)
        inputs.tokens_BR[offsets_N > 0, 0] = proposals_N[proposals_N >= 0]
        return _StepInputs(inputs, counts_B, offsets_N, proposals_N)

    def _propose(self, beams: Beams) -> Sequence[Sequence[int]]:
        """A proposal for each sentence, behind its next input."""
        limits = (beams.limits_B - beams.steps_B - 1).tolist()
        lengths = [min(sentence.proposal_length, limit) for sentence, limit in zip(beams.sentences_B.tolist(), limits)]
        counts = fair_shares(lengths, max(0, MOST_ROWS - self.cache.slots))
        tokens = [
            np.append(self.cache.tokens(slot, 0, position), token)
            for (slot,), position, (token,) in zip(beams.slots_BR, beams.positions_B, beams.tokens_BR)
        ]
        if self._draft is not None:
            return self._draft.propose(beams, tokens, counts)
        return [look_up(*pair) for pair in zip(tokens, counts)]

    def _accept(self, inputs: _StepInputs, log_probs_N1: np.ndarray, ids_N1: np.ndarray) -> None:
        """Move each sentence on by the choices behind its inputs, up to the first input that was not chosen."""
        beams = self.beams
        assert beams is not None
        offsets_N, proposals_N = inputs.offsets_N, inputs.proposals_N
        row_of = dict(zip(beams.sentences_B.tolist(), np.flatnonzero(offsets_N == 0).tolist()))
        for sentence, count in zip(row_of, inputs.counts_B.tolist()):
            sentence.proposed += count - 1
        moved_beams: Beams | None = None
        while len(beams.steps_B):
            rows_B = [row_of[sentence] for sentence in beams.sentences_B.tolist()]
            candidates = log_probs_N1[rows_B][:, None], ids_N1[rows_B][:, None]
            next_beams = self._move_on(beams, *best_candidates(beams.scores_BR, *candidates, 1))
            if next_beams is None:
                break
            was_proposed_B = next_beams.tokens_BR[:, 0] == [
                proposals_N[row_of[sentence]] for sentence in next_beams.sentences_B.tolist()
            ]
            beams, stopped_beams = next_beams.select(was_proposed_B), next_beams.select(~was_proposed_B)
            for sentence in beams.sentences_B.tolist():
                row_of[sentence] += 1
                sentence.accepted += 1
            for sentence, position in zip(stopped_beams.sentences_B.tolist(), stopped_beams.positions_B.tolist()):
                self.cache.cut(int(sentence.slots_R[0]), position)
                offset, row = int(offsets_N[row_of[sentence]]), row_of[sentence]
                if proposals_N[row] >= 0:  # a proposed token was not chosen
                    sentence.proposal_length = max(1, offset)
                elif offset:  # the whole proposal was chosen
                    sentence.proposal_length = 2 * offset + 1
            if len(stopped_beams.steps_B):
                moved_beams = stopped_beams if moved_beams is None else moved_beams.joined_with(stopped_beams)
        self.beams = moved_beams
