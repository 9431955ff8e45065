"""Scores against their formulas in float64, at awkward sizes; what each mask shows; what becomes of the softmax."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastattn import mechanisms as m
from fastattn.kernels.attention.arguments import COLUMNS, KEYS, LIMIT, ROWS
from fastattn.ops.cpu.norm import unit_vectors
from fastattn.ops.reference import mechanisms as formulas
from tests.mechanisms.oracle import check, check_attention, inputs, normal
from tests.models.pairs import pairs

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
        "dot": (m.Dot(), formulas.dot, ()),
        "scaled dot": (m.ScaledDot(), formulas.scaled_dot, ()),
        "alibi": (m.ScaledDot(bias=alibi), formulas.scaled_dot, (None, 0.0, alibi)),
        "t5": (m.ScaledDot(0.3, bias=t5), formulas.scaled_dot, (0.3, 0.0, t5)),
        "softcap": (m.ScaledDot(2.0, softcap=1.5), formulas.scaled_dot, (2.0, 1.5)),
        "content": (m.Content(3.5), formulas.content, (3.5,)),
        "general": (m.General(weight), formulas.general, every[:1]),
        "general, each head's": (m.General(weights), formulas.general, (weights,)),
        "additive": (m.Additive(*shared), formulas.additive, every[1:]),
        "additive, each head's": (m.Additive(*own), formulas.additive, own),
        "graph": (m.Graph(vector, 0.1), formulas.graph, (vector, 0.1)),
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
            check_attention(got, lambda q, k, w, S=S: formulas.location(q, w, S), (query, value, value), (every,))


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
        check_attention(got, formulas.graph, arrays, (vector, slope))


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
        check_attention(got, formulas.additive, arrays, parameters)


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
        return m.Padded(lengths), formulas.padded(lengths, S)
    if name == "causal":
        offset = draw(st.integers(-T, S))
        return m.Causal(offset), formulas.causal(T, S, (offset,))
    if name == "restricted":
        size = draw(st.integers(1, S + 2))
        return m.Restricted(size), formulas.restricted(T, S, size)
    if name == "local-m":
        return m.LocalMonotonic(size := draw(st.integers(0, S))), formulas.local_monotonic(T, S, size)
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


T, S = 13, 40
LENGTHS = np.array([31, 0])
ANY = np.random.default_rng(5).random((2, 3, T, S)) < 0.3
STARTS, INDICES = np.array([0, 3, 3, 4, *[4] * (T - 3)]), np.array([0, 39, 7, 12])
GRAPH = m.Neighbours(STARTS, INDICES)
CASES = {
    "everything": (m.Everything(), True),
    "padded": (m.Padded(LENGTHS), formulas.padded(LENGTHS, S)),
    "padded alike": (m.Padded(7), formulas.padded(np.array([7, 7]), S)),
    "causal": (m.Causal(), formulas.causal(T, S)),
    "causal, later": (m.Causal([9, -3]), formulas.causal(T, S, (9, -3))),
    "restricted": (m.Restricted(5), formulas.restricted(T, S, 5)),
    "restricted, even": (m.Restricted(4), formulas.restricted(T, S, 4)),
    "restricted to one": (m.Restricted(1), formulas.restricted(T, S, 1)),
    "wider than all": (m.Restricted(2**70), True),
    "local-m": (m.LocalMonotonic(3), formulas.local_monotonic(T, S, 3)),
    "mask": (m.Mask(ANY), ANY),
    "mask of keys": (m.Mask(ANY[0, 0, 0]), ANY[0, 0, 0]),
    "masks": ((m.Mask(ANY), m.Mask(ANY[:1, ::-1])), ANY & ANY[:1, ::-1]),
    "nothing": (m.Mask(np.zeros((1, 1), bool)), np.zeros((1, 1), bool)),
    "neighbours": (GRAPH, formulas.neighbours(STARTS, INDICES, S)),
    "several": (
        (m.Padded(LENGTHS), m.Causal(4), m.LocalMonotonic(9), m.Mask(ANY)),
        formulas.padded(LENGTHS, S) & formulas.causal(T, S, (4,)) & formulas.restricted(T + 4, S, 19)[4:] & ANY,
    ),
    "neighbours to come": ((GRAPH, m.Causal()), formulas.neighbours(STARTS, INDICES, S) & formulas.causal(T, S)),
    "paddings": ((m.Padded(20), m.Padded([30, 10])), formulas.padded(np.array([20, 10]), S)),
}
ADDITIVE = normal(4, 3, 8, 7), normal(5, 3, 8, 7), normal(6, 3, 8)
SCORES = {
    "dot": (m.ScaledDot(), formulas.scaled_dot, ()),
    "capped": (m.ScaledDot(softcap=2.0), formulas.scaled_dot, (None, 2.0)),
    "additive": (m.Additive(*ADDITIVE), formulas.additive, ADDITIVE),
    "graph": (m.Graph(normal(4, 3, 14)), formulas.graph, (normal(4, 3, 14),)),
}


@pytest.mark.parametrize("name", CASES)
def test_a_mask_agrees_with_its_formula(name):
    arrays, (given, mask) = inputs(T=T, S=S), CASES[name]
    for mine, formula, parameters in SCORES.values():
        got = m.attend(*arrays, score=mine, seen=given, return_weights=True)
        check_attention(got, formula, arrays, parameters, mask)
        assert (got[1][~np.broadcast_to(mask, got[1].shape)] == 0).all()
        blind = ~np.broadcast_to(mask, got[1].shape).any(axis=-1).transpose(0, 2, 1)
        assert (got[0][blind] == 0).all()
        np.testing.assert_array_equal(m.attend(*arrays, score=mine, seen=given), got[0])


def test_bands_across_blocks_of_keys_and_of_queries():
    arrays, distance_TS = inputs(B=1, T=LIMIT + 9, S=KEYS + 60), np.arange(KEYS + 60) - np.arange(LIMIT + 9)[:, None]
    mask = formulas.causal(LIMIT + 9, KEYS + 60, (150,)) & (np.abs(distance_TS - 150) <= 40)
    for score, formula, parameters in SCORES.values():
        got = m.attend(*arrays, score=score, seen=(m.Causal(150), m.LocalMonotonic(40)), return_weights=True)
        check_attention(got, formula, arrays, parameters, mask)


def test_a_mask_and_a_bias_of_arrays_without_heads():
    arrays = tuple(x[:, :, 0] for x in inputs(T=T, S=S))
    bias, mask = normal(7, 2, T, S), ANY[:, 0]
    out, weights = m.attend(*arrays, score=m.ScaledDot(bias=bias), seen=m.Mask(mask), return_weights=True)
    heads = tuple(x[:, :, None] for x in arrays)
    check_attention(
        (out[:, :, None], weights[:, None]), formulas.scaled_dot, heads, (None, 0.0, bias[:, None]), mask[:, None]
    )


def test_sentences_end_to_end():
    starts, arrays = ([0, 4, 4, T], [0, 0, 17, S]), inputs(B=1, T=T, S=S)
    mask = formulas.sentences(*starts)
    earlier = np.concatenate([np.zeros((4, S), bool), np.arange(S) - 17 <= np.arange(T - 4)[:, None]])
    for parts, shown in (((), mask), ((m.Causal(),), mask & earlier)):
        for score, formula, parameters in SCORES.values():
            got = m.attend(*arrays, score=score, seen=(m.Sentences(*starts), *parts), return_weights=True)
            check_attention(got, formula, arrays, parameters, shown)


REST = [(m.Causal(2),), (m.Padded(3),), (m.Restricted(4), m.Causal(1)), (m.LocalMonotonic(2),)]


@pytest.mark.parametrize("rest", [(), *REST, (m.Padded(2), m.Everything())], ids=str)
def test_sentences_at_once_have_the_bits_of_each_alone(rest):
    for score in (m.ScaledDot(softcap=3.0), m.Content(2.0)):
        query, key, value = inputs(B=1, T=30, S=40)
        starts, key_starts = [0, 11, 11, 12, 30], [0, 7, 11, 14, 40]
        given = {"score": score, "seen": (m.Sentences(starts, key_starts), *rest)}
        out = m.attend(query, key, value, **given)
        for n, (first, stop) in enumerate(zip(starts, starts[1:])):
            rows, keys = slice(first, stop), slice(key_starts[n], key_starts[n + 1])
            alone = m.attend(query[:, rows], key[:, keys], value[:, keys], score=score, seen=rest)
            np.testing.assert_array_equal(out[:, rows], alone)
        np.testing.assert_array_equal(m.attend(query, key, value, **given, return_weights=True)[0], out)


def test_no_sentences():
    assert m.attend(*(x[:, :0] for x in inputs(B=1, T=1, S=1)), seen=m.Sentences([0])).shape[1] == 0


def test_neighbours_of_edges():
    graph = m.Neighbours.from_edges([(0, 2), (2, 1), (0, 2)], 4)
    assert graph.starts.tolist() == [0, 2, 4, 7, 8] and graph.indices.tolist() == [0, 2, 1, 2, 0, 1, 2, 3]
    alone = m.Neighbours.from_edges([(0, 2)], 3, self_loops=False)
    assert alone.starts.tolist() == [0, 1, 1, 2] and alone.indices.tolist() == [2, 0]
    assert m.Neighbours.from_edges([], 2, self_loops=False).starts.tolist() == [0, 0, 0]


PLACES = normal(4, 3, 8, 7), normal(5, 3, 8)


def predicted(query, lengths, distance):
    """(places, mask, factors) in float64 for the mask; no window ends at a key to within rounding."""
    places = formulas.predicted_positions(query.astype(np.float64), *(x.astype(np.float64) for x in PLACES), lengths)
    near = np.abs(np.abs(np.arange(S) - places.transpose(0, 2, 1)[..., None]) - distance)
    assert near[lengths > 0].min() > 1e-4
    return formulas.local_predictive(places, S, distance)


@pytest.mark.parametrize(
    ("score", "more", "distance"), pairs(SCORES, ["", "padded", "causal", "mask"], [0.8, 3, 100.5])
)
def test_local_predictive(score, more, distance):
    query, key, value = arrays = inputs(T=T, S=S)
    mine, formula, parameters = SCORES[score]
    lengths = LENGTHS if more == "padded" else np.array([S, S])
    extra, mask = {
        "": ((), True),
        "padded": ((m.Padded(LENGTHS),), formulas.padded(LENGTHS, S)),
        "causal": ((m.Causal(9),), formulas.causal(T, S, (9,))),
        "mask": ((m.Mask(ANY),), ANY),
    }[more]
    mask = mask & predicted(query, lengths, distance)
    given = (m.LocalPredictive(*PLACES, distance), *extra)
    out, weights = m.attend(*arrays, score=mine, seen=given, return_weights=True)

    def weighed(query, key, weight, vector, *parameters):
        places = formulas.predicted_positions(query, weight, vector, lengths)
        factors = formulas.gaussian(places, S, distance)
        return formulas.weights(formula(query, key, *parameters), mask) * factors

    check(weights, weighed, query, key, *PLACES, *parameters)
    check(out, lambda q, k, v, *p: formulas.soft(weighed(q, k, *p), v), query, key, value, *PLACES, *parameters)
    np.testing.assert_array_equal(m.attend(*arrays, score=mine, seen=given), out)


def test_distances_of_any_size():
    for distance in (0, 1e-300, 1e300):
        query, key, value = inputs(B=1, T=3, S=8, H=1)
        zero = np.zeros((1, 7), np.float32), np.zeros(1, np.float32)  # p = S / 2
        out = m.attend(query, key, value, seen=m.LocalPredictive(*zero, distance))
        expected = m.attend(query, key, value) if distance > 1 else np.repeat(value[:, 4:5], 3, axis=1)
        np.testing.assert_allclose(out, expected, atol=2e-6)


def test_a_place_that_is_no_number_says_so():
    query, key, value = inputs(T=T, S=S)
    query[0, 2, 1] = np.nan
    out = m.attend(query, key, value, seen=m.LocalPredictive(*PLACES, 3))
    assert np.isnan(out[0, 2, 1]).all()
    out[0, 2, 1] = 0
    assert np.isfinite(out).all()


def test_windows_on_any_threads_and_in_any_company():
    arrays = inputs(B=3, T=50, S=60)
    given = m.LocalPredictive(*PLACES, 4)
    out = m.attend(*arrays, seen=given, threads=1)
    np.testing.assert_array_equal(m.attend(*arrays, seen=given, threads=2), out)
    np.testing.assert_array_equal(m.attend(*(x[1:2] for x in arrays), seen=given), out[1:2])


def test_the_narrower_side_of_two_windows_counts():
    """Four keys are two before a place and one behind it."""
    x = np.ones((1, 9, 1, 4), np.float32)
    for both in ((m.Restricted(4), m.LocalMonotonic(5)), (m.LocalMonotonic(5), m.Restricted(4))):
        _, weights = m.attend(x, x, x, seen=both, return_weights=True)
        assert (weights[0, 0, 4] > 0).nonzero()[0].tolist() == [2, 3, 4, 5]
    _, weights = m.attend(x, x, x, seen=(m.Restricted(8), m.LocalMonotonic(1)), return_weights=True)
    assert (weights[0, 0, 4] > 0).nonzero()[0].tolist() == [3, 4, 5]


SHARP = m.Dot()


def weights_of(query, key, mask=True):
    return formulas.weights(formulas.dot(query, key), mask)


def test_the_most_probable_key():
    for size in ({}, {"H": 4, "G": 2}, {"T": 1, "S": 1, "H": 1}, {"T": 0}, {"S": 0}, {"B": 0}):
        query, key, value = inputs(**size)
        every = tuple(np.repeat(x, query.shape[2] // x.shape[2], axis=2) for x in (key, value))
        out, weights = m.attend(query, key, value, score=SHARP, normalizer=m.Hard(), return_weights=True)
        if key.shape[1]:
            check(out, lambda q, k, v: formulas.hard(weights_of(q, k), v), query, *every)
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
        np.testing.assert_array_equal(formulas.soft(hard, arrays[2]), out)
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
    exact = formulas.dot(*(x.astype(float) for x in (query, key)))
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
    mask = formulas.padded(np.array([4, 0]), 9) & formulas.causal(5, 9)
    for normalizer in (m.Hard(), m.Hard(seed=0), m.Hard(seed=11)):
        out, weights = m.attend(*arrays, score=SHARP, seen=given, normalizer=normalizer, return_weights=True)
        assert (out[1] == 0).all() and (weights[1] == 0).all()
        assert (weights[0].sum(axis=-1) == 1).all() and not weights[~np.broadcast_to(mask, weights.shape)].any()
        np.testing.assert_array_equal(formulas.soft(weights, arrays[2]), out)


def test_a_hard_choice_in_a_sentence_without_keys_is_none_of_the_sentence_before():
    query, key, value = inputs(B=1, T=6, S=4)
    given = m.Sentences([0, 3, 6], [0, 4, 4])
    out, weights = m.attend(query, key, value, score=SHARP, seen=given, normalizer=m.Hard(), return_weights=True)
    assert (out[:, 3:] == 0).all() and (weights[:, :, 3:] == 0).all() and (weights[:, :, :3].sum(axis=-1) == 1).all()
    out = m.attend(query, key, value, score=SHARP, seen=given, normalizer=m.Hard())
    assert (out[:, 3:] == 0).all() and np.abs(out[:, :3]).min() > 0


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
        check(weights, lambda q, k, *p: formulas.weights(formulas.additive(q, k, *p)), query, key, *parameters)
        np.testing.assert_array_equal(twice, weights)
    np.testing.assert_array_equal(m.attend(query, key, None, **given), weights)


def test_a_pointer_by_place_needs_neither_keys_nor_values():
    query, weight = inputs()[0], normal(4, 9, 7)
    weights = m.attend(query, None, None, score=m.Location(weight), normalizer=m.Pointer())
    every = np.repeat(weight[None], 3, axis=0)
    check(weights, lambda q, w: formulas.weights(formulas.location(q, w, 9)), query, every)
    np.testing.assert_array_equal(
        m.attend(query[:, :, 0], None, None, score=m.Location(weight), normalizer=m.Pointer()), weights[:, 0]
    )


def test_a_map_of_the_input():
    query, key, value = inputs(S=12)
    maps = m.attend(query, key, None, normalizer=m.Saliency((3, 4)))
    check(maps, lambda q, k: formulas.saliency(formulas.weights(formulas.scaled_dot(q, k)), (3, 4)), query, key)
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
            np.testing.assert_array_equal(formulas.soft(hard, value), out)
