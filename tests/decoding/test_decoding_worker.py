"""Sentences of many callers, each with options of its own, come, go and end together: each as if alone."""

import asyncio
from dataclasses import replace
from functools import cache, partial
from itertools import count

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastattn.decoding import worker
from fastattn.decoding.options import DecodingOptions
from fastattn.decoding.search import Allowance, AttentionMaps, Job, Scoring, allowances, score_plan, search_plan
from fastattn.decoding.worker import DecodingWorker
from fastattn.errors import InputError, SearchTimeout
from fastattn.layers import key_value_cache
from fastattn.layers.key_value_cache import KeyValueCache
from fastattn.models.kinds import build_model
from fastattn.ops import cpu as operations
from fastattn.spec.checkpoint import Shortlist
from fastattn.translation.translator import Translator
from tests.decoding.searching import by_hand, decode, interleaved, little_room, plain
from tests.messages import refused
from tests.models.tiny_models import END, START, random_checkpoint, random_model, random_sources, steady_ops, vocabulary

OPTIONS = [
    DecodingOptions(max_decoding_length=10, **options)
    for options in (
        {"beam_size": 1},
        {"beam_size": 1, "return_scores": False},
        {"beam_size": 3, "num_hypotheses": 3},
        {"beam_size": 8, "patience": 2.0, "num_hypotheses": 4, "length_penalty": 0.3},
        {"beam_size": 2, "return_attention": True},
        {"beam_size": 4, "coverage_penalty": 0.4},
        {"beam_size": 1, "repetition_penalty": 1.3, "no_repeat_ngram_size": 2},
        {"beam_size": 2, "suppress_sequences": ((5, 6), (7,)), "disable_unk": True},
        {"beam_size": 1, "sampling_topk": 5, "num_hypotheses": 3, "seed": 4},
        {"beam_size": 1, "sampling_topk": 0, "sampling_topp": 0.8, "seed": 9},
        {"beam_size": 3, "prefix_bias_beta": 0.4},
        {"return_alternatives": True, "num_hypotheses": 3, "beam_size": 2},
        {"beam_size": 2, "shortlist": False},
    )
]
SOURCES, PREFIXES = random_sources(24, seed=8), [[5, 6, 9][: b % 4] for b in range(24)]


WORDS_OF = Shortlist(np.arange(6, dtype=np.int32), np.arange(20, dtype=np.int32) * 3, np.tile(np.int32([6, 7, 8]), 19))
MODELS = {
    "transformer, int8": random_model(seed=7, ops=operations, precision="int8", sharpness=4.0),
    "transformer, float32": random_model(seed=7, ops=operations, sharpness=4.0),
    "recurrent": random_model(seed=7, ops=operations, sharpness=4.0, recurrence="ssru"),
    "shortlist": build_model(replace(random_checkpoint(seed=7, sharpness=4.0), shortlist=WORDS_OF), operations),
}

MODEL = MODELS["transformer, float32"]
SIZES = MODEL.sizes


def job_of(number, options):
    return Job(SOURCES[number], [START], PREFIXES[number], OPTIONS[options])


def jobs_of(numbers, options, **changes):
    return [Job(SOURCES[n], [START], (), options, **changes) for n in numbers]


def exactly(length, beam_size=1, **options):
    """Options of hypotheses of that length."""
    return DecodingOptions(beam_size, min_decoding_length=length, max_decoding_length=length, **options)


def ask(scheduler, jobs, caller=0):
    return scheduler.submit(partial(search_plan, jobs, SIZES), caller)


def together(model, *requests):
    """What each list of jobs gives, all asked for at once by callers of their own."""
    scheduler = by_hand(model, 1)
    asked = [ask(scheduler, jobs, n) for n, jobs in enumerate(requests)]
    scheduler.finish_all()
    assert scheduler.is_at_rest and not scheduler.failures
    return [plain(request.result(0)) for request in asked]


