"""What options forbid, penalize, wish for, branch into and stream: against brute force and against forced decoding."""

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastattn.decoding.candidates import (
    biased,
    completed_sequences,
    coverage,
    early_ends,
    last_tokens,
    repeated_ngrams,
    without_repeats,
)
from fastattn.decoding.options import DecodingOptions
from fastattn.decoding.service import SENTENCES_A_THREAD
from fastattn.errors import InputError
from fastattn.ops import cpu as operations
from tests.decoding.searching import score, search, tokens_of
from tests.models.tiny_models import END, START, next_log_probs, random_model, random_sources, steady_ops


def _listed(ids_RJ):
    rows = [[int(i) for i in row if i >= 0] for row in ids_RJ]
    assert all(len(row) == len(set(row)) for row in rows), "an id twice would be penalized twice"
    assert ids_RJ.dtype == np.int32 and ids_RJ.shape[1] == max(map(len, rows), default=0)
    return [set(row) for row in rows]


def _padded(histories):
    past_RT = np.full((len(histories), max(map(len, histories), default=0)), -1, np.int32)
    for row, history in zip(past_RT, histories):
        row[: len(history)] = history
    return past_RT, np.array([len(history) for history in histories], np.int64)


@pytest.mark.parametrize("ops", [operations, steady_ops], ids=["kernels", "reference"])
def test_without_scores_the_same_tokens_come(ops):
    model, sources = random_model(3, ops), random_sources(3, 9)
    for options in ({}, {"min_decoding_length": 4}, {"repetition_penalty": 1.5, "num_hypotheses": 2, "patience": 2}):
        options |= {"beam_size": 1, "max_decoding_length": 12}
        with_scores, without = (search(model, sources, return_scores=scores, **options) for scores in (True, False))
        for expected, found in zip(with_scores, without):
            assert tokens_of([found]) == tokens_of([expected])
            assert all(np.isnan([h.log_probability, h.score]).all() for h in found)


@pytest.mark.parametrize("options", [{"beam_size": 3}, {"beam_size": 1, "sampling_topk": 3, "seed": 1}])
def test_scores_that_decide_are_there_unasked(options):
    model, sources = random_model(3), random_sources(3, 4)
    for hypotheses in search(model, sources, return_scores=False, max_decoding_length=8, **options):
        assert np.isfinite([h.score for h in hypotheses]).all()


HISTORIES = st.lists(st.lists(st.integers(0, 3), max_size=9), min_size=1, max_size=5)


@settings(deadline=None)
@given(HISTORIES, st.integers(1, 4))
def test_repeated_ngrams(histories, size):
    def banned(history):
        start = len(history) - size + 1
        if start < 0:
            return set()
        return {v for v in range(4) if any([*history, v][i : i + size] == [*history[start:], v] for i in range(start))}

    assert _listed(repeated_ngrams(*_padded(histories), size)) == list(map(banned, histories))


@settings(deadline=None)
@given(HISTORIES, st.lists(st.lists(st.integers(0, 3), min_size=2, max_size=4), max_size=4))
def test_completed_sequences(histories, sequences):
    def banned(history):
        return {last for *begun, last in sequences if history[len(history) - len(begun) :] == begun}

    assert _listed(completed_sequences(*_padded(histories), sequences)) == list(map(banned, histories))


@settings(deadline=None)
@given(HISTORIES)
def test_without_repeats(histories):
    assert _listed(without_repeats(_padded(histories)[0])) == list(map(set, histories))


def test_last_tokens_and_early_ends():
    past_RT, lengths_R = _padded([[5, 6, 7], [8], []])
    assert last_tokens(past_RT, lengths_R, 2).tolist() == [[6, 7], [-1, 8], [-1, -1]]
    assert early_ends(np.array([1, 2]), 1, [END]).shape == (2, 0)
    assert early_ends(np.array([0, 2]), 1, [END]).tolist() == [[END], [-1]]


def test_biased():
    log_probs = np.log(np.array([[0.5, 0.3], [0.6, 0.3], [0.6, 0.3]]))
    wished_log_probs = np.array([np.log(0.3), np.log(0.05), -np.inf])
    found, ids = biased(log_probs, np.array([[4, 7], [4, 7], [4, 7]]), np.array([7, 9, 9]), wished_log_probs, 0.2)
    np.testing.assert_array_equal(ids, [[7, 4], [4, 9], [4, 7]])
    np.testing.assert_allclose(np.exp(found), [[0.8 * 0.3 + 0.2, 0.4], [0.48, 0.04 + 0.2], [0.48, 0.24]])


def test_coverage_counts_what_was_attended_to_too_little():
    assert coverage(np.array([[0.5, 0.0, 0.9], [0.25, 0.0, 0.9]])) == pytest.approx(np.log(0.75))


