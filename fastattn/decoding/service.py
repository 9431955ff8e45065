"""Searches and scores with one model, for many callers at once: plans of their jobs, and the service."""

import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from fastattn.decoding.candidates import CandidateRows, Candidates
from fastattn.decoding.jobs import Hypothesis, Job, Pass, check_jobs, late_search
from fastattn.decoding.options import DecodingOptions, Step
from fastattn.decoding.worker import DecodingWorker
from fastattn.layers.key_value_cache import DecoderSizes
from fastattn.models.decoder import Decoder
from fastattn.scheduling.request import Plan
from fastattn.scheduling.scheduler import Scheduler


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
class Looking(Scoring):
    """A source and a target; the result is what each layer's heads look at, float32 [layers, heads, T, S].

    Row t is that of the target's token t, from which the next is told. A decoder without heads has no layers there.
    """

    def fits_with(self, other: Pass) -> bool:
        return isinstance(other, Looking)

    def run(self, model: Decoder, jobs: Sequence[Scoring], end_id: int, unk_id: int) -> list[np.ndarray]:
        results = []
        for job in jobs:
            looks: list[np.ndarray] = []
            for _ in model.states(job.target, model.encode([job.source]), looks):
                pass
            results.append(np.concatenate(looks) if looks else np.zeros((0, 0, len(job.target), 0), np.float32))
        return results


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


def search_plan(jobs: Sequence[Job], sizes: DecoderSizes) -> Plan:
    """A list of hypotheses for each sentence, best first; [] for one whose text's time was over.

    Raises InputError for an empty source, if the model has an encoder, or a target without a start token.
    """
    check_jobs(jobs, sizes)
    jobs = _numbered(jobs)
    limits = {b: job.limit(sizes.max_positions) for b, job in enumerate(jobs) if job.options.return_alternatives}
    expandable = [b for b, limit in limits.items() if len(jobs[b].prefix) < limit]
    next_tokens = dict(zip(expandable, (yield [Expansion(jobs[b]) for b in expandable])))
    one_each = _changer(return_alternatives=False, num_hypotheses=1)
    branches: list[list[Job]] = []
    for b, job in enumerate(jobs):
        if job.options.return_alternatives:
            branches.append(_alternatives(replace(job, options=one_each(job.options)), limits[b], next_tokens.get(b)))
        elif _is_sampled_often(job.options):
            one = replace(job, options=one_each(job.options))
            branches.append([replace(one, hypothesis=n) for n in range(job.options.num_hypotheses)])
        elif job.options.biased:
            branches.append([replace(job, prefix=job.prefix[: job.forced], wished=job.prefix)])
        else:
            branches.append([job])
    found = iter((yield [branch for of_one in branches for branch in of_one]))
    results = [[next(found) for _ in of_one] for of_one in branches]
    return [_gathered(job, results[b], next_tokens.get(b)) for b, job in enumerate(jobs)]


def score_plan(sources: Sequence[np.ndarray], targets: Sequence[np.ndarray]) -> Plan:
    """float32 log-probabilities of targets[b] after its first token, given sources[b] and the target before each.

    A target is its start token, its tokens and, usually, its end token: int32.
    """
    chosen = [b for b in range(len(sources)) if len(targets[b]) > 1]
    scored = dict(zip(chosen, (yield [Scoring(sources[b], targets[b]) for b in chosen])))
    return [scored.get(b, np.zeros(0, np.float32)) for b in range(len(sources))]


def stream_plan(job: Job, sizes: DecoderSizes) -> Plan:
    """Whether all samples of a sentence, or its greedy search, ended in time; the callback gets the tokens."""
    check_jobs([job], sizes)
    (job,) = _numbered([job])
    count = job.options.num_hypotheses if job.options.sampled else 1
    one = replace(job, options=replace(job.options, num_hypotheses=1))
    results = yield [replace(one, hypothesis=number) for number in range(count)]
    return all(results)