@cache
def alone(name, number, options):
    return plain(decode(MODELS[name], [job_of(number, options)], OPTIONS[options]))


@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=8, deadline=None)
@given(st.data(), st.integers(1, 2))
def test_any_interleaving_of_any_options(name, data, slots):
    each = st.tuples(st.integers(0, 23), st.integers(0, len(OPTIONS) - 1))
    with pytest.MonkeyPatch.context() as patch:
        # So little room that sentences wait, and rows run short.
        little_room(patch, 5, STEP_ROWS=12, CACHE_ROWS=150, SOURCE_TOKENS=12)
        found = interleaved(data, MODELS[name], slots, 30, st.lists(each, min_size=1, max_size=4), job_of)
    for which, results in found:
        assert results == [alone(name, *each)[0] for each in which]


def test_a_callback_that_raises_ends_its_own_job_alone():
    scheduler, seen = by_hand(MODEL, 1), []

    def fail(step):
        seen.append(step.position)
        if step.position == 2:
            raise RuntimeError("enough")

    options = exactly(8, callback=fail)
    others = [ask(scheduler, [job_of(n, 0)], n) for n in range(4)]
    request = ask(scheduler, jobs_of([5], options), "failing")
    scheduler.finish_all()
    with pytest.raises(RuntimeError, match="enough"):
        request.result(0)
    assert seen == [0, 1, 2], "nothing of it is done twice, nor further"
    assert [plain(other.result(0)) for other in others] == [alone("transformer, float32", n, 0) for n in range(4)]


def rows_in_use(cache):
    return cache.target.rows - cache.target.free_count, cache.memory.rows - cache.memory.free_count


@pytest.fixture
def caches(monkeypatch):
    made = []
    original = KeyValueCache.__init__

    def keep(self, *arguments):
        original(self, *arguments)
        made.append(self)

    monkeypatch.setattr(KeyValueCache, "__init__", keep)
    return made


def test_everything_is_given_back(caches):
    scheduler = by_hand(MODELS["transformer, int8"], 1)
    requests = [ask(scheduler, [job_of(n % 24, n % len(OPTIONS))], n % 3) for n in range(60)]
    for _ in range(4):
        scheduler.tick()
    for request in requests[::3]:
        request.cancel()
    scheduler.finish_all()
    (cache,) = caches
    assert rows_in_use(cache) == (0, 0) and not scheduler.failures
    assert len(cache._free_slots) == len(cache.histories_RS) and len(cache._free_memory_slots) == len(cache._users_P)
    for pool in (cache.target, cache.memory):
        assert len(np.unique(pool.take(pool.rows))) == pool.rows


def test_what_is_cancelled_is_free_after_a_step(caches):
    scheduler = by_hand(MODEL, 1)
    long, short = (ask(scheduler, jobs_of(numbers, exactly(40, 4)), len(numbers)) for numbers in (range(8), [8]))
    for _ in range(10):
        scheduler.tick()
    (cache,) = caches
    before = rows_in_use(cache)
    assert long.cancel()
    scheduler.tick()
    after = rows_in_use(cache)
    assert after[1] == len(SOURCES[8]) and after[0] < before[0] / 6
    scheduler.finish_all()
    assert len(short.result(0)[0][0].tokens) == 40


def test_beams_that_ended_leave_their_rows(caches, monkeypatch):
    """Four beams of sixty tokens write 240 rows, of which the histories of those that live share most."""
    monkeypatch.setattr(worker, "expected_rows", lambda job: 150)
    model = random_model(seed=3, ops=operations, sharpness=1.0)
    (hypotheses,) = decode(model, [Job(SOURCES[0], [START])], exactly(60, 4))
    (cache,) = caches
    assert len(hypotheses[0].tokens) == 60
    assert cache.target.rows == 150, "240 rows were written"


