"""Each sentence chooses from its own list: against the same search with all other words ruled out, one by one."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastattn import Translator
from fastattn.decoding.candidates import allowed_ids
from fastattn.models.decoder import EncoderDecoder
from fastattn.models.kinds import build_model
from fastattn.ops import cpu as operations
from fastattn.ops import reference
from fastattn.spec.checkpoint import Shortlist
from tests.decoding.searching import plain, score, search
from tests.models.tiny_models import END, START, random_checkpoint, random_sources

WORDS = 60


def listed(lists, always=(3, 4), copied=False) -> Shortlist:
    starts = np.cumsum([0, *map(len, lists)]).astype(np.int32)
    return Shortlist(np.array(always, np.int32), starts, np.array(sum(map(list, lists), []), np.int32), copied)


def random_shortlist(seed=0, vocabulary=WORDS) -> Shortlist:
    """Each word adds up to five."""
    rng = np.random.default_rng(seed)
    return listed([rng.integers(3, vocabulary, rng.integers(0, 6)) for _ in range(vocabulary)])


LISTS = st.lists(st.lists(st.integers(0, 9), max_size=4), min_size=10, max_size=10)


@settings(deadline=None)
@given(LISTS, st.lists(st.integers(0, 9), max_size=3), st.booleans(), st.lists(st.integers(0, 9), max_size=6))
def test_a_sentences_list(lists, always, copied, source):
    found = allowed_ids(listed(lists, always, copied), np.array(source, np.int32), [END])
    expected = {END, *always, *(source if copied else ()), *(word for s in source for word in lists[s])}
    assert found.tolist() == sorted(expected) and found.dtype == np.int32


def build(ops=reference, precision="float32", shortlist=True, seed=0, **changes) -> EncoderDecoder:
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


@pytest.mark.parametrize("ops", [reference, operations], ids=["reference", "kernels"])
@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_acts_as_if_all_other_words_were_ruled_out(name, ops):
    options = dict(OPTIONS[name])
    model, whole, sources = build(ops), build(ops, shortlist=False), random_sources(10, 1, size=WORDS)
    prefixes = options.pop("prefixes", [[]] * len(sources))
    sizes = set()
    for source, prefix in zip(sources, prefixes):
        ids = allowed_ids(random_shortlist(), source, [END])
        sizes.add(len(ids))
        others = [[word] for word in range(WORDS) if word not in ids]
        ruled_out = options | {"suppress_sequences": [*options.get("suppress_sequences", []), *others]}
        (found,), (expected,) = run(model, [source], [prefix], **options), run(whole, [source], [prefix], **ruled_out)
        real = [h for h in expected if h.score > -1e9]  # others only fill their place
        assert [h.tokens.tolist() for h in found[: len(real)]] == [h.tokens.tolist() for h in real]
        np.testing.assert_allclose([h.score for h in found[: len(real)]], [h.score for h in real], atol=1e-5)
        chosen = set(np.concatenate([h.tokens[len(prefix) :] for h in found[: len(real)]]).tolist())
        assert chosen <= set(ids.tolist()) or options.get("prefix_bias_beta")
    assert len(sizes) > 3


def test_a_list_changes_what_is_chosen():
    sources = random_sources(10, 1, size=WORDS)
    assert plain(run(build(), sources)) != plain(run(build(shortlist=False), sources))


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize(
    "options", [{"beam_size": 1}, {"beam_size": 3}, {"beam_size": 1, "sampling_topk": 0, "seed": 1}]
)
def test_the_same_bits_in_any_company(precision, options):
    model, sources = build(operations, precision), random_sources(17, 2, size=WORDS)
    together = plain(run(model, sources, threads=1, **options))
    assert plain(run(model, sources, threads=2, **options)) == together
    assert plain(run(model, sources[::-1], threads=1, **options))[::-1] == together
    alone = [plain(run(model, [source], threads=2, **options))[0] for source in sources]
    assert alone == together


@pytest.mark.parametrize("ops", [reference, operations], ids=["reference", "kernels"])
def test_all_words_where_the_option_or_the_checkpoint_says_so(ops):
    sources = random_sources(6, 3, size=WORDS)
    expected = plain(run(build(ops, shortlist=False), sources))
    assert plain(run(build(ops), sources, shortlist=False)) == expected
    assert plain(run(build(ops, shortlist=False), sources, shortlist=True)) == expected


def test_scores_are_of_all_words():
    sources = random_sources(6, 4, size=WORDS)
    targets = [np.array([START, *source, END], np.int32) for source in sources]
    for one, other in zip(
        score(build(), sources, targets), score(build(shortlist=False), sources, targets), strict=True
    ):
        np.testing.assert_array_equal(one, other)


def test_a_translator_takes_the_checkpoints_list():
    checkpoint = random_checkpoint(vocabulary=WORDS)
    shortlist = listed([[]] * WORDS, always=(8, 9), copied=True)
    translator = Translator.from_checkpoint(replace(checkpoint, shortlist=shortlist))
    source = [f"▁w{i}" for i in (20, 30, 40)]  # the ids are three more
    (found,) = translator.translate_tokens([source], beam_size=2, min_decoding_length=3, max_decoding_length=6)
    assert {*found.hypotheses[0]} <= {*source, "▁w5", "▁w6"} and len(found.hypotheses[0]) >= 3
    whole = Translator.from_checkpoint(checkpoint).translate_tokens([source], beam_size=2)
    assert translator.translate_tokens([source], beam_size=2, shortlist=False)[0].hypotheses == whole[0].hypotheses
