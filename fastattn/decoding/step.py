"""A step: one token for every beam of a batch of sentences that have the same options.

Greedy search runs without Python between kernels: one step is recorded, and the recording runs again until a sentence
ends. A recording is for a number of rows, of which surplus ones repeat the first, and for the cache's present tables.
Compiled code updates what changes from step to step (``kernels/steps.py``). Afterwards beams and cache are as though
each step had been made by itself.
"""

import math
from dataclasses import dataclass, fields, replace
from time import perf_counter
from typing import Any, TypeAlias

import numpy as np

from fastattn.arguments.steps import ENOUGH, FAULT, LIVE, NO_EDITS, STOP, USED, Edits, StepRows, SubsetRows
from fastattn.decoding.options import DecodingOptions, Step
from fastattn.decoding.recorded_layers import MOST_TOKENS, Recordings, padded_rows
from fastattn.decoding.search import (
    HOPELESS,
    CandidateRows,
    Hypothesis,
    Job,
    TokenChoice,
    apply_prefix,
    are_ends,
    best_candidates,
    best_of_vocabulary,
    continuing_candidates,
    coverage,
    normalized_score,
    sentence_key,
    top_tokens,
)
from fastattn.errors import InputError
from fastattn.layers.draws import sample_key
from fastattn.layers.key_value_cache import KeyValueCache
from fastattn.models.decoder import Decoder, OutputProjection, Subsets
from fastattn.ops.protocol import OutputSubset
from fastattn.scheduling.request import Ticket
from fastattn.scheduling.state import WorkerSlot

FIRST_PROPOSAL = 3  # tokens
EXPECTED_ANSWER = 128  # tokens of an answer that the cache has room for at first; the answer may have any length