@pytest.mark.parametrize("least", [key_value_cache.LEAST_ROWS, 8])
def test_pools_shrink_when_fewer_sentences_come(least, caches, monkeypatch):
    monkeypatch.setattr(key_value_cache, "LEAST_ROWS", least)
    model = MODELS["transformer, int8"]
    scheduler = by_hand(model, 1)
    many, few = (exactly(length, 2, return_attention=True) for length in (30, 60))
    asked = [(n, few if n in (3, 20) else many) for n in range(24)]
    results = [ask(scheduler, jobs_of([n], options), n) for n, options in asked]
    for _ in range(35):
        scheduler.tick()
    (cache,) = caches
    before = cache.target.rows, cache.memory.rows
    results.append(ask(scheduler, jobs_of([5], few), "last"))
    scheduler.tick()
    assert cache.target.rows < before[0] / 3
    assert (cache.memory.rows < before[1]) == (least == 8)
    scheduler.finish_all()
    for (n, options), request in zip([*asked, (5, few)], results, strict=True):
        assert plain(request.result(0)) == plain(decode(model, jobs_of([n], options), options))


def test_what_the_decoder_starts_from_is_no_part_of_the_target():
    options = OPTIONS[2]
    started = decode(MODEL, [Job(source, [START, 7, 8]) for source in SOURCES], replace(options, max_decoding_length=9))
    begun = [Job(source, [START], [7, 8], unscored_tokens=2) for source in SOURCES]
    prefixed = decode(MODEL, begun, replace(options, max_decoding_length=11, min_decoding_length=3))
    found = [[(h.tokens.tolist(), h.score, h.length) for h in hypotheses] for hypotheses in started]
    assert found == [[(h.tokens.tolist()[2:], h.score, h.length) for h in hypotheses] for hypotheses in prefixed]


@pytest.mark.parametrize("name", MODELS)
def test_a_shared_beginning_is_kept_once_and_changes_nothing(name, caches):
    model, options = MODELS[name], exactly(20, 3, num_hypotheses=3)
    jobs = [Job(SOURCES[0], [START], [5, 6, 7, 8, 9, 10 + n], options, shared_tokens=6) for n in range(4)]
    single = [plain(decode(model, [job], options)) for job in jobs]
    caches.clear()
    scheduler = by_hand(model, 1)
    requests = [ask(scheduler, [job], n) for n, job in enumerate(jobs[:3])]
    scheduler.tick()
    (cache,) = caches
    assert rows_in_use(cache)[1] == len(SOURCES[0]), "one memory"
    assert len({tuple(history_S[:6]) for history_S in cache.histories_RS if history_S[0] >= 0}) == 1
    requests.append(ask(scheduler, jobs[3:], 3))
    scheduler.tick()
    assert rows_in_use(cache)[1] == len(SOURCES[0]), "one that comes later has the same"
    scheduler.finish_all()
    assert [plain(request.result(0)) for request in requests] == single
    assert rows_in_use(cache) == (0, 0) and not scheduler.failures


def test_what_is_shared_may_be_the_whole_of_another_and_have_attention():
    """In both orders, at once, while the other is there and when both are gone."""
    whole = Job(SOURCES[0], [START], [5, 6, 7, 8], OPTIONS[2], shared_tokens=4)
    pairs = [(whole, replace(whole, options=replace(OPTIONS[2], return_attention=True)))]
    pairs.append((replace(whole, shared_tokens=3), Job(SOURCES[0], [START], [5, 6], OPTIONS[2])))
    for pair in (*pairs, *(pair[::-1] for pair in pairs)):
        single = [plain(decode(MODEL, [job], job.options)) for job in pair]
        assert together(MODEL, *([job] for job in pair)) == single
        scheduler, requests = by_hand(MODEL, 1), []
        for number, job in enumerate(pair * 2):
            requests.append(ask(scheduler, [job]))
            scheduler.tick()
            if number % 2:
                scheduler.finish_all()
        assert [plain(request.result(0)) for request in requests] == single * 2 and not scheduler.failures


