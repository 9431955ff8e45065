"""Recorded steps: the bits, hypotheses and rows of steps made one by one, whatever comes and goes in between."""

import itertools
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastattn.arguments.steps import ENOUGH, FAULT, LIVE, NO_EDITS, OVER, STOP, USED, Edits, StepRows
from fastattn.decoding import recorded_layers, step, worker
from fastattn.decoding.options import DecodingOptions
from fastattn.decoding.recorded_layers import MOST_ROWS, RecordedLayers
from fastattn.decoding.search import Job, search_plan
from fastattn.decoding.step import RecordedSteps
from fastattn.decoding.worker import DecodingService
from fastattn.errors import CheckpointError
from fastattn.layers.key_value_cache import KeyValueCache
from fastattn.models.decoder import OutputProjection
from fastattn.models.kinds import build_model
from fastattn.ops import cpu as operations
from fastattn.ops import reference
from fastattn.runtime.recording import StepRecorder
from fastattn.spec.checkpoint import Shortlist
from tests.decoding.searching import calls_of_layers, decode, interleaved, plain
from tests.models.tiny_models import END, START, UNK, VARIETIES, random_checkpoint, random_model, random_sources

SOURCES = random_sources(40, seed=2, longest=12)
# What computes outside of kernels is not recorded.
IN_NUMPY = ("zero start", "windows", "predicted windows", "hard")


def steps_by_themselves():
    return mock.patch.object(operations, "recorder", lambda: None)


@contextmanager
def counted_runs():
    """How many steps each run made."""
    made, run = [], RecordedSteps.run

    def count(self, beams, linear, steps=None):
        ran = run(self, beams, linear, steps)
        if ran is not None:
            made.append(int((ran[0].steps_B - beams.steps_B).max()) + 1)
        return ran

    with mock.patch.object(RecordedSteps, "run", count):
        yield made


def with_shortlist(precision, **changes):
    """Words of three lists: of each source's own, and long enough for several widths."""
    size, rng = 1500, np.random.default_rng(5)
    checkpoint = random_checkpoint(seed=7, width=64, vocabulary=size, sharpness=4.0, **changes)
    counts = rng.integers(0, 300, size)
    counts[3:19] = rng.integers(0, 300, 16)
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    targets = rng.integers(3, size, starts[-1]).astype(np.int32)
    checkpoint = replace(checkpoint, shortlist=Shortlist(np.arange(9, dtype=np.int32), starts, targets))
    return build_model(checkpoint, operations, precision)


MODELS = {
    "attention, float32": random_model(seed=7, ops=operations, sharpness=4.0),
    "attention, int8": random_model(seed=7, ops=operations, precision="int8", sharpness=4.0, positions="rotary"),
    "recurrent, int8": random_model(seed=7, ops=operations, precision="int8", sharpness=4.0, recurrence="ssru"),
    "shortlist, float32": with_shortlist("float32"),
    "shortlist, int8": with_shortlist("int8", recurrence="ssru"),
}
OPTIONS = [
    DecodingOptions(beam_size=1, **options)
    for options in (
        {"max_decoding_length": 30},
        {"max_decoding_length": 70, "return_scores": False},
        {"disable_unk": True, "min_decoding_length": 4},
        {"end_token": (4, 7), "return_end_token": True, "max_length_factor": 3.0},
    )
]


def recorded(model, jobs, options, *threads):
    """How many steps each run made of a search that finds what steps by themselves do."""
    with counted_runs() as made:
        found = [plain(decode(model, jobs, options, number)) for number in threads or [1]]
    with steps_by_themselves():
        assert found == [plain(decode(model, jobs, options))] * len(found)
    return made


@pytest.mark.parametrize("variety", VARIETIES)
def test_models_of_every_variety(variety):
    precision = ("float32", "int8")[list(VARIETIES).index(variety) % 2]
    model = random_model(seed=7, ops=operations, precision=precision, **VARIETIES[variety])
    jobs = [Job(source, [START]) for source in SOURCES[:7]]
    # more than the tables have room for at first
    made = recorded(model, jobs, replace(OPTIONS[0], max_decoding_length=35))
    assert (sum(made) == 0) == (variety in IN_NUMPY)
    assert not made or max(made) > 1


def layers_recorded(model, jobs, options, callers=1):
    """The number of rows of each step whose layers alone were recorded; the search finds what other steps do."""
    with calls_of_layers() as calls:
        found = plain(decode(model, jobs, options, callers))
    with steps_by_themselves():
        assert found == plain(decode(model, jobs, options))
    return [len(slots_R) for slots_R, is_recorded in calls if is_recorded]


