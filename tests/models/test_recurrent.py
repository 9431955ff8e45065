"""Recurrent encoder-decoders against their twins, which are the papers' formulas; and the promises of every model."""

import numpy as np
import pytest

from fastattn.decoding.options import DecodingOptions
from fastattn.ops import cpu as operations
from fastattn.ops import reference
from fastattn.ops.reference.project import log_softmax
from tests.decoding.searching import check_company, check_scores, naive_beam, score, search, tokens_of
from tests.models.recurrent_varieties import RECURRENT, recurrent_model, twin
from tests.models.tiny_models import END, START, full_pass, random_sources, stepped

DEVICES = {"reference": (reference, np.float64, 1e-11), "cpu": (operations, np.float32, 1e-5)}
varieties = pytest.mark.parametrize("variety", RECURRENT)
devices = pytest.mark.parametrize("device", DEVICES)


def _expected(variety, dtype, sources, targets):
    """Of each sequence log_probs_TV and weights_TS."""
    oracle = twin(variety, dtype=dtype)
    made = [oracle.decode(source, target) for source, target in zip(sources, targets)]
    return [(log_softmax(logits_TV), weights_TS) for logits_TV, weights_TS in made]


def _check(model, found, expected, allowance):
    for (hidden_TD, weights_TS), (log_probs_TV, expected_TS) in zip(found, expected, strict=True):
        found_TV = model.output.all_log_probs(np.ascontiguousarray(hidden_TD))
        np.testing.assert_allclose(found_TV, log_probs_TV, rtol=0, atol=10 * allowance)  # logits are of some tens
        if weights_TS is not None:
            np.testing.assert_allclose(weights_TS, expected_TS, rtol=0, atol=allowance)


@varieties
@devices
def test_a_pass_is_the_twin_s(variety, device):
    ops, dtype, allowance = DEVICES[device]
    sources, targets = random_sources(6, seed=2), random_sources(6, seed=3, longest=14)
    model = recurrent_model(variety, ops=ops, dtype=dtype)
    attends = model.decoder.attention is not None
    hidden_ND, attention_NS, starts_B1 = full_pass(model, sources, targets, attends)
    found = [
        (hidden_ND[start:stop], attention_NS[start:stop, : len(source)] if attends else None)
        for source, start, stop in zip(sources, starts_B1, starts_B1[1:])
    ]
    _check(model, found, _expected(variety, dtype, sources, targets), allowance)


@varieties
@devices
@pytest.mark.parametrize(("prefill", "apart"), [(0, 0), (3, 0), (0, 2)])
def test_steps_are_the_twin_s(variety, device, prefill, apart):
    ops, dtype, allowance = DEVICES[device]
    sources, targets = random_sources(5, seed=4), random_sources(5, seed=5, shortest=3, longest=14)
    model = recurrent_model(variety, ops=ops, dtype=dtype)
    hidden, seen = stepped(model, sources, targets, prefill, model.decoder.attention is not None, apart)
    expected = _expected(variety, dtype, sources, targets)
    _check(model, [(rows_TD, None) for rows_TD in hidden], expected, allowance)
    for rows, (_, weights_TS) in zip(seen, expected):
        if rows:
            np.testing.assert_allclose(rows, weights_TS[prefill:], rtol=0, atol=allowance)


@varieties
@devices
@pytest.mark.parametrize(("beam", "prefix"), [(1, []), (4, []), (4, [7, 9])])
def test_searches_find_what_brute_force_finds(variety, device, beam, prefix):
    ops, dtype, _ = DEVICES[device]
    options = {"beam_size": beam, "num_hypotheses": beam, "max_decoding_length": 7}
    sources, oracle = random_sources(3, seed=12), twin(variety, dtype=dtype)

    def log_probs(source, tokens, suppressed):
        logits_TV, _ = oracle.decode(source, tokens)
        logits_TV[-1, list(suppressed)] = -np.inf
        return log_softmax(logits_TV[-1:])[0]

    results = search(recurrent_model(variety, ops=ops, dtype=dtype), sources, [prefix] * 3, **options)
    for source, hypotheses in zip(sources, results):
        expected = naive_beam(log_probs, source, DecodingOptions(**options), prefix)
        assert [h.tokens.tolist() for h in hypotheses] == [tokens for tokens, _ in expected]
        np.testing.assert_allclose([h.score for h in hypotheses], [value for _, value in expected], rtol=1e-4)


@varieties
@devices
def test_beams_score_as_a_full_pass_does(variety, device):
    ops, dtype, _ = DEVICES[device]
    model = recurrent_model(variety, ops=ops, dtype=dtype)
    check_scores(model)
    source, target = random_sources(1, seed=6)[0], np.array([START, 7, 9, 3, END], np.int32)
    logits_TV, _ = twin(variety, dtype=dtype).decode(source, target[:-1])
    expected_T = log_softmax(logits_TV)[np.arange(4), target[1:]]
    np.testing.assert_allclose(score(model, [source], [target])[0], expected_T, atol=1e-4)


@varieties
def test_lower_precisions_are_near(variety):
    sources, targets = random_sources(20, seed=1, longest=30), random_sources(20, seed=2, longest=30)

    def log_probs(precision):
        return np.concatenate(score(recurrent_model(variety, ops=operations, precision=precision), sources, targets))

    exact = log_probs("float32")
    for precision in ("bfloat16", "int8"):
        assert 1e-3 < np.abs(log_probs(precision) - exact).mean() < 0.25, precision


@varieties
@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize("beam", [1, 4])
def test_company_and_threads_change_no_bit(variety, precision, beam):
    model = recurrent_model(variety, ops=operations, precision=precision)
    for threads in (1, 2):
        check_company(model, [3, 0, 4, 1, 5, 2], 6, beam, 2, threads)


def test_the_search_is_no_repetition():
    """The comparisons above are of sequences that differ, or they would say little."""
    for variety in RECURRENT:
        sources = random_sources(8, seed=12)
        found = tokens_of(search(recurrent_model(variety), sources, max_decoding_length=7))
        assert len({tuple(tokens) for (tokens,) in found}) > 4, variety