def _changer(**changes: Any) -> Callable[[DecodingOptions], DecodingOptions]:
    """Makes options with changes; the same object for the same options, so that sentences share a batch."""
    made: dict[int, DecodingOptions] = {}

    def change(options: DecodingOptions) -> DecodingOptions:
        if id(options) not in made:
            made[id(options)] = replace(options, **changes)
        return made[id(options)]

    return change


def _numbered(jobs: Sequence[Job]) -> list[Job]:
    """The jobs with numbers; sampling without a seed gets one, and a salt that distinguishes equal sentences."""
    seeded = _changer(seed=secrets.randbits(64))
    return [
        replace(job, number=number, salt=number, options=seeded(job.options))
        if job.options.sampled and job.options.seed is None
        else replace(job, number=number)
        for number, job in enumerate(jobs)
    ]


def _is_sampled_often(options: DecodingOptions) -> bool:
    return options.sampled and options.num_hypotheses > 1


def _alternatives(job: Job, limit: int, next_tokens: list[tuple[float, int]] | None) -> list[Job]:
    """A job for each of the next tokens; without room for one, the prefix alone."""
    if next_tokens is None:
        return [replace(job, context=limit)]
    behind = len(job.prefix) + 1
    return [replace(job, prefix=[*job.prefix, token], context=behind) for _, token in next_tokens]


def _gathered(
    job: Job, results: list[list[Hypothesis]], next_tokens: list[tuple[float, int]] | None
) -> list[Hypothesis]:
    """The hypotheses of a sentence's branches; [] if one of them was given up."""
    if len(results) == 1 and not job.options.return_alternatives:
        return results[0]
    if not all(results):
        return []
    hypotheses = [found[0] for found in results]
    if not job.options.return_alternatives:
        return sorted(hypotheses, key=lambda hypothesis: -hypothesis.score)
    if next_tokens is None:
        return hypotheses * job.options.num_hypotheses
    return [
        replace(tail, log_probability=first + tail.log_probability, length=tail.length + 1, score=first + tail.score)
        for (first, _), tail in zip(next_tokens, hypotheses)
    ]


# With at least this many sentences a thread, threads take whole sentences; with fewer they share each product.
SENTENCES_A_THREAD = 4


class DecodingService:
    """A scheduler whose workers decode, and separate ones for calls that their own thread must compute.

    end_id, unk_id  of the model's vocabulary
    threads         of all callers together
    """

    def __init__(self, model: Decoder, end_id: int, unk_id: int, threads: int):
        self.model = model
        self._make_worker = partial(DecodingWorker, model, end_id, unk_id, left=[])
        self.threads = threads
        # Steps of a model without an encoder are bound by reading its weights, which one slot does once for all.
        self._scheduler = self._make_scheduler(threads if model.sizes.memory_widths else 1)

    def _make_scheduler(self, slots: int) -> Scheduler:
        enough = SENTENCES_A_THREAD
        return Scheduler(self._make_worker, self.threads, self.model.ops.use_threads, enough, slots)

    def scheduler(self, options: DecodingOptions | None = None) -> Scheduler:
        """The scheduler for a call with these options: a separate one if this thread must call a callback."""
        return self._scheduler if options is None or options.callback is None else self._make_scheduler(1)

    def stream(self, job: Job) -> Iterator[Step]:
        """The tokens of one sentence's greedy search, or of its samples, each as soon as it is known.

        Nothing runs between two of them, so closing the iterator ends the work. Raises as ``search_plan`` does, and
        SearchTimeout if its time is over.
        """
        steps: list[Step] = []
        job = replace(job, options=replace(job.options, callback=steps.append))
        in_time = False

        def plan() -> Plan:
            nonlocal in_time
            in_time = yield from stream_plan(job, self.model.sizes)

        for _ in self._make_scheduler(1).steps(plan):
            yield from steps
            steps.clear()
        if not in_time:
            raise late_search(job.options)