def expected_rows(job: Job) -> int:
    """About how many rows of the cache a sentence will fill."""
    beam = job.options.beam_size
    if not len(job.source):  # the beams share the rows of start and prefix
        answer = 0 if job.only_scores else min(job.options.max_decoding_length or EXPECTED_ANSWER, EXPECTED_ANSWER)
        return len(job.start) + len(job.prefix) + beam * answer
    return beam * (len(job.source) * 5 // 4 + 16 + len(job.start) + len(job.prefix))


# A beam's log-probabilities: (the last one, the greatest in its place, the Trace before), or (). Beams share Traces.
Trace: TypeAlias = tuple[float, dict[int, float], "Trace"] | tuple[()]


class Sentence:
    """A job in progress.

    limit        the most tokens of its target
    inputs_T     the decoder's inputs before the first token that the search chooses
    cached_inputs  how many of the prompt's inputs the cache has; -1 until ``begin_prompts`` has looked
    shared_inputs  how many of these inputs other prompts have read
    log_probs, tops  of a job that only scores: the log-probabilities and most probable tokens so far
    memory_slot, slots_R  slots in the cache: one for the source, one for each of ``beam`` beams
    key          the key of the sentence's random samples
    subset       the outputs that the sentence chooses from; None: all tokens
    cache_rows   about how many rows of the cache the sentence will fill
    last_start   the position of the start's last token
    penalized_start  how many of the start's tokens penalties look back on
    matcher      made by the job's constraint
    traces       of a job with log-probabilities: each beam's Trace
    proposal_length  how many tokens the next proposal has; proposed, accepted: as in Hypothesis
    """

    memory_slot: int
    slots_R: np.ndarray
    key = shared_inputs = 0
    subset: OutputSubset | None = None
    matcher: Any = None

    def __init__(self, ticket: Ticket, scheduler: WorkerSlot, max_positions: int):
        """Passes the target's prefix to a callback, which may end the target there."""
        self.ticket, job = ticket, ticket.job
        self.job: Job = job
        self.limit = job.limit(max_positions)
        for position, token in enumerate(job.prefix[: self.limit]):
            if call_back(scheduler, ticket, position, token, 0.0, position + 1 == self.limit):
                self.limit = position + 1
                break
        inputs = job.start[:-1] if job.only_scores else [*job.start, *job.prefix][: len(job.start) + self.limit - 1]
        self.inputs_T, self.cached_inputs = np.array(inputs, np.int32), -1
        self.log_probs, self.tops = list[np.ndarray](), list[dict[int, float]]()
        self.beam = 1 if job.only_scores else job.options.beam_size
        self.cache_rows, self.last_start = expected_rows(job), len(job.start) - 1
        self.penalized_start = len(job.start) if job.penalizes_start else 0
        self.traces: list[Trace] = [()]
        self.hypotheses: list[Hypothesis] = []
        self.proposal_length, self.proposed, self.accepted = FIRST_PROPOSAL, 0, 0

    @property
    def unread_inputs(self) -> int:
        """How many inputs the cache lacks."""
        return len(self.inputs_T) - max(self.cached_inputs, 0)


@dataclass
class Beams:
    """B sentences in progress with R beams each: an array for each property."""

    sentences_B: np.ndarray  # of Sentence
    slots_BR: np.ndarray  # of the cache
    steps_B: np.ndarray  # tokens produced so far
    positions_B: np.ndarray  # of the next input
    limits_B: np.ndarray  # the most tokens of the targets
    finished_B: np.ndarray  # hypotheses so far
    top_finished_B: np.ndarray  # whether the best candidate of any step has ended
    scores_BR: np.ndarray  # sums of log-probabilities
    tokens_BR: np.ndarray  # the next inputs
    diverged_BR: np.ndarray  # whether a token of the beam differed from the favoured prefix
    subsets_B3: np.ndarray  # where the sentences' OutputSubsets lie, if they have any

    def select(self, chosen_B: np.ndarray) -> "Beams":
        return Beams(*(getattr(self, f.name)[chosen_B] for f in fields(self)))

    def moved_by(self, tokens: int | np.ndarray) -> "Beams":
        """The beams with later steps and positions, by which rows and random numbers are found."""
        return replace(self, steps_B=self.steps_B + tokens, positions_B=self.positions_B + tokens)

    def joined_with(self, other: "Beams") -> "Beams":
        return Beams(*(np.concatenate([getattr(self, f.name), getattr(other, f.name)]) for f in fields(self)))


def may_improve(
    options: DecodingOptions, beams: Beams, full_B: np.ndarray, scores_BR: np.ndarray, forces_end: bool
) -> np.ndarray:
    """Which of the sentences ``full_B``, which have found enough hypotheses, go on by transformers' rules.

    scores_BR   sums of log-probabilities of the beams that would go on, with a token more than in ``beams``
    forces_end  whether an end is forced behind the last token
    """
    improving_B, rules, penalty = np.zeros(len(full_B), bool), options.rules, options.length_penalty
    for b in np.flatnonzero(full_B).tolist() if rules is not None and rules.early_stopping != "true" else ():
        length, limit = int(beams.steps_B[b]) + 1, int(beams.limits_B[b]) + forces_end
        length = limit if rules is not None and rules.early_stopping == "never" and penalty > 0 else length
        scores = sorted((hypothesis.score for hypothesis in beams.sentences_B[b].hypotheses), reverse=True)
        worst = scores[: options.hypotheses_to_find][-1]
        improving_B[b] = normalized_score(float(scores_BR[b].max()), length, penalty) > worst
    return improving_B


RUN_SECONDS = 0.003  # after steps that take so long, the queue, interrupts and ended sentences have their turn
GUESSED_SECONDS = 2e-11  # of a step, for each weight and row, until a step has been timed
COLUMNS = 512  # a recording has room for a multiple of so many columns of subsets


class RecordedSteps(Recordings):
    """The steps of a batch of greedy search."""

    def __init__(self, model: Decoder, cache: KeyValueCache, choice: TokenChoice, recorder: Any):
        super().__init__(model, cache, recorder)
        self.choice, self._columns = choice, 0  # room for columns of subsets
        self._seconds: dict[int, float] = {}  # of a step, by the number of rows
        self._ends_E = np.array(choice.end_ids, np.int32)

    def suits(self, steps_B: np.ndarray) -> bool:
        """Whether one recording suits sentences at these steps: either all of them may end, or none."""
        is_early_B = steps_B < self.choice.options.min_decoding_length
        return self.recorder.is_usable and bool(is_early_B.all() or not is_early_B.any())

    def run(self, beams: Beams, linear: Any, steps: int | None = None) -> tuple[Beams, np.ndarray, np.ndarray] | None:
        """Make one step or several: (the beams before the last step, the last step's scores_B1 and ids_B1).

        linear  the layer of the sentences' OutputSubsets; None: they choose from all outputs
        steps   the most steps of this run; None: as many as fit the time
        The run stops where a sentence ends, and before the first step at which a sentence may end. None if the step
        cannot be recorded. Raises CheckpointError as ``OutputProjection.top_k``.
        """
        B, position = len(beams.steps_B), int(beams.positions_B.max())
        R, cache = padded_rows(B), self.cache
        steps = steps or self._steps_at_once(beams, R)
        fresh_F = cache.take_rows(B * steps, position + steps - 1)
        columns, is_early = 0 if linear is None else int(beams.subsets_B3[:, 1].max()), self._is_early(beams)
        if columns > self._columns:
            self._recordings.clear()
            self._columns = -(-columns // COLUMNS) * COLUMNS
        recording = self.take(R, (is_early,), lambda rows: self._record(rows, linear, is_early))
        if recording is None:
            cache.target.give_back(fresh_F)
            return None
        rows = self._load(beams, fresh_F)
        start = perf_counter()
        recording.run(steps, rows.counts[STOP:])
        used_rows = int(rows.counts[USED])
        cache.target.give_back(fresh_F[used_rows:])
        self._seconds[R] = (perf_counter() - start) * B / used_rows
        self.model.output.check(not rows.counts[FAULT])
        last_beams = replace(beams, steps_B=rows.steps_R[:B].copy(), positions_B=rows.positions_R[:B].astype(np.int64))
        return last_beams, rows.scores_R[:B, None].copy(), rows.chosen_R[:B, None].copy()

    def _steps_at_once(self, beams: Beams, R: int) -> int:
        """How many steps fit the time, the sentences' limits and the free rows of the cache; one at least."""
        sizes, B = self.model.sizes, len(beams.steps_B)
        seconds = self._seconds.get(R, GUESSED_SECONDS * sizes.layer_weights * R)
        free_columns = self.cache.histories_RS.shape[1] - int(beams.positions_B.max())
        room = min(self.cache.target.free_count // B, free_columns)
        longest = int((beams.limits_B - beams.steps_B).max())
        if self._is_early(beams):
            longest = min(longest, self.choice.options.min_decoding_length - int(beams.steps_B.max()))
        return max(1, min(int(RUN_SECONDS / seconds), MOST_TOKENS // B, room, longest))

    def _is_early(self, beams: Beams) -> bool:
        return int(beams.steps_B[0]) < self.choice.options.min_decoding_length

    def _load(self, beams: Beams, fresh_F: np.ndarray) -> StepRows:
        """Fill the rows with the sentences' state a token ago: each step begins by ``take_tokens``, which moves on."""
        rows, B = self._rows, len(beams.steps_B)
        slots_B = beams.slots_BR[:, 0]
        rows.slots_R[:B], rows.steps_R[:B], rows.limits_R[:B] = slots_B, beams.steps_B - 1, beams.limits_B
        rows.positions_R[:B] = beams.positions_B - 1
        rows.chosen_R[:B], rows.scores_R[:B] = beams.tokens_BR[:, 0], beams.scores_BR[:, 0]
        rows.memory_slots_R[:B], rows.memory_lengths_R[:B] = self.cache.memory_slots(slots_B)
        rows.subsets_R4[:B, 1:] = beams.subsets_B3
        rows.is_over_R[:B] = 0
        for array in rows.constant_arrays:
            array[B:] = array[0]
        rows.fresh_F[: len(fresh_F)] = fresh_F
        rows.counts[:] = 0
        rows.counts[LIVE], rows.counts[ENOUGH] = B, 1
        return rows

    def _record(self, rows: StepRows, linear: Any, is_early: bool) -> Any:
        model, ops = self.model, self.model.ops
        steps = 1 if is_early else max(1, self.choice.options.min_decoding_length)
        edits = self.choice.edits(CandidateRows(np.full(len(rows), steps)))
        edits = model.output.with_cap(edits)
        outputs = model.output.projection if linear is None else SubsetRows(linear, rows.subsets_R4, self._columns)
        normalized = self.choice.options.needs_log_probs or edits.suppressed_RJ is not None
        self.last_positions(rows)

        def step() -> None:
            ops.take_tokens(rows, *self.cache.written_tables)
            hidden_RD = model.recordable_step(self.cache, rows)
            ops.pick_tokens(hidden_RD, outputs, edits, normalized, self._ends_E, rows)

        return self.recorder.record(step)


# The sentences of a batch may differ in these options.
_PER_SENTENCE = ("callback", "timeout", "seed", "max_decoding_length", "max_length_factor", "max_input_length")


class DecodingBatch:
    """The sentences of one worker that have the same options; its model, cache and scheduler are the worker's."""

    def __init__(self, model: Decoder, cache: KeyValueCache, scheduler: WorkerSlot, job: Job, end_id: int, unk_id: int):
        self.cache, self.scheduler, self.options = cache, scheduler, job.options
        self.choice = TokenChoice(model, job.options, end_id, unk_id)
        self.has_subsets = job.find_allowed_ids is not None or self.choice.shortlist is not None
        self.speculate, self.batch_key = job.speculate, job.batch_key
        self.top_count, self._tops = job.top_count, list[dict[int, float]]()  # of each row of the step
        self.end_ids, self.beam = self.choice.end_ids, self.options.beam_size
        self.candidate_count = 1 if self.options.is_greedy else 2 * self.beam
        self.beams: Beams | None = None
        # A constraint has to find the ids that each step allows in Python, from the token before.
        self.recorded_steps = self._make_recorded_steps(model) if job.constraint is None else None
        self.rules = self.options.rules if self.beam > 1 else None
        self._forces_end = self.options.rules is not None and self.options.rules.forced_end
        self._last_match = self.options  # the options of the last job that ``suits`` accepted

    def suits(self, job: Job) -> bool:
        """Whether a job belongs in this batch."""
        if job.options is not self._last_match:
            if _common_options(job.options) != _common_options(self.options):
                return False
            self._last_match = job.options
        return self.batch_key == job.batch_key

    def sentences(self) -> list[Sentence]:
        """The sentences in progress."""
        return [] if self.beams is None else self.beams.sentences_B.tolist()

    def admit(self, sentence: Sentence, memory_slot: int | None = None) -> None:
        """Prepare a sentence for this batch; with ``memory_slot`` the sentence gets slots in the cache too."""
        job = sentence.job
        if self.options.is_sampled:
            content = sentence_key(job.source, [*job.start, *job.prefix], job.salt)
            sentence.key = sample_key(job.options.seed or 0, content, job.hypothesis)
        if memory_slot is not None:
            sentence.memory_slot = memory_slot
            sentence.slots_R = self.cache.add_slots(memory_slot, self.beam, sentence.key)
        sentence.subset = self.choice.select_outputs(job)

    def _make_recorded_steps(self, model: Decoder) -> RecordedSteps | None:
        """Steps without Python between kernels, where the options allow a recording."""
        options = self.options
        looks_back = self.choice.needs_past or options.needs_attention or self.top_count > 0
        is_recordable = options.is_greedy and not options.is_sampled and not looks_back and model.sizes.records
        recorder = model.ops.recorder() if is_recordable else None
        return None if recorder is None else RecordedSteps(model, self.cache, self.choice, recorder)

    def run(self) -> bool:
        """Make recorded steps of this batch alone, until a sentence ends; False, and no step, if that is impossible."""
        beams, recorded_steps = self.beams, self.recorded_steps
        assert beams is not None
        if recorded_steps is None or not recorded_steps.suits(beams.steps_B):
            return False
        subset = beams.sentences_B[0].subset
        one_by_one = self._has_callbacks or self._has_stops or self._has_traces or self.speculate is not None
        results = recorded_steps.run(beams, None if subset is None else subset.linear, 1 if one_by_one else None)
        if results is None:
            self.recorded_steps = None
            return False
        self.beams = self._move_on(*results, np.zeros((len(beams.steps_B), 1), np.int64))
        return True

    def inputs(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """(slots_R, tokens_N, positions_N int32, counts_R) of the next step: ``counts_R`` tokens for each slot."""
        assert self.beams is not None
        positions_B = self.beams.positions_B.astype(np.int32)
        positions_R = positions_B if self.beam == 1 else np.repeat(positions_B, self.beam)
        slots_R = self.beams.slots_BR.ravel()
        return slots_R, self.beams.tokens_BR.ravel(), positions_R, np.ones(len(slots_R), np.int64)

    def begin(self, sentences: list[Sentence], hidden_BD: np.ndarray) -> None:
        """Make the sentences' first step after start and prefix, from the hidden states of their last inputs."""
        jobs = [sentence.job for sentence in sentences]
        limits_B = np.array([sentence.limit for sentence in sentences], np.int64)
        if self._forces_end:
            limits_B = np.maximum(limits_B - 1, 1)
        # Where the limit falls inside the prefix, the last token is the prefix's, whatever the model prefers.
        forced_B = np.array(
            [job.prefix[limit - 1] if limit <= len(job.prefix) else -1 for job, limit in zip(jobs, limits_B)]
        )
        prefixed_B = np.array([len(job.prefix) > max(job.unscored_tokens, job.imposed_tokens) for job in jobs])
        steps_B = np.array([min(len(job.prefix), limit - 1) for job, limit in zip(jobs, limits_B)], np.int64)
        if self.beams is None:  # whether any sentence has a callback, a stop rule, traces
            self._has_callbacks = self._has_stops = self._has_traces = False
        self._has_callbacks |= any(job.options.callback is not None for job in jobs)
        self._has_stops |= any(job.stop is not None for job in jobs)
        self._has_traces |= any(job.with_log_probs for job in jobs)
        B = len(sentences)
        sentences_B = np.empty(B, object)
        sentences_B[:] = sentences
        beams = Beams(
            sentences_B,
            np.stack([sentence.slots_R for sentence in sentences]),
            steps_B,
            steps_B + [sentence.last_start for sentence in sentences],
            limits_B,
            finished_B=np.zeros(B, np.int64),
            top_finished_B=np.zeros(B, bool),
            scores_BR=np.zeros((B, 1), hidden_BD.dtype),
            tokens_BR=np.zeros((B, 1), np.int32),
            diverged_BR=np.zeros((B, 1), bool),
            subsets_B3=np.array(
                [(0, 0, 0) if sentence.subset is None else sentence.subset.entry for sentence in sentences], np.int64
            ),
        )
        # The first step always computes log-probabilities, since they show NaN in the projection's weights.
        candidates = self._continuations(hidden_BD, beams, 1, needs_log_probs=True)
        apply_prefix(*candidates[:2], self.end_ids, forced_B, prefixed_B)
        first_beams = self._move_on(beams, *candidates, forced_B >= 0)
        if first_beams is not None:
            self.beams = first_beams if self.beams is None else self.beams.joined_with(first_beams)

    def advance(self, hidden_RD: np.ndarray) -> None:
        """Append a token to every beam, from the hidden states of a step."""
        assert self.beams is not None
        candidates = self._continuations(hidden_RD, self.beams, self.beam, self.options.needs_log_probs)
        self.beams = self._move_on(self.beams, *candidates)

    def _continuations(
        self, hidden_RD: np.ndarray, beams: Beams, width: int, needs_log_probs: bool
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """``best_candidates`` of sentences with ``width`` rows each."""
        rows, count, first = self.candidate_rows(beams, width), self.candidate_count, int(self.options.is_sampled)
        best = self.choice.best(hidden_RD, rows, max(count, first + self.top_count), needs_log_probs)
        if self.top_count:
            self._tops = top_tokens(*(part_Rk[:, first : first + self.top_count] for part_Rk in best))
        log_probs_BRk, ids_BRk = (part_Rk[:, :count].reshape(len(beams.steps_B), width, -1) for part_Rk in best)
        return best_candidates(beams.scores_BR, log_probs_BRk, ids_BRk, count)

    def candidate_rows(self, beams: Beams, width: int) -> CandidateRows:
        """The inputs of the choice that the options need, for ``width`` rows of each sentence."""
        rows = CandidateRows(beams.steps_B if width == 1 else np.repeat(beams.steps_B, width))
        sentences: list[Sentence] = beams.sentences_B.tolist()
        if self.has_subsets:
            rows.subsets_R = [sentence.subset for sentence in sentences for _ in range(width)]
        if self.choice.needs_past:
            unscored_B = np.array([sentence.job.unscored_tokens for sentence in sentences])
            rows.produced_R = rows.steps_R - np.repeat(unscored_B, width)
            rows.lengths_R = rows.produced_R + np.repeat([sentence.penalized_start for sentence in sentences], width)
            ends_R = np.repeat(beams.positions_B, width) + 1
            rows.past_RT = self.cache.past(beams.slots_BR[:, :width].ravel(), ends_R - rows.lengths_R, rows.lengths_R)
        if self.options.is_biased:
            rows.bias_R = np.where(beams.diverged_BR, -1, self._bias_tokens(beams)[:, None]).ravel()
        if self.options.is_sampled:
            rows.keys_R = np.array([sentence.key for sentence in sentences], np.uint64)
        return rows

    def _bias_tokens(self, beams: Beams) -> np.ndarray:
        """The next token of each sentence's favoured prefix, or -1."""
        prefixes = (sentence.job.bias_prefix for sentence in beams.sentences_B.tolist())
        return np.array([ids[step] if step < len(ids) else -1 for ids, step in zip(prefixes, beams.steps_B)], np.int32)

    def _move_on(
        self,
        beams: Beams,
        scores_BC: np.ndarray,
        ids_BC: np.ndarray,
        parents_BC: np.ndarray,
        skipped_B: np.ndarray | None = None,
    ) -> Beams | None:
        """Add hypotheses that end, and close finished sentences; returns the beams after this step, None if none.

        parents_BC  the beam that each candidate continues
        skipped_B   whether a sentence's callback is skipped, since it has had the token already
        """
        R, options = self.beam, self.options
        last_B = beams.steps_B + 1 >= beams.limits_B  # whether this token is the sentence's last
        ends_BC = are_ends(ids_BC, self.end_ids)
        if self._has_stops:
            ends_BC = ends_BC | self._are_stopped(beams, ids_BC, parents_BC)
        if self._has_callbacks:
            last_B |= self._call_back(beams, scores_BC, ids_BC, ends_BC[:, 0] | last_B, skipped_B)
        log_probs_BC: np.ndarray | None = None
        if self._has_traces:
            with np.errstate(invalid="ignore"):  # NaN where the beam's own score is -inf
                log_probs_BC = scores_BC - np.take_along_axis(beams.scores_BR, parents_BC, axis=1)

        def trace(b: int, c: int) -> Trace:
            """A candidate's Trace; () if its job is not ``with_log_probs``."""
            sentence, parent = beams.sentences_B[b], int(parents_BC[b, c])
            if log_probs_BC is None or not sentence.job.with_log_probs:
                return ()
            top = self._tops[b * (len(self._tops) // len(ids_BC)) + parent] if self.top_count else {}
            token, log_prob = int(ids_BC[b, c]), float(log_probs_BC[b, c])  # as sums of log-probabilities round it
            return log_prob, top | {token: log_prob} if token in top else top, sentence.traces[parent]

        def add_hypothesis(b: int, c: int, forced_ends: int = 0) -> None:
            """Add the hypothesis that ends with a candidate to its sentence's hypotheses."""
            sentence, parent = beams.sentences_B[b], int(parents_BC[b, c])
            token, score = int(ids_BC[b, c]), float(scores_BC[b, c])
            sentence.hypotheses.append(self._hypothesis(beams, b, parent, token, score, forced_ends, trace(b, c)))

        closed_B = last_B & (self._forces_end and R > 1)  # sentences whose open beams all get a forced end now
        ended_BR = ends_BC[:, :R] | (last_B & ~closed_B)[:, None]
        done_B: np.ndarray | None = None
        continuing: Any = np.s_[:, :R]  # the index of the candidates that the beams continue with
        continuing_BR: np.ndarray | None = None
        finished_B, top_finished_B = beams.finished_B, beams.top_finished_B
        if ended_BR.any() or closed_B.any():
            for b, r in np.argwhere(ended_BR).tolist():
                add_hypothesis(b, r)
            finished_B = finished_B + ended_BR.sum(axis=1)
            top_finished_B = top_finished_B | ended_BR[:, 0]
            done_B = self._are_done(last_B & ~closed_B, finished_B, top_finished_B)
            if ids_BC.shape[1] > R:
                continuing_BR = continuing_candidates(ends_BC, R)
                continuing = np.arange(len(ids_BC))[:, None], continuing_BR
                scores_BC = np.where(ends_BC, -np.inf, scores_BC) if self.cache.shares_rows else scores_BC
                done_B |= ended_BR.any(axis=1) & np.isneginf(scores_BC[continuing]).all(axis=1)
            if self.rules is not None:
                full_B = done_B & (closed_B | ~last_B)
                done_B &= ~may_improve(options, beams, full_B, scores_BC[continuing], self._forces_end)
            for b, r in np.argwhere(np.repeat((closed_B & ~done_B)[:, None], R, axis=1)).tolist():
                add_hypothesis(b, int(r if continuing_BR is None else continuing_BR[b, r]), forced_ends=1)
            done_B |= closed_B
        diverged_BR = beams.diverged_BR
        if options.is_biased:  # as in CTranslate2, the mark stays at the beam's number, whichever beam continues there
            diverged_BR = diverged_BR | (ids_BC[:, :R] != self._bias_tokens(beams)[:, None])
        next_beams = Beams(  # ``replace`` takes six times as long
            beams.sentences_B,
            beams.slots_BR,
            beams.steps_B + 1,
            beams.positions_B + 1,
            beams.limits_B,
            finished_B,
            top_finished_B,
            scores_BC[continuing],
            ids_BC[continuing],
            diverged_BR,
            beams.subsets_B3,
        )
        parents_BR = parents_BC[continuing]
        for b, sentence in enumerate(beams.sentences_B.tolist() if self._has_traces else ()):
            sentence.traces = [trace(b, c) for c in (range(R) if continuing_BR is None else continuing_BR[b])]
        if done_B is not None and done_B.any():
            for sentence in beams.sentences_B[done_B].tolist():
                self._close(sentence)
            if done_B.all():
                return None
            next_beams, parents_BR = next_beams.select(~done_B), parents_BR[~done_B]
        if R > 1:
            parent_slots_BR = next_beams.slots_BR[np.arange(len(parents_BR))[:, None], parents_BR]
            longest = int(next_beams.positions_B.max())
            self.cache.reorder(next_beams.slots_BR.ravel(), parent_slots_BR.ravel(), longest)
        return next_beams

    def _are_done(self, last_B: np.ndarray, finished_B: np.ndarray, top_finished_B: np.ndarray) -> np.ndarray:
        """Which sentences have all hypotheses that they need."""
        if self.options.is_greedy:
            return finished_B > 0
        if self.options.longer_is_worse and self.rules is None:  # no open beam can overtake a finished best beam
            return last_B | (top_finished_B & (finished_B >= self.options.num_hypotheses))
        return last_B | (finished_B >= self.options.hypotheses_to_find)

    def _are_stopped(self, beams: Beams, ids_BC: np.ndarray, parents_BC: np.ndarray) -> np.ndarray:
        """Which candidates end by their jobs' stop rules."""
        stopped_BC = np.zeros(ids_BC.shape, bool)
        for b, sentence in enumerate(beams.sentences_B.tolist()):
            stop = sentence.job.stop
            for c in range(ids_BC.shape[1] if stop is not None else 0):
                end = int(beams.positions_B[b]) + 1
                first = max(sentence.last_start + 1, end + 1 - stop.window)
                past = self.cache.tokens(int(sentence.slots_R[parents_BC[b, c]]), first, end)
                stopped_BC[b, c] = stop.is_end([*past.tolist(), int(ids_BC[b, c])])
        return stopped_BC

    def _hypothesis(
        self, beams: Beams, b: int, parent: int, token: int, log_probability: float, forced_ends: int, trace: Trace
    ) -> Hypothesis:
        """The parent's tokens and ``token``; the length counts ``forced_ends`` end tokens of probability 1 too."""
        sentence: Sentence = beams.sentences_B[b]
        options = self.options
        slot, end = int(sentence.slots_R[parent]), int(beams.positions_B[b]) + 1
        past = self.cache.tokens(slot, sentence.last_start + 1, end)
        tokens = np.empty(len(past) + 1, np.int32)  # np.append takes three times as long
        tokens[:-1], tokens[-1] = past, token
        if not options.needs_log_probs:
            log_probability = math.nan
        scored_length = len(tokens) - sentence.job.unscored_tokens + forced_ends
        score = normalized_score(log_probability, scored_length, options.length_penalty, options.word_penalty)
        attention_TS = self.cache.attention(slot, sentence.last_start, end) if options.needs_attention else None
        if attention_TS is not None and options.coverage_penalty and scored_length:
            score += options.coverage_penalty * coverage(attention_TS[-scored_length:])
        length = len(tokens)
        while length and not options.return_end_token and tokens[length - 1] in self.end_ids:
            length -= 1
        attention_TS = None if attention_TS is None else attention_TS[:length]
        log_probs, tops = list[float](), list[dict[int, float]]()
        while trace:
            log_prob, top, trace = trace
            log_probs.append(log_prob)
            tops.append(top)
        return Hypothesis(
            tokens[:length],
            log_probability,
            scored_length,
            score,
            attention_TS,
            np.array(log_probs[::-1], np.float32)[:length] if sentence.job.with_log_probs else None,
            tops[::-1][:length] if self.top_count else (),
            sentence.proposed,
            sentence.accepted,
            sentence.shared_inputs,
        )

    def _close(self, sentence: Sentence) -> None:
        """Return the sentence's best hypotheses and free its slots."""
        count = self.options.num_hypotheses
        best = sorted(sentence.hypotheses, key=lambda hypothesis: -hypothesis.score)[:count]
        if self.cache.shares_rows and self.beam == 1:  # a conversation's next prompt has this prompt and answer
            slot = int(sentence.slots_R[0])
            self.cache.keep_beginning(slot, self.cache.length(slot))
        self.cache.release(sentence.memory_slot, sentence.slots_R)
        # Greedy search repeats its one hypothesis; a beam may end with fewer than num_hypotheses.
        self.scheduler.finish(sentence.ticket, best * count if self.options.is_greedy else best)

    def remove(self, sentences: set[Sentence]) -> None:
        """Give up the sentences that are in this batch; others are ignored."""
        if self.beams is None:
            return
        staying_B = np.ones(len(self.beams.steps_B), bool)
        for b, sentence in enumerate(self.beams.sentences_B.tolist()):
            if sentence in sentences:
                staying_B[b] = False
                give_up(sentence, self.cache, self.scheduler)
        self.beams = self.beams.select(staying_B) if staying_B.any() else None

    def _call_back(
        self, beams: Beams, scores_BC: np.ndarray, ids_BC: np.ndarray, last_B: np.ndarray, skipped_B: np.ndarray | None
    ) -> np.ndarray:
        """Pass new tokens to the callbacks, unless ``skipped_B``; returns which sentences the callbacks end.

        last_B  as in ``_move_on``
        """
        stopped_B = np.zeros(len(ids_BC), bool)
        for b, sentence in enumerate(beams.sentences_B.tolist()):
            if sentence.job.options.callback is not None and (skipped_B is None or not skipped_B[b]):
                token = int(ids_BC[b, 0])
                log_probability = float(scores_BC[b, 0] - beams.scores_BR[b, 0])
                step = int(beams.steps_B[b])
                stopped_B[b] = call_back(self.scheduler, sentence.ticket, step, token, log_probability, bool(last_B[b]))
        return stopped_B


def call_back(
    scheduler: WorkerSlot, ticket: Ticket, position: int, token: int, log_probability: float, is_last: bool
) -> bool:
    """Pass a token to the job's callback; returns whether this ends the sentence. A callback's error fails the job."""
    job: Job = ticket.job
    if job.options.callback is None or ticket.is_over:
        return False
    step = Step(job.number, 0, job.hypothesis, position, int(token), "", log_probability, bool(is_last))
    try:
        return bool(job.options.callback(step))
    except Exception as error:  # noqa: BLE001  the caller's own
        scheduler.fail(ticket, error)
        return False


def give_up(sentence: Sentence, cache: KeyValueCache, scheduler: WorkerSlot) -> None:
    """Free a sentence's slots, and end its ticket without hypotheses."""
    cache.release(sentence.memory_slot, sentence.slots_R)
    if sentence.ticket.is_over:
        scheduler.release(sentence.ticket)
    else:
        scheduler.finish(sentence.ticket, [])


def _common_options(options: DecodingOptions) -> dict[str, Any]:
    # A callback needs log-probabilities. So ``needs_log_probs`` is compared itself, though callbacks may differ.
    common = {name: value for name, value in vars(options).items() if name not in _PER_SENTENCE}
    return common | {"needs_log_probs": options.needs_log_probs}


class ConstrainedOutput:
    """An OutputProjection onto the ids that each row may choose.

    allowed_RV  bool
    end_id      the choice, at HOPELESS, of a row without allowed ids
    """

    def __init__(self, output: OutputProjection, allowed_RV: np.ndarray, end_id: int):
        self.output, self.allowed_RV, self.end_id = output, allowed_RV, end_id

    def all_log_probs(self, hidden_RD: np.ndarray, edits: Edits = NO_EDITS, subsets_R: Subsets = None) -> np.ndarray:
        """log_probs_RV of every next token: a softmax over each row's allowed ids."""
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
        self, hidden_RD: np.ndarray, k: int, edits: Edits = NO_EDITS, subsets_R: Subsets = None, normalized: bool = True
    ) -> tuple[np.ndarray, np.ndarray]:
        """(log_probs_Rk, ids_Rk) of the k most probable ids, best first, then -inf and -1; always normalized."""
        return best_of_vocabulary(self.all_log_probs(hidden_RD, edits, subsets_R), k)


class ConstrainedBatch(DecodingBatch):
    """A batch of sentences with constraints.

    A beam with too few allowed continuations goes on with placeholders, at -inf, which never end and give no
    hypotheses.
    """

    def admit(self, sentence: Sentence, memory_slot: int | None = None) -> None:
        super().admit(sentence, memory_slot)
        assert sentence.job.constraint is not None
        sentence.matcher = sentence.job.constraint()

    def candidate_rows(self, beams: Beams, width: int) -> CandidateRows:
        rows, output = super().candidate_rows(beams, width), self.choice.model.output
        allowed_BV = [self._allowed(beams, b, r) for b in range(len(beams.steps_B)) for r in range(width)]
        rows.output = ConstrainedOutput(output, np.array(allowed_BV), self.end_ids[0])
        return rows

    def _allowed(self, beams: Beams, b: int, r: int) -> np.ndarray:
        """Which ids may follow the tokens of a sentence's beam."""
        sentence: Sentence = beams.sentences_B[b]
        no_ids_V = np.zeros(self.choice.model.sizes.vocabulary, bool)
        if beams.scores_BR[b, r] == -np.inf or sentence.ticket.is_over:
            return no_ids_V
        slot, end = int(sentence.slots_R[r]), int(beams.positions_B[b]) + 1
        past = self.cache.tokens(slot, sentence.last_start + 1, end).tolist()
        try:
            return np.asarray(sentence.matcher.allowed(past))
        except InputError as error:
            self.scheduler.fail(sentence.ticket, error)
        return no_ids_V

    def _move_on(self, beams: Beams, scores_BC: np.ndarray, ids_BC: np.ndarray, *arguments: Any) -> Beams | None:
        self._is_allowed_BC = scores_BC > -np.inf
        placeholder = next(token for token in range(len(self.end_ids) + 1) if token not in self.end_ids)
        ids_BC = np.where(self._is_allowed_BC, ids_BC, np.int32(placeholder))
        return super()._move_on(beams, scores_BC, ids_BC, *arguments)

    def _are_stopped(self, beams: Beams, ids_BC: np.ndarray, parents_BC: np.ndarray) -> np.ndarray:
        return super()._are_stopped(beams, ids_BC, parents_BC) & self._is_allowed_BC

    def _close(self, sentence: Sentence) -> None:
        sentence.hypotheses = [
            hypothesis for hypothesis in sentence.hypotheses if hypothesis.log_probability != -np.inf
        ]
        super()._close(sentence)
