"""Decoders by steps, chunks and whole passes, in each precision; what they attend to."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastattn.errors import InputError
from fastattn.ops import cpu as operations
from fastattn.ops import reference
from tests.decoding.searching import score
from tests.models.tiny_models import VARIETIES, cached, full_pass, random_model, random_sources, starts_of, stepped


@pytest.mark.parametrize("variety", VARIETIES)
def test_steps_and_chunks_equal_the_full_pass(variety):
    model = random_model(seed=1, dtype=np.float64, **VARIETIES[variety])
    sources, targets = random_sources(5, seed=2), random_sources(5, seed=3, shortest=6, longest=25)
    hidden_ND, _, starts_B1 = full_pass(model, sources, targets)
    for prefill in (0, 3):
        hidden, _ = stepped(model, sources, targets, prefill)
        np.testing.assert_allclose(np.concatenate(hidden), hidden_ND, rtol=1e-10, atol=1e-12)
    cache, slots_B, memory = cached(model, sources)
    begun, rest = [target[:4] for target in targets], [target[4:] for target in targets]
    model.prefill(np.concatenate(begun), starts_of(begun), memory, cache=cache, slots_B=slots_B)
    later_ND, _ = model.prefill(
        np.concatenate(rest), starts_of(rest), cache=cache, slots_B=slots_B, firsts_B=np.full(5, 4)
    )
    kept_N = np.arange(len(hidden_ND)) - np.repeat(starts_B1[:-1], np.diff(starts_B1)) >= 4
    np.testing.assert_allclose(later_ND, hidden_ND[kept_N], rtol=1e-10, atol=1e-12)


CHUNKED = {
    f"{variety}-{precision}": random_model(2, operations, precision, **VARIETIES[variety])
    for variety in ("post-norm", "rotary", "alibi", "relative", "fewer key heads", "recurrent", "average pre-norm")
    for precision in ("float32", "bfloat16")
}


@pytest.mark.parametrize("model", CHUNKED.values(), ids=CHUNKED)
@settings(max_examples=8, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 21)), min_size=1, max_size=6), st.data())
def test_chunks_have_the_bits_of_steps_wherever_a_sequence_is_cut(model, lengths, data):
    """In company that is cut elsewhere; so do steps that follow, and what was attended to."""
    sources = [random_sources(1, b, source, source)[0] for b, (source, _) in enumerate(lengths)]
    targets = [random_sources(1, 20 + b, target, target)[0] for b, (_, target) in enumerate(lengths)]
    expected, seen = stepped(model, sources, targets, attention=True)
    cache, slots_B, _ = cached(model, sources)
    done_B, chunked = np.zeros(len(sources), np.int64), [[] for _ in sources]
    lengths_B = np.array([len(target) for target in targets])
    while (left_B := lengths_B - done_B).any():
        counts_B = np.array([data.draw(st.integers(0, int(left))) for left in left_B])
        if not counts_B.any():
            counts_B = left_B
        parts = [targets[b][done_B[b] : done_B[b] + counts_B[b]] for b in range(len(sources))]
        hidden_ND, attention_NS = model.prefill(
            np.concatenate(parts), starts_of(parts), attention=True, cache=cache, slots_B=slots_B, firsts_B=done_B
        )
        for b, start in enumerate(starts_of(parts)[:-1]):
            rows = slice(start, start + counts_B[b])
            chunked[b] += zip(hidden_ND[rows], attention_NS[rows, : len(sources[b])])
        done_B = done_B + counts_B
    for b, rows in enumerate(chunked):
        for t, (hidden_D, attention_S) in enumerate(rows):
            np.testing.assert_array_equal(hidden_D, expected[b][t])
            np.testing.assert_array_equal(attention_S, seen[b][t])


@pytest.mark.parametrize("variety", ["pre-norm", "rotary", "alibi", "fewer key heads"])
def test_a_full_pass_attends_to_keys_and_values_as_steps_read_them(variety):
    """Its own and its memory's, rounded: where they are not, half the numbers differ by a thousandth."""
    model = random_model(1, operations, "bfloat16", **VARIETIES[variety])
    sources, targets = random_sources(5, seed=2), random_sources(5, seed=3, shortest=6, longest=25)
    hidden, _ = stepped(model, sources, targets)
    assert np.median(np.abs(np.concatenate(hidden) - full_pass(model, sources, targets)[0])) < 1e-6


@pytest.mark.parametrize("variety", VARIETIES)
def test_later_tokens_and_other_sources_change_nothing_before(variety):
    model = random_model(seed=1, dtype=np.float64, **VARIETIES[variety])
    sources = random_sources(3, seed=2, shortest=2)
    targets = random_sources(3, seed=3, shortest=6, longest=8)
    hidden_ND, _, starts_B1 = full_pass(model, sources, targets)
    changed = [targets[0], np.append(targets[1][:4], [7, 7, 7]).astype(np.int32), targets[2]]
    other_ND, _, other_B1 = full_pass(model, [np.append(sources[0], np.int32(4)), *sources[1:]], changed)
    for b, kept in ((1, 4), (2, len(targets[2]))):
        found, expected = (rows[first[b] :][:kept] for rows, first in ((other_ND, other_B1), (hidden_ND, starts_B1)))
        np.testing.assert_allclose(found, expected, rtol=1e-10)
    assert np.abs(other_ND[0] - hidden_ND[0]).max() > 1e-3, "the source should matter"


