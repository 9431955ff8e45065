"""The search itself, against brute force, and its options; against other frameworks: test_decoding_ctranslate2."""

import dataclasses
import math
import threading
import warnings
from fractions import Fraction
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastattn.arguments.steps import Edits
from fastattn.decoding import search as searches
from fastattn.decoding import worker
from fastattn.decoding.options import DecodingOptions
from fastattn.decoding.search import Job, best_candidates, completed_sequences, repeated_ngrams, without_repeats
from fastattn.decoding.step import may_improve
from fastattn.decoding.worker import SENTENCES_A_THREAD
from fastattn.errors import InputError
from fastattn.ops import cpu as operations
from fastattn.spec.text_spec import SearchRules
from tests.decoding.searching import decode, little_room, naive_beam, score, search, tokens_of
from tests.messages import refused
from tests.models.tiny_models import END, START, VARIETIES, next_log_probs, random_model, random_sources, steady_ops


@pytest.mark.parametrize("variety", VARIETIES)
def test_searches_find_what_brute_force_finds(variety):
    model, sources = random_model(seed=5, dtype=np.float64, **VARIETIES[variety]), random_sources(3, seed=6)
    for beam, length in ((1, 12), (3, 5)):
        options = {"beam_size": beam, "num_hypotheses": beam, "max_decoding_length": length}
        for source, hypotheses in zip(sources, search(model, sources, **options), strict=True):
            expected = naive_beam(partial(next_log_probs, model), source, DecodingOptions(**options))
            assert [h.tokens.tolist() for h in hypotheses] == [tokens for tokens, _ in expected]
            np.testing.assert_allclose([h.score for h in hypotheses], [value for _, value in expected], rtol=1e-5)


@pytest.mark.parametrize("limits", [[1] * 7, [9, 3, 1]])
def test_sentences_that_end_at_once_leave_none_waiting(limits, monkeypatch):
    """Nor any in progress: of the three what takes the place of the second ends in its very first step."""
    little_room(monkeypatch, 2)
    left = iter(limits)
    monkeypatch.setattr(DecodingOptions, "limit", lambda self, *lengths: next(left))
    results = search(random_model(seed=7), random_sources(len(limits), seed=8, shortest=5, longest=5), beam_size=2)
    assert [len(hypotheses) for hypotheses in results] == [1] * len(limits)


def test_scores_do_not_depend_on_batches(monkeypatch):
    model = random_model(seed=9, dtype=np.float64)
    sources, targets = random_sources(9, seed=1), random_sources(9, seed=2)
    targets[4] = targets[4][:1]  # nothing to score
    alone = [score(model, [source], [target])[0] for source, target in zip(sources, targets)]
    assert len(alone[4]) == 0
    monkeypatch.setattr(worker, "PASS_ROWS", 25)
    monkeypatch.setattr(worker, "SENTENCES_A_THREAD", 1)
    for threads in (1, 3):
        for one, other in zip(alone, score(model, sources, targets, threads)):
            np.testing.assert_allclose(one, other, rtol=1e-12)
    expected = [next_log_probs(model, sources[0], targets[0][: t + 1].tolist()) for t in range(len(targets[0]) - 1)]
    np.testing.assert_allclose(alone[0], [row[token] for row, token in zip(expected, targets[0][1:])])


@pytest.mark.parametrize("prefix", [[], [4, 5]])
def test_attention_of_the_hypotheses_is_that_of_a_full_pass(prefix):
    model, sources = random_model(seed=9, dtype=np.float64, alignment_heads=2), random_sources(6, seed=10)
    options = {"beam_size": 3, "num_hypotheses": 3, "max_decoding_length": 8, "return_attention": True}
    for source, hypotheses in zip(sources, search(model, sources, [prefix] * 6, **options)):
        for hypothesis in hypotheses:
            inputs, T = np.array([START, *hypothesis.tokens], np.int32), len(hypothesis.tokens)
            _, attention_TS = model.prefill(inputs, np.array([0, T + 1]), model.encode([source]), attention=True)
            assert hypothesis.attention_TS.shape == (T, len(source))
            np.testing.assert_allclose(hypothesis.attention_TS, attention_TS[:T], rtol=1e-9)