@pytest.mark.parametrize("variety", VARIETIES)
def test_beams_of_models_of_every_variety(variety):
    precision = ("float32", "int8")[list(VARIETIES).index(variety) % 2]
    model = random_model(seed=7, ops=operations, precision=precision, **VARIETIES[variety])
    options = DecodingOptions(beam_size=3, num_hypotheses=2, max_decoding_length=35)
    made = layers_recorded(model, [Job(source, [START]) for source in SOURCES[:5]], options)
    assert bool(made) == (variety not in IN_NUMPY)


@pytest.mark.parametrize(
    "options",
    [
        DecodingOptions(beam_size=2, max_decoding_length=70, repetition_penalty=1.3),
        DecodingOptions(beam_size=5, length_penalty=0.6, disable_unk=True, min_decoding_length=6),
        DecodingOptions(beam_size=1, sampling_topk=5, seed=3, max_decoding_length=30),
    ],
)
@pytest.mark.parametrize("name", MODELS)
def test_searches_of_recorded_layers(name, options):
    """From 7 sentences on, whose last rows are few; a prefix, lists of words, tables that grow."""
    jobs = [Job(source, [START], [5, 6][: b % 3]) for b, source in enumerate(SOURCES[:7])]
    made = layers_recorded(MODELS[name], jobs, options)
    assert made and max(made) <= MOST_ROWS


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", MODELS)
def test_options_and_lists_of_words(name, options):
    jobs = [Job(source, [START], [5, 6][: b % 3]) for b, source in enumerate(SOURCES[:14])]
    assert recorded(MODELS[name], jobs, options, 1, 2)


@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=3, deadline=None)
@given(st.data(), st.integers(1, 2), st.sampled_from([1e-9, 0.001, 1.0]), st.integers(1, 3))
def test_sentences_that_come_and_go(name, data, slots, at_once, programs):
    """Of several callers and options; between runs of one step or of many, with few programs or more."""
    some = st.lists(st.integers(0, 39), min_size=1, max_size=20)
    which = st.builds(zip, some, st.sampled_from([0, 0, 0, *range(len(OPTIONS))]).map(itertools.repeat)).map(list)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(step, "RUN_SECONDS", at_once)
        patch.setattr(recorded_layers, "MOST_RECORDINGS", programs)
        found = interleaved(data, MODELS[name], slots, 20, which, lambda b, n: Job(SOURCES[b], [START], (), OPTIONS[n]))
    for drawn, results in found:
        assert results == [alone(name, b, OPTIONS[n]) for b, n in drawn]


@cache
def alone(name, number, options):
    with steps_by_themselves():
        return plain(decode(MODELS[name], [Job(SOURCES[number], [START])], options))[0]


@pytest.mark.parametrize("least", [9, 20])
def test_steps_that_may_not_end_yet(least):
    jobs = [Job(source, [START], [5, 6][: b % 3]) for b, source in enumerate(SOURCES[:9])]
    options = DecodingOptions(beam_size=1, min_decoding_length=least, max_decoding_length=20)
    made = recorded(MODELS["attention, float32"], jobs, options)
    assert max(made) > 5 and sum(made) > 14


def test_callbacks_get_every_token_by_itself():
    options = replace(OPTIONS[0], callback=lambda step: seen.append(step.position) or step.position == 4)
    seen: list[int] = []
    with counted_runs() as made:
        found = decode(MODELS["recurrent, int8"], [Job(SOURCES[0], [START])], options)
    assert seen == [0, 1, 2, 3, 4] and len(found[0][0].tokens) == 5 and set(made) == {1}


def test_logits_that_are_not_numbers_in_a_later_step(monkeypatch):
    """They show where the first step, which is not recorded, has none."""
    model = random_model(seed=7, ops=operations, recurrence="ssru")
    top_k = OutputProjection.top_k

    def spoil(self, *arguments, **options):
        found = top_k(self, *arguments, **options)
        self.projection.bias[:] = np.nan
        return found

    monkeypatch.setattr(OutputProjection, "top_k", spoil)
    with pytest.raises(CheckpointError, match="not a number"):
        decode(model, [Job(SOURCES[0], [START])], OPTIONS[0])


def begun(model, rows):
    """(a cache in which ``rows`` sentences have their first token, their slots)."""
    cache, memory = (
        KeyValueCache(operations, model.sizes, 400, 900),
        model.encode([SOURCES[b % 40] for b in range(rows)]),
    )
    memory_slots_B, rows_N = cache.add_memory_slots(memory.starts_B1)
    model.keep_memory(cache, rows_N, memory)
    slots_R = np.concatenate([cache.add_slots(slot, 1) for slot in memory_slots_B.tolist()])
    model.prefill(np.full(rows, START, np.int32), np.arange(rows + 1), memory, cache=cache, slots_B=slots_R)
    return cache, slots_R


