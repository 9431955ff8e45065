"""Graph attention on Zachary's karate club and on graphs of any shape, against the papers' formulas in float64."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fastattn import mechanisms as m
from fastattn import use_threads
from fastattn.ops.reference import mechanisms as formulas
from tests.mechanisms.oracle import CLUB, EDGES, MEMBERS, check, check_attention, layer, normal


def of_heads(*arguments):
    """The formula with heads concatenated."""
    out_NHV = formulas.graph_attention(*arguments)
    return out_NHV.reshape(len(out_NHV), -1)


def test_a_layer_on_the_club():
    for size in ({}, {"F": 5, "H": 1, "V": 1}, {"F": 7, "H": 3, "V": 17}, {"H": 17, "V": 2}):
        arrays = layer(**size)
        parts = CLUB.starts, CLUB.indices
        concatenated, averaged = m.graph_attention(*arrays, CLUB), m.graph_attention(*arrays, CLUB, average=True)
        check(concatenated, of_heads, *arrays, *parts)
        check(averaged, lambda *a: formulas.graph_attention(*a).mean(axis=1), *arrays, *parts)
        check(m.graph_attention(*arrays, CLUB, slope=0.7), of_heads, *arrays, *parts, 0.7)
        np.testing.assert_allclose(
            formulas.graph_attention_by_edges(*arrays, *parts).reshape(MEMBERS, -1), concatenated, atol=1e-5
        )


def test_weights_add_up_to_one_for_each_node():
    arrays = layer()
    out, weights = m.graph_attention(*arrays, CLUB, return_weights=True)
    np.testing.assert_allclose(np.add.reduceat(weights, CLUB.starts[:-1]), 1, rtol=1e-6)
    projected = np.einsum("nf,hvf->nhv", *(x.astype(float) for x in arrays[:2]))
    sums = np.add.reduceat(weights[..., None] * projected[CLUB.indices], CLUB.starts[:-1])
    np.testing.assert_allclose(out, sums.reshape(MEMBERS, -1), atol=3e-6)
    np.testing.assert_array_equal(m.graph_attention(*arrays, CLUB), out)


def test_other_scores_of_a_graphs_neighbours():
    arrays = normal(1, 2, MEMBERS, 4, 20), normal(2, 2, MEMBERS, 2, 20), normal(3, 2, MEMBERS, 2, 9)
    vector, parameters = normal(4, 4, 40), (normal(4, 5, 20), normal(5, 5, 20), normal(6, 5))
    every = tuple(np.repeat(p[None], 4, axis=0) for p in parameters)
    mask = formulas.neighbours(CLUB.starts, CLUB.indices, MEMBERS)
    for score, formula, numbers in (
        (m.ScaledDot(), formulas.scaled_dot, ()),
        (m.Graph(vector), formulas.graph, (vector,)),
        (m.Additive(*parameters), formulas.additive, every),
    ):
        got = m.attend(*arrays, score=score, seen=CLUB, return_weights=True)
        check_attention(got, formula, arrays, numbers, mask)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.integers(0, 40), max_size=30), st.integers(1, 50), st.integers(1, 3), st.sampled_from([1, 4, 17]),
    st.integers(1, 2), st.booleans(),
)  # fmt: skip
def test_graphs_of_any_shape(degrees, nodes, H, V, threads, by_graph):
    rng = np.random.default_rng(len(degrees) * 53 + nodes)
    rows = [np.sort(rng.permutation(nodes)[: min(degree, nodes)]) for degree in degrees]
    starts = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    indices = np.concatenate([np.empty(0, np.int64), *rows]).astype(np.int64)
    arrays = normal(1, 1, len(degrees), H, 5), normal(2, 1, nodes, H, 5), normal(3, 1, nodes, H, V)
    vector = normal(4, H, 10)
    score, formula, parameters = m.ScaledDot(), formulas.scaled_dot, ()
    if by_graph:
        score, formula, parameters = m.Graph(vector), formulas.graph, (vector,)
    near, mask = m.Neighbours(starts, indices), formulas.neighbours(starts, indices, nodes)
    got = m.attend(*arrays, score=score, seen=near, return_weights=True, threads=threads)
    check_attention(got, formula, arrays, parameters, mask)
    assert (got[0][0, ~mask.any(axis=1)] == 0).all()


def test_many_nodes_on_any_threads():
    """Enough for several parts, with one node that has as many neighbours as all others."""
    rng = np.random.default_rng(0)
    hub = np.stack([np.zeros(2999, int), np.arange(1, 3000)], axis=1)
    edges = np.concatenate([rng.integers(0, 3000, (9000, 2)), hub])
    near, arrays = m.Neighbours.from_edges(edges, 3000), layer(3000, 16, 4, 8)
    with use_threads(1):
        alone = m.graph_attention(*arrays, near)
    with use_threads(2):
        np.testing.assert_array_equal(m.graph_attention(*arrays, near), alone)
    check(alone, lambda *a: formulas.graph_attention_by_edges(*a).reshape(3000, -1), *arrays, near.starts, near.indices)


def test_features_of_any_size():
    for size in (1e-30, 1e-3, 10.0, 1e15):
        features, weight, vector = layer()
        arrays = features * np.float32(size), weight, vector
        check(m.graph_attention(*arrays, CLUB), of_heads, *arrays, CLUB.starts, CLUB.indices)


def test_two_levels_of_attention():
    """Meta-paths: who met, and who met somebody in common."""
    met = np.zeros((MEMBERS, MEMBERS), int)
    met[tuple(np.array(EDGES).T)] = 1
    paths = CLUB, m.Neighbours.from_edges(np.argwhere((met | met.T) @ (met | met.T) > 0), MEMBERS)
    features, weight, _ = layer(F=10, H=2, V=6)
    vectors, semantic = normal(4, 2, 2, 12), (normal(5, 7, 12), normal(6, 7), normal(7, 7))
    plain = [(path.starts, path.indices) for path in paths]
    out, weights = m.heterogeneous_attention(features, weight, vectors, paths, *semantic)
    for got, n in ((out, 0), (weights, 1)):

        def formula(features, weight, vectors, *semantic, n=n):
            return formulas.heterogeneous_attention(features, weight, vectors, plain, *semantic)[n]

        check(got, formula, features, weight, vectors, *semantic)
    assert abs(weights.sum() - 1) < 1e-6


def test_one_kind_is_all_there_is():
    features = normal(1, 1, 9, 4)
    out, weights = m.semantic_attention(features, normal(2, 3, 4), normal(3, 3), normal(4, 3))
    np.testing.assert_array_equal(out, features[0])
    assert weights.tolist() == [1]


def test_semantic_scores_of_any_size():
    """exp overflows from 709 on: only differences to the greatest score are its arguments."""
    features, weight, bias = normal(1, 3, 5, 4), normal(2, 6, 4), normal(3, 6)
    vector = np.sign(normal(4, 6)) * np.float32(5000)
    _, weights = m.semantic_attention(features, weight, bias, vector)
    assert np.isfinite(weights).all()
    check(weights, lambda *given: formulas.semantic_attention(*given)[1], features, weight, bias, vector)