def test_jobs_without_source_or_start_are_refused():
    model = random_model()
    for job in (Job(np.zeros(0, np.int32), [START]), Job(np.array([3], np.int32), [])):
        with refused(InputError):
            decode(model, [job], DecodingOptions())
    assert decode(model, [], DecodingOptions()) == []


def test_best_candidates_are_sorted_and_ties_go_to_the_lower_beam():
    given = np.array([[-1.0, -2.0]]), np.array([[[-1.0, -3.0], [0.0, -0.5]]]), np.array([[[7, 8], [9, 6]]])
    found = [each.tolist() for each in best_candidates(*given, 3)]
    assert found == [[[-2.0, -2.0, -2.5]], [[7, 9, 6]], [[0, 1, 1]]]
    scores_BC, _, beams_BC = best_candidates(*given, 6)
    assert scores_BC[0, 4:].tolist() == [-np.inf, -np.inf] and beams_BC[0, 4:].tolist() == [0, 0]


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
    least, sampling = {"min_decoding_length": 4}, {"sampling_topk": 3, "seed": 1}
    for options in ({}, least, {"repetition_penalty": 1.5, "num_hypotheses": 2, "patience": 2}, sampling):
        options = {"beam_size": 1, "max_decoding_length": 12} | options
        with_scores, without = (search(model, sources, return_scores=scores, **options) for scores in (True, False))
        assert tokens_of(without) == tokens_of(with_scores)
        scores = [value for hypotheses in without for h in hypotheses for value in (h.log_probability, h.score)]
        assert np.isfinite(scores).all() if options.keys() & sampling else np.isnan(scores).all()
    beams = search(model, sources, return_scores=False, beam_size=3)
    assert np.isfinite([h.score for (h,) in beams]).all()


HISTORIES = st.lists(st.lists(st.integers(0, 3), max_size=9), min_size=1, max_size=5)


@settings(deadline=None)
@given(HISTORIES, st.integers(1, 4), st.lists(st.lists(st.integers(0, 3), min_size=2, max_size=4), max_size=4))
def test_what_a_history_forbids(histories, size, sequences):
    def repeated(history):
        start = len(history) - size + 1
        if start < 0:
            return set()
        return {v for v in range(4) if any([*history, v][i : i + size] == [*history[start:], v] for i in range(start))}

    def completed(history):
        return {last for *begun, last in sequences if history[len(history) - len(begun) :] == begun}

    past = _padded(histories)
    assert _listed(repeated_ngrams(*past, size)) == list(map(repeated, histories))
    assert _listed(completed_sequences(*past, sequences)) == list(map(completed, histories))
    assert _listed(without_repeats(past[0])) == list(map(set, histories))


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


@pytest.mark.parametrize("prefix", [[], [4, 5]])
def test_alternatives_are_as_long_as_the_factor_allows(prefix):
    sources, options = random_sources(3, seed=10), {"return_alternatives": True, "num_hypotheses": 3}
    options |= {"max_length_factor": 1.5, "suppress_sequences": [[END]], "min_decoding_length": 0}
    for source, hypotheses in zip(sources, search(random_model(seed=9), sources, [prefix] * 3, **options)):
        assert {len(h.tokens) for h in hypotheses} == {len(prefix) + math.ceil(1.5 * len(source))}


def test_nothing_left_to_say_still_ends():
    model, sources = random_model(seed=9), random_sources(2, seed=10)
    everything = [[token] for token in range(19) if token != END]
    options = {"suppress_sequences": everything, "min_decoding_length": 2, "max_decoding_length": 4}
    for beam in (1, 3):
        results = search(model, sources, beam_size=beam, **options)
        assert all(0 <= token < 19 for hypotheses in results for h in hypotheses for token in h.tokens)