@pytest.mark.parametrize("variety", [{}, {"start_from_zero_embedding": True}, {"positions": "relative"}])
def test_alternatives_score_as_forced_decoding_does(variety):
    if variety.get("positions"):
        variety = {**variety, "relative_buckets": 8, "relative_max_distance": 12}
    model = random_model(seed=9, dtype=np.float64, sharpness=4.0, **variety)
    sources, prefix = random_sources(4, seed=10), [4, 8, 5]
    options = {"beam_size": 1, "length_penalty": 0.0, "min_decoding_length": 0, "max_decoding_length": 9}
    results = search(model, sources, [prefix] * 4, return_alternatives=True, num_hypotheses=5, **options)
    for source, hypotheses in zip(sources, results):
        first_V = next_log_probs(model, source, [START, *prefix], [END])
        assert [h.tokens[3] for h in hypotheses] == np.argsort(-first_V)[:5].tolist()
        ruled_out = next_log_probs(model, source, [START, *prefix])[hypotheses[0].tokens[3]] - first_V.max()
        for h in hypotheses:
            assert h.tokens[:3].tolist() == prefix
            target = np.array([START, *h.tokens] + [END] * (len(h.tokens) < 9), np.int32)
            (log_probs_T,) = score(model, [source], [target])
            assert h.log_probability == pytest.approx(log_probs_T[3:].sum() - ruled_out, rel=1e-6)
            assert h.score == pytest.approx(h.log_probability) and h.length == len(target) - 4


def test_alternatives_that_are_too_improbable_are_left_out_but_for_the_best():
    model, sources = random_model(seed=9), random_sources(3, seed=10)
    options = {"return_alternatives": True, "num_hypotheses": 8, "max_decoding_length": 3}
    every = search(model, sources, **options)
    assert [len(hypotheses) for hypotheses in every] == [8] * 3
    for hypotheses, source in zip(search(model, sources, min_alternative_expansion_prob=0.08, **options), sources):
        probable = (np.exp(next_log_probs(model, source, [START], [END])) >= 0.08).sum()
        assert len(hypotheses) == min(max(probable, 1), 8)
    certain = search(model, sources, min_alternative_expansion_prob=1.0, **options)
    assert [len(hypotheses) for hypotheses in certain] == [1] * 3
    full = search(model, sources, [[4, 5, 6]] * 3, **options)
    assert all([h.tokens.tolist() for h in hypotheses] == [[4, 5, 6]] * 8 for hypotheses in full)
    wide = search(model, sources, **options | {"num_hypotheses": 40})
    assert [len(hypotheses) for hypotheses in wide] == [18] * 3, "as many as there are tokens, but for the end"


def test_nothing_left_to_say_still_ends():
    model, sources = random_model(seed=9), random_sources(2, seed=10)
    everything = [[token] for token in range(19) if token != END]
    for beam in (1, 3):
        results = search(
            model, sources, suppress_sequences=everything, min_decoding_length=2, max_decoding_length=4, beam_size=beam
        )
        assert all(0 <= token < 19 for hypotheses in results for h in hypotheses for token in h.tokens)


def test_the_callback_sees_every_token_in_order_and_can_stop():
    model, sources = random_model(seed=5, sharpness=4.0), random_sources(2 * SENTENCES_A_THREAD, seed=6)
    prefixes = [[], [4, 5], [6], [], [7, 8, 9, 4], [], [5], []]
    options = {"beam_size": 1, "max_decoding_length": 8, "length_penalty": 0.0}
    plain = search(model, sources, prefixes, **options)
    steps, callers = [], set()

    def watch(step):
        steps.append(step)
        callers.add(threading.current_thread())

    assert [h[0].score for h in search(model, sources, prefixes, 2, callback=watch, **options)] == [
        h[0].score for h in plain
    ]
    assert callers == {threading.current_thread()}
    for b, (hypothesis,) in enumerate(plain):
        mine = [step for step in steps if step.sentence == b]
        assert [step.position for step in mine] == list(range(hypothesis.length))
        assert [step.token_id for step in mine if step.token_id != END] == hypothesis.tokens.tolist()
        assert [step.is_last for step in mine] == [False] * (hypothesis.length - 1) + [True]
        assert sum(step.log_probability for step in mine) == pytest.approx(hypothesis.score, rel=1e-5)
        assert not any(step.log_probability for step in mine[: len(prefixes[b])])

    stopped = search(model, sources, prefixes, callback=lambda step: step.position == 2, **options)
    for (short,), (long,), prefix in zip(stopped, plain, prefixes):
        assert short.tokens.tolist() == long.tokens[:3].tolist()
        assert short.length == min(3, long.length) and len(prefix) <= 4
    first = search(model, sources[:2], callback=lambda step: step.sentence == 1, **options)
    assert [len(h.tokens) for (h,) in first] == [len(plain[0][0].tokens), 1]


def test_an_error_in_the_callback_comes_through():
    def fail(step):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        search(random_model(), random_sources(9), threads=2, beam_size=1, callback=fail)


