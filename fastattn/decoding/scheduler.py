"""From encoded sentences to hypotheses: slots, admission, and the loop over steps.

A sentence enters by one pass over its start token and target prefix, which fills the cache and chooses its first beams;
from then on it takes part in every step until it ends and frees its slots for one that waits. Each row knows its own
position, so sentences of any age share a step.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import numpy as np

from fastattn.decoding.beams import Beams
from fastattn.decoding.cache import Cache, RowPool
from fastattn.decoding.candidates import Candidates, Rows
from fastattn.decoding.jobs import Hypothesis, Job, Waiting
from fastattn.decoding.model import Model
from fastattn.decoding.options import DecodingOptions, Step
from fastattn.decoding.sampling import sentence_key
from fastattn.decoding.search import apply_prefix, are_ends, best_candidates, coverage, keep_beams, normalised
from fastattn.decoding.timeout import charge, is_over
from fastattn.errors import InputError
from fastattn.models.memory import Memory
from fastattn.ops import Picked
from fastattn.sharing import share

# A step costs one pass over the weights however few its rows are, so more rows are cheaper each; past this many the
# gain is gone, and the cache grows with every row.
ROWS = 112
# Of a greedy search. 128 of zh-en on two threads: 1.41 s where all are taken at once, 1.32 s where the shorter ones
# fill the places that come free; on one thread 2.3 s with 48 places and with 64.
SENTENCES = 48
# A light model's step is done before Python has prepared the next: it takes so many times as many. Firefox's en-pt
# spends 21% of its steps' time outside kernels with 64 sentences, 13% with 256.
LIGHT = 5
LIGHT_WEIGHTS = 1 << 22  # of its decoder's layers at most
# Cache rows that the admitted sentences are expected to fill: about 24 KB each for a base Transformer.
TOKENS = 16384
# Sentences go whole to threads from this many a thread on; below it the threads share each product.
SENTENCES_A_THREAD = 4


@dataclass
class Sentence:
    """What a place in the cache is working on."""

    number: int
    job: Job
    expected: int
    key: int  # of its samples
    picked: Picked | None  # what it chooses from
    hypotheses: list[Hypothesis] = field(default_factory=list)


class Worker:
    """Takes waiting sentences into its slots and steps them until none are left."""

    def __init__(
        self,
        model: Model,
        jobs: Sequence[Job],
        options: DecodingOptions,
        end_id: int,
        unk_id: int,
        waiting: Waiting,
        results: list[list[Hypothesis]],
        number: int,
        places: int,
    ):
        self.model, self.jobs, self.options = model, jobs, options
        self.choice = Candidates(model, options, end_id, unk_id)
        self.end_ids, self.picks = self.choice.end_ids, self.choice.picks(jobs)
        self.waiting, self.results, self.number = waiting, results, number
        self.beam = options.beam_size
        self.candidates = 1 if options.greedy else 2 * self.beam
        self.attention = options.needs_attention
        rows = _most_at_once(map(self._expected_rows, jobs), places)
        memory_rows = _most_at_once((len(job.source) for job in jobs), places)
        sizes = model.sizes
        own = RowPool(model.ops, sizes.layers, sizes.row_width, sizes.row_dtype, rows)
        memory = RowPool(model.ops, sizes.layers, sizes.memory_width, sizes.row_dtype, memory_rows)
        self.cache = Cache(own, memory, places, self.beam, sizes.dtype if self.attention else None)
        self.free, self.quarter = list(range(places))[::-1], -(-places // 4)
        self.places: dict[int, Sentence] = {}
        self.expected = 0
        self.beams: Beams | None = None

    def run(self) -> None:
        while not self.waiting.stopped and self.advance():
            pass

    def advance(self) -> bool:
        """One token for all that are in progress, and room for those that wait; False where nothing is left."""
        # Few sentences at a time would make small products; so free places are filled a quarter at a time.
        came, start = False, monotonic()
        if self.beams is None or len(self.free) >= self.quarter:
            came = self._admit()
        if self.beams is None:
            return came
        self._step()
        if self.options.timeout is not None:
            self._give_up_late(monotonic() - start)
        return True

    def _limit(self, job: Job) -> int:
        # The first token of an alternative is behind the prefix.
        return self.options.limit(len(job.source), self.model.sizes.positions, (job.context or len(job.start)) - 1)

    def _expected_rows(self, job: Job) -> int:
        return self.beam * (len(job.source) * 5 // 4 + 16 + len(job.start))

    def _admit(self) -> bool:
        """Encode waiting sentences, project their memories, decode their prefixes and choose their first beams.

        False where none waits. One whose time is over is left with no hypotheses.
        """
        budget = TOKENS - self.expected

        def room(job: Job) -> bool:
            nonlocal budget
            rows = self._expected_rows(job)
            if rows > budget and budget < TOKENS:
                return False
            budget -= rows
            return True

        taken = self.waiting.take(self.number, len(self.free), room)
        numbers = [number for number in taken if not is_over(self.jobs[number])]
        if not numbers:
            return bool(taken)
        jobs = [self.jobs[number] for number in numbers]
        memory = self.model.encode([job.source for job in jobs])
        sentences_B = np.array([self.free.pop() for _ in numbers], np.int64)
        for place, number, job in zip(sentences_B, numbers, jobs):
            key = sentence_key(job.source, job.start, job.number) if self.options.sampled else 0
            picked = self.choice.pick(job)
            self.places[int(place)] = Sentence(number, job, self._expected_rows(job), key, picked)
            self.expected += self._expected_rows(job)
        self.model.keep_memory(self.cache, self.cache.add_memory(sentences_B, memory.starts_B1), memory)
        self._start(jobs, sentences_B, memory)
        return True

    def _start(self, jobs: list[Job], sentences_B: np.ndarray, memory: Memory) -> None:
        """The first free step, of one row a sentence, at the end of a pass over its start token and prefix."""
        limits_B = np.array([self._limit(job) for job in jobs], np.int64)
        if self.options.callback is not None:
            limits_B = np.array([self._stream_prefix(*item) for item in zip(sentences_B, jobs, limits_B)], np.int64)
        inputs = [np.asarray(job.start[:limit], np.int32) for job, limit in zip(jobs, limits_B)]
        # Where the limit falls inside the prefix, the last token is the prefix's, whatever the model says.
        forced_B = np.array([job.start[limit] if limit < len(job.start) else -1 for job, limit in zip(jobs, limits_B)])
        prefixed_B = np.array([len(job.start) - 1 > max(job.context, job.forced) for job in jobs])
        starts_B1 = np.zeros(len(jobs) + 1, np.int64)
        np.cumsum([len(tokens) for tokens in inputs], out=starts_B1[1:])
        slots_B, tokens_N = sentences_B * self.beam, np.concatenate(inputs)
        hidden_ND, attention_NS = self.model.prefill(
            tokens_N, starts_B1, memory, attention=self.attention, cache=self.cache, slots_B=slots_B
        )
        lengths_B = np.diff(starts_B1)
        if attention_NS is not None:
            positions_N = np.arange(len(tokens_N)) - np.repeat(starts_B1[:-1], lengths_B)
            self.cache.keep_attention(np.repeat(slots_B, lengths_B), positions_N, attention_NS)
        B = len(jobs)
        beams = Beams(
            sentences_B,
            lengths_B - 1,
            limits_B,
            finished_B=np.zeros(B, np.int64),
            top_finished_B=np.zeros(B, bool),
            scores_BR=np.zeros((B, 1), hidden_ND.dtype),
            tokens_BR=np.zeros((B, 1), np.int32),
            diverged_BR=np.zeros((B, 1), bool),
        )
        # With scores, wanted or not: a projection whose weights hold NaN shows here.
        candidates = self._continuations(self.model.ops.take_rows(hidden_ND, starts_B1[1:] - 1), beams, 1, scored=True)
        apply_prefix(*candidates[:2], self.end_ids, forced_B, prefixed_B)
        started = self._advance(beams, *candidates, self._stream(beams, *candidates[:2], forced_B >= 0))
        if started is not None:
            self.beams = started if self.beams is None else self.beams.joined(started)

    def _step(self) -> None:
        """One token for every beam of every sentence in progress."""
        beams, R = self.beams, self.beam
        assert beams is not None
        slots_R = (beams.sentences_B[:, None] * R + np.arange(R)).ravel()
        positions_R = np.repeat(beams.steps_B, R).astype(np.int32)
        hidden_RD, attention_RS = self.model.step(
            self.cache, slots_R, beams.tokens_BR.ravel(), positions_R, self.attention
        )
        if attention_RS is not None:
            self.cache.keep_attention(slots_R, positions_R, attention_RS)
        candidates = self._continuations(hidden_RD, beams, R, self.options.scored)
        self.beams = self._advance(beams, *candidates, self._stream(beams, *candidates[:2]))

    def _continuations(
        self, hidden_RD: np.ndarray, beams: Beams, width: int, scored: bool
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """``best_candidates`` of sentences with ``width`` rows each."""
        log_probs_Rk, ids_Rk = self.choice.best(hidden_RD, self._rows(beams, width), self.candidates, scored)
        shape = len(beams.steps_B), width, -1
        return best_candidates(beams.scores_BR, log_probs_Rk.reshape(shape), ids_Rk.reshape(shape), self.candidates)

    def _rows(self, beams: Beams, width: int) -> Rows:
        """What the options want to know of each row."""
        rows = Rows(np.repeat(beams.steps_B, width))
        if self.picks:
            rows.picked_R = [self.places[place].picked for place in np.repeat(beams.sentences_B, width).tolist()]
        if self.choice.needs_past:
            slots_R = (beams.sentences_B[:, None] * self.beam + np.arange(width)).ravel()
            contexts_B = np.array([self.places[place].job.context for place in beams.sentences_B.tolist()])
            rows.lengths_R = rows.steps_R - np.repeat(contexts_B, width)
            rows.past_RT = self.cache.past(slots_R, rows.steps_R + 1 - rows.lengths_R, rows.lengths_R)
        if self.options.biased:
            rows.wished_R = np.where(beams.diverged_BR, -1, self._wished(beams)[:, None]).ravel()
        if self.options.sampled:
            sentences = [self.places[place] for place in beams.sentences_B.tolist()]
            rows.keys_R = np.array([sentence.key for sentence in sentences], np.uint64)
            rows.hypotheses_R = np.array([sentence.job.hypothesis for sentence in sentences], np.uint64)
        return rows

    def _wished(self, beams: Beams) -> np.ndarray:
        """The token that each sentence's prefix wishes for next, or -1."""
        wished = (self.places[place].job.wished for place in beams.sentences_B.tolist())
        return np.array([ids[step] if step < len(ids) else -1 for ids, step in zip(wished, beams.steps_B)], np.int32)

    def _stream_prefix(self, place: int, job: Job, limit: int) -> int:
        """Show the prefix to the callback; the limit of the sentence, which may want to end inside it."""
        assert self.options.callback is not None
        for position, token in enumerate(job.start[1 : 1 + limit]):
            step = self._as_step(place, position, token, 0.0, position + 1 == limit)
            if self.options.callback(step):
                return position + 1
        return limit

    def _stream(
        self, beams: Beams, scores_BC: np.ndarray, ids_BC: np.ndarray, shown_B: np.ndarray | None = None
    ) -> np.ndarray | None:
        """Show the new tokens to the callback, but for sentences ``shown_B``: which are to end with them."""
        if self.options.callback is None:
            return None
        stopped_B = np.zeros(len(ids_BC), bool)
        for b, place in enumerate(beams.sentences_B.tolist()):
            if shown_B is None or not shown_B[b]:
                token, position = int(ids_BC[b, 0]), int(beams.steps_B[b])
                is_last = token in self.end_ids or position + 1 >= beams.limits_B[b]
                log_probability = float(scores_BC[b, 0] - beams.scores_BR[b, 0])
                step = self._as_step(place, position, token, log_probability, is_last)
                stopped_B[b] = bool(self.options.callback(step))
        return stopped_B

    def _as_step(self, place: int, position: int, token: int, log_probability: float, is_last: bool) -> Step:
        sentence = self.places[place]
        return Step(
            sentence.number, 0, sentence.job.hypothesis, position, int(token), "", log_probability, bool(is_last)
        )

    def _advance(
        self,
        beams: Beams,
        scores_BC: np.ndarray,
        ids_BC: np.ndarray,
        parents_BC: np.ndarray,
        stopped_B: np.ndarray | None = None,
    ) -> Beams | None:
        """Take the candidates: record those that end, close the sentences that are done, move the others on.

        ``parents_BC`` is the beam that each candidate continues. None when no sentence is left.
        """
        R, options = self.beam, self.options
        last_B = beams.steps_B + 1 >= beams.limits_B
        if stopped_B is not None:
            last_B |= stopped_B
        ended_BR = are_ends(ids_BC[:, :R], self.end_ids) | last_B[:, None]
        for b, r in np.argwhere(ended_BR):
            self._record(beams, b, int(parents_BC[b, r]), int(ids_BC[b, r]), float(scores_BC[b, r]))
        finished_B = beams.finished_B + ended_BR.sum(axis=1)
        top_finished_B = beams.top_finished_B | ended_BR[:, 0]
        if options.greedy:
            done_B = finished_B > 0
        elif options.longer_is_worse:  # later beams cannot overtake
            done_B = last_B | (top_finished_B & (finished_B >= options.num_hypotheses))
        else:
            done_B = last_B | (finished_B >= options.wanted)
        diverged_BR = beams.diverged_BR
        if options.biased:  # by place, not by ancestry, as CTranslate2 has it
            diverged_BR = diverged_BR | (ids_BC[:, :R] != self._wished(beams)[:, None])
        if done_B.any():
            self._close(beams.sentences_B[done_B])
        kept: Any = np.s_[:, :R]
        if ended_BR.any():
            kept = np.arange(len(ids_BC))[:, None], keep_beams(ids_BC, ended_BR, self.end_ids)
        scores_BR, tokens_BR, parents_BR = scores_BC[kept], ids_BC[kept], parents_BC[kept]
        moved = Beams(
            beams.sentences_B,
            beams.steps_B + 1,
            beams.limits_B,
            finished_B,
            top_finished_B,
            scores_BR,
            tokens_BR,
            diverged_BR,
        )
        if done_B.any():
            moved, parents_BR = moved.select(~done_B), parents_BR[~done_B]
        if not len(moved.steps_B):
            return None
        if R > 1:
            base_B1 = moved.sentences_B[:, None] * R
            slots_BR, parent_slots_BR = base_B1 + np.arange(R), base_B1 + parents_BR
            self.cache.reorder(slots_BR.ravel(), parent_slots_BR.ravel(), int(moved.steps_B.max()))
        return moved

    def _record(self, beams: Beams, b: int, parent: int, token: int, log_probability: float) -> None:
        """Keep the parent's tokens and the one that ends them as a hypothesis."""
        place, options = int(beams.sentences_B[b]), self.options
        sentence = self.places[place]
        slot, length = place * self.beam + parent, int(beams.steps_B[b]) + 1
        tokens = np.append(self.cache.tokens(slot, length)[1:], np.int32(token))
        if not options.scored:
            log_probability = math.nan
        counted = length - sentence.job.context
        score = normalised(log_probability, counted, options.length_penalty, options.word_penalty)
        attention_TS = self.cache.attention(slot, length) if self.attention else None
        if attention_TS is not None and options.coverage_penalty and counted:
            score += options.coverage_penalty * coverage(attention_TS[-counted:])
        kept = length
        while kept and not options.return_end_token and tokens[kept - 1] in self.end_ids:
            kept -= 1
        attention_TS = None if attention_TS is None else attention_TS[:kept]
        sentence.hypotheses.append(Hypothesis(tokens[:kept], log_probability, counted, score, attention_TS))

    def _close(self, sentences_B: np.ndarray) -> None:
        """Hand over the sentences' best hypotheses and free their places."""
        wanted = self.options.num_hypotheses
        for place in sentences_B.tolist():
            sentence = self.places.pop(place)
            best = sorted(sentence.hypotheses, key=lambda hypothesis: -hypothesis.score)[:wanted]
            # Greedy search has but one hypothesis, which is copied; a beam may end with fewer than were asked for.
            self.results[sentence.number] = best * wanted if self.options.greedy else best
            self.expected -= sentence.expected
            self.free.append(place)
        self.cache.release(sentences_B)

    def _give_up_late(self, seconds: float) -> None:
        """Share a step's time among the sentences in progress; close, with no hypotheses, those that have none left."""
        charge([sentence.job for sentence in self.places.values()], seconds)
        late = [place for place, sentence in self.places.items() if is_over(sentence.job)]
        if not late or self.beams is None:
            return
        for place in late:
            self.places[place].hypotheses.clear()
        late_B = np.isin(self.beams.sentences_B, late)
        self._close(self.beams.sentences_B[late_B])
        self.beams = None if late_B.all() else self.beams.select(~late_B)