def test_the_callback_sees_every_token_in_order_and_can_stop():
    model, sources = random_model(seed=5, sharpness=4.0), random_sources(2 * SENTENCES_A_THREAD, seed=6)
    prefixes = [[], [4, 5], [6], [], [7, 8, 9, 4], [], [5], []]
    options = {"beam_size": 1, "max_decoding_length": 8, "length_penalty": 0.0}
    expected, steps, callers = search(model, sources, prefixes, **options), [], set()

    def watch(step):
        steps.append(step)
        callers.add(threading.current_thread())

    found = search(model, sources, prefixes, 2, callback=watch, **options)
    assert [h.score for (h,) in found] == [h.score for (h,) in expected] and callers == {threading.current_thread()}
    for b, (hypothesis,) in enumerate(expected):
        mine = [step for step in steps if step.sentence == b]
        assert [step.position for step in mine] == list(range(hypothesis.length))
        assert [step.token_id for step in mine if step.token_id != END] == hypothesis.tokens.tolist()
        assert [step.is_last for step in mine] == [False] * (hypothesis.length - 1) + [True]
        assert sum(step.log_probability for step in mine) == pytest.approx(hypothesis.score, rel=1e-5)
        assert not any(step.log_probability for step in mine[: len(prefixes[b])])
    stopped = search(model, sources, prefixes, callback=lambda step: step.position == 2, **options)
    for (short,), (long,) in zip(stopped, expected):
        assert (short.tokens.tolist(), short.length) == (long.tokens[:3].tolist(), min(3, long.length))
    first = search(model, sources[:2], callback=lambda step: step.sentence == 1, **options)
    assert [len(h.tokens) for (h,) in first] == [len(expected[0][0].tokens), 1]


# Options, the first of which is told of.
WRONG = [
    *({"beam_size": size} for size in (0, 2.5, True, 1025)),
    *({"num_hypotheses": number} for number in (0, 3)),
    *({"patience": number} for number in (0, math.nan, 10**5000)),
    *({"repetition_penalty": penalty} for penalty in (1e-300, "2")),
    *({"timeout": seconds} for seconds in (0, math.inf, True)),
    *({"min_alternative_expansion_prob": share} for share in (1.5, -0.1)),
    *({"sampling_topp": share} for share in (0.0, 1.1)),
    *({"sampling_topk": number} for number in (-1, 5)),
    *({"min_decoding_length": length} for length in (10**7, -1)),
    {"max_decoding_length": 0},
    {"word_penalty": -1e5},
    {"coverage_penalty": math.inf},
    {"no_repeat_ngram_size": -1},
    {"prefix_bias_beta": 1.0},
    {"sampling_temperature": -1},
    {"seed": -3},
    {"callback": print},
    {"patience": 0.5, "beam_size": 5, "num_hypotheses": 4},
    {"min_decoding_length": 5, "max_decoding_length": 4},
    {"return_alternatives": True, "prefix_bias_beta": 0.5},
    {"sampling": 5, "beam_size": 1, "sampling_topk": 5, "prefix_bias_beta": 0.1},
    {"callback": 7, "beam_size": 1},
    {"callback": print, "beam_size": 1, "return_alternatives": True},
    {"num_hypotheses": 2, "beam_size": 1},
    {"num_hypotheses": 10**12, "beam_size": 1, "sampling_topk": 0},
]


def test_options_that_no_search_can_follow():
    for options in WRONG:
        with refused(InputError, next(iter(options)).partition("_")[0]):
            DecodingOptions(**{name: value for name, value in options.items() if name != "sampling"})
    with refused(InputError, "sampling_topk", "vocabulary"):
        search(random_model(), random_sources(1), beam_size=1, sampling_topk=20)