def test_options_that_no_search_can_follow():
    for options, message in [
        ({"beam_size": 0}, "beam_size should be a whole number, at least 1; got 0"),
        ({"beam_size": 2.5}, "beam_size"),
        ({"beam_size": True}, "beam_size"),
        ({"num_hypotheses": 0}, "num_hypotheses"),
        ({"num_hypotheses": 3}, r"num_hypotheses \(3\) is greater than beam_size \* patience \(2\)"),
        ({"beam_size": 5, "patience": 0.5, "num_hypotheses": 4}, r"patience \(3\)"),
        ({"patience": 0}, "patience"),
        ({"patience": float("nan")}, "patience"),
        ({"patience": 10**400}, "patience should be a finite number, got 1000"),
        ({"patience": 10**5000}, "patience should be a finite number, got a number of about 49"),
        ({"repetition_penalty": 1e-300}, r"repetition_penalty should be from 1e-30 to 1e\+30, got 1e-300"),
        ({"word_penalty": -1e5}, "word_penalty should be from -10000 to 10000, got -100000.0"),
        ({"min_decoding_length": 10**7}, "min_decoding_length should be at most 1000000, got 10000000"),
        ({"length_penalty": "1"}, "length_penalty"),
        ({"min_decoding_length": -1}, "min_decoding_length"),
        ({"max_decoding_length": 0}, "max_decoding_length"),
        ({"min_decoding_length": 5, "max_decoding_length": 4}, "min_decoding_length"),
        *(({"timeout": wrong}, "timeout should be") for wrong in (0, -1, float("nan"), float("inf"), "5", True)),
        ({"repetition_penalty": 0}, "repetition_penalty should be greater than 0, got 0"),
        ({"repetition_penalty": "2"}, "repetition_penalty should be a finite number"),
        ({"coverage_penalty": float("inf")}, "coverage_penalty"),
        ({"no_repeat_ngram_size": -1}, "no_repeat_ngram_size should be a whole number, at least 0; got -1"),
        ({"prefix_bias_beta": 1.0}, "prefix_bias_beta should be less than 1"),
        ({"prefix_bias_beta": 0.5, "return_alternatives": True}, "return_alternatives does not go with"),
        ({"min_alternative_expansion_prob": 1.5}, "min_alternative_expansion_prob should be at most 1"),
        ({"min_alternative_expansion_prob": -0.1}, "min_alternative_expansion_prob should be at least 0"),
        ({"sampling_topp": 0.0}, "sampling_topp should be greater than 0"),
        ({"sampling_topp": 1.1}, "sampling_topp should be at most 1"),
        ({"sampling_temperature": -1}, "sampling_temperature should be at least 0"),
        ({"sampling_topk": -1}, "sampling_topk"),
        ({"sampling_topk": 5}, "sampling needs beam_size=1"),
        ({"beam_size": 1, "sampling_topk": 5, "prefix_bias_beta": 0.1}, "sampling needs beam_size=1"),
        ({"seed": -3}, "seed should be a whole number"),
        ({"callback": print}, "callback needs beam_size=1"),
        ({"beam_size": 1, "callback": 7}, "callback should be a function, got 7"),
        ({"beam_size": 1, "callback": print, "return_alternatives": True}, "callback needs"),
        ({"beam_size": 1, "num_hypotheses": 2}, "num_hypotheses"),
        ({"beam_size": 1025}, "beam_size should be at most 1024, got 1025"),
        ({"beam_size": 1, "sampling_topk": 0, "num_hypotheses": 10**12}, "num_hypotheses should be at most"),
    ]:
        with pytest.raises(InputError, match=message):
            DecodingOptions(**options)


def test_whether_a_longer_hypothesis_is_always_worse():
    for options, worse in (
        ({}, False),
        ({"length_penalty": 0}, True),
        ({"length_penalty": 0, "word_penalty": 0.5}, True),
        ({"length_penalty": 0, "word_penalty": -0.5}, False),
        ({"length_penalty": 0, "coverage_penalty": 0.5}, False),
        ({"length_penalty": 0.5, "word_penalty": 0.5}, False),
    ):
        assert DecodingOptions(**options).longer_is_worse == worse, options


def test_finished_hypotheses_that_end_a_sentence():
    assert DecodingOptions(beam_size=5, patience=0.5).wanted == 3, "half away from zero"
    assert DecodingOptions(beam_size=5, patience=0.3).wanted == 2


def test_samples_and_alternatives_may_be_many():
    assert DecodingOptions(beam_size=1, sampling_topk=3, num_hypotheses=50).num_hypotheses == 50
    assert DecodingOptions(beam_size=1, return_alternatives=True, num_hypotheses=50).num_hypotheses == 50
    with pytest.raises(InputError, match=r"sampling_topk \(20\) is greater than the vocabulary \(19\)"):
        search(random_model(), random_sources(1), beam_size=1, sampling_topk=20)