def _most_at_once(rows: Iterable[int], places: int) -> int:
    """What the largest sentences of so many places need, within the budget."""
    return min(TOKENS, sum(sorted(rows)[-places:]))


def decode(
    model: Model,
    jobs: Sequence[Job],
    options: DecodingOptions,
    end_id: int,
    unk_id: int,
    threads: int = 1,
) -> list[list[Hypothesis]]:
    """The best hypotheses of each job, best first, in the order of the jobs; samples and alternatives are jobs apart.

    None for a job whose time was over. A result has the same bits whatever the other jobs are and however many
    threads work. Raises InputError for a source that is empty or a target prefix without a start token.
    """
    check_jobs(jobs)
    results: list[list[Hypothesis]] = [[] for _ in jobs]
    workers = max(1, min(threads, len(jobs) // SENTENCES_A_THREAD))
    if options.callback is not None:
        workers = 1  # so that the calling thread is the one that calls back
    waiting = Waiting(jobs, workers)
    places = places_for(model, len(jobs), options, workers)

    def work(number: int) -> None:
        with model.ops.use_threads(threads if workers == 1 else 1):
            Worker(model, jobs, options, end_id, unk_id, waiting, results, number, places).run()

    share(work, workers, waiting.stop)
    return results


def check_jobs(jobs: Sequence[Job]) -> None:
    """Raise InputError for a source that is empty or a target without a start token."""
    for job in jobs:
        if not len(job.source):
            raise InputError("a source should have at least one token, got none")
        if not len(job.start):
            raise InputError("a target should begin with a start token, got none")


def places_for(model: Model, jobs: int, options: DecodingOptions, workers: int) -> int:
    """How many sentences a worker has in progress at most."""
    scale = LIGHT if model.sizes.layer_weights <= LIGHT_WEIGHTS else 1
    return max(1, min(scale * SENTENCES, scale * ROWS // options.beam_size, -(-jobs // workers)))