def test_what_options_mean_for_a_search():
    """Whether a longer hypothesis is always worse; finished hypotheses that end a sentence; samples may be many."""
    bare = {"length_penalty": 0}
    for options, worse in (
        ({}, False),
        (bare, True),
        (bare | {"word_penalty": 0.5}, True),
        (bare | {"word_penalty": -0.5}, False),
        (bare | {"coverage_penalty": 0.5}, False),
        ({"length_penalty": 0.5, "word_penalty": 0.5}, False),
    ):
        assert DecodingOptions(**options).longer_is_worse == worse, options
    assert [DecodingOptions(beam_size=5, patience=patience).hypotheses_to_find for patience in (0.5, 0.3)] == [3, 2]
    for many in ({"sampling_topk": 3}, {"return_alternatives": True}):
        assert DecodingOptions(beam_size=1, num_hypotheses=50, **many).num_hypotheses == 50


FIELDS = {field.name: str(field.type) for field in dataclasses.fields(DecodingOptions)}
NUMBERS = [name for name, kind in FIELDS.items() if "float" in kind and "[" not in kind]
COUNTS = [name for name, kind in FIELDS.items() if "int" in kind and "[" not in kind]
BOOLEANS = [name for name, kind in FIELDS.items() if "bool" in kind]
EXTREMES = [5e-324, 1e-45, 1e-30, 1 - 2**-53, 1e10, 1e38, 1e39, 1.7e308]
LARGE = [2**31, 2**63, 10**5000, -(10**400)]
SAMPLES = {"beam_size": 1, "sampling_topk": 0, "seed": 1}
BRANCHES = {"return_alternatives": True, "num_hypotheses": 2}
# What each option decides needs these beside it.
BESIDE = dict.fromkeys(["sampling_topp", "sampling_minp", "sampling_temperature"], [SAMPLES]) | {
    "prefix_bias_beta": [{"is_favoured": True}],
    "min_alternative_expansion_prob": [BRANCHES],
    "seed": [SAMPLES | {"num_hypotheses": 2}],
    "sampling_topk": [{"beam_size": 1, "seed": 1}],
    "patience": [{}, {"beam_size": 1}, BRANCHES, SAMPLES | {"sampling_topk": 3}],
    "repetition_penalty": [{}, {"beam_size": 1}, SAMPLES],
}


