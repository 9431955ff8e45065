"""Sentences of many callers, each with options of its own, come, go and end together: each as if alone."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastattn.decoding import worker
from fastattn.decoding.jobs import Job
from fastattn.decoding.options import DecodingOptions
from fastattn.decoding.service import score_plan, search_plan
from fastattn.errors import InputError
from fastattn.layers import key_value_cache
from fastattn.layers.key_value_cache import KeyValueCache
from fastattn.models.kinds import build_model
from fastattn.ops import cpu as operations
from fastattn.ops import reference
from fastattn.spec.checkpoint import Shortlist
from fastattn.translation.translator import Translator
from tests.decoding.searching import by_hand, decode, little_room, plain
from tests.models.tiny_models import END, START, random_checkpoint, random_model, random_sources, vocabulary

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


def with_shortlist(precision: str):
    words, ids = 19, np.arange(19, dtype=np.int32)
    shortlist = Shortlist(ids[:6], np.arange(words + 1, dtype=np.int32) * 3, np.tile(ids[6:9], words))
    checkpoint = replace(random_checkpoint(seed=7, sharpness=4.0), shortlist=shortlist)
    return build_model(checkpoint, operations, precision)


MODELS = {
    "transformer, int8": random_model(seed=7, ops=operations, precision="int8", sharpness=4.0),
    "transformer, float32": random_model(seed=7, ops=operations, sharpness=4.0),
    "recurrent": random_model(seed=7, ops=operations, sharpness=4.0, recurrence="ssru"),
    "shortlist": with_shortlist("float32"),
}

SIZES = MODELS["recurrent"].sizes


def job_of(number: int, options: int) -> Job:
    return Job(SOURCES[number], [START], PREFIXES[number], OPTIONS[options])


ALONE: dict = {}


def alone(name: str, number: int, options: int):
    key = name, number, options
    if key not in ALONE:
        ALONE[key] = plain(decode(MODELS[name], [job_of(number, options)], OPTIONS[options]))
    return ALONE[key]


@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=8, deadline=None)
@given(st.data(), st.integers(1, 2))
def test_any_interleaving_of_any_options(name, data, slots):
    model, requests = MODELS[name], []
    scheduler = by_hand(model, slots)
    with pytest.MonkeyPatch.context() as patch:
        # So little room that sentences wait, and rows run short.
        little_room(patch, 5, ROWS=12, TOKENS=150, ADMITTED=12)
        for _ in range(data.draw(st.integers(1, 30))):
            action = data.draw(st.sampled_from(["submit", "submit", "cancel", "tick", "tick", "tick"]))
            if action == "submit":
                which = data.draw(
                    st.lists(st.tuples(st.integers(0, 23), st.integers(0, len(OPTIONS) - 1)), min_size=1, max_size=4)
                )
                jobs = [job_of(*each) for each in which]
                plan = partial(search_plan, jobs, model.sizes)
                requests.append((scheduler.submit(plan, data.draw(st.integers(0, 2))), which))
            elif action == "cancel" and requests:
                data.draw(st.sampled_from(requests))[0].cancel()
            else:
                scheduler.tick()
        scheduler.finish_all()
    assert scheduler.is_at_rest and not scheduler.failures
    for request, which in requests:
        if not request.cancelled():
            assert [plain([found]) for found in request.result(0)] == [alone(name, *each) for each in which]


def test_all_options_at_once():
    """In one batch of rows each, and on two threads."""
    for name, model in MODELS.items():
        which = [(n % 24, n % len(OPTIONS)) for n in range(2 * len(OPTIONS))]
        for slots in (1, 2):
            scheduler = by_hand(model, slots)
            request = scheduler.submit(partial(search_plan, [job_of(*each) for each in which], model.sizes))
            scheduler.finish_all()
            assert not scheduler.failures
            assert [plain([found]) for found in request.result(0)] == [alone(name, *each) for each in which]


def test_searches_scores_and_failures_share_a_worker():
    model = MODELS["transformer, float32"]
    scheduler = by_hand(model, 1)
    good = scheduler.submit(partial(search_plan, [job_of(3, 2)], SIZES), "good")
    bad = scheduler.submit(partial(search_plan, [Job(np.array([999], np.int32), [START])], SIZES), "bad")
    targets = [np.array([START, 5, 6, END], np.int32)]
    scored = scheduler.submit(partial(score_plan, SOURCES[:1], targets), "scored")
    scheduler.finish_all()
    assert plain(good.result(0)) == alone("transformer, float32", 3, 2)
    assert len(scored.result(0)[0]) == 3
    with pytest.raises(InputError, match="999"):
        bad.result(0)


def test_a_callback_that_raises_ends_its_own_job_alone():
    model, seen = MODELS["transformer, float32"], []

    def fail(step):
        seen.append(step)
        if step.position == 2:
            raise RuntimeError("enough")

    scheduler = by_hand(model, 1)
    options = DecodingOptions(beam_size=1, min_decoding_length=8, max_decoding_length=10)
    others = [scheduler.submit(partial(search_plan, [job_of(n, 0)], SIZES), n) for n in range(4)]
    failing = Job(SOURCES[5], [START], (), replace(options, callback=fail))
    request = scheduler.submit(partial(search_plan, [failing], SIZES), "failing")
    scheduler.finish_all()
    with pytest.raises(RuntimeError, match="enough"):
        request.result(0)
    assert [step.position for step in seen] == [0, 1, 2], "nothing of it is done twice, nor further"
    for n, other in enumerate(others):
        assert plain(other.result(0)) == alone("transformer, float32", n, 0)


# memory


def rows_in_use(cache: KeyValueCache) -> tuple[int, int]:
    return cache.target.rows - cache.target.free, cache.memory.rows - cache.memory.free


@pytest.fixture
def caches(monkeypatch):
    """Every cache that is made."""
    made = []
    original = KeyValueCache.__init__

    def keep(self, *arguments):
        original(self, *arguments)
        made.append(self)

    monkeypatch.setattr(KeyValueCache, "__init__", keep)
    return made


def test_everything_is_given_back(caches):
    model = MODELS["transformer, int8"]
    scheduler = by_hand(model, 1)
    requests = [
        scheduler.submit(partial(search_plan, [job_of(n % 24, n % len(OPTIONS))], SIZES), n % 3) for n in range(60)
    ]
    for _ in range(4):
        scheduler.tick()
    for request in requests[::3]:
        request.cancel()
    scheduler.finish_all()
    (cache,) = caches
    assert rows_in_use(cache) == (0, 0) and not scheduler.failures
    assert len(cache._free_slots) == len(cache.histories_RS) and len(cache._free_memory_slots) == len(cache._users_P)


def test_what_is_cancelled_is_free_after_a_step(caches):
    model = MODELS["transformer, float32"]
    scheduler = by_hand(model, 1)
    options = DecodingOptions(beam_size=4, min_decoding_length=40, max_decoding_length=40)
    long, short = (
        scheduler.submit(partial(search_plan, [Job(source, [START], (), options) for source in sources], SIZES), n)
        for n, sources in enumerate((SOURCES[:8], SOURCES[8:9]))
    )
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
    options = DecodingOptions(beam_size=4, min_decoding_length=60, max_decoding_length=60)
    (hypotheses,) = decode(model, [Job(SOURCES[0], [START])], options)
    (cache,) = caches
    assert len(hypotheses[0].tokens) == 60
    assert cache.target.rows == 150, "240 rows were written"


@pytest.mark.parametrize("least", [key_value_cache.LEAST_ROWS, 8])
def test_pools_shrink_when_fewer_sentences_come(least, caches, monkeypatch):
    """That of memories too, where sentences that go on have their rows among the others'."""
    monkeypatch.setattr(key_value_cache, "LEAST_ROWS", least)
    model = MODELS["transformer, int8"]
    scheduler, results = by_hand(model, 1), []
    many = DecodingOptions(beam_size=2, min_decoding_length=30, max_decoding_length=30, return_attention=True)
    few = DecodingOptions(beam_size=2, min_decoding_length=60, max_decoding_length=60, return_attention=True)
    requests = [(n, few if n in (3, 20) else many) for n in range(24)]
    for n, options in requests:
        results.append(scheduler.submit(partial(search_plan, [Job(SOURCES[n], [START], (), options)], SIZES), n))
    for _ in range(35):
        scheduler.tick()
    (cache,) = caches
    before = cache.target.rows, cache.memory.rows
    results.append(scheduler.submit(partial(search_plan, [Job(SOURCES[5], [START], (), few)], SIZES), "last"))
    scheduler.tick()
    assert cache.target.rows < before[0] / 3
    assert (cache.memory.rows < before[1]) == (least == 8)
    scheduler.finish_all()
    for n, options, request in [(*each, request) for each, request in zip([*requests, (5, few)], results)]:
        expected = decode(model, [Job(SOURCES[n], [START])], options)
        assert plain(request.result(0)) == plain(expected)


