"""What each mask shows, alone and together, for scores of each kernel."""

import numpy as np
import pytest

from fastattn import mechanisms as m
from fastattn.kernels.attention.arguments import KEYS, LIMIT
from fastattn.ops.reference.mechanisms import results, scores, seen
from tests.mechanisms.oracle import check, check_attention, inputs, normal
from tests.models.pairs import pairs

T, S = 13, 40
LENGTHS = np.array([31, 0])
ANY = np.random.default_rng(5).random((2, 3, T, S)) < 0.3
STARTS, INDICES = np.array([0, 3, 3, 4, *[4] * (T - 3)]), np.array([0, 39, 7, 12])
GRAPH = m.Neighbours(STARTS, INDICES)
CASES = {
    "everything": (m.Everything(), True),
    "padded": (m.Padded(LENGTHS), seen.padded(LENGTHS, S)),
    "padded alike": (m.Padded(7), seen.padded(np.array([7, 7]), S)),
    "causal": (m.Causal(), seen.causal(T, S)),
    "causal, later": (m.Causal([9, -3]), seen.causal(T, S, (9, -3))),
    "restricted": (m.Restricted(5), seen.restricted(T, S, 5)),
    "restricted, even": (m.Restricted(4), seen.restricted(T, S, 4)),
    "restricted to one": (m.Restricted(1), seen.restricted(T, S, 1)),
    "wider than all": (m.Restricted(2**70), True),
    "local-m": (m.LocalMonotonic(3), seen.local_monotonic(T, S, 3)),
    "mask": (m.Mask(ANY), ANY),
    "mask of keys": (m.Mask(ANY[0, 0, 0]), ANY[0, 0, 0]),
    "masks": ((m.Mask(ANY), m.Mask(ANY[:1, ::-1])), ANY & ANY[:1, ::-1]),
    "nothing": (m.Mask(np.zeros((1, 1), bool)), np.zeros((1, 1), bool)),
    "neighbours": (GRAPH, seen.neighbours(STARTS, INDICES, S)),
    "several": (
        (m.Padded(LENGTHS), m.Causal(4), m.LocalMonotonic(9), m.Mask(ANY)),
        seen.padded(LENGTHS, S) & seen.causal(T, S, (4,)) & seen.restricted(T + 4, S, 19)[4:] & ANY,
    ),
    "neighbours to come": ((GRAPH, m.Causal()), seen.neighbours(STARTS, INDICES, S) & seen.causal(T, S)),
    "paddings": ((m.Padded(20), m.Padded([30, 10])), seen.padded(np.array([20, 10]), S)),
}
ADDITIVE = normal(4, 3, 8, 7), normal(5, 3, 8, 7), normal(6, 3, 8)
SCORES = {
    "dot": (m.ScaledDot(), scores.scaled_dot, ()),
    "capped": (m.ScaledDot(softcap=2.0), scores.scaled_dot, (None, 2.0)),
    "additive": (m.Additive(*ADDITIVE), scores.additive, ADDITIVE),
    "graph": (m.Graph(normal(4, 3, 14)), scores.graph, (normal(4, 3, 14),)),
}


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_its_formula(name):
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
    mask = seen.causal(LIMIT + 9, KEYS + 60, (150,)) & (np.abs(distance_TS - 150) <= 40)
    for score, formula, parameters in SCORES.values():
        got = m.attend(*arrays, score=score, seen=(m.Causal(150), m.LocalMonotonic(40)), return_weights=True)
        check_attention(got, formula, arrays, parameters, mask)


def test_a_mask_and_a_bias_of_arrays_without_heads():
    arrays = tuple(x[:, :, 0] for x in inputs(T=T, S=S))
    bias, mask = normal(7, 2, T, S), ANY[:, 0]
    out, weights = m.attend(*arrays, score=m.ScaledDot(bias=bias), seen=m.Mask(mask), return_weights=True)
    heads = tuple(x[:, :, None] for x in arrays)
    check_attention(
        (out[:, :, None], weights[:, None]), scores.scaled_dot, heads, (None, 0.0, bias[:, None]), mask[:, None]
    )


def test_sentences_end_to_end():
    starts, arrays = ([0, 4, 4, T], [0, 0, 17, S]), inputs(B=1, T=T, S=S)
    mask = seen.sentences(*starts)
    earlier = np.concatenate([np.zeros((4, S), bool), np.arange(S) - 17 <= np.arange(T - 4)[:, None]])
    for given, shown in (((m.Sentences(*starts),), mask), ((m.Sentences(*starts), m.Causal()), mask & earlier)):
        for score, formula, parameters in SCORES.values():
            got = m.attend(*arrays, score=score, seen=given, return_weights=True)
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
    places = seen.predicted_places(query.astype(np.float64), *(x.astype(np.float64) for x in PLACES), lengths)
    near = np.abs(np.abs(np.arange(S) - places.transpose(0, 2, 1)[..., None]) - distance)
    assert near[lengths > 0].min() > 1e-4
    return seen.local_predictive(places, S, distance)


@pytest.mark.parametrize(
    ("score", "more", "distance"), pairs(SCORES, ["", "padded", "causal", "mask"], [0.8, 3, 100.5])
)
def test_local_predictive(score, more, distance):
    query, key, value = arrays = inputs(T=T, S=S)
    mine, formula, parameters = SCORES[score]
    lengths = LENGTHS if more == "padded" else np.array([S, S])
    extra, mask = {
        "": ((), True),
        "padded": ((m.Padded(LENGTHS),), seen.padded(LENGTHS, S)),
        "causal": ((m.Causal(9),), seen.causal(T, S, (9,))),
        "mask": ((m.Mask(ANY),), ANY),
    }[more]
    mask = mask & predicted(query, lengths, distance)
    given = (m.LocalPredictive(*PLACES, distance), *extra)
    out, weights = m.attend(*arrays, score=mine, seen=given, return_weights=True)

    def weighed(query, key, weight, vector, *parameters):
        places = seen.predicted_places(query, weight, vector, lengths)
        factors = seen.gaussian(places, S, distance)
        return results.weights(formula(query, key, *parameters), mask) * factors

    check(weights, weighed, query, key, *PLACES, *parameters)
    check(out, lambda q, k, v, *p: results.soft(weighed(q, k, *p), v), query, key, value, *PLACES, *parameters)
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
