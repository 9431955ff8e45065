"""From encoded sentences to hypotheses: slots, admission, the loop over steps, and sentences shared among threads.

A sentence enters by one pass over its start token and target prefix, which fills the cache and chooses its first beams;
from then on it takes part in every step until it ends and frees its slots for one that waits. Each row knows its own
position, so sentences of any age share a step.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields

import numpy as np

from fastattn.decoding.cache import Cache
from fastattn.decoding.options import DecodingOptions
from fastattn.decoding.search import (
    apply_prefix,
    best_candidates,
    keep_beams,
    normalised,
    suppressed_tokens,
)
from fastattn.errors import InputError
from fastattn.models.transformer import EncoderDecoder

# A step costs one pass over the weights however few its rows are, so more rows are cheaper each; past this many the
# gain is gone, and the cache grows with every row.
ROWS = 128
SENTENCES = 64
# Cache rows that the admitted sentences are expected to fill: about 24 KB each for a base Transformer.
TOKENS = 16384
# Sentences go whole to threads from this many a thread on; below it the threads share each product.
SENTENCES_A_THREAD = 4


@dataclass(frozen=True)
class Job:
    """A sentence to translate: the source's ids, and the target's start token followed by its prefix."""

    source: np.ndarray
    start: Sequence[int]


@dataclass(frozen=True)
class Hypothesis:
    """A finished target sequence without its end token.

    log_probability  the sum over ``length`` tokens, the end token counted and a target prefix counting 0
    score            log_probability / length ** length_penalty
    attention_TS     where asked for: each token's attention over the source ids
    """

    tokens: np.ndarray
    log_probability: float
    length: int
    score: float
    attention_TS: np.ndarray | None = None


class Waiting:
    """The sentences no worker has taken yet. Each worker has its own line and, when that is empty, the others'."""

    def __init__(self, jobs: Sequence[Job], workers: int):
        # The longest first: they last longest, and neighbours are of a length.
        order = sorted(range(len(jobs)), key=lambda i: -len(jobs[i].source))
        self._lines = [deque(order[worker::workers]) for worker in range(workers)]
        self._jobs = jobs
        self._lock = threading.Lock()
        self.stopped = False

    def take(self, worker: int, most: int, room: Callable[[Job], bool]) -> list[int]:
        """Up to ``most`` sentences, as long as ``room`` accepts them."""
        taken: list[int] = []
        with self._lock:
            for line in [self._lines[worker], *self._lines]:
                while line and len(taken) < most and room(self._jobs[line[0]]):
                    taken.append(line.popleft())
        return taken

    def stop(self) -> None:
        with self._lock:
            self.stopped = True
            for line in self._lines:
                line.clear()


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

    def select(self, chosen_B: np.ndarray) -> "Beams":
        return Beams(*(getattr(self, f.name)[chosen_B] for f in fields(self)))

    def joined(self, other: "Beams") -> "Beams":
        return Beams(*(np.concatenate([getattr(self, f.name), getattr(other, f.name)]) for f in fields(self)))


@dataclass
class Sentence:
    """What a place in the cache is working on."""

    number: int
    expected: int
    hypotheses: list[Hypothesis] = field(default_factory=list)


