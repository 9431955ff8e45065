"""Searches and scores as the tests of decoding call them, and what they compare."""

from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from unittest import mock

import numpy as np
import pytest
from hypothesis import strategies as st

from fastattn.decoding import worker
from fastattn.decoding.options import DecodingOptions
from fastattn.decoding.recorded_layers import RecordedLayers
from fastattn.decoding.search import HOPELESS, Hypothesis, Job, score_plan, search_plan
from fastattn.decoding.worker import DecodingService, DecodingWorker
from tests.models.tiny_models import END, START, UNK, random_sources
from tests.scheduling.by_hand import SchedulerByHand


def decode(model, jobs: Sequence[Job], options: DecodingOptions, threads: int = 1) -> list[list[Hypothesis]]:
    """The hypotheses of each job, all searched for with these options, by a scheduler of their own."""
    jobs = [replace(job, options=options) for job in jobs]
    service = DecodingService(model, END, UNK, threads)
    return service.scheduler(options).run(partial(search_plan, jobs, model.sizes))


@contextmanager
def calls_of_layers():
    """(slots_R, whether the step was recorded) of each call of ``RecordedLayers.step``."""
    calls, step = [], RecordedLayers.step

    def noted(self, slots_R, *inputs):
        hidden_RD = step(self, slots_R, *inputs)
        calls.append((slots_R, hidden_RD is not None))
        return hidden_RD

    with mock.patch.object(RecordedLayers, "step", noted):
        yield calls


def search(model, sources, prefixes=None, threads: int = 1, **options) -> list[list[Hypothesis]]:
    """``decode`` of sources, each with its target prefix."""
    jobs = [Job(source, [START], prefix) for source, prefix in zip(sources, prefixes or [[]] * len(sources))]
    return decode(model, jobs, DecodingOptions(**options), threads)


def score(model, sources: Sequence[np.ndarray], targets: Sequence[np.ndarray], threads: int = 1) -> list[np.ndarray]:
    """The log-probabilities of each target's tokens behind its first."""
    return DecodingService(model, END, UNK, threads).scheduler().run(partial(score_plan, sources, targets))


def by_hand(model, slots: int) -> SchedulerByHand:
    return SchedulerByHand(partial(DecodingWorker, model, END, UNK), slots, model.ops.use_threads, 2, slots)


def interleaved(data, model, slots: int, most: int, which, job_of) -> list[tuple[list, list]]:
    """What callers get whose requests come, are cancelled and are computed in any order: (what is drawn, results)."""
    scheduler, requests = by_hand(model, slots), []
    for _ in range(data.draw(st.integers(1, most))):
        action = data.draw(st.sampled_from(["submit", "submit", "cancel", "tick", "tick", "tick"]))
        if action == "submit":
            drawn = data.draw(which)
            plan = partial(search_plan, [job_of(*each) for each in drawn], model.sizes)
            requests.append((drawn, scheduler.submit(plan, data.draw(st.integers(0, 2)))))
        elif action == "cancel" and requests:
            data.draw(st.sampled_from(requests))[1].cancel()
        else:
            scheduler.tick()
    scheduler.finish_all()
    assert scheduler.is_at_rest and not scheduler.failures
    return [(drawn, plain(request.result(0))) for drawn, request in requests if not request.cancelled()]


def tokens_of(results: list[list[Hypothesis]]) -> list[list[list[int]]]:
    return [[hypothesis.tokens.tolist() for hypothesis in hypotheses] for hypotheses in results]


def plain(results: list[list[Hypothesis]]) -> list[list[tuple]]:
    """What hypotheses are, to the bit."""
    return [
        [
            (h.tokens.tolist(), repr(h.score), repr(h.log_probability), h.length)
            + (() if h.attention_TS is None else (h.attention_TS.tobytes(),))
            for h in hypotheses
        ]
        for hypotheses in results
    ]


def little_room(monkeypatch: pytest.MonkeyPatch, sentences: int, **others: float) -> None:
    """A worker takes no more sentences at once, and of other bounds no more than these."""
    for name, value in {"SENTENCES": sentences, "LIGHT_FACTOR": 1, **others}.items():
        monkeypatch.setattr(worker, name, value)


