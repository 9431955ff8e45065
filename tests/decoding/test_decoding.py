"""The search itself: against brute force, against itself in other company, and its little steps."""

import itertools
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastattn.decoding import service, worker
from fastattn.decoding.batch import DecodingBatch
from fastattn.decoding.candidates import HOPELESS, apply_prefix, best_candidates, keep_beams
from fastattn.decoding.jobs import Job
from fastattn.decoding.options import DecodingOptions
from fastattn.errors import InputError
from fastattn.layers.key_value_cache import KeyValueCache
from fastattn.ops import cpu as operations
from tests.decoding.searching import (
    check_company,
    check_scores,
    decode,
    little_room,
    naive_beam,
    plain,
    score,
    search,
)
from tests.models.tiny_models import (
    END,
    START,
    VARIETIES,
    next_log_probs,
    random_model,
    random_sources,
    steady_ops,
)


@pytest.mark.parametrize(
    ("options", "prefix"),
    [
        ({"beam_size": 2}, []),
        ({"beam_size": 4, "num_hypotheses": 4}, []),
        ({"beam_size": 3, "num_hypotheses": 3, "length_penalty": 0.0}, []),
        ({"beam_size": 3, "patience": 2.0, "num_hypotheses": 6, "length_penalty": 1.7}, []),
        ({"beam_size": 3, "patience": 0.5, "num_hypotheses": 2, "min_decoding_length": 5}, []),
        ({"beam_size": 3, "max_decoding_length": 4, "num_hypotheses": 3, "disable_unk": True}, []),
        ({"beam_size": 3, "num_hypotheses": 3, "min_decoding_length": 0}, [7, 9]),
        ({"beam_size": 3, "num_hypotheses": 3, "max_decoding_length": 2}, [7, 9, 4]),
        ({"beam_size": 2, "num_hypotheses": 2, "max_decoding_length": 3}, [7, 9, 4]),
    ],
)
def test_beams_equal_the_naive_search(options, prefix):
    model = random_model(seed=11, dtype=np.float64, sharpness=4.0)
    options = {"max_decoding_length": 9} | options
    sources = random_sources(6, seed=12)
    results = search(model, sources, [prefix] * 6, **options)
    for source, hypotheses in zip(sources, results):
        expected = naive_beam(partial(next_log_probs, model), source, DecodingOptions(**options), prefix)
        assert [h.tokens.tolist() for h in hypotheses] == [tokens for tokens, _ in expected]
        np.testing.assert_allclose([h.score for h in hypotheses], [value for _, value in expected], rtol=1e-5)


def test_a_wide_beam_finds_the_best_of_all_sequences():
    model = random_model(seed=3, dtype=np.float64, vocabulary=5)
    source = random_sources(1, seed=1, size=5)[0]
    every = {}
    for length in range(1, 4):
        for tokens in itertools.product(range(5), repeat=length):
            # A sequence ends with its first end token, or is as long as can be.
            if END in tokens[:-1] or (length < 3 and tokens[-1] != END) or tokens[0] == END:
                continue
            total = 0.0
            for t, token in enumerate(tokens):
                total += next_log_probs(model, source, [START, *tokens[:t]], [END] if t == 0 else [])[token]
            every[tokens] = total
    best = max(every, key=every.get)
    hypothesis = search(model, [source], beam_size=64, patience=10.0, length_penalty=0.5, max_decoding_length=3)[0][0]
    ranked = max(every, key=lambda tokens: every[tokens] / len(tokens) ** 0.5)
    assert hypothesis.tokens.tolist() == [token for token in ranked if token != END]
    assert hypothesis.score == pytest.approx(every[ranked] / len(ranked) ** 0.5, rel=1e-6)
    assert every[best] >= every[ranked]


@pytest.mark.parametrize("variety", VARIETIES)
def test_a_beam_of_one_is_greedy_and_greedy_follows_the_best_token(variety, monkeypatch):
    model = random_model(seed=5, dtype=np.float64, **VARIETIES[variety])
    sources = random_sources(4, seed=6)
    greedy = search(model, sources, beam_size=1, max_decoding_length=12)
    original = DecodingBatch.__init__

    def with_candidates(self, *arguments):
        original(self, *arguments)
        self.candidates = 2

    monkeypatch.setattr(DecodingBatch, "__init__", with_candidates)
    assert plain(greedy) == plain(search(model, sources, beam_size=1, max_decoding_length=12))
    for source, (hypothesis,) in zip(sources, greedy):
        tokens, total = [], 0.0
        while len(tokens) < 12 and END not in tokens:
            log_probs_V = next_log_probs(model, source, [START, *tokens], [] if tokens else [END])
            tokens.append(int(log_probs_V.argmax()))
            total += log_probs_V.max()
        assert hypothesis.tokens.tolist() == [token for token in tokens if token != END]
        assert hypothesis.length == len(tokens)
        assert hypothesis.score == pytest.approx(total / len(tokens), rel=1e-5)