def test_a_memory_pool_that_shrinks_keeps_the_rows_of_those_that_go_on(monkeypatch):
    monkeypatch.setattr(key_value_cache, "LEAST_ROWS", 4)
    cache = KeyValueCache(reference, replace(SIZES, memory_widths=(3,)), 8, 64)
    memory_slots, rows = cache.add_memory_slots(np.array([0, 9, 12, 30]))
    slots = [cache.add_slots(memory_slot, 1) for memory_slot in memory_slots]
    values = np.arange(30 * 3, dtype=np.float32).reshape(30, 3)
    cache.memory.layers[0] = reference.empty_table(64, 3, np.float32)
    reference.write_rows(cache.memory.layers[0], rows, values, 0)
    for n in (0, 2):
        cache.release(memory_slots[n], slots[n])
    cache.shrink(8, 4)
    assert cache.memory.rows == 4
    index, lengths = cache.memory_index(slots[1])
    np.testing.assert_array_equal(cache.memory.layers[0][index[0, : lengths[0]]], values[9:12])


# what a job starts from


def test_what_the_decoder_starts_from_is_no_part_of_the_target():
    model, options = MODELS["transformer, float32"], OPTIONS[2]
    started = decode(model, [Job(source, [START, 7, 8]) for source in SOURCES], replace(options, max_decoding_length=9))
    begun = [Job(source, [START], [7, 8], context=2) for source in SOURCES]
    prefixed = decode(model, begun, replace(options, max_decoding_length=11, min_decoding_length=3))
    for one, other in zip(started, prefixed, strict=True):
        assert [h.tokens.tolist() for h in one] == [h.tokens.tolist()[2:] for h in other]
        assert [(h.score, h.length) for h in one] == [(h.score, h.length) for h in other]