def check_company(model, order, count: int, beam: int, room: int, threads: int) -> None:
    """The first ``count`` of the sentences in that order, together, give what each of them gives alone."""
    sources = random_sources(len(order), seed=8)
    prefixes = [[5, 6][: b % 3] for b in range(len(order))]
    options = {"beam_size": beam, "num_hypotheses": beam, "max_decoding_length": 10}
    alone = [plain(search(model, [sources[b]], [prefixes[b]], **options))[0] for b in range(len(order))]
    chosen = order[:count]
    with pytest.MonkeyPatch.context() as patch:
        # So little room that sentences of every age share the steps.
        little_room(patch, room, SENTENCES_A_THREAD=1, CACHE_ROWS=60)
        together = search(model, [sources[b] for b in chosen], [prefixes[b] for b in chosen], threads, **options)
    assert plain(together) == [alone[b] for b in chosen]


def improbable(counts, probabilities):
    """Whether chi-square says p < 0.001 (Wilson and Hilferty's approximation); bins expecting under 5 are joined."""
    expected = np.asarray(probabilities) * np.sum(counts)
    assert not np.any(np.asarray(counts)[expected == 0]), "what cannot be was drawn"
    rare = expected < 5
    counts = np.append(np.asarray(counts)[~rare], np.sum(np.asarray(counts)[rare]))
    expected = np.append(expected[~rare], expected[rare].sum())
    counts, expected = counts[expected > 0], expected[expected > 0]
    statistic = ((counts - expected) ** 2 / expected).sum()
    freedom = len(expected) - 1
    return statistic > freedom * (1 - 2 / (9 * freedom) + 3.09 * np.sqrt(2 / (9 * freedom))) ** 3


def check_scores(model) -> None:
    """Each hypothesis has the log-probability that its tokens have by a full pass."""
    sources = random_sources(8, seed=10)
    options = {"beam_size": 4, "num_hypotheses": 4, "min_decoding_length": 0, "max_decoding_length": 15}
    for source, hypotheses in zip(sources, search(model, sources, **options)):
        assert len({tuple(hypothesis.tokens) for hypothesis in hypotheses}) == 4
        for hypothesis in hypotheses:
            target = [START, *hypothesis.tokens] + [END] * (hypothesis.length - len(hypothesis.tokens))
            (log_probs_T,) = score(model, [source], [np.array(target, np.int32)])
            assert hypothesis.log_probability == pytest.approx(log_probs_T.sum(), rel=1e-6)
            assert hypothesis.score == pytest.approx(log_probs_T.sum() / hypothesis.length, rel=1e-6)


def naive_beam(log_probs, source, options, prefix=()):
    """CTranslate2's beam search as one reads it, a sentence at a time with nothing cached or vectorized.

    log_probs  of the source, the tokens from the start on and those that may not come: the next token's (V,)
    """
    R = options.beam_size
    limit = options.limit(len(source), 0)
    beams, finished, top_finished = [(0.0, [])], [], False
    for step in range(limit):
        suppressed = ([END] if step < options.min_decoding_length else []) + ([UNK] if options.disable_unk else [])
        candidates = []
        for score_so_far, tokens in beams:
            log_probs_V = log_probs(source, [START, *tokens], suppressed)
            candidates += [(score_so_far + log_probs_V[v], tokens, v) for v in range(len(log_probs_V))]
        candidates = sorted(candidates, key=lambda candidate: -candidate[0])[: 2 * R]
        if step < len(prefix):
            candidates = [(0.0 if k == 0 else HOPELESS, beams[0][1], prefix[step]) for k in range(2 * R)]
        elif step == len(prefix) and prefix:
            candidates = [
                (HOPELESS, beams[0][1], 0) if k and candidate[2] == END else candidate
                for k, candidate in enumerate(candidates)
            ]
        last, spare, beams = step + 1 == limit, R, []
        for k in range(R):
            score_so_far, tokens, token = candidates[k]
            chosen = candidates[k]
            if (token == END and step >= len(prefix)) or last:
                top_finished |= k == 0
                full = [*tokens, token]
                finished.append((score_so_far / len(full) ** options.length_penalty, full))
                while spare < 2 * R and candidates[spare][2] == END:
                    spare += 1
                chosen, spare = candidates[spare] if spare < 2 * R else chosen, spare + 1
            beams.append((chosen[0], [*chosen[1], chosen[2]]))
        if last or (
            top_finished and len(finished) >= options.num_hypotheses
            if options.length_penalty == 0
            else len(finished) >= options.hypotheses_to_find
        ):
            break
    finished.sort(key=lambda hypothesis: -hypothesis[0])
    return [
        (tokens[:-1] if tokens[-1] == END else tokens, value) for value, tokens in finished[: options.num_hypotheses]
    ]
