"""From sentences to jobs and back: one job a sentence, or one for each of its samples or alternatives."""

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from fastattn.decoding.candidates import Candidates, Rows
from fastattn.decoding.jobs import Hypothesis, Job, Waiting
from fastattn.decoding.model import Model
from fastattn.decoding.options import DecodingOptions, Step
from fastattn.decoding.scheduler import Worker, check_jobs, decode, places_for
from fastattn.decoding.scoring import in_batches
from fastattn.decoding.timeout import late_search


def decode_sentences(
    model: Model,
    jobs: Sequence[Job],
    options: DecodingOptions,
    end_id: int,
    unk_id: int,
    threads: int = 1,
) -> list[list[Hypothesis]]:
    """The hypotheses that the options ask for, of each sentence: a source and a target that begins as it shall.

    None for a sentence whose text's time was over. Raises InputError as ``decode`` does.
    """
    ids = end_id, unk_id
    jobs, options = _seeded(jobs, options)
    if options.return_alternatives:
        return _decode_alternatives(model, jobs, options, *ids, threads)
    if options.sampled and options.num_hypotheses > 1:
        return _decode_samples(model, jobs, options, *ids, threads)
    if options.biased:
        jobs = [replace(job, start=job.start[: 1 + job.forced], wished=job.start[1:]) for job in jobs]
    return decode(model, jobs, options, *ids, threads)


def stream_sentence(
    model: Model, job: Job, options: DecodingOptions, end_id: int, unk_id: int, threads: int = 1
) -> Iterator[Step]:
    """The tokens of one sentence's greedy search, or of its samples, each as soon as it is known.

    Nothing runs between two of them: who asks for no more has ended the work. Raises as ``decode`` does, and
    SearchTimeout where its time is over.
    """
    (job,), options = _seeded([job], options)
    count = options.num_hypotheses if options.sampled else 1
    jobs = [replace(job, hypothesis=number) for number in range(count)]
    check_jobs(jobs)
    steps: list[Step] = []
    options = replace(options, num_hypotheses=1, callback=steps.append)
    results: list[list[Hypothesis]] = [[] for _ in jobs]
    places = places_for(model, count, options, 1)
    worker = Worker(model, jobs, options, end_id, unk_id, Waiting(jobs, 1), results, 0, places)
    working = True
    while working:
        with model.ops.use_threads(threads):  # what the caller does in between is not to be bound by it
            working = worker.advance()
        yield from (replace(step, sentence=0) for step in steps)
        steps.clear()
    if not all(results):
        raise late_search(options)


def _seeded(jobs: Sequence[Job], options: DecodingOptions) -> tuple[Sequence[Job], DecodingOptions]:
    """With a seed where samples are asked for without one; equal sentences are then told apart."""
    if not options.sampled or options.seed is not None:
        return jobs, options
    numbered = [replace(job, number=number) for number, job in enumerate(jobs)]
    return numbered, replace(options, seed=secrets.randbits(64))


def _decode_samples(
    model: Model, jobs: Sequence[Job], options: DecodingOptions, end_id: int, unk_id: int, threads: int
) -> list[list[Hypothesis]]:
    """Independent samples of each sentence, by score."""
    count, callback = options.num_hypotheses, options.callback
    if callback is not None:

        def renumbered(step: Step) -> object:
            return callback(replace(step, sentence=step.sentence // count))

        options = replace(options, callback=renumbered)
    several = [replace(job, hypothesis=number) for job in jobs for number in range(count)]
    samples = decode(model, several, replace(options, num_hypotheses=1), end_id, unk_id, threads)
    drawn = [samples[first : first + count] for first in range(0, len(samples), count)]
    return [
        sorted((hypotheses[0] for hypotheses in of_one), key=lambda hypothesis: -hypothesis.score)
        if all(of_one)
        else []
        for of_one in drawn
    ]


def _decode_alternatives(
    model: Model, jobs: Sequence[Job], options: DecodingOptions, end_id: int, unk_id: int, threads: int
) -> list[list[Hypothesis]]:
    """The continuations of each sentence's most probable next tokens. Where there is no room for one: the prefix."""
    limits = [options.limit(len(job.source), model.sizes.positions, len(job.start) - 1) for job in jobs]
    roomy = [b for b, job in enumerate(jobs) if len(job.start) <= limits[b]]
    expanded = _expand(model, jobs, roomy, options, end_id, unk_id, threads)
    branches: list[tuple[int, float]] = []
    followed: list[Job] = []
    for b, job in enumerate(jobs):
        for log_probability, token in expanded.get(b, []):
            branches.append((b, log_probability))
            followed.append(replace(job, start=[*job.start, token], context=len(job.start)))
        if b not in expanded:
            branches.append((b, 0.0))
            followed.append(replace(job, context=limits[b]))
    one = replace(options, return_alternatives=False, num_hypotheses=1)
    results: list[list[Hypothesis]] = [[] for _ in jobs]
    late = set()
    for (b, first), found in zip(branches, decode(model, followed, one, end_id, unk_id, threads)):
        if not found:
            late.add(b)
            continue
        (rest,) = found
        whole = replace(
            rest,
            log_probability=first + rest.log_probability,
            length=rest.length + (b in expanded),
            score=first + rest.score,
        )
        results[b].extend([whole] * (1 if b in expanded else options.num_hypotheses))
    return [[] if b in late else hypotheses for b, hypotheses in enumerate(results)]


def _expand(
    model: Model,
    jobs: Sequence[Job],
    chosen: list[int],
    options: DecodingOptions,
    end_id: int,
    unk_id: int,
    threads: int,
) -> dict[int, list[tuple[float, int]]]:
    """(log-probability, id) of the tokens that may follow each chosen sentence's start; at least one, not the end."""
    first = replace(options, min_decoding_length=1, sampling_topk=1)
    choice = Candidates(model, first, end_id, unk_id)

    def run(batch: list[int]) -> list[list[tuple[float, int]]]:
        memory = model.encode([jobs[b].source for b in batch])
        starts_B1 = np.cumsum([0, *(len(jobs[b].start) for b in batch)])
        tokens_N = np.concatenate([np.asarray(jobs[b].start, np.int32) for b in batch])
        hidden_ND, _ = model.prefill(tokens_N, starts_B1, memory)
        rows = Rows(np.zeros(len(batch), np.int64))
        if choice.picks(jobs):
            rows.picked_R = [choice.pick(jobs[b]) for b in batch]
        hidden_BD = model.ops.take_rows(hidden_ND, starts_B1[1:] - 1)
        found_log_probs_Bk, found_Bk = choice.best(hidden_BD, rows, options.num_hypotheses)
        kept_Bk = np.exp(found_log_probs_Bk) >= options.min_alternative_expansion_prob
        kept_Bk &= found_log_probs_Bk > -np.inf
        kept_Bk[:, 0] = True  # so that there is a translation
        both = zip(found_log_probs_Bk, found_Bk, kept_Bk)
        return [list(zip(log_probs_k[kept_k].tolist(), ids_k[kept_k].tolist())) for log_probs_k, ids_k, kept_k in both]

    starts = [job.start for job in jobs]
    return in_batches(model, chosen, [job.source for job in jobs], starts, threads, run)