@pytest.mark.parametrize("name", MODELS)
def test_a_shared_beginning_is_kept_once_and_changes_nothing(name, caches):
    model = MODELS[name]
    prefixes = [[5, 6, 7, 8, 9, 10 + n] for n in range(4)]
    options = replace(OPTIONS[2], min_decoding_length=20, max_decoding_length=20)
    jobs = [Job(SOURCES[0], [START], prefix, options, shared=6) for prefix in prefixes]
    single = [plain(decode(model, [job], options)) for job in jobs]
    caches.clear()
    scheduler = by_hand(model, 1)
    requests = [scheduler.submit(partial(search_plan, [job], SIZES), n) for n, job in enumerate(jobs[:3])]
    scheduler.tick()
    (cache,) = caches
    assert rows_in_use(cache)[1] == len(SOURCES[0]), "one memory"
    assert len({tuple(history_S[:6]) for history_S in cache.histories_RS if history_S[0] >= 0}) == 1
    requests.append(scheduler.submit(partial(search_plan, jobs[3:], SIZES), 3))
    scheduler.tick()
    assert rows_in_use(cache)[1] == len(SOURCES[0]), "one that comes later has the same"
    scheduler.finish_all()
    assert [plain(request.result(0)) for request in requests] == single
    assert rows_in_use(cache) == (0, 0) and not scheduler.failures