MODELS = {"reference": random_model(seed=7, ops=steady_ops, sharpness=4.0)}
MODELS |= {
    f"{variety}-{precision}": random_model(7, operations, precision, sharpness=4.0, **VARIETIES[variety])
    for variety, precision in (("pre-norm", "int8"), ("recurrent", "float32"), ("average", "bfloat16"))
}


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
@settings(max_examples=6, deadline=None)
@given(st.permutations(range(12)), st.integers(1, 12), st.sampled_from([1, 3]), st.integers(1, 4), st.integers(1, 3))
def test_company_order_and_threads_change_no_bit(model, order, count, beam, room, threads):
    check_company(model, order, count, beam, room, threads)


def test_freed_places_and_rows_are_used_again(monkeypatch):
    little_room(monkeypatch, 3)
    model = random_model(seed=7)
    sources = random_sources(20, seed=8)
    kept = []
    original = KeyValueCache.__init__

    def keep(self, *arguments):
        original(self, *arguments)
        kept.append((self, self.target.rows, self.memory.rows))

    monkeypatch.setattr(KeyValueCache, "__init__", keep)
    results = search(model, sources, beam_size=2, max_decoding_length=10)
    ((cache, *rows),) = kept
    assert all(results) and len(cache._free_memory_slots) == len(cache._users_P) <= 4
    for pool, before in zip((cache.target, cache.memory), rows, strict=True):
        assert pool.rows == before, "20 sentences fit into the rows of 3 only if these come back"
        assert len(np.unique(pool.take(pool.rows))) == pool.rows


def test_sentences_that_end_at_once_leave_none_waiting(monkeypatch):
    little_room(monkeypatch, 2)
    results = search(random_model(seed=7), random_sources(7, seed=8), beam_size=2, max_decoding_length=1)
    assert [len(hypotheses) for hypotheses in results] == [1] * 7


def test_sentences_in_progress_outlive_those_that_end_at_once(monkeypatch):
    """Two of three places: the short target ends, and what takes its place ends in its very first step."""
    model = random_model(seed=7)
    sources = random_sources(3, seed=8, shortest=5, longest=5)
    jobs = [Job(sources[0], [START]), Job(sources[1], [START]), Job(sources[2], [START])]
    little_room(monkeypatch, 2)
    monkeypatch.setattr(DecodingOptions, "limit", lambda self, *lengths: {0: 9, 1: 3, 2: 1}[next(calls)])
    calls = iter(range(3))
    results = decode(model, jobs, DecodingOptions(beam_size=2, min_decoding_length=0))
    assert all(results)


def test_long_outputs_grow_the_cache():
    model = random_model(seed=2, dtype=np.float64)
    sources = random_sources(4, seed=3, shortest=60, longest=90)
    options = {"beam_size": 3, "min_decoding_length": 80, "max_decoding_length": 90}
    results = search(model, sources, **options)
    assert all(80 <= len(hypotheses[0].tokens) <= 90 for hypotheses in results)
    log_probs = score(model, sources, [np.array([START, *h[0].tokens, END], np.int32) for h in results])
    for (hypothesis,), log_probs_T in zip(results, log_probs):
        if hypothesis.length > len(hypothesis.tokens):
            assert hypothesis.tokens.tolist().count(END) == 0
            # The end was ruled out for the first 80 tokens, so the model's own probabilities are a little lower.
            assert hypothesis.log_probability >= log_probs_T.sum() - 1e-6


def test_scores_are_the_forced_log_probabilities():
    check_scores(random_model(seed=9, dtype=np.float64, sharpness=4.0))