def stepped(model, rows_of_steps, change=lambda cache, number: None):
    """Whether each step was recorded, of the first so many slots; all have the bits of steps by themselves."""
    most = max(rows_of_steps)
    (cache, slots_R), (other, _) = begun(model, most), begun(model, most)
    layers, made, positions_R = RecordedLayers(model, cache, operations.recorder()), [], np.ones(most, np.int32)
    for number, rows in enumerate(rows_of_steps):
        change(cache, number)
        tokens_R = (np.arange(rows, dtype=np.int32) + 7 * number) % 16 + 3
        inputs = slots_R[:rows], tokens_R, positions_R[:rows].copy()
        positions_R[:rows] += 1
        expected_RD, _ = model.step(other, *inputs)
        found_RD = layers.step(*inputs)
        made.append(found_RD is not None)
        if found_RD is None:
            found_RD, _ = model.step(cache, *inputs)
        np.testing.assert_array_equal(found_RD, expected_RD)
        assert cache.tokens(int(slots_R[rows - 1]), positions_R[rows - 1] - 1, positions_R[rows - 1]) == tokens_R[-1]
    assert cache.target.free_count == other.target.free_count
    return made


@pytest.mark.parametrize("pool", ["target", "memory"])
def test_a_step_reads_tables_that_have_replaced_others(pool):
    """Whichever tables are replaced alone: a pool that shrinks or grows leaves others as they are."""

    def replace_tables(cache, number):
        if number == 3:
            layers = getattr(cache, pool).layers
            for number, old_ME in enumerate(layers):
                layers[number] = old_ME.copy()
                old_ME.fill(0)

    assert stepped(MODELS["attention, float32"], [5] * 5, replace_tables) == [False, True, True, True, True]


def test_a_step_that_cannot_be_recorded_takes_no_rows_and_is_tried_once(monkeypatch):
    tried, record = [], StepRecorder.record
    monkeypatch.setattr(StepRecorder, "record", lambda self, step: tried.append(record(self, step)))
    assert not any(stepped(random_model(seed=7, ops=operations, **VARIETIES["zero start"]), [5] * 5))
    assert len(tried) == 1


@pytest.mark.parametrize("name", ["attention, float32", "recurrent, int8"])
def test_rows_whose_steps_are_recorded(name):
    """When one of the last two steps had as many rows, up to MOST_ROWS; also where more rows had their turn."""
    made = stepped(MODELS[name], [8, 7, 4, 8, 3, 3, 60, 61, 3, 3, MOST_ROWS + 1, MOST_ROWS + 1])
    assert made == [n in (1, 3, 5, 7, 9) for n in range(12)]


def test_few_recordings_whose_results_stay(monkeypatch):
    """Results are the caller's own, whatever runs later; the recordings used last are kept."""
    monkeypatch.setattr(recorded_layers, "MOST_RECORDINGS", 3)
    model = MODELS["attention, float32"]
    cache, slots_R = begun(model, 8)
    layers, results = RecordedLayers(model, cache, operations.recorder()), []
    position_R = np.ones(8, np.int32)
    for rows in (8, 8, 1, 1, 2, 2, 3, 3, 3):
        found_RD = layers.step(slots_R[:rows], np.full(rows, 3 + len(results), np.int32), position_R[:rows].copy())
        if found_RD is None:
            model.step(cache, slots_R[:rows], np.full(rows, 5, np.int32), position_R[:rows].copy())
        else:
            results.append((found_RD, found_RD.copy()))
        position_R[:rows] += 1
    assert len(results) == 5 and [rows for rows, *_ in layers._recordings] == [1, 2, 3]
    for found_RD, then_RD in results:
        np.testing.assert_array_equal(found_RD, then_RD)


def test_nothing_recorded_runs_beside_numbas_threads(monkeypatch):
    jobs = [Job(source, [START]) for source in SOURCES[:3]]
    monkeypatch.setattr(StepRecorder, "is_usable", False)
    assert not recorded(MODELS["attention, float32"], jobs, OPTIONS[0])
    assert not layers_recorded(MODELS["attention, float32"], jobs, DecodingOptions(beam_size=3))


def test_a_batch_has_few_programs_and_little_memory(monkeypatch):
    made = []
    init = RecordedSteps.__init__
    monkeypatch.setattr(RecordedSteps, "__init__", lambda self, *rest: (made.append(self), init(self, *rest))[0])
    monkeypatch.setattr(recorded_layers, "MOST_RECORDINGS", 3)
    jobs = [Job(SOURCES[b % 40], [START]) for b in range(60)]
    decode(MODELS["recurrent, int8"], jobs, OPTIONS[0])
    (steps,) = made
    assert 1 <= len(steps._recordings) <= 3
    assert len(steps.recorder.arena._chunks) == 1, "60 rows of 24 floats, a few at a time"


