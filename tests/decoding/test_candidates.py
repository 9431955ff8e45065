"""The choice of tokens: samples follow the exact distribution, and each sentence chooses from its own list."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastattn.decoding.search import draw_columns, sentence_key, shortlisted_ids
from fastattn.models.kinds import build_model
from fastattn.ops import cpu as operations
from fastattn.ops import reference
from fastattn.spec.checkpoint import Shortlist
from tests.decoding.searching import improbable, little_room, plain, score, search, tokens_of
from tests.models.tiny_models import (
    END,
    START,
    UNK,
    next_log_probs,
    random_checkpoint,
    random_model,
    random_sources,
    steady_ops,
)

SAMPLES = 3000


def _decode(model, sources, threads=1, prefix=(), **options):
    return search(model, sources, [prefix] * len(sources), threads, beam_size=1, **options)


def _exact(log_probs_V, top_k=0, top_p=1.0, temperature=1.0):
    """The distribution that options leave, in the plainest way."""
    order = sorted(range(len(log_probs_V)), key=lambda v: -log_probs_V[v])[: top_k or None]
    weights = {v: np.exp(log_probs_V[v] / temperature) for v in order if np.isfinite(log_probs_V[v])}
    total, before, kept = sum(weights.values()), 0.0, {}
    for v, weight in weights.items():
        if before < top_p * total:
            kept[v] = weight
        before += weight
    probabilities = np.zeros(len(log_probs_V))
    probabilities[list(kept)] = np.array(list(kept.values())) / sum(kept.values())
    return probabilities


CHOICES = [(5, 1.0, 1.0), (0, 0.7, 1.0), (8, 0.8, 1.6), (0, 1.0, 0.6)]


@pytest.mark.parametrize(("top_k", "top_p", "temperature"), CHOICES)
def test_first_tokens_follow_the_distribution(top_k, top_p, temperature):
    model = random_model(seed=41, ops=operations, sharpness=2.0)
    options = {"sampling_topk": top_k, "sampling_topp": top_p, "sampling_temperature": temperature}
    options |= {"num_hypotheses": SAMPLES, "max_decoding_length": 1, "disable_unk": True}
    (source,) = random_sources(1, seed=42)
    (hypotheses,) = _decode(model, [source], seed=43, **options)
    log_probs_V = next_log_probs(random_model(seed=41, dtype=np.float64, sharpness=2.0), source, [START], [UNK, END])
    counts = np.bincount([h.tokens[0] for h in hypotheses], minlength=19)
    assert not improbable(counts, _exact(log_probs_V, top_k, top_p, temperature))
    if top_p < 1 or temperature != 1 or 0 < top_k < 19:
        restricted = np.flatnonzero(counts)
        plain = np.exp(log_probs_V[restricted]) / np.exp(log_probs_V[restricted]).sum()
        assert len(restricted) < 17 or improbable(counts[restricted], plain), "the option changes nothing"
    scores = [h.score for h in hypotheses]
    assert scores == sorted(scores, reverse=True)
    np.testing.assert_allclose(scores, [log_probs_V[h.tokens[0]] for h in hypotheses], rtol=1e-4, atol=1e-5)


def test_sequences_follow_the_distribution():
    """Three tokens, so that the draws of one sample may not depend on one another; with a rule that looks back."""
    model = random_model(seed=44, ops=operations, sharpness=2.0)
    exact_model, (source,) = random_model(seed=44, dtype=np.float64, sharpness=2.0), random_sources(1, seed=45)
    options = {"sampling_topk": 4, "no_repeat_ngram_size": 1, "min_decoding_length": 3, "max_decoding_length": 3}
    (hypotheses,) = _decode(model, [source], num_hypotheses=SAMPLES, seed=46, **options)
    probabilities = {(): 1.0}
    for _ in range(3):
        probabilities = {
            (*begun, v): probability * next_V[v]
            for begun, probability in probabilities.items()
            for next_V in [_exact(next_log_probs(exact_model, source, [START, *begun], [END, *begun]), 4)]
            for v in np.flatnonzero(next_V)
        }
    counts = dict.fromkeys(probabilities, 0)
    for hypothesis in hypotheses:
        counts[tuple(hypothesis.tokens)] += 1  # a KeyError: what cannot be was drawn
    assert sum(probabilities.values()) == pytest.approx(1)
    assert not improbable(list(counts.values()), list(probabilities.values()))


def test_samples_repeat_from_their_seed_in_any_company(monkeypatch):
    model = random_model(seed=47, ops=steady_ops, sharpness=2.0)
    sources = random_sources(8, seed=48)
    for top_k in (0, 6):
        options = {"sampling_topk": top_k, "num_hypotheses": 3, "max_decoding_length": 7}
        alone = [_decode(model, [source], seed=49, **options)[0] for source in sources]
        with monkeypatch.context() as patch:
            little_room(patch, 4, SENTENCES_A_THREAD=1)
            together = _decode(model, sources[::-1], threads=3, seed=49, **options)[::-1]
        assert plain(together) == plain(alone)
        assert tokens_of(_decode(model, sources[:1], seed=50, **options)) != tokens_of(alone[:1])
        assert len({tuple(h.tokens) for h in alone[0]}) > 1, "each sample has its own draws"


def test_without_a_seed_equal_sentences_and_calls_draw_apart():
    model, (source,) = random_model(seed=47, sharpness=2.0), random_sources(1, seed=48)
    long = {"sampling_topk": 0, "min_decoding_length": 8, "max_decoding_length": 8}
    for options in ({}, {"num_hypotheses": 2}, {"return_alternatives": True, "num_hypotheses": 2}):
        results = [tokens_of(_decode(model, [source] * 5, **long, **options)) for _ in range(2)]
        assert len({str(tokens) for tokens in sum(results, [])}) == 10, options
        seeded = tokens_of(_decode(model, [source] * 5, seed=3, **long, **options))
        assert seeded == seeded[:1] * 5
    assert sentence_key(source, [START], 1) != sentence_key(source, [START]) == sentence_key(source, [START], 0)
    assert sentence_key(np.array([1, 2]), [3, 4]) != sentence_key(np.array([1]), [2, 3, 4])


def test_the_coldest_sample_is_greedy_search():
    model, sources = random_model(seed=47), random_sources(4, seed=48)
    greedy = tokens_of(_decode(model, sources, max_decoding_length=6))
    for options in ({"sampling_temperature": 0.0}, {"sampling_temperature": 1e-6}, {"sampling_topp": 1e-9}):
        sampled = _decode(model, sources, max_decoding_length=6, sampling_topk=5, num_hypotheses=3, **options)
        assert tokens_of(sampled) == [tokens * 3 for tokens in greedy]


def test_draws_at_the_ends_of_the_interval():
    row = np.array([[-1.0, -2.0, -np.inf, -3.0, -np.inf]], np.float32)
    assert draw_columns(row, np.array([0.0]), 1.0, 1.0) == 0
    assert draw_columns(row, np.array([np.nextafter(1, 0)]), 1.0, 1.0) == 3
    assert draw_columns(row, np.array([np.nextafter(1, 0)]), 1.0, 0.7) == 1
    assert draw_columns(np.full((1, 3), -np.inf), np.array([0.5]), 1.0, 1.0) == 0


WORDS = 60


def listed(lists, always=(3, 4), copied=False):
    starts = np.cumsum([0, *map(len, lists)]).astype(np.int32)
    return Shortlist(np.array(always, np.int32), starts, np.array(sum(map(list, lists), []), np.int32), copied)


def random_shortlist(seed=0, vocabulary=WORDS):
    """Each word adds up to five."""
    rng = np.random.default_rng(seed)
    return listed([rng.integers(3, vocabulary, rng.integers(0, 6)) for _ in range(vocabulary)])


LISTS = st.lists(st.lists(st.integers(0, 9), max_size=4), min_size=10, max_size=10)


@settings(deadline=None, max_examples=40)
@given(LISTS, st.lists(st.integers(0, 9), max_size=3), st.booleans(), st.lists(st.integers(0, 9), max_size=6))
def test_a_sentences_list(lists, always, copied, source):
    found = shortlisted_ids(listed(lists, always, copied), np.array(source, np.int32), [END])
    expected = {END, *always, *(source if copied else ()), *(word for s in source for word in lists[s])}
    assert found.tolist() == sorted(expected) and found.dtype == np.int32


def build(ops=reference, precision="float32", shortlist=True, seed=0, **changes):
    checkpoint = random_checkpoint(seed, vocabulary=WORDS, sharpness=2.0, **changes)
    if shortlist:
        checkpoint = replace(checkpoint, shortlist=random_shortlist(seed))
    return build_model(checkpoint, ops, precision)


def run(model, sources, prefixes=None, threads=1, **options):
    return search(model, sources, prefixes, threads, **{"max_decoding_length": 12} | options)


OPTIONS = {
    "greedy": {"beam_size": 1},
    "beam": {"beam_size": 4, "num_hypotheses": 4},
    "wider than the list": {"beam_size": 12, "num_hypotheses": 3},
    "repetition": {"repetition_penalty": 1.9, "no_repeat_ngram_size": 2},
    "sequences": {"suppress_sequences": [[3], [4, 5], [7]], "disable_unk": True},
    "coverage": {"coverage_penalty": 0.4, "length_penalty": 0.3},
    "alternatives": {"return_alternatives": True, "num_hypotheses": 5},
    "few sampled": {"beam_size": 1, "sampling_topk": 8, "num_hypotheses": 3, "seed": 4},
    "all sampled": {"beam_size": 1, "sampling_topk": 0, "sampling_topp": 0.9, "num_hypotheses": 3, "seed": 4},
    "prefix": {"prefixes": [[9, 50], [], [51, 52, 53], [3], [11]] * 2},
    "biased": {"prefix_bias_beta": 0.3, "prefixes": [[9, 50], [], [51, 52, 53], [3], [11]] * 2},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_acts_as_if_all_other_words_were_ruled_out(name):
    options, ops = dict(OPTIONS[name]), reference if name == "repetition" else operations
    model, whole, sources = build(ops), build(ops, shortlist=False), random_sources(10, 1, size=WORDS)
    for source, prefix in zip(sources, options.pop("prefixes", [[]] * len(sources))):
        ids = shortlisted_ids(random_shortlist(), source, [END])
        others = [[word] for word in range(WORDS) if word not in ids]
        ruled_out = options | {"suppress_sequences": [*options.get("suppress_sequences", []), *others]}
        (found,), (expected,) = run(model, [source], [prefix], **options), run(whole, [source], [prefix], **ruled_out)
        real = [h for h in expected if h.score > -1e9]  # others only fill their place
        assert [h.tokens.tolist() for h in found[: len(real)]] == [h.tokens.tolist() for h in real]
        np.testing.assert_allclose([h.score for h in found[: len(real)]], [h.score for h in real], atol=1e-5)
        chosen = set(np.concatenate([h.tokens[len(prefix) :] for h in found[: len(real)]]).tolist())
        assert chosen <= set(ids.tolist()) or options.get("prefix_bias_beta")


def test_all_words_where_the_option_or_the_checkpoint_says_so():
    sources, listed, whole = random_sources(6, 3, size=WORDS), build(), build(shortlist=False)
    expected = plain(run(whole, sources))
    assert plain(run(listed, sources, shortlist=False)) == plain(run(whole, sources, shortlist=True)) == expected
    assert plain(run(listed, sources)) != expected, "a list changes what is chosen"
    targets = [np.array([START, *source, END], np.int32) for source in sources]
    for one, other in zip(score(listed, sources, targets), score(whole, sources, targets), strict=True):
        np.testing.assert_array_equal(one, other)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 12), st.floats(0, 1), st.floats(0.1, 3), st.floats(0.05, 1), st.integers(0, 1000))
def test_min_p_by_the_formula(size, min_p, temperature, top_p, seed):
    """vLLM's order: the temperature, tokens below min_p times the best one's probability, top_p of what is left."""
    rng = np.random.default_rng(seed)
    log_probs_1k = np.log(rng.dirichlet(np.ones(size)))[None].astype(np.float32)
    weights_k = np.exp(log_probs_1k[0].astype(np.float64) / temperature)
    kept_k = weights_k / weights_k.sum() >= min_p * (weights_k / weights_k.sum()).max()
    order_k = np.argsort(-weights_k * kept_k, kind="stable")
    share_k = np.cumsum((weights_k * kept_k)[order_k]) / (weights_k * kept_k).sum()
    allowed = set(order_k[: int(np.searchsorted(share_k, top_p - 1e-9)) + 1].tolist()) & set(np.flatnonzero(kept_k))
    numbers_N = np.linspace(0, 1, 64, endpoint=False)
    found = {int(draw_columns(log_probs_1k, np.array([number]), temperature, top_p, min_p)[0]) for number in numbers_N}
    near = {int(k) for k in np.flatnonzero(np.abs(weights_k / weights_k.max() - min_p) < 1e-6)}
    assert found <= allowed | near
    assert min_p < 1 or len(found) == 1
