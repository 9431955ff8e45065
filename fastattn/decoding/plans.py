"""Plans of jobs: one job for each sentence, or for each of its samples or alternatives."""

import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fastattn.decoding.jobs import Hypothesis, Job, check_jobs
from fastattn.decoding.options import DecodingOptions
from fastattn.decoding.passes import Expansion, Scoring
from fastattn.layers.key_value_cache import DecoderSizes
from fastattn.scheduling.request import Plan


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