def test_a_shared_beginning_has_attention_where_it_is_wanted():
    """Also of one that comes while the same beginning is there without."""
    model, plain_options = MODELS["transformer, float32"], replace(OPTIONS[2], min_decoding_length=9)
    options = [plain_options, replace(plain_options, return_attention=True)]
    jobs = [Job(SOURCES[0], [START], [5, 6, 7, 8], each, shared=4) for each in options]
    single = [plain(decode(model, [job], each)) for job, each in zip(jobs, options)]
    scheduler, requests = by_hand(model, 1), []
    for job in jobs:
        requests.append(scheduler.submit(partial(search_plan, [job], SIZES)))
        scheduler.tick()
    scheduler.finish_all()
    assert [plain(request.result(0)) for request in requests] == single and not scheduler.failures


def test_what_is_shared_may_be_the_whole_of_another():
    """Both orders: one of them begins with what the other shares, and has no more of its own."""
    model = MODELS["transformer, float32"]
    longer = Job(SOURCES[0], [START], [5, 6, 7, 8], OPTIONS[2], shared=3)
    shorter = Job(SOURCES[0], [START], [5, 6], OPTIONS[2])
    single = [plain(decode(model, [job], OPTIONS[2])) for job in (longer, shorter)]
    for order in (1, -1):
        scheduler = by_hand(model, 1)
        request = scheduler.submit(partial(search_plan, [longer, shorter][::order], SIZES))
        scheduler.finish_all()
        assert [plain([found]) for found in request.result(0)] == single[::order] and not scheduler.failures


def test_samples_of_a_sentence_share_its_memory(caches):
    model = MODELS["transformer, float32"]
    options = DecodingOptions(beam_size=1, sampling_topk=0, num_hypotheses=20, seed=1, max_decoding_length=9)
    scheduler = by_hand(model, 1)
    scheduler.submit(partial(search_plan, [Job(SOURCES[2], [START], [5, 6], options)], SIZES))
    scheduler.tick()
    (cache,) = caches
    assert rows_in_use(cache)[1] == len(SOURCES[2])
    scheduler.finish_all()


# through a Translator

WORDS = vocabulary(19)[3:]
TEXTS = [" ".join(WORDS[(7 * number + i) % 16] for i in range(1 + number % 5)) for number in range(12)]


@pytest.fixture(scope="module")
def translator() -> Translator:
    return Translator.from_checkpoint(random_checkpoint(seed=21), threads=2)


def test_sixty_threads_at_once(translator):
    ways = [{"beam_size": 1 + n % 4} for n in range(4)] + [{"beam_size": 1, "sampling_topk": 4, "seed": 3}]
    expected = {
        (text, n): translator.translate(text, max_decoding_length=9, **way)
        for text in TEXTS
        for n, way in enumerate(ways)
    }
    start = threading.Barrier(60)

    def call(number):
        text, n = TEXTS[number % len(TEXTS)], number % len(ways)
        start.wait()
        if number % 3:
            found = translator.translate(text, max_decoding_length=9, **ways[n])
        else:
            found = translator.submit(text, max_decoding_length=9, **ways[n]).result()
        return found == expected[text, n]

    with ThreadPoolExecutor(60) as pool:
        assert list(pool.map(call, range(60))) == [True] * 60


def test_asyncio(translator):
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

    together, details = asyncio.run(main())
    assert together == translator.translate(TEXTS, beam_size=2)
    assert details == translator.translate(TEXTS[:3], beam_size=2, details=True)
