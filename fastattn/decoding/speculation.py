"""Speculation: tokens are proposed, and one pass over them shows which of them steps would have given.

A pass over a token and those proposed behind it is a chunk, which has the bits of as many steps. What is chosen behind
it, samples too, depends on the sequence and the position alone (``candidates.py``). So the tokens up to the first that
is not as proposed, and their log-probabilities, are those of steps, whoever proposes. Speculative decoding: Leviathan
2023, whose rule for random choices is not needed; look-up: Saxena 2023, "Prompt Lookup Decoding".
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np

from fastattn.decoding.batch import DecodingBatch
from fastattn.decoding.candidates import best_candidates
from fastattn.decoding.jobs import Beams, Hypothesis, Job, Sentence
from fastattn.decoding.prompts import MOST_CHUNK, fair_shares
from fastattn.layers.key_value_cache import LEAST_ROWS, KeyValueCache, common_beginning
from fastattn.models.decoder import Decoder
from fastattn.scheduling.state import WorkerSlot

# Rows of a step with proposals. SmolLM-135M's steps of 2, 4, 8 and 16 rows take 1.03, 1.06, 1.25 and 2.2 times those of
# one row in float32, 1.1, 1.2, 1.5 and 2.5 times in int8: from 8 on, rows cost what they are worth at best.
MOST_ROWS = 8
LEAST_MATCH, LONGEST_MATCH = 2, 8  # last tokens that are looked up


def look_up(tokens_T: np.ndarray, least: int, most: int) -> np.ndarray:
    """``most`` tokens from behind the last place where the last tokens stand before: as many of them as possible.

    Where they reach the end, they go on with what was proposed. None if fewer than ``least`` tokens stand there.
    """
    places_P, length = np.flatnonzero(tokens_T[:-1] == tokens_T[-1]), 0
    while len(places_P) and length < LONGEST_MATCH:
        length += 1
        last, places_P = int(places_P[-1]), places_P[places_P >= length]
        places_P = places_P[tokens_T[places_P - length] == tokens_T[-1 - length]] if len(places_P) else places_P
    return np.resize(tokens_T[last + 1 :], most) if length >= least else tokens_T[:0]


class Draft:
    """Proposes what a smaller model with the same vocabulary chooses, by the options and random numbers of a batch.

    Its cache has a slot for each sentence.
    """

    def __init__(self, model: Decoder, scheduler: WorkerSlot, first: Job, end_id: int, unk_id: int):
        self.model, self.cache = model, KeyValueCache(model.ops, model.sizes, LEAST_ROWS, 0)
        self._batch = DecodingBatch(model, self.cache, scheduler, first, end_id, unk_id)
        self._slots: dict[Sentence, tuple[int, np.ndarray]] = {}

    def propose(self, beams: Beams, tokens: Sequence[np.ndarray], most: Sequence[int]) -> list[list[int]]:
        """``most[b]`` tokens to go behind the sentence's, or fewer: none while these are being read."""
        model, proposed, wanted_B = self.model, [list[int]() for _ in tokens], np.array(most)
        if model.sizes.max_positions:  # what is chosen behind the last one has none
            wanted_B = np.minimum(wanted_B, model.sizes.max_positions - beams.positions_B)
        if wanted_B.max() <= 0:
            return proposed
        slots_B = self._slots_of(beams.sentences_B.tolist())
        beams = replace(beams, slots_BR=slots_B[:, None])
        hidden_BD, is_whole_B = self._read(slots_B, tokens)
        going_b, ahead = np.flatnonzero((wanted_B > 0) & is_whole_B), 0
        hidden_bD = model.ops.take_rows(hidden_BD, going_b)
        while len(going_b):
            rows = self._batch._rows(beams.select(going_b).later(ahead), 1)
            ids_b = self._batch.choice.best(hidden_bD, rows, 1, scored=False)[1][:, 0]
            for b, token in zip(going_b.tolist(), ids_b.tolist()):
                proposed[b].append(token)
            ahead += 1
            goes_b = wanted_B[going_b] > ahead
            going_b, ids_b = going_b[goes_b], ids_b[goes_b]
            if len(going_b):
                positions_b = (beams.positions_B[going_b] + ahead).astype(np.int32)
                hidden_bD, _ = model.step(self.cache, slots_B[going_b], ids_b, positions_b)
        return proposed

    def _slots_of(self, sentences: Sequence[Sentence]) -> np.ndarray:
        """slots_B of the sentences; those of all others are free."""
        for one in self._slots.keys() - set(sentences):
            self.cache.release(*self._slots.pop(one))
        for one in sentences:
            if one not in self._slots:
                memory_slot = int(self.cache.add_memory_slots(np.zeros(2, np.int64))[0][0])
                self._slots[one] = memory_slot, self.cache.add_slots(memory_slot, 1)
        return np.concatenate([self._slots[one][1] for one in sentences])

    def _read(self, slots_B: np.ndarray, tokens: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Read a chunk of what the slots lack of their tokens: (hidden_BD behind it, whether it is all)."""
        cache, firsts, limit = self.cache, [], self.model.sizes.max_positions or None
        tokens = [tokens_T[:limit] for tokens_T in tokens]
        for slot, tokens_T in zip(slots_B.tolist(), tokens):
            known_T = cache.tokens(slot, 0, cache.length(slot))
            firsts.append(common_beginning(known_T, tokens_T[:-1]))  # the last one's hidden state is needed
            cache.cut(slot, firsts[-1])
        left = [len(tokens_T) - first for tokens_T, first in zip(tokens, firsts)]
        counts = fair_shares(left, max(MOST_CHUNK, len(left)))
        starts_B1 = np.cumsum([0, *counts])
        read_N = np.concatenate([ids[first : first + count] for ids, first, count in zip(tokens, firsts, counts)])
        firsts_B = np.array(firsts, np.int64)
        hidden_ND, _ = self.model.prefill(read_N, starts_B1, cache=cache, slots_B=slots_B, firsts_B=firsts_B)
        return self.model.ops.take_rows(hidden_ND, starts_B1[1:] - 1), np.equal(counts, left)


class SpeculativeBatch(DecodingBatch):
    """A batch of sentences, one beam each, that have tokens proposed: found in their own, or by a draft model."""

    def __init__(
        self, model: Decoder, cache: KeyValueCache, scheduler: WorkerSlot, first: Job, end_id: int, unk_id: int
    ):
        super().__init__(model, cache, scheduler, first, end_id, unk_id)
        draft = first.speculate
        self._draft = Draft(draft, scheduler, first, end_id, unk_id) if isinstance(draft, Decoder) else None
        self._proposed: Sequence[Sequence[int]] | None = None  # for the next step
        self._asked = np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int32)

    def run(self) -> bool:
        """As for other batches; False, too, where something is proposed."""
        self._proposed = self._propose()
        if any(map(len, self._proposed)) or not super().run():
            return False
        self._proposed = None
        return True

    def _propose(self) -> Sequence[Sequence[int]]:
        """Tokens to go behind each sentence's next input."""
        beams = self.beams
        assert beams is not None
        sentences: list[Sentence] = beams.sentences_B.tolist()
        left_B = beams.limits_B - beams.steps_B - 1
        wanted = [min(one.ahead, left) for one, left in zip(sentences, left_B.tolist())]
        most = fair_shares(wanted, max(0, MOST_ROWS - self.cache.slots))
        tokens = [
            np.append(self.cache.tokens(slot, 0, position), token)
            for (slot,), position, (token,) in zip(beams.slots_BR, beams.positions_B, beams.tokens_BR)
        ]
        if self._draft is not None:
            return self._draft.propose(beams, tokens, most)
        return [look_up(*each) for each in zip(tokens, [LEAST_MATCH] * len(most), most)]

    def inputs(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """As for other batches, with what is proposed behind each token."""
        proposed, self._proposed = self._propose() if self._proposed is None else self._proposed, None
        slots_B, tokens_B, positions_B, _ = super().inputs()
        counts_B = np.array([1 + len(ids) for ids in proposed])
        firsts_B, owners_N = np.cumsum(counts_B) - counts_B, np.repeat(np.arange(len(counts_B)), counts_B)
        ahead_N = np.arange(len(owners_N)) - firsts_B[owners_N]
        behind_N = np.concatenate([[*ids, -1] for ids in proposed]).astype(np.int32)
        self._asked = owners_N, ahead_N, behind_N
        tokens_N = np.where(ahead_N == 0, tokens_B[owners_N], np.roll(behind_N, 1))
        return slots_B, tokens_N, positions_B[owners_N] + ahead_N.astype(np.int32), counts_B

    def advance(self, hidden_ND: np.ndarray) -> None:
        """Every sentence's tokens as far as they are as proposed, and the one behind."""
        beams = self.beams
        assert beams is not None
        owners_N, ahead_N, behind_N = self._asked
        inputs = self._rows(beams.select(owners_N).later(ahead_N), 1)
        log_probs_N1, ids_N1 = self.choice.best(hidden_ND, inputs, 1, self.options.scored)
        row_of = dict(zip(beams.sentences_B.tolist(), np.flatnonzero(ahead_N == 0).tolist()))
        for one, count in zip(row_of, np.bincount(owners_N).tolist()):
            one.proposed += count - 1
        waiting: list[Beams] = []
        while len(beams.steps_B):
            rows_B = [row_of[one] for one in beams.sentences_B.tolist()]
            found = log_probs_N1[rows_B][:, None], ids_N1[rows_B][:, None]
            moved = self._move_on(beams, *best_candidates(beams.scores_BR, *found, 1))
            if moved is None:
                break
            right_B = moved.tokens_BR[:, 0] == [behind_N[row_of[one]] for one in moved.sentences_B.tolist()]
            beams = moved.select(right_B)
            for one in beams.sentences_B.tolist():
                row_of[one] += 1
                one.accepted += 1
            waiting.append(moved.select(~right_B))
        stay = [beams for beams in waiting if len(beams.steps_B)]
        self.beams = reduce(Beams.joined, stay) if stay else None
        for beams in stay:
            for one, position in zip(beams.sentences_B.tolist(), beams.positions_B.tolist()):
                self.cache.cut(int(one.slots_R[0]), position)
                right, row = int(ahead_N[row_of[one]]), row_of[one]
                if behind_N[row] >= 0:  # there are wrong ones
                    one.ahead = max(1, right)
                elif right:
                    one.ahead = 2 * right + 1

    def _hypothesis(self, *found: Any) -> Hypothesis:
        sentence: Sentence = found[0].sentences_B[found[1]]
        return replace(super()._hypothesis(*found), proposed=sentence.proposed, accepted=sentence.accepted)