def outcome(is_favoured=False, **options):
    """Hypotheses of three sentences, which end by themselves after two hundred tokens where no option ends them."""
    jobs = [Job(source, [START], bias_prefix=[5] if is_favoured else []) for source in random_sources(3, 3)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            found = decode(random_model(11), jobs, DecodingOptions(**{"max_decoding_length": 8, **options}))
            return [h for hypotheses in found for h in hypotheses]
        except InputError as error:
            assert "\n" not in str(error) and len(str(error)) < 300
            return []


@pytest.mark.parametrize("name", [*NUMBERS, *COUNTS])
def test_numbers_of_any_size_are_followed_or_refused(name):
    signed = [*EXTREMES, *(-value for value in EXTREMES), 10**400, -(10**400), Fraction(10**400), 0]
    for value in LARGE + (signed if name in NUMBERS else []):
        for beside in BESIDE.get(name, [{}]):
            found = outcome(**beside | {name: value})
            # A power of the length may be beyond float32, and a score infinite.
            wrong = np.isnan if name == "length_penalty" else lambda scores: ~np.isfinite(scores)
            assert not wrong(np.array([h.score for h in found])).any(), value
            assert np.isfinite([h.log_probability for h in found]).all(), value


@pytest.mark.parametrize("name", BOOLEANS)
def test_booleans(name):
    for value in ("no", 0, 1, None, np.zeros(2)):
        with pytest.raises(InputError, match=f"^{name} must be True or False, got "):
            DecodingOptions(**{name: value})
    DecodingOptions(**{name: np.bool_(False)})


@pytest.mark.parametrize("renormalized", [False, True])
@pytest.mark.parametrize("penalty", [0.8, 1.3])
def test_edits_of_the_whole_vocabulary_and_of_its_best(penalty: float, renormalized: bool) -> None:
    """Log-probabilities are penalized, then some ruled out, then all sum to 1 again where that is asked for."""
    rng = np.random.default_rng(8)
    logits_RV = rng.standard_normal((3, 40)) * 3
    log_probs_RV = logits_RV - np.log(np.exp(logits_RV).sum(axis=1, keepdims=True))
    penalized_RJ = np.array([[3, 9, -1], [0, -1, -1], [7, 8, 39]], np.int32)
    suppressed_RJ = np.array([[9, 4], [-1, -1], [39, -1]], np.int32)
    amounts_RJ = rng.random((3, 3)).astype(np.float32)
    expected_RV = log_probs_RV.copy()
    for r in range(3):
        for j, number in enumerate(penalized_RJ[r]):
            if number >= 0:
                expected_RV[r, number] = expected_RV[r, number] * penalty - amounts_RJ[r, j]
        expected_RV[r, [number for number in suppressed_RJ[r] if number >= 0]] = -np.inf
    if renormalized:
        expected_RV -= np.log(np.exp(expected_RV).sum(axis=1, keepdims=True))
    edits, log_probs_RV = Edits(suppressed_RJ, penalized_RJ, penalty, amounts_RJ), log_probs_RV.astype(np.float32)
    results = [searches.edit_vocabulary(log_probs_RV, edits, 5, renormalized)]
    if penalty > 1 and not renormalized:
        best_Rk = np.argsort(-log_probs_RV, axis=1)[:, : 5 + 3 + 2].astype(np.int32)
        results.append(searches.edit_top_k(np.take_along_axis(log_probs_RV, best_Rk, axis=1), best_Rk, edits, 5))
    for found_Rk, ids_Rk in results:
        np.testing.assert_array_equal(ids_Rk, np.argsort(-expected_RV, axis=1)[:, :5])
        np.testing.assert_allclose(found_Rk, -np.sort(-expected_RV, axis=1)[:, :5], atol=1e-5)


@pytest.mark.parametrize(
    "penalty, renormalized, whole", [(0.8, False, 1), (1.3, True, 1), (1.3, False, 0), (1, True, 0)]
)
def test_which_searches_edit_the_whole_vocabulary(monkeypatch, penalty: float, renormalized: bool, whole: int) -> None:
    calls, real = list[bool](), searches.edit_vocabulary
    monkeypatch.setattr(searches, "edit_vocabulary", lambda *given: calls.append(given[-1]) or real(*given))
    options = {"repetition_penalty": penalty, "rules": SearchRules(renormalized=renormalized)}
    search(random_model(), random_sources(1), beam_size=2, max_decoding_length=3, **options)
    assert set(calls) == ({renormalized} if whole else set())


@pytest.mark.parametrize(
    ("stopping", "penalty", "best", "improves"),
    [
        ("true", 1.0, -0.1, False),
        ("false", 1.0, -2.9, True),  # after 4 tokens: -0.725, and -1 the worst of the two best that ended
        ("false", 1.0, -4.1, False),
        ("false", 0.0, -0.9, True),
        ("never", 1.0, -9.9, True),  # after 10, the most there are: -0.99
        ("never", 1.0, -10.1, False),
        ("never", 0.0, -1.1, False),
    ],
)
def test_a_search_goes_on_while_it_may_improve(stopping, penalty, best, improves):
    options = DecodingOptions(beam_size=2, length_penalty=penalty, rules=SearchRules(stopping, forced_end=True))
    ended = SimpleNamespace(hypotheses=[SimpleNamespace(score=score) for score in (-0.5, -3.0, -1.0)])
    beams = SimpleNamespace(steps_B=np.array([3, 3]), limits_B=np.array([9, 9]), sentences_B=[ended] * 2)
    scores_BR = np.array([[best, best - 1], [0, 0]], np.float32)
    assert may_improve(options, beams, np.array([True, False]), scores_BR, True).tolist() == [improves, False]