def test_a_worker_leaves_its_steps_to_the_next(monkeypatch):
    """As long as they are small; whatever another one has done with the cache in between."""
    model, recorded, record = MODELS["shortlist, int8"], [], StepRecorder.record
    monkeypatch.setattr(StepRecorder, "record", lambda self, step: (recorded.append(1), record(self, step))[1])
    monkeypatch.setattr(model.encoder, "_recorded_stack", None)  # which records the encoder's passes
    service = DecodingService(model, END, UNK, 1)

    def search(b, options=OPTIONS[0]):
        jobs = [Job(SOURCES[b], [START], (), options)]
        recorded.clear()
        return plain(service.scheduler().run(partial(search_plan, jobs, model.sizes)))[0]

    assert [search(b) for b in (0, 1)] == [alone("shortlist, int8", b, OPTIONS[0]) for b in (0, 1)]
    assert search(0) == alone("shortlist, int8", 0, OPTIONS[0]) and not recorded
    beams = replace(OPTIONS[0], beam_size=3)
    assert search(2, beams) == alone("shortlist, int8", 2, beams) and recorded, "of the layers alone"
    assert search(2, beams) == alone("shortlist, int8", 2, beams) and not recorded
    assert search(3, OPTIONS[1]) == alone("shortlist, int8", 3, OPTIONS[1]) and recorded, "with other options"
    monkeypatch.setattr(worker, "SPARE_BYTES", 0)
    search(0)
    search(0)
    assert recorded


def rows_in_the_middle(rng, rows, live):
    some = StepRows(rows, rows)
    some.slots_R[:live] = rng.permutation(rows)[:live]
    some.steps_R[:], some.limits_R[:] = rng.integers(1, 9, rows), 9
    some.positions_R[:] = rng.integers(-1, 8, rows)
    some.chosen_R[:], some.scores_R[:] = rng.integers(3, 19, rows), rng.normal(size=rows)
    some.is_over_R[:live] = rng.random(live) < 0.3
    some.is_over_R[live:] = 0
    some.fresh_F[:] = rng.permutation(50)[:rows]
    some.counts[LIVE], some.counts[ENOUGH] = live, 2
    return some


def everything(rows, live):
    return {
        name: array.tolist() if name in ("counts", "fresh_F") else array[:live].tolist()
        for name, array in vars(rows).items()
    }


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 7), st.integers(0, 3))
def test_take_tokens_is_the_references(seed, live, more):
    found = []
    for ops in (operations, reference):
        rng = np.random.default_rng(seed)
        rows = rows_in_the_middle(rng, live + more, live)
        tables = [rng.integers(0, 50, (live + more, 10), np.int32) for _ in range(2)] + [np.zeros(50, np.int32)]
        ops.take_tokens(rows, *tables)
        found.append((everything(rows, live + more), [table.tolist() for table in tables]))
        assert rows.counts[USED] == np.count_nonzero(rows.is_over_R[:live] == 0)
    assert found[0] == found[1]


@pytest.mark.parametrize("normalized", [True, False])
@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 7), st.integers(0, 3))
def test_pick_tokens_is_the_references(normalized, seed, live, more):
    found = []
    for ops in (operations, reference):
        rng = np.random.default_rng(seed)
        rows = rows_in_the_middle(rng, live + more, live)
        hidden_RD = rng.normal(size=(live + more, 8)).astype(np.float32)
        packed = ops.pack_linear(rng.normal(size=(19, 8)).astype(np.float32), None, "float32")
        edits = Edits(np.full((live + more, 1), 5, np.int32)) if seed % 2 else NO_EDITS
        ops.pick_tokens(hidden_RD, packed, edits, normalized, np.array([3, 11], np.int32), rows)
        found.append(everything(rows, live))
    one, other = found
    np.testing.assert_allclose(one.pop("scores_R"), other.pop("scores_R"), rtol=1e-5, atol=1e-5)
    assert one == other and not one["counts"][FAULT]
    assert one["counts"][STOP] == (one["counts"][OVER] >= 2)


@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_pick_tokens_tells_of_what_is_not_a_number(wrong, normalized):
    for at, is_over in ((0, 0), (1, 0), (1, 1), (2, 0)):  # of two live rows
        rows = rows_in_the_middle(np.random.default_rng(1), 3, 2)
        rows.is_over_R[:] = 0
        rows.is_over_R[at] = is_over
        hidden_RD = np.ones((3, 8), np.float32)
        hidden_RD[at, 0] = wrong
        packed = operations.pack_linear(np.ones((19, 8), np.float32), None, "float32")
        operations.pick_tokens(hidden_RD, packed, NO_EDITS, normalized, np.array([3], np.int32), rows)
        assert rows.counts[FAULT] == rows.counts[STOP] == (at < 2 and not is_over)