def test_scores_do_not_depend_on_batches(monkeypatch):
    model = random_model(seed=9, dtype=np.float64)
    sources, targets = random_sources(9, seed=1), random_sources(9, seed=2)
    targets[4] = targets[4][:1]  # nothing to score
    alone = [score(model, [source], [target])[0] for source, target in zip(sources, targets)]
    assert len(alone[4]) == 0
    monkeypatch.setattr(worker, "PASS_ROWS", 25)
    monkeypatch.setattr(service, "SENTENCES_A_THREAD", 1)
    for threads in (1, 3):
        for one, other in zip(alone, score(model, sources, targets, threads)):
            np.testing.assert_allclose(one, other, rtol=1e-12)
    expected = [next_log_probs(model, sources[0], targets[0][: t + 1].tolist()) for t in range(len(targets[0]) - 1)]
    np.testing.assert_allclose(alone[0], [row[token] for row, token in zip(expected, targets[0][1:])])


def test_attention_of_the_hypotheses_is_that_of_a_full_pass():
    model = random_model(seed=9, dtype=np.float64, alignment_heads=2)
    sources = random_sources(6, seed=10)
    for prefix in ([], [4, 5]):
        options = {"beam_size": 3, "num_hypotheses": 3, "max_decoding_length": 8, "return_attention": True}
        for source, hypotheses in zip(sources, search(model, sources, [prefix] * 6, **options)):
            for hypothesis in hypotheses:
                inputs = np.array([START, *hypothesis.tokens], np.int32)
                starts = np.array([0, len(inputs)], np.int64)
                _, attention_TS = model.prefill(inputs, starts, model.encode([source]), attention=True)
                assert hypothesis.attention_TS.shape == (len(hypothesis.tokens), len(source))
                np.testing.assert_allclose(hypothesis.attention_TS, attention_TS[: len(hypothesis.tokens)], rtol=1e-9)


def test_a_failing_worker_stops_the_others():
    model = random_model(seed=1)
    jobs = [Job(source, [START]) for source in random_sources(40, seed=2)]
    jobs[20] = Job(np.array([999], np.int32), [START])
    with pytest.raises(InputError, match="999"):
        decode(model, jobs, DecodingOptions(), threads=2)


def test_jobs_without_source_or_start_are_refused():
    model = random_model()
    with pytest.raises(InputError, match="at least one token"):
        decode(model, [Job(np.zeros(0, np.int32), [START])], DecodingOptions())
    with pytest.raises(InputError, match="start token"):
        decode(model, [Job(np.array([3], np.int32), [])], DecodingOptions())
    assert decode(model, [], DecodingOptions()) == []


def test_greedy_search_copies_its_only_hypothesis():
    (hypotheses,) = search(random_model(), random_sources(1), beam_size=1, patience=3.0, num_hypotheses=3)
    assert len(hypotheses) == 3 and len({h.score for h in hypotheses}) == 1


def test_best_candidates_are_sorted_and_ties_go_to_the_lower_beam():
    scores_BR = np.array([[-1.0, -2.0]])
    log_probs_BRk = np.array([[[-1.0, -3.0], [0.0, -0.5]]])
    ids_BRk = np.array([[[7, 8], [9, 6]]])
    scores_BC, ids_BC, beams_BC = best_candidates(scores_BR, log_probs_BRk, ids_BRk, 3)
    assert scores_BC.tolist() == [[-2.0, -2.0, -2.5]] and ids_BC.tolist() == [[7, 9, 6]]
    assert beams_BC.tolist() == [[0, 1, 1]]
    scores_BC, _, beams_BC = best_candidates(scores_BR, log_probs_BRk, ids_BRk, 6)
    assert scores_BC[0, 4:].tolist() == [-np.inf, -np.inf] and beams_BC[0, 4:].tolist() == [0, 0]


def test_a_prefix_overrides_and_early_ends_are_hopeless():
    scores_BC = np.tile([-1.0, -2.0, -3.0, -4.0], (3, 1))
    ids_BC = np.tile([END, 5, END, 6], (3, 1))
    apply_prefix(scores_BC, ids_BC, [END], np.array([-1, 9, -1]), np.array([True, True, False]))
    assert ids_BC.tolist() == [[END, 5, 0, 6], [9] * 4, [END, 5, END, 6]]
    assert scores_BC.tolist() == [[-1, -2, HOPELESS, -4], [0, *[HOPELESS] * 3], [-1, -2, -3, -4]]


def test_ended_beams_go_on_with_the_next_candidates():
    ids_BC = np.array([[END, 4, 5, 6], [END, END, 5, 6], [4, END, END, 6], [4, 5, END, END]])
    kept_BR = keep_beams(ids_BC == END, 2)
    assert kept_BR.tolist() == [[2, 1], [2, 3], [0, 3], [0, 1]]
