"""Each score against its formula in float64, at awkward sizes; what holds for all of them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastattn import mechanisms as m
from fastattn.kernels.attention.arguments import COLUMNS, KEYS, LIMIT, ROWS
from fastattn.ops.cpu.norm import unit_vectors
from fastattn.ops.reference.mechanisms import scores, seen
from tests.mechanisms.oracle import check_attention, inputs, normal

SIZES = [
    {"B": 1, "T": 1, "S": 1, "H": 1, "K": 1, "V": 1}, {}, {"H": 4, "G": 2}, {"T": 0}, {"S": 0}, {"B": 0},
    {"T": ROWS + 1, "S": COLUMNS + 1, "K": 33, "V": 17},
    {"B": 1, "T": 2 * ROWS - 1, "S": KEYS + 3, "H": 2, "K": 16, "V": COLUMNS},
]  # fmt: skip


def sizes_of(arrays):
    (_, T, H, K), S = arrays[0].shape, arrays[1].shape[1]
    return T, S, H, K


def made(name, arrays, D=11):
    """(score, its formula, the formula's parameters) for these arrays."""
    T, S, H, K = sizes_of(arrays)
    alibi, t5 = m.alibi_bias(H, T, S), m.t5_bias(normal(4, 8, H), T, S, max_distance=20)
    weight, weights = normal(4, K, K, size=K**-0.5), normal(4, H, K, K, size=K**-0.5)
    shared = normal(4, D, K), normal(5, D, K), normal(6, D)
    own = normal(4, H, D, K), normal(5, H, D, K), normal(6, H, D), normal(7, H, D)
    vector = normal(4, H, 2 * K)
    every = tuple(np.repeat(x[None], H, axis=0) for x in (weight, *shared))
    return {
        "dot": (m.Dot(), scores.dot, ()),
        "scaled dot": (m.ScaledDot(), scores.scaled_dot, ()),
        "alibi": (m.ScaledDot(bias=alibi), scores.scaled_dot, (None, 0.0, alibi)),
        "t5": (m.ScaledDot(0.3, bias=t5), scores.scaled_dot, (0.3, 0.0, t5)),
        "softcap": (m.ScaledDot(2.0, softcap=1.5), scores.scaled_dot, (2.0, 1.5)),
        "content": (m.Content(3.5), scores.content, (3.5,)),
        "general": (m.General(weight), scores.general, every[:1]),
        "general, each head's": (m.General(weights), scores.general, (weights,)),
        "additive": (m.Additive(*shared), scores.additive, every[1:]),
        "additive, each head's": (m.Additive(*own), scores.additive, own),
        "graph": (m.Graph(vector, 0.1), scores.graph, (vector, 0.1)),
    }[name]


NAMES = (
    "dot", "scaled dot", "alibi", "t5", "softcap", "content", "general", "general, each head's", "additive",
    "additive, each head's", "graph",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_agrees_with_its_formula(name):
    for size in SIZES:
        arrays = inputs(**size)
        score, formula, parameters = made(name, arrays)
        got = m.attend(*arrays, score=score, return_weights=True)
        check_attention(got, formula, arrays, parameters)
        np.testing.assert_array_equal(m.attend(*arrays, score=score), got[0])


def test_location_needs_no_keys():
    for size in SIZES:
        query, _, value = arrays = inputs(**size)
        T, S, H, K = sizes_of(arrays)
        if value.shape[2] != H:
            value = np.repeat(value, 2, axis=2)
        for weight in (normal(4, S + 2, K), normal(4, H, S, K)):
            score = m.Location(weight)
            got = m.attend(query, None, value, score=score, return_weights=True)
            every = np.broadcast_to(weight, (H, *weight.shape[-2:]))
            check_attention(got, lambda q, k, w, S=S: scores.location(q, w, S), (query, value, value), (every,))


def test_without_heads_it_is_one_head():
    for name in NAMES:
        arrays = inputs(H=1)
        score, _, _ = made(name, arrays)
        out, weights = m.attend(*arrays, score=score, return_weights=True)
        plain, plain_weights = m.attend(*(x[:, :, 0] for x in arrays), score=score, return_weights=True)
        np.testing.assert_array_equal(plain, out[:, :, 0])
        np.testing.assert_array_equal(plain_weights, weights[:, 0])


def test_padding_changes_no_bit():
    for name in NAMES:
        query, key, value = arrays = inputs(S=KEYS + 9, T=4)
        lengths = np.array([KEYS + 9, 5])
        score, _, _ = made(name, arrays)
        out = m.attend(*arrays, score=score, seen=m.Padded(lengths))
        key[1, 5:], value[1, 5:] = 1e30, -7
        np.testing.assert_array_equal(m.attend(*arrays, score=score, seen=m.Padded(lengths)), out)
        alone, _, _ = made(name, (query[1:], key[1:, :5], value))
        few = m.attend(query[1:], key[1:, :5], value[1:, :5], score=alone)
        np.testing.assert_allclose(few, out[1:], atol=2e-6)


def test_threads_and_company_change_no_bit():
    for name in NAMES:
        arrays = inputs(B=3, T=LIMIT + 5, S=40)
        score, _, _ = made(name, arrays)
        out = m.attend(*arrays, score=score, threads=1)
        np.testing.assert_array_equal(m.attend(*arrays, score=score, threads=2), out)
        np.testing.assert_array_equal(m.attend(*(x[1:2] for x in arrays), score=score), out[1:2])


@pytest.mark.parametrize("name", ["dot", "content", "general", "additive", "additive, each head's", "graph"])
def test_inputs_of_any_size(name):
    for size in (1e-30, 1e-3, 6.0, 1e4, 1e18):
        arrays = inputs(T=ROWS + 2, S=COLUMNS + 5, size=size)
        score, formula, parameters = made(name, arrays)
        check_attention(m.attend(*arrays, score=score, return_weights=True), formula, arrays, parameters)


def test_directions_of_any_float32():
    x = np.array([[3, 4], [3e38, 3e38], [1e-45, 0], [6e-42, -8e-42], [1e-30, 1e-45], [0, 0]], np.float32)
    expected = [[0.6, 0.8], [0.5**0.5, 0.5**0.5], [1, 0], [0.6, -0.8], [1, 1e-15], [0, 0]]
    np.testing.assert_allclose(unit_vectors(x), expected, rtol=2e-3, atol=1e-6)
    np.testing.assert_allclose(unit_vectors(x[:2]), expected[:2], rtol=2e-7)
    assert np.isnan(unit_vectors(np.array([[np.nan, 1], [1, np.inf]], np.float32))).all()
    wide = normal(1, 70, 4 * COLUMNS + 3)
    lengths = np.linalg.norm(wide.astype(np.float64), axis=1, keepdims=True)
    np.testing.assert_allclose(unit_vectors(wide), wide / lengths, rtol=1e-6)
    assert unit_vectors(np.empty((0, 3), np.float32)).shape == (0, 3)


def test_a_leaky_relu_of_any_slope():
    for slope in (-0.5, 0.0, 1.0, 1.5):
        arrays, vector = inputs(), normal(4, 3, 14)
        got = m.attend(*arrays, score=m.Graph(vector, slope), return_weights=True)
        check_attention(got, scores.graph, arrays, (vector, slope))


SUMS = [
    ([-44, -36, -35, -34.9, 0, 35, 35.1, 44, 50], [0.5, -0.5, 0]),
    ([100, -100, 3e38, -3e38], [-35, 35, 1, 0]),
    ([100, -100, 60, -60], [-100, 100, -99.5, 99.5, -60.25, 59, 0]),
    ([20, -20], [-20.5, 20.5, 20, -20, 0]),
    ([0.0, 1e-7, -1e-7, 1e-20], [0.0, 1e-7, -1e-7, -1e-20]),
    (np.linspace(-12, 12, 97), np.linspace(-12, 12, 97)),
]


def test_the_tanh_of_sums_of_any_size():
    """Where exponentials of both parts would overflow, or are cut, tanh is as right; projections by an identity."""
    parameters = np.ones((1, 1, 1), np.float32), np.ones((1, 1, 1), np.float32), np.full((1, 1), 3.0, np.float32)
    for sums in SUMS:
        query, key = (np.array(x, np.float32)[None, :, None, None] for x in sums)
        arrays = query, key, normal(3, 1, key.shape[1], 1, 3)
        got = m.attend(*arrays, score=m.Additive(*parameters), return_weights=True)
        check_attention(got, scores.additive, arrays, parameters)


def test_a_query_that_is_no_number_stays_alone():
    query, key, value = inputs(B=1, T=12, H=1)
    W, U, v = normal(4, 10, 7), normal(5, 10, 7), normal(6, 10)
    for number in (np.nan, np.inf):
        query[0, 3] = number
        out = m.attend(query, key, value, score=m.Additive(W, U, v))[0, :, 0]
        assert np.isfinite(np.delete(out, 3, axis=0)).all()
        assert np.isnan(out[3]).all()


@settings(max_examples=20, deadline=None)
@given(D=st.integers(1, 70), T=st.integers(1, 20), S=st.integers(1, 40), data=st.data())
def test_additive_of_any_shape(D, T, S, data):
    arrays = inputs(B=1, T=T, S=S, H=2, K=3)
    score, formula, parameters = made("additive, each head's", arrays, D)
    seen = m.Padded(data.draw(st.integers(0, S)))
    mask = np.arange(S) < seen.lengths
    check_attention(m.attend(*arrays, score=score, seen=seen, return_weights=True), formula, arrays, parameters, mask)


def part(name, draw, B, T, S):
    """(an object, its mask)."""
    if name == "padded":
        lengths = np.array(draw(st.lists(st.integers(0, S), min_size=B, max_size=B)))
        return m.Padded(lengths), seen.padded(lengths, S)
    if name == "causal":
        offset = draw(st.integers(-T, S))
        return m.Causal(offset), seen.causal(T, S, (offset,))
    if name == "restricted":
        size = draw(st.integers(1, S + 2))
        return m.Restricted(size), seen.restricted(T, S, size)
    if name == "local-m":
        return m.LocalMonotonic(size := draw(st.integers(0, S))), seen.local_monotonic(T, S, size)
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    mask_TS = rng.random((T, S)) < 0.4
    if name == "mask":
        return m.Mask(mask_TS), mask_TS
    starts = np.concatenate([[0], np.cumsum(mask_TS.sum(axis=1))])
    return m.Neighbours(starts, np.nonzero(mask_TS)[1]), mask_TS


PARTS = ("padded", "restricted", "local-m", "mask", "neighbours")


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(NAMES),
    parts=st.lists(st.sampled_from(PARTS), max_size=2, unique=True),
    B=st.integers(1, 2),
    T=st.integers(1, 2 * ROWS),
    S=st.integers(1, COLUMNS + 3),
    data=st.data(),
)
def test_any_of_them_together(name, parts, B, T, S, data):
    arrays = inputs(B=B, T=T, S=S, H=2, G=data.draw(st.sampled_from([1, 2])), K=5, V=3)
    score, formula, parameters = made(name, arrays, D=6)
    # windows are around a query's place, which an offset moves: both together are in test_seen.py
    windowed = {"restricted", "local-m"} & set(parts)
    names = [*parts, *(["causal"] if not windowed and data.draw(st.booleans()) else [])]
    drawn = [part(one, data.draw, B, T, S) for one in names]
    mask = np.ones((1, 1, T, S), bool)
    for _, other in drawn:
        mask = mask & other
    given = tuple(one for one, _ in drawn)
    out, weights = m.attend(*arrays, score=score, seen=given, normalizer=m.Soft(), return_weights=True)
    check_attention((out, weights), formula, arrays, parameters, mask)
    query, key, _ = arrays
    np.testing.assert_array_equal(m.attend(query, key, None, score=score, seen=given, normalizer=m.Pointer()), weights)
    maps = m.attend(query, key, None, score=score, seen=given, normalizer=m.Saliency((1, S)))
    np.testing.assert_array_equal(maps[:, :, 0], weights.mean(axis=1))
    _, hard = m.attend(*arrays, score=score, seen=given, normalizer=m.Hard(), return_weights=True)
    # of weights that are equal but for rounding either may be chosen
    np.testing.assert_allclose((hard * weights).sum(axis=-1), weights.max(axis=-1), rtol=3e-5)
    np.testing.assert_array_equal(hard.sum(axis=-1), weights.any(axis=-1).astype(np.float32))