def test_samples_of_a_sentence_share_its_memory(caches):
    options = DecodingOptions(beam_size=1, sampling_topk=0, num_hypotheses=20, seed=1, max_decoding_length=9)
    scheduler = by_hand(MODEL, 1)
    ask(scheduler, [Job(SOURCES[2], [START], [5, 6], options)])
    scheduler.tick()
    assert rows_in_use(caches[0])[1] == len(SOURCES[2])
    scheduler.finish_all()


WORDS = vocabulary(19)[3:]
TEXTS = [" ".join(WORDS[(7 * number + i) % 16] for i in range(1 + number % 5)) for number in range(12)]


def test_asyncio():
    translator = Translator.from_checkpoint(random_checkpoint(seed=21), threads=2)

    async def main():
        together = asyncio.gather(*(translator.translate_async(text, beam_size=2) for text in TEXTS))
        details = await translator.translate_async(TEXTS[:3], beam_size=2, details=True)
        begun, loop = asyncio.Event(), asyncio.get_running_loop()
        options = {"beam_size": 1, "min_decoding_length": 100_000, "max_decoding_length": 100_000}
        options["callback"] = lambda step: loop.call_soon_threadsafe(begun.set) and False
        endless = asyncio.create_task(translator.translate_async(TEXTS, **options))
        await begun.wait()
        endless.cancel()
        with pytest.raises(asyncio.CancelledError):
            await endless
        with pytest.raises(InputError, match="beam_size"):
            await translator.translate_async("x", beam_size=0)
        return await together, details

    expected = translator.translate(TEXTS, beam_size=2, details=True)
    assert asyncio.run(main()) == ([found.text for found in expected], expected[:3])


def test_time_that_ends_while_sentences_come_in_loses_none(monkeypatch):
    """Another part of its text uses it up, at another slot."""
    looks = []

    def is_late(job):
        looks.append(job)
        return len(looks) > 3

    scheduler = by_hand(MODEL, 1)
    options = DecodingOptions(beam_size=1, max_decoding_length=4, timeout=5.0)
    request = ask(scheduler, jobs_of(range(3), options, allowance=Allowance(5.0)), "one")
    monkeypatch.setattr(worker, "is_late", is_late)
    scheduler.finish_all()
    assert len(request.result(0)) == 3 and scheduler.is_at_rest


def test_attention_of_few_among_rows_of_many(monkeypatch):
    """The pool grows and shrinks while nobody wants attention, and rows that have none stay."""
    monkeypatch.setattr(key_value_cache, "LEAST_ROWS", 16)
    scheduler = by_hand(MODEL, 1)
    with_attention = DecodingOptions(beam_size=1, max_decoding_length=3, return_attention=True)
    requests = [ask(scheduler, jobs_of([1], with_attention), 0), ask(scheduler, jobs_of([2], exactly(150, 2)), 1)]
    requests += [ask(scheduler, jobs_of([n], exactly(100, 2)), n) for n in range(3, 12)]
    for _ in range(105):
        scheduler.tick()
    requests.append(ask(scheduler, jobs_of([5], with_attention), 99))
    scheduler.finish_all()
    assert not scheduler.failures and all(request.result(0) for request in requests)


def test_a_search_goes_on_while_another_has_much_scored(monkeypatch):
    monkeypatch.setattr(worker, "ADMISSION_SECONDS", -1.0)
    monkeypatch.setattr(worker, "PASS_ROWS", 40)
    scheduler = by_hand(MODEL, 1)
    search_request = ask(scheduler, jobs_of([1], exactly(4)), "search")
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
    good = ask(scheduler, jobs_of([1], shown), "good")
    scheduler.tick()
    bad = ask(scheduler, jobs_of([2], DecodingOptions(beam_size=1, sampling_topk=20)), "bad")
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
    searched = ask(scheduler, jobs_of([1], exactly(4, 2, timeout=5.0), allowance=Allowance(5.0)), "search")
    scheduler.tick()
    scheduler.submit(partial(score_plan, SOURCES[:1], [np.array([START, 5, 6], np.int32)]), "score")
    scheduler.finish_all()
    assert searched.result(0) != [[]]