class Worker:
    """Takes waiting sentences into its slots and steps them until none are left."""

    def __init__(
        self,
        model: EncoderDecoder,
        jobs: Sequence[Job],
        options: DecodingOptions,
        end_id: int,
        unk_id: int,
        waiting: Waiting,
        results: list[list[Hypothesis]],
        number: int,
        places: int,
    ):
        self.model, self.jobs, self.options, self.end_id = model, jobs, options, end_id
        self.unk_id = unk_id if options.disable_unk else None
        self.waiting, self.results, self.number = waiting, results, number
        self.beam = options.beam_size
        self.candidates = 2 * self.beam if self.beam > 1 else 1
        self.cache = Cache(
            model.layers, model.row_width, places, self.beam, model.dtype, attention=options.return_attention
        )
        self.free = list(range(places))[::-1]
        self.places: list[Sentence | None] = [None] * places
        self.expected = 0
        self.beams: Beams | None = None

    def run(self) -> None:
        while not self.waiting.stopped:
            # Few sentences at a time would make small products; so free places are filled a quarter at a time.
            came = False
            if self.beams is None or 4 * len(self.free) >= len(self.places):
                came = self._admit()
            if self.beams is not None:
                self._step()
            elif not came:
                return

    def _expected_rows(self, job: Job) -> int:
        return self.beam * (len(job.source) * 5 // 4 + 16 + len(job.start))

    def _admit(self) -> bool:
        """Encode waiting sentences, project their memories, decode their prefixes and choose their first beams.

        False where none waits.
        """
        budget = TOKENS - self.expected

        def room(job: Job) -> bool:
            nonlocal budget
            rows = self._expected_rows(job)
            if rows > budget and budget < TOKENS:
                return False
            budget -= rows
            return True

        numbers = self.waiting.take(self.number, len(self.free), room)
        if not numbers:
            return False
        jobs = [self.jobs[number] for number in numbers]
        memory_ND, memory_starts_B1 = self.model.encode([job.source for job in jobs])
        memory = self.model.project_memory(memory_ND)
        sentences_B = np.array([self.free.pop() for _ in numbers], np.int64)
        for place, number, job in zip(sentences_B, numbers, jobs):
            self.places[place] = Sentence(number, self._expected_rows(job))
            self.expected += self._expected_rows(job)
        self.cache.add_memory(sentences_B, memory, memory_starts_B1)
        self._start(jobs, sentences_B, memory, memory_starts_B1)
        return True

    def _start(self, jobs: list[Job], sentences_B: np.ndarray, memory: list[np.ndarray], memory_starts_B1: np.ndarray):
        """The first free step, of one row a sentence, at the end of a pass over its start token and prefix."""
        limits_B = np.array([self.options.limit(len(job.source), self.model.positions) for job in jobs], np.int64)
        inputs = [np.asarray(job.start[:limit], np.int32) for job, limit in zip(jobs, limits_B)]
        # Where the limit falls inside the prefix, the last token is the prefix's, whatever the model says.
        forced_B = np.array([job.start[limit] if limit < len(job.start) else -1 for job, limit in zip(jobs, limits_B)])
        prefixed_B = np.array([len(job.start) > 1 for job in jobs])
        starts_B1 = np.zeros(len(jobs) + 1, np.int64)
        np.cumsum([len(tokens) for tokens in inputs], out=starts_B1[1:])
        slots_B, tokens_N = sentences_B * self.beam, np.concatenate(inputs)
        hidden_ND, attention_NS = self.model.decode_rows(
            tokens_N, starts_B1, memory, memory_starts_B1, self.options.return_attention, self.cache, slots_B
        )
        lengths_B = np.diff(starts_B1)
        if attention_NS is not None:
            positions_N = np.arange(len(tokens_N)) - np.repeat(starts_B1[:-1], lengths_B)
            self.cache.keep_attention(np.repeat(slots_B, lengths_B), positions_N, attention_NS)
        steps_B = lengths_B - 1
        log_probs_Bk, ids_Bk = self._top_k(hidden_ND[starts_B1[1:] - 1], steps_B, 1)
        B = len(jobs)
        beams = Beams(
            sentences_B,
            steps_B,
            limits_B,
            finished_B=np.zeros(B, np.int64),
            top_finished_B=np.zeros(B, bool),
            scores_BR=np.zeros((B, 1), log_probs_Bk.dtype),
            tokens_BR=np.zeros((B, 1), np.int32),
        )
        candidates = best_candidates(beams.scores_BR, log_probs_Bk[:, None], ids_Bk[:, None], self.candidates)
        apply_prefix(*candidates[:2], self.end_id, forced_B, prefixed_B)
        started = self._advance(beams, *candidates)
        self.beams = started if self.beams is None or started is None else self.beams.joined(started)

    def _step(self) -> None:
        """One token for every beam of every sentence in progress."""
        beams, R = self.beams, self.beam
        assert beams is not None
        slots_R = (beams.sentences_B[:, None] * R + np.arange(R)).ravel()
        positions_R = np.repeat(beams.steps_B, R).astype(np.int32)
        hidden_RD, attention_RS = self.model.step(
            self.cache, slots_R, beams.tokens_BR.ravel(), positions_R, self.options.return_attention
        )
        if attention_RS is not None:
            self.cache.keep_attention(slots_R, positions_R, attention_RS)
        log_probs_Rk, ids_Rk = self._top_k(hidden_RD, beams.steps_B, R)
        B = len(beams.steps_B)
        candidates = best_candidates(
            beams.scores_BR, log_probs_Rk.reshape(B, R, -1), ids_Rk.reshape(B, R, -1), self.candidates
        )
        self.beams = self._advance(beams, *candidates)

    def _top_k(self, hidden_RD: np.ndarray, steps_B: np.ndarray, rows: int) -> tuple[np.ndarray, np.ndarray]:
        suppressed_RJ = suppressed_tokens(steps_B, rows, self.options.min_decoding_length, self.end_id, self.unk_id)
        return self.model.top_k(hidden_RD, min(self.candidates, self.model.vocabulary), suppressed_RJ)

    def _advance(self, beams: Beams, scores_BC: np.ndarray, ids_BC: np.ndarray, parents_BC: np.ndarray) -> Beams | None:
        """Take the candidates: record those that end, close the sentences that are done, move the others on.

        ``parents_BC`` is the beam that each candidate continues. None when no sentence is left.
        """
        R, options = self.beam, self.options
        last_B = beams.steps_B + 1 >= beams.limits_B
        ended_BR = (ids_BC[:, :R] == self.end_id) | last_B[:, None]
        for b, r in np.argwhere(ended_BR):
            self._record(beams, b, int(parents_BC[b, r]), int(ids_BC[b, r]), float(scores_BC[b, r]))
        finished_B = beams.finished_B + ended_BR.sum(axis=1)
        top_finished_B = beams.top_finished_B | ended_BR[:, 0]
        if R == 1:
            done_B = finished_B > 0
        elif options.length_penalty == 0:  # later beams cannot overtake
            done_B = last_B | (top_finished_B & (finished_B >= options.num_hypotheses))
        else:
            done_B = last_B | (finished_B >= options.wanted)
        if done_B.any():
            self._close(beams.sentences_B[done_B])
        kept_BR = keep_beams(ids_BC, ended_BR, self.end_id)
        scores_BR, tokens_BR, parents_BR = (
            np.take_along_axis(values_BC, kept_BR, axis=1) for values_BC in (scores_BC, ids_BC, parents_BC)
        )
        moved = Beams(
            beams.sentences_B, beams.steps_B + 1, beams.limits_B, finished_B, top_finished_B, scores_BR, tokens_BR
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
        place = int(beams.sentences_B[b])
        slot, length = place * self.beam + parent, int(beams.steps_B[b]) + 1
        tokens = np.append(self.cache.tokens(slot, length)[1:], np.int32(token))
        kept = length
        while kept and tokens[kept - 1] == self.end_id:
            kept -= 1
        attention_TS = self.cache.attention(slot, length)[:kept] if self.options.return_attention else None
        score = normalised(log_probability, length, self.options.length_penalty)
        sentence = self.places[place]
        assert sentence is not None
        sentence.hypotheses.append(Hypothesis(tokens[:kept], log_probability, length, score, attention_TS))

    def _close(self, sentences_B: np.ndarray) -> None:
        """Hand over the sentences' best hypotheses and free their places."""
        wanted = self.options.num_hypotheses
        for place in sentences_B:
            sentence = self.places[place]
            assert sentence is not None
            best = sorted(sentence.hypotheses, key=lambda hypothesis: -hypothesis.score)[:wanted]
            # Greedy search has but one hypothesis, which is copied; a beam may end with fewer than were asked for.
            self.results[sentence.number] = best * wanted if self.beam == 1 else best
            self.expected -= sentence.expected
            self.places[place] = None
            self.free.append(int(place))
        self.cache.release(sentences_B)


def decode(
    model: EncoderDecoder,
    jobs: Sequence[Job],
    options: DecodingOptions,
    end_id: int,
    unk_id: int,
    threads: int = 1,
) -> list[list[Hypothesis]]:
    """The best hypotheses of each sentence, best first, in the order of the jobs.

    A result has the same bits whatever the other jobs are and however many threads work. Raises InputError for a
    source that is empty or a target prefix without a start token.
    """
    for job in jobs:
        if not len(job.source):
            raise InputError("a source should have at least one token, got none")
        if not len(job.start):
            raise InputError("a target should begin with a start token, got none")
    results: list[list[Hypothesis]] = [[] for _ in jobs]
    workers = max(1, min(threads, len(jobs) // SENTENCES_A_THREAD))
    waiting = Waiting(jobs, workers)
    places = max(1, min(SENTENCES, ROWS // options.beam_size, -(-len(jobs) // workers)))

    def work(number: int, threads: int) -> None:
        with model.ops.use_threads(threads):
            Worker(model, jobs, options, end_id, unk_id, waiting, results, number, places).run()

    share(work, workers, threads, waiting.stop)
    return results


def share(work: Callable[[int, int], None], workers: int, threads: int, stop: Callable[[], None]) -> None:
    """Call ``work(number, threads)``: once with all the threads, or from ``workers`` Python threads with one each.

    Where one fails or Ctrl-C comes, ``stop`` is called and the others are waited for. The threads live only as long as
    the call, so nothing of them is left to break after a fork.
    """
    if workers == 1:
        work(0, threads)
        return
    with ThreadPoolExecutor(workers, thread_name_prefix="fastattn") as pool:
        futures = [pool.submit(work, number, 1) for number in range(workers)]
        try:
            for future in futures:
                future.result()
        except BaseException:
            stop()
            raise
