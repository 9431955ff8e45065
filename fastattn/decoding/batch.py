"""A batch: sentences in progress under the same options, and their decoding steps."""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from fastattn.decoding.candidates import (
    CandidateRows,
    Candidates,
    apply_prefix,
    are_ends,
    best_candidates,
    coverage,
    keep_beams,
    sentence_key,
)
from fastattn.decoding.jobs import Beams, Hypothesis, Job, Sentence, add_traces, keep_traces, traced
from fastattn.decoding.options import DecodingOptions, Step
from fastattn.decoding.recorded_steps import RecordedSteps
from fastattn.decoding.scores import may_improve, normalized
from fastattn.layers.draws import sample_key
from fastattn.layers.key_value_cache import KeyValueCache
from fastattn.models.decoder import Decoder
from fastattn.scheduling.request import Ticket
from fastattn.scheduling.state import WorkerSlot

# Options in which the sentences of a batch may differ.
_PER_SENTENCE = ("callback", "timeout", "seed", "max_decoding_length", "max_length_factor", "max_input_length")


class DecodingBatch:
    """The batch of one worker, whose model, cache and scheduler it uses."""

    def __init__(
        self, model: Decoder, cache: KeyValueCache, scheduler: WorkerSlot, first: Job, end_id: int, unk_id: int
    ):
        self.cache, self.scheduler, self.options = cache, scheduler, first.options
        self.choice = Candidates(model, first.options, end_id, unk_id)
        self.has_lists, self.speculate, self.kind = first.allowed is not None, first.speculate, first.kind
        self.end_ids = self.choice.end_ids
        self.beam = self.options.beam_size
        self.candidates = 1 if self.options.greedy else 2 * self.beam
        self.wants_attention = self.options.needs_attention
        self.beams: Beams | None = None
        self.recorded = self._recorded_steps(model)
        self.rules = self.options.rules if self.beam > 1 else None
        self._forces_end = self.options.rules is not None and self.options.rules.forced_end
        self._last_match = self.options  # the last that were found to be as these
        self._calls_back = self._stops = self._traces = False  # whether some sentence wants it

    def takes(self, job: Job) -> bool:
        """Whether the sentence is decoded under the same options as those of this batch."""
        if job.options is not self._last_match:
            if _shared(job.options) != _shared(self.options):
                return False
            self._last_match = job.options
        return self.kind == job.kind

    @property
    def rows(self) -> int:
        """Its rows in a step: one for each beam of each sentence."""
        return 0 if self.beams is None else self.beams.slots_BR.size

    def sentences(self) -> list[Sentence]:
        """The sentences in progress."""
        return [] if self.beams is None else self.beams.sentences_B.tolist()

    def sentence(self, ticket: Ticket, memory_slot: int, slots_R: np.ndarray | None = None) -> Sentence:
        """A new sentence of this batch, with slots of its own in the cache."""
        job: Job = ticket.job
        own = sentence_key(job.source, [*job.start, *job.prefix], job.salt) if self.options.sampled else 0
        key = sample_key(job.options.seed or 0, own, job.hypothesis) if self.options.sampled else 0
        if slots_R is None:
            slots_R = self.cache.add_slots(memory_slot, self.beam, key)
        return Sentence(ticket, memory_slot, slots_R, key, self.choice.select_outputs(job))

    def taken_up(self, scheduler: WorkerSlot) -> "DecodingBatch":
        """The batch, which is empty, for another worker of the same model."""
        self.scheduler = scheduler
        self._calls_back = self._stops = self._traces = False
        return self

    # steps

    def _recorded_steps(self, model: Decoder) -> RecordedSteps | None:
        """Steps without Python between kernels, where the options let them be recorded."""
        options = self.options
        looks_back = self.choice.needs_past or options.biased or self.wants_attention
        plain = options.greedy and not options.sampled and not looks_back and model.sizes.records
        recorder = model.ops.recorder() if plain else None
        return None if recorder is None else RecordedSteps(model, self.cache, self.choice, options.scored, recorder)

    def run(self) -> bool:
        """Steps of this batch alone, until a sentence ends; False if they cannot be recorded now, so none was made."""
        beams, recorded = self.beams, self.recorded
        assert beams is not None
        if recorded is None or not recorded.takes(beams.steps_B):
            return False
        subset = beams.sentences_B[0].subset
        each = self._calls_back or self._stops or self._traces or self.speculate is not None
        ran = recorded.run(beams, None if subset is None else subset.linear, 1 if each else None)
        if ran is None:
            self.recorded = None
            return False
        self.beams = self._move_on(*ran, np.zeros((len(beams.steps_B), 1), np.int64))
        return True

    def inputs(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """(slots_R, tokens_N, positions_N int32, counts_R) of the next step: each row's token, or several."""
        assert self.beams is not None
        positions_B = self.beams.positions_B.astype(np.int32)
        positions_R = positions_B if self.beam == 1 else np.repeat(positions_B, self.beam)
        slots_R = self.beams.slots_BR.ravel()
        return slots_R, self.beams.tokens_BR.ravel(), positions_R, np.ones(len(slots_R), np.int64)

    def begin(self, sentences: list[Sentence], limits_B: np.ndarray, hidden_BD: np.ndarray) -> None:
        """The first step after start and prefix: one row a sentence, the last hidden state of its prefix."""
        jobs = [sentence.job for sentence in sentences]
        if self._forces_end:
            limits_B = np.maximum(limits_B - 1, 1)
        # Where the limit falls inside the prefix, the last token is the prefix's, whatever the model says.
        forced_B = np.array(
            [job.prefix[limit - 1] if limit <= len(job.prefix) else -1 for job, limit in zip(jobs, limits_B)]
        )
        prefixed_B = np.array([len(job.prefix) > max(job.context, job.forced) for job in jobs])
        steps_B = np.array([min(len(job.prefix), limit - 1) for job, limit in zip(jobs, limits_B)], np.int64)
        self._calls_back |= any(job.options.callback is not None for job in jobs)
        self._stops |= any(job.stop is not None for job in jobs)
        self._traces |= any(job.traced for job in jobs)
        B = len(sentences)
        sentences_B = np.empty(B, object)
        sentences_B[:] = sentences
        beams = Beams(
            sentences_B,
            np.stack([sentence.slots_R for sentence in sentences]),
            steps_B,
            steps_B + [sentence.before for sentence in sentences],
            limits_B,
            finished_B=np.zeros(B, np.int64),
            top_finished_B=np.zeros(B, bool),
            scores_BR=np.zeros((B, 1), hidden_BD.dtype),
            tokens_BR=np.zeros((B, 1), np.int32),
            diverged_BR=np.zeros((B, 1), bool),
            subsets_B3=np.array([sentence.subset_offsets for sentence in sentences], np.int64),
        )
        # Always with scores: NaN in the projection's weights shows here.
        candidates = self._continuations(hidden_BD, beams, 1, scored=True)
        apply_prefix(*candidates[:2], self.end_ids, forced_B, prefixed_B)
        started = self._move_on(beams, *candidates, forced_B >= 0)
        if started is not None:
            self.beams = started if self.beams is None else self.beams.joined(started)

    def advance(self, hidden_RD: np.ndarray) -> None:
        """One token for every beam, from the hidden states of a step."""
        assert self.beams is not None
        candidates = self._continuations(hidden_RD, self.beams, self.beam, self.options.scored)
        self.beams = self._move_on(self.beams, *candidates)

    def _continuations(
        self, hidden_RD: np.ndarray, beams: Beams, width: int, scored: bool
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """``best_candidates`` of sentences with ``width`` rows each."""
        log_probs_Rk, ids_Rk = self.choice.best(hidden_RD, self._rows(beams, width), self.candidates, scored)
        shape = len(beams.steps_B), width, -1
        return best_candidates(beams.scores_BR, log_probs_Rk.reshape(shape), ids_Rk.reshape(shape), self.candidates)

    def _rows(self, beams: Beams, width: int) -> CandidateRows:
        """The inputs of the choice that the options need, row by row."""
        rows = CandidateRows(beams.steps_B if width == 1 else np.repeat(beams.steps_B, width))
        sentences: list[Sentence] = beams.sentences_B.tolist()
        if self.has_lists or self.choice.shortlist is not None:
            rows.subsets_R = [sentence.subset for sentence in sentences for _ in range(width)]
        if self.choice.needs_past:
            contexts_B = np.array([sentence.job.context for sentence in sentences])
            rows.produced_R = rows.steps_R - np.repeat(contexts_B, width)
            rows.lengths_R = rows.produced_R + np.repeat([sentence.recalled for sentence in sentences], width)
            ends_R = np.repeat(beams.positions_B, width) + 1
            rows.past_RT = self.cache.past(beams.slots_BR[:, :width].ravel(), ends_R - rows.lengths_R, rows.lengths_R)
        if self.options.biased:
            rows.wished_R = np.where(beams.diverged_BR, -1, self._wished(beams)[:, None]).ravel()
        if self.options.sampled:
            rows.keys_R = np.array([sentence.key for sentence in sentences], np.uint64)
        return rows

    def _wished(self, beams: Beams) -> np.ndarray:
        """The next token of each sentence's favoured prefix, or -1."""
        wished = (sentence.job.wished for sentence in beams.sentences_B.tolist())
        return np.array([ids[step] if step < len(ids) else -1 for ids, step in zip(wished, beams.steps_B)], np.int32)

    def _move_on(
        self,
        beams: Beams,
        scores_BC: np.ndarray,
        ids_BC: np.ndarray,
        parents_BC: np.ndarray,
        shown_B: np.ndarray | None = None,
    ) -> Beams | None:
        """The beams after this step: record hypotheses that end, close sentences that are done, advance the others.

        parents_BC  the beam that each candidate continues
        shown_B     sentences whose callbacks know their tokens
        None when no sentence is left.
        """
        R, options = self.beam, self.options
        last_B = beams.steps_B + 1 >= beams.limits_B
        ends_BC = are_ends(ids_BC, self.end_ids)
        if self._stops:
            ends_BC = ends_BC | self._stopped(beams, ids_BC, parents_BC)
        if self._calls_back:
            last_B |= self._show(beams, scores_BC, ids_BC, ends_BC[:, 0] | last_B, shown_B)
        if self._traces:
            add_traces(beams, scores_BC, parents_BC)
        closed_B = last_B & (self._forces_end and R > 1)  # those that go on get a forced end now
        ended_BR = ends_BC[:, :R] | (last_B & ~closed_B)[:, None]
        done_B: np.ndarray | None = None
        continued: Any = np.s_[:, :R]
        kept_BR: np.ndarray | None = None
        finished_B, top_finished_B = beams.finished_B, beams.top_finished_B
        if ended_BR.any() or closed_B.any():
            for b, r in np.argwhere(ended_BR):
                sentence: Sentence = beams.sentences_B[b]
                found = self._hypothesis(beams, b, int(parents_BC[b, r]), int(ids_BC[b, r]), float(scores_BC[b, r]))
                if sentence.job.traced:
                    found = replace(found, log_probs=traced(sentence.traces[r])[: len(found.tokens)])
                sentence.hypotheses.append(found)
            finished_B = finished_B + ended_BR.sum(axis=1)
            top_finished_B = top_finished_B | ended_BR[:, 0]
            done_B = self._are_done(last_B & ~closed_B, finished_B, top_finished_B)
            if ids_BC.shape[1] > R:
                kept_BR = keep_beams(ends_BC, R)
                continued = np.arange(len(ids_BC))[:, None], kept_BR
                scores_BC = np.where(ends_BC, -np.inf, scores_BC) if self.cache.keeps else scores_BC
                done_B |= ended_BR.any(axis=1) & np.isneginf(scores_BC[continued]).all(axis=1)
            if self.rules is not None:
                asked_B = done_B & (closed_B | ~last_B)
                done_B &= ~may_improve(options, beams, asked_B, scores_BC[continued], self._forces_end)
            for b, r in np.argwhere((closed_B & ~done_B)[:, None] & np.isfinite(scores_BC[continued])):
                c = int(r if kept_BR is None else kept_BR[b, r])
                token, score = int(ids_BC[b, c]), float(scores_BC[b, c])
                found = self._hypothesis(beams, b, int(parents_BC[b, c]), token, score, forced=1)
                beams.sentences_B[b].hypotheses.append(found)
            done_B |= closed_B
        if self._traces:
            keep_traces(beams, range(R) if kept_BR is None else kept_BR)
        diverged_BR = beams.diverged_BR
        if options.biased:  # by the beam's number, not by ancestry, as CTranslate2 has it
            diverged_BR = diverged_BR | (ids_BC[:, :R] != self._wished(beams)[:, None])
        moved = Beams(
            beams.sentences_B,
            beams.slots_BR,
            beams.steps_B + 1,
            beams.positions_B + 1,
            beams.limits_B,
            finished_B,
            top_finished_B,
            scores_BC[continued],
            ids_BC[continued],
            diverged_BR,
            beams.subsets_B3,
        )
        parents_BR = parents_BC[continued]
        if done_B is not None and done_B.any():
            for sentence in beams.sentences_B[done_B].tolist():
                self._close(sentence)
            if done_B.all():
                return None
            moved, parents_BR = moved.select(~done_B), parents_BR[~done_B]
        if R > 1:
            parent_slots_BR = moved.slots_BR[np.arange(len(parents_BR))[:, None], parents_BR]
            longest = int(moved.positions_B.max())
            self.cache.reorder(moved.slots_BR.ravel(), parent_slots_BR.ravel(), longest)
        return moved

    def _are_done(self, last_B: np.ndarray, finished_B: np.ndarray, top_finished_B: np.ndarray) -> np.ndarray:
        """Which sentences need go on no more."""
        if self.options.greedy:
            return finished_B > 0
        if self.options.longer_is_worse and self.rules is None:  # later beams cannot overtake
            return last_B | (top_finished_B & (finished_B >= self.options.num_hypotheses))
        return last_B | (finished_B >= self.options.wanted)

    # hypotheses

    def _stopped(self, beams: Beams, ids_BC: np.ndarray, parents_BC: np.ndarray) -> np.ndarray:
        """Which candidates end by what else ends their sentences' targets."""
        stopped_BC = np.zeros(ids_BC.shape, bool)
        for b, sentence in enumerate(beams.sentences_B.tolist()):
            stop = sentence.job.stop
            for c in range(ids_BC.shape[1] if stop is not None else 0):
                end = int(beams.positions_B[b]) + 1
                first = max(sentence.before + 1, end + 1 - stop.tokens)
                past = self.cache.tokens(int(sentence.slots_R[parents_BC[b, c]]), first, end)
                stopped_BC[b, c] = stop.found([*past.tolist(), int(ids_BC[b, c])])
        return stopped_BC

    def _hypothesis(
        self, beams: Beams, b: int, parent: int, token: int, log_probability: float, forced: int = 0
    ) -> Hypothesis:
        """The parent's tokens and the one that ends them; ``forced``: end tokens behind it, of probability 1."""
        sentence: Sentence = beams.sentences_B[b]
        options = self.options
        slot, end = int(sentence.slots_R[parent]), int(beams.positions_B[b]) + 1
        past = self.cache.tokens(slot, sentence.before + 1, end)
        tokens = np.empty(len(past) + 1, np.int32)  # np.append takes three times as long
        tokens[:-1], tokens[-1] = past, token
        if not options.scored:
            log_probability = math.nan
        counted = len(tokens) - sentence.job.context + forced
        score = normalized(log_probability, counted, options.length_penalty, options.word_penalty)
        attention_TS = self.cache.attention(slot, sentence.before, end) if self.wants_attention else None
        if attention_TS is not None and options.coverage_penalty and counted:
            score += options.coverage_penalty * coverage(attention_TS[-counted:])
        length = len(tokens)
        while length and not options.return_end_token and tokens[length - 1] in self.end_ids:
            length -= 1
        attention_TS = None if attention_TS is None else attention_TS[:length]
        return Hypothesis(tokens[:length], log_probability, counted, score, attention_TS)

    def _close(self, sentence: Sentence) -> None:
        """Return the sentence's best hypotheses and free its slots."""
        wanted = self.options.num_hypotheses
        best = sorted(sentence.hypotheses, key=lambda hypothesis: -hypothesis.score)[:wanted]
        if self.cache.keeps and self.beam == 1:  # a conversation goes on with it
            slot = int(sentence.slots_R[0])
            self.cache.keep(slot, self.cache.length(slot))
        self.cache.release(sentence.memory_slot, sentence.slots_R)
        # Greedy search has one hypothesis, which is repeated; a beam may end with fewer than were asked for.
        self.scheduler.finish(sentence.ticket, best * wanted if self.options.greedy else best)

    def leave(self, left: set[Any]) -> None:
        """Remove these sentences, with no hypotheses."""
        if self.beams is None:
            return
        staying_B = np.ones(len(self.beams.steps_B), bool)
        for b, sentence in enumerate(self.beams.sentences_B.tolist()):
            if sentence in left:
                staying_B[b] = False
                leave(sentence, self.cache, self.scheduler)
        self.beams = self.beams.select(staying_B) if staying_B.any() else None

    # callbacks

    def show_prefix(self, ticket: Ticket, limit: int) -> int:
        """Pass the prefix to the callback; returns the sentence's limit, since the callback may end it there."""
        if ticket.job.options.callback is not None:
            for position, token in enumerate(ticket.job.prefix[:limit]):
                if self._call_back(ticket, position, token, 0.0, position + 1 == limit):
                    return position + 1
        return limit

    def _show(
        self,
        beams: Beams,
        scores_BC: np.ndarray,
        ids_BC: np.ndarray,
        last_B: np.ndarray,
        shown_B: np.ndarray | None = None,
    ) -> np.ndarray:
        """Pass the new tokens to the callbacks, except those ``shown_B`` before; returns which sentences are to end.

        last_B  whose token is the last
        """
        stopped_B = np.zeros(len(ids_BC), bool)
        for b, sentence in enumerate(beams.sentences_B.tolist()):
            if sentence.job.options.callback is not None and (shown_B is None or not shown_B[b]):
                token = int(ids_BC[b, 0])
                log_probability = float(scores_BC[b, 0] - beams.scores_BR[b, 0])
                step = int(beams.steps_B[b])
                stopped_B[b] = self._call_back(sentence.ticket, step, token, log_probability, bool(last_B[b]))
        return stopped_B

    def _call_back(self, ticket: Ticket, position: int, token: int, log_probability: float, is_last: bool) -> bool:
        """Whether the callback ends the sentence at this token; a callback that raises fails its request."""
        job: Job = ticket.job
        if job.options.callback is None or ticket.is_over:
            return False
        step = Step(job.number, 0, job.hypothesis, position, int(token), "", log_probability, bool(is_last))
        try:
            return bool(job.options.callback(step))
        except Exception as error:  # noqa: BLE001  the caller's own
            self.scheduler.fail(ticket, error)
            return False


def leave(sentence: Any, cache: KeyValueCache, scheduler: WorkerSlot) -> None:
    """Free what a sentence or a prompt has; it has no hypotheses."""
    cache.release(sentence.memory_slot, sentence.slots_R)
    if sentence.ticket.is_over:
        scheduler.leave(sentence.ticket)
    else:
        scheduler.finish(sentence.ticket, [])


def _shared(options: DecodingOptions) -> dict[str, Any]:
    # A callback is told log-probabilities, whether or not they are returned.
    return {name: value for name, value in vars(options).items() if name not in _PER_SENTENCE} | {
        "scored": options.scored
    }