def test_scores_and_maps_of_attention_share_no_pass():
    def plan(*kinds):
        return (yield [kind(SOURCES[0], np.array([START, 5, 6], np.int32)) for kind in kinds])

    run = by_hand(MODEL, 1).run
    (alone,), (scores, maps) = run(partial(plan, AttentionMaps)), run(partial(plan, Scoring, AttentionMaps))
    assert scores.shape == (2,) and maps.ndim == 4 and np.array_equal(maps, alone)


GREEDY, BEAM = {"beam_size": 1}, {"beam_size": 3, "num_hypotheses": 2}
SAMPLING = GREEDY | {"sampling_topk": 6, "seed": 3}
ALTERNATIVES = {"beam_size": 2, "num_hypotheses": 4, "return_alternatives": True}
# What the sentences have in common, and what is another option in half of them.
OF_BEAMS = {"beam_size": 2, "num_hypotheses": 3, "patience": 3.0, "length_penalty": 0.1, "word_penalty": 0.7}
OF_BEAMS |= {"coverage_penalty": 0.9, "repetition_penalty": 2.0, "no_repeat_ngram_size": 1, "min_decoding_length": 6}
OF_BEAMS |= {"max_decoding_length": 4, "max_length_factor": 0.5, "suppress_sequences": ((5,), (6,), (7,), (8,))}
OF_BEAMS |= {"prefix_bias_beta": 0.6, "return_alternatives": True, "end_token": (5, 7), "return_end_token": True}
OF_SAMPLES = {"sampling_topk": 2, "sampling_topp": 0.5, "sampling_temperature": 0.2, "seed": 4}
OF_BRANCHES = {"min_alternative_expansion_prob": 0.3, "suppress_sequences": ((5, 6), (7,), (8,))}
DIFFERENT = [
    (common, name, value)
    for common, options in (
        (GREEDY, {"return_scores": False}),
        (BEAM, OF_BEAMS | {"return_attention": True}),
        (SAMPLING, OF_SAMPLES),
        (ALTERNATIVES, OF_BRANCHES | {"min_decoding_length": 6}),
    )
    for name, value in options.items()
]


def check_together(model, *jobs):
    """Jobs of two kinds, in both orders; the kinds differ in their results, or nothing would be seen."""
    expected = [plain(decode(model, some, some[0].options)) for some in jobs]
    assert expected[0] != expected[1]
    for order in (1, -1):
        first, second = jobs[::order]
        assert together(model, [*first, *second]) == [sum(expected[::order], [])]


def alike(**options):
    options = DecodingOptions(**{"max_decoding_length": 10} | options)
    return [Job(source, [START], prefix, options) for source, prefix in zip(random_sources(8, seed=8), PREFIXES)]


@pytest.mark.parametrize(("common", "name", "value"), DIFFERENT)
def test_one_option(common, name, value):
    check_together(MODEL, alike(**common), alike(**common | {name: value}))


def test_a_shortlist_or_lists_of_their_own():
    words = alike(shortlist=False)
    few = [replace(job, find_allowed_ids=lambda: np.array([END, 9, 11, 13], np.int32)) for job in words]
    for other in (alike(shortlist=True), few):
        check_together(MODELS["shortlist"], words, other)


WIDTHS = (*MODEL.sizes.row_widths, *MODEL.sizes.memory_widths)
ENOUGH = 4 * 1000 * sum(WIDTHS) * np.dtype(MODEL.sizes.row_dtype).itemsize  # bytes: four times CACHE_ROWS rows


