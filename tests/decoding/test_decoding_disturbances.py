"""What may disturb sentences that share a worker: time that is over, options nearly alike, more rows than expected."""

from dataclasses import replace
from functools import partial

import numpy as np

from fastattn.decoding import worker
from fastattn.decoding.jobs import Allowance, Job
from fastattn.decoding.options import DecodingOptions
from fastattn.decoding.service import Scoring, score_plan, search_plan
from fastattn.errors import InputError
from fastattn.layers import key_value_cache
from fastattn.ops import cpu as operations
from tests.decoding.searching import by_hand, plain
from tests.models.tiny_models import START, random_model, random_sources

MODEL, SOURCES = random_model(seed=7, ops=operations, sharpness=4.0), random_sources(24, seed=8)
SIZES = MODEL.sizes


def search(scheduler, numbers, options, caller, **changes):
    jobs = [Job(SOURCES[n], [START], (), options, **changes) for n in numbers]
    return scheduler.submit(partial(search_plan, jobs, SIZES), caller)


def test_time_that_ends_while_sentences_come_in_loses_none(monkeypatch):
    """Another part of its text uses it up, at another slot."""
    looks = []

    def is_over(job):
        looks.append(job)
        return len(looks) > 3

    scheduler = by_hand(MODEL, 1)
    options = DecodingOptions(beam_size=1, max_decoding_length=4, timeout=5.0)
    request = search(scheduler, range(3), options, "one", allowance=Allowance(5.0))
    monkeypatch.setattr(worker, "is_over", is_over)
    scheduler.finish_all()
    assert len(request.result(0)) == 3 and scheduler.is_at_rest


def test_a_callback_beside_a_search_without_scores():
    options = DecodingOptions(beam_size=1, max_decoding_length=6, min_decoding_length=6, return_scores=False)

    def run(first: bool, callback: bool, second: bool):
        """What the callback is told, and what the others get."""
        scheduler, seen, requests = by_hand(MODEL, 1), [], []
        if first:
            requests.append(search(scheduler, [1], options, 1))
        if callback:
            shown = replace(options, callback=lambda step: seen.append(repr(step.log_probability)))
            search(scheduler, [2], shown, 2)
        if second:
            requests.append(search(scheduler, [3], options, 3))
        scheduler.finish_all()
        return seen, [plain(request.result(0)) for request in requests]

    seen, _ = run(False, True, False)
    alone = [run(True, False, False)[1][0], run(False, False, True)[1][0]]
    assert run(True, True, True) == (seen, alone)
    assert run(False, True, True) == (seen, alone[1:])


def test_attention_of_few_among_rows_of_many(monkeypatch):
    """The pool grows and shrinks while nobody wants attention, and rows that have none stay."""
    monkeypatch.setattr(key_value_cache, "LEAST_ROWS", 16)
    scheduler = by_hand(MODEL, 1)
    with_attention = DecodingOptions(beam_size=1, max_decoding_length=3, return_attention=True)
    long = DecodingOptions(beam_size=2, min_decoding_length=150, max_decoding_length=150)
    short = DecodingOptions(beam_size=2, min_decoding_length=100, max_decoding_length=100)
    requests = [search(scheduler, [1], with_attention, 0), search(scheduler, [2], long, 1)]
    requests += [search(scheduler, [n], short, n) for n in range(3, 12)]
    for _ in range(105):
        scheduler.tick()
    last = search(scheduler, [5], with_attention, 99)
    scheduler.finish_all()
    assert not scheduler.failures
    assert plain(last.result(0)) and all(request.result(0) for request in requests)


def test_a_search_goes_on_while_another_has_much_scored(monkeypatch):
    monkeypatch.setattr(worker, "TURN", -1.0)
    monkeypatch.setattr(worker, "PASS_ROWS", 40)
    scheduler = by_hand(MODEL, 1)
    options = DecodingOptions(beam_size=1, min_decoding_length=4, max_decoding_length=4)
    search_request = search(scheduler, [1], options, "search")
    scheduler.tick()
    targets = [np.array([START, 5, 6, 7], np.int32)] * 200
    scored = scheduler.submit(partial(score_plan, [SOURCES[1]] * 200, targets), "score")
    for _ in range(5):
        scheduler.tick()
    assert search_request.done() and not scored.done()
    alone = scheduler.submit(partial(score_plan, SOURCES[:1], targets[:1]), "other")
    scheduler.tick()
    assert alone.done() and not scored.done(), "who waits for one score does not wait for another's many"
    scheduler.finish_all()
    assert len(scored.result(0)) == 200


def test_what_cannot_be_done_disturbs_nobody():
    scheduler, positions = by_hand(MODEL, 1), []
    shown = DecodingOptions(beam_size=1, max_decoding_length=6, callback=lambda step: positions.append(step.position))
    good = search(scheduler, [1], shown, "good")
    scheduler.tick()
    bad = search(scheduler, [2], DecodingOptions(beam_size=1, sampling_topk=20), "bad")
    scheduler.finish_all()
    assert isinstance(bad.exception(0), InputError) and not scheduler.failures
    assert good.result(0) and positions == [*range(len(positions))], "it did not begin anew"


def test_what_others_have_scored_costs_a_search_no_time(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(worker, "monotonic", lambda: clock[0])
    monkeypatch.setattr(worker, "perf_counter", lambda: clock[0])
    run = Scoring.run

    def run_long(self, *arguments):
        clock[0] += 100
        return run(self, *arguments)

    monkeypatch.setattr(Scoring, "run", run_long)
    scheduler = by_hand(MODEL, 1)
    options = DecodingOptions(beam_size=1, min_decoding_length=4, max_decoding_length=4, timeout=5.0)
    searched = search(scheduler, [1], options, "search", allowance=Allowance(5.0))
    scheduler.tick()
    scheduler.submit(partial(score_plan, SOURCES[:1], [np.array([START, 5, 6], np.int32)]), "score")
    scheduler.finish_all()
    assert searched.result(0) != [[]]
