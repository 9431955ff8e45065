"""What becomes of the softmax: hard, pointer, saliency, beside soft, which all other tests have."""

import numpy as np
import pytest

from fastattn import mechanisms as m
from fastattn.kernels.attention.arguments import KEYS, LIMIT
from fastattn.ops.reference.mechanisms import results, scores, seen
from tests.mechanisms.oracle import check, inputs, normal
from tests.mechanisms.test_scores import made

SHARP = m.Dot()


def weights_of(query, key, mask=True):
    return results.weights(scores.dot(query, key), mask)


def test_the_most_probable_key():
    for size in ({}, {"H": 4, "G": 2}, {"T": 1, "S": 1, "H": 1}, {"T": 0}, {"S": 0}, {"B": 0}):
        query, key, value = inputs(**size)
        every = tuple(np.repeat(x, query.shape[2] // x.shape[2], axis=2) for x in (key, value))
        out, weights = m.attend(query, key, value, score=SHARP, normalizer=m.Hard(), return_weights=True)
        if key.shape[1]:
            check(out, lambda q, k, v: results.hard(weights_of(q, k), v), query, *every)
            assert (weights.max(axis=-1) == 1).all() and (weights.sum(axis=-1) == 1).all()
        assert out.shape == (*query.shape[:3], value.shape[3])


@pytest.mark.parametrize("name", ["scaled dot", "additive, each head's", "content", "alibi", "graph", "softcap"])
def test_the_most_probable_key_is_the_weights_greatest(name):
    """By the kernel that keeps no weights, across its blocks of keys and queries."""
    for masked in (False, True):
        arrays = inputs(B=2, T=LIMIT + 3, S=2 * KEYS + 5, size=0.3)
        score, formula, parameters = made(name, arrays)
        mask = np.random.default_rng(1).random((LIMIT + 3, 2 * KEYS + 5)) < 0.02
        given = (m.Padded([2 * KEYS + 5, KEYS + 2]), m.Mask(mask)) if masked else m.Restricted(3 * KEYS // 2)
        _, weights = m.attend(*arrays, score=score, seen=given, return_weights=True)
        out, hard = m.attend(*arrays, score=score, seen=given, normalizer=m.Hard(), return_weights=True, threads=2)
        best = weights.max(axis=-1)
        np.testing.assert_allclose((hard * weights).sum(axis=-1), best, rtol=3e-5)
        np.testing.assert_array_equal(hard.sum(axis=-1), (best > 0).astype(np.float32))
        np.testing.assert_array_equal(results.soft(hard, arrays[2]), out)
        np.testing.assert_array_equal(m.attend(*arrays, score=score, seen=given, normalizer=m.Hard(), threads=1), out)


def test_the_first_of_equal_keys():
    query, key, value = np.ones((1, 3, 1), np.float32), np.ones((1, 2 * KEYS, 1), np.float32), normal(1, 1, 2 * KEYS, 2)
    key[0, 3], key[0, KEYS + 1] = 2, 2
    assert (m.attend(query, key, value, normalizer=m.Hard()) == value[:, 3]).all()
    assert (m.attend(query, key[:, 4:KEYS], value[:, 4:KEYS], normalizer=m.Hard()) == value[:, 4]).all()


def test_a_hard_choice_by_biases_and_scales_that_float32_barely_holds():
    """As some programs hide keys by the least float32: all of them alike hides none."""
    query, key, value = inputs()
    given = []
    for least in (-3.4e38, 3.4e38, -1e30):
        bias = np.full((5, 9), least, np.float32)
        bias[:2, 3] = 0
        score = m.ScaledDot(bias=bias)
        given.append((query, key, score, m.attend(query, key, value, score=score, return_weights=True)[1]))
    rising = np.linspace(2.5e38, 3.3e38, 9, dtype=np.float32)
    given.append((query, key, m.ScaledDot(bias=rising), np.broadcast_to(rising, (2, 3, 5, 9))))
    exact = scores.dot(*(x.astype(float) for x in (query, key)))
    for scale, size in ((3e38, 1), (1e-40, 1e21), (-1.0, 1)):
        sizes = np.float32(size / 10), np.float32(size * 10)
        given.append((query * sizes[0], key * sizes[1], m.ScaledDot(scale=scale), exact * np.sign(scale)))
    for turned, kept, score, ranks in given:
        places_BTH1 = ranks.argmax(axis=-1).transpose(0, 2, 1)[..., None]
        out = m.attend(turned, kept, value, score=score, normalizer=m.Hard())
        np.testing.assert_array_equal(out, np.take_along_axis(value, places_BTH1, axis=1))


def test_a_cap_and_a_bias_choose_together():
    query, value = np.ones((1, 1, 1), np.float32), normal(1, 1, 2, 3)
    key = np.array([[[10], [5]]], np.float32)
    for bias, chosen in ((0.5, 1), (0.0, 0)):
        score = m.ScaledDot(softcap=1.0, bias=np.array([0, bias], np.float32))
        assert (m.attend(query, key, value, score=score, normalizer=m.Hard())[0, 0] == value[0, chosen]).all()


def test_a_hard_choice_sees_what_the_soft_one_does():
    arrays = inputs(T=5, S=9)
    given = m.Padded([4, 0]), m.Causal()
    mask = seen.padded(np.array([4, 0]), 9) & seen.causal(5, 9)
    for normalizer in (m.Hard(), m.Hard(seed=0), m.Hard(seed=11)):
        out, weights = m.attend(*arrays, score=SHARP, seen=given, normalizer=normalizer, return_weights=True)
        assert (out[1] == 0).all() and (weights[1] == 0).all()
        assert (weights[0].sum(axis=-1) == 1).all() and not weights[~np.broadcast_to(mask, weights.shape)].any()
        np.testing.assert_array_equal(results.soft(weights, arrays[2]), out)


def test_a_drawn_key_is_as_frequent_as_its_weight():
    query = np.repeat(normal(1, 1, 1, 1, 4), 20000, axis=1)
    key, value = normal(2, 1, 6, 1, 4), normal(3, 1, 6, 1, 2)
    arrays = query, key, value
    expected = weights_of(query[:, :1].astype(float), key.astype(float))[0, 0, 0]
    _, drawn = m.attend(*arrays, score=SHARP, normalizer=m.Hard(seed=7), return_weights=True)
    deviation = np.sqrt(expected * (1 - expected) / 20000)
    assert (np.abs(drawn[0, 0].mean(axis=0) - expected) < 4.5 * deviation).all()
    _, again = m.attend(*arrays, score=SHARP, normalizer=m.Hard(seed=7), return_weights=True)
    _, other = m.attend(*arrays, score=SHARP, normalizer=m.Hard(seed=8), return_weights=True)
    np.testing.assert_array_equal(again, drawn)
    assert (other != drawn).any()


def test_a_key_without_weight_is_never_drawn():
    query, key, value = inputs(B=1, T=500, S=40, size=20.0)
    soft = m.attend(query, key, None, score=SHARP, normalizer=m.Pointer())
    _, drawn = m.attend(query, key, value, score=SHARP, normalizer=m.Hard(seed=3), return_weights=True)
    assert (soft == 0).any() and (drawn[soft == 0] == 0).all()


def test_nan_is_not_hidden_by_a_choice():
    query, key, value = inputs()
    query[0, 2, 1] = np.nan
    for normalizer in (m.Hard(), m.Hard(seed=1)):
        out = m.attend(query, key, value, normalizer=normalizer)
        assert np.isnan(out[0, 2, 1]).all()
        out[0, 2, 1] = 0
        assert np.isfinite(out).all()


def test_a_pointer_is_the_weights_and_needs_no_values():
    query, key, value = inputs(T=5, S=9)
    parameters = normal(4, 3, 8, 7), normal(5, 3, 8, 7), normal(6, 3, 8)
    given = {"score": m.Additive(*parameters), "normalizer": m.Pointer()}
    for values in (value, None):
        weights, twice = m.attend(query, key, values, **given, return_weights=True)
        check(weights, lambda q, k, *p: results.weights(scores.additive(q, k, *p)), query, key, *parameters)
        np.testing.assert_array_equal(twice, weights)
    np.testing.assert_array_equal(m.attend(query, key, None, **given), weights)


def test_a_pointer_by_place_needs_neither_keys_nor_values():
    query, weight = inputs()[0], normal(4, 9, 7)
    weights = m.attend(query, None, None, score=m.Location(weight), normalizer=m.Pointer())
    every = np.repeat(weight[None], 3, axis=0)
    check(weights, lambda q, w: results.weights(scores.location(q, w, 9)), query, every)
    np.testing.assert_array_equal(
        m.attend(query[:, :, 0], None, None, score=m.Location(weight), normalizer=m.Pointer()), weights[:, 0]
    )


def test_a_map_of_the_input():
    query, key, value = inputs(S=12)
    maps = m.attend(query, key, None, normalizer=m.Saliency((3, 4)))
    check(maps, lambda q, k: results.saliency(results.weights(scores.scaled_dot(q, k)), (3, 4)), query, key)
    flat, weights = m.attend(query, key, value, normalizer=m.Saliency(), return_weights=True)
    np.testing.assert_array_equal(flat.reshape(maps.shape), maps)
    np.testing.assert_array_equal(weights.mean(axis=1), flat)


def test_a_hard_choice_in_sentences_end_to_end():
    by_the_weights = m.ScaledDot(softcap=30.0, bias=np.zeros(1, np.float32))
    for rest in ((), (m.Causal(),)):
        query, key, value = inputs(B=1, T=6, S=9)
        given = (m.Sentences([0, 2, 2, 6], [0, 4, 7, 9]), *rest)
        weights = m.attend(query, key, None, seen=given, normalizer=m.Pointer())
        for score in (m.ScaledDot(), by_the_weights):
            out, hard = m.attend(query, key, value, score=score, seen=given, normalizer=m.Hard(), return_weights=True)
            np.testing.assert_array_equal(hard.argmax(axis=-1), weights.argmax(axis=-1))
            np.testing.assert_array_equal(results.soft(hard, value), out)