@pytest.mark.parametrize(
    ("free", "most"), [(None, 3), (1 << 40, 6), (2 * ENOUGH, 6), (2 * ENOUGH - 1, 3), (ENOUGH, 3), (ENOUGH // 1000, 1)]
)
def test_the_free_memory_of_a_card(free, most, monkeypatch):
    counts, step, jobs = [], DecodingWorker._step, [Job(source, [START]) for source in random_sources(12, seed=8)]
    options = DecodingOptions(beam_size=1, max_decoding_length=10)
    expected = [plain(decode(MODEL, [job], options))[0] for job in jobs]
    little_room(monkeypatch, 3, CACHE_ROWS=1000, CARD_FACTOR=2)
    monkeypatch.setattr(operations, "free_memory", lambda: free)
    monkeypatch.setattr(DecodingWorker, "_step", lambda self: (counts.append(len(self.sentences())), step(self))[1])
    assert plain(decode(MODEL, jobs, options)) == expected
    assert max(counts) == most


@pytest.fixture
def clock(monkeypatch):
    """The test's own: a step takes a second."""
    ticks = count()
    monkeypatch.setattr(worker, "monotonic", lambda: float(next(ticks)))


def _translator(threads=1):
    return Translator.from_checkpoint(random_checkpoint(seed=21), ops=steady_ops, threads=threads)


VARIETIES = {
    "greedy": {"beam_size": 1},
    "beam": {"beam_size": 3, "num_hypotheses": 2},
    "samples": {"beam_size": 1, "sampling_topk": 5, "num_hypotheses": 3, "seed": 2},
    "alternatives": {"return_alternatives": True, "num_hypotheses": 2},
    "biased": {"prefix_bias_beta": 0.3, "target_prefix": WORDS[2]},
}


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize("name", VARIETIES)
def test_the_other_texts_stay_as_they_are(name):
    translator = _translator(1 + list(VARIETIES).index(name) % 2)
    options = VARIETIES[name] | {"details": True, "max_decoding_length": 20}
    expected = translator.translate(TEXTS, **options)
    for timeout in (0.5, 2.5):
        results = list(translator.translate_iter(TEXTS, return_exceptions=True, timeout=timeout, **options))
        late = [isinstance(result, SearchTimeout) for result in results]
        assert any(late) or timeout > 1
        assert all(is_late or result == other for result, other, is_late in zip(results, expected, late, strict=True))
    assert any(late) < len(late), "some are never late"
    assert list(translator.translate_iter(TEXTS, return_exceptions=True, timeout=1000, **options)) == expected


@pytest.mark.usefixtures("clock")
def test_a_text_has_its_time_for_all_its_parts():
    """Five sentences of five steps each, two at a time or one after the other."""
    translator, text = _translator(), "\n".join(WORDS[:5])
    options = {"beam_size": 1, "min_decoding_length": 6, "max_decoding_length": 6}
    translator.translate(WORDS[0], timeout=7, **options)
    assert translator.translate(text, timeout=35, **options)
    with refused(SearchTimeout):
        translator.translate("\n".join(WORDS), timeout=2, **options)
    with refused(SearchTimeout):
        translator.translate_tokens([WORDS[:1]], timeout=2, **options)
    steps = []
    with pytest.raises(SearchTimeout):
        for step in translator.generate_tokens(text, timeout=11, **options):
            steps.append(step.part)
    assert {*steps} >= {0, 1} and {*steps} != {*range(5)}


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize("timeout", [None, 1000])
@pytest.mark.parametrize("beam_size", [1, 2])
def test_other_callers_cost_nothing(timeout, beam_size):
    short, other = exactly(6, timeout=2), exactly(6, beam_size, timeout=timeout)
    scheduler = by_hand(random_model(seed=21, ops=steady_ops), 1)

    def asked(caller, options):
        return ask(scheduler, jobs_of([0], options, allowance=allowances([0], options).get(0)), caller)

    alone = asked(0, short)
    scheduler.finish_all()
    requests = [asked(n, short if n == 3 else other) for n in range(6)]
    scheduler.finish_all()
    assert not alone.result(0)[0] and all(request.result(0)[0] for request in requests)