@pytest.mark.parametrize(("layer", "heads"), [(-1, 1), (0, 2), (1, 0)])
def test_attention_is_the_mean_of_the_alignment_heads(layer, heads):
    sources, targets, calls = random_sources(3, seed=5, shortest=2), random_sources(3, seed=6, shortest=2), []

    def spy(*arguments, weights_BHTS=None, **options):
        full = np.empty((3, 4, max(map(len, targets)), max(map(len, sources))))
        out = reference.attention(*arguments, weights_BHTS=full if "position_bias" not in options else None, **options)
        if "position_bias" not in options:
            calls.append(full)
        if weights_BHTS is not None:
            weights_BHTS[...] = full
        return out

    ops = SimpleNamespace(**(vars(reference) | {"attention": spy}))
    model = random_model(seed=4, ops=ops, dtype=np.float64, alignment_layer=layer, alignment_heads=heads)
    _, attention_NS, starts_B1 = full_pass(model, sources, targets, attention=True)
    expected_BTS = calls[layer][:, : heads or 4].mean(axis=1)
    _, seen = stepped(model, sources, targets, attention=True)
    for b in range(3):
        rows_TS = attention_NS[starts_B1[b] : starts_B1[b + 1], : len(sources[b])]
        np.testing.assert_allclose(rows_TS, expected_BTS[b, : len(targets[b]), : len(sources[b])])
        np.testing.assert_allclose(rows_TS.sum(axis=1), 1)
        np.testing.assert_allclose(np.array(seen[b]), rows_TS, rtol=1e-9)


def _log_probs(ops, precision, **changes):
    sources, targets = random_sources(20, seed=1, longest=30), random_sources(20, seed=2, longest=30)
    return np.concatenate(score(random_model(3, ops, precision, **changes), sources, targets))


@pytest.mark.parametrize("variety", VARIETIES)
def test_kernels_agree_with_the_reference_in_each_precision(variety):
    """A value that two roundings of float32 put on either side of a step moves a few scores by that step, not most."""
    exact = _log_probs(reference, "float32", **VARIETIES[variety])
    np.testing.assert_allclose(_log_probs(operations, "float32", **VARIETIES[variety]), exact, atol=2e-5)
    for precision in ("bfloat16", "int8"):
        found, oracle = (_log_probs(ops, precision, **VARIETIES[variety]) for ops in (operations, reference))
        differences, rounding = np.abs(found - oracle), np.abs(oracle - exact)
        assert np.median(differences) < 1e-5 and differences.mean() < rounding.mean() / 8, precision
        assert 1e-4 < rounding.mean() < 0.1, precision


def test_kernels_agree_with_the_reference_in_int4():
    sizes = {"width": 64, "inner_width": 96, "gated": True, "norm": "rms", "head_width": 16, "key_heads": 2}
    exact, rounded, oracle = (_log_probs(reference, precision, **sizes) for precision in ("float32", "int8", "int4"))
    differences, rounding = np.abs(_log_probs(operations, "int4", **sizes) - oracle), np.abs(oracle - exact).mean()
    assert differences.mean() < rounding / 8 and np.median(differences) < 1e-5
    assert 3 * np.abs(rounded - exact).mean() < rounding < 1


def test_states_layer_by_layer_are_those_of_the_full_pass():
    source, target = random_sources(1), np.arange(7, dtype=np.int32)
    for variety in VARIETIES.values():
        model = random_model(seed=2, **variety)
        states = list(model.states(target, model.encode(source)))
        assert len(states) == 1 + model.decoder.spec.layers + 1
        np.testing.assert_array_equal(states[-1], full_pass(model, source, [target])[0])


def test_start_from_zero_ignores_the_start_token():
    model, source = random_model(seed=1, start_from_zero_embedding=True), random_sources(1)
    one, two, three = (full_pass(model, source, [np.array(ids, np.int32)])[0] for ids in ([5, 7], [9, 7], [5, 8]))
    np.testing.assert_array_equal(one, two)
    assert np.abs(three[1] - one[1]).max() > 1e-3


def test_output_scale_multiplies_the_hidden_state():
    source, target = random_sources(1), [np.array([1, 7], np.int32)]
    plain, scaled = (full_pass(random_model(seed=1, output_scale=scale), source, target)[0] for scale in (1.0, 0.5))
    np.testing.assert_allclose(scaled, 0.5 * plain, rtol=1e-6)


def test_tokens_past_the_position_table_are_refused():
    model = random_model(positions="table", max_positions=4)
    with pytest.raises(InputError, match="4 positions"):
        full_pass(model, random_sources(1, longest=3), [np.zeros(5, np.int32)])
