"""Sizes of NumPy's small types, empty batches, nested lists, and numbers that would ask for too much memory."""

import numpy as np
import pytest

from fastattn import mechanisms as m
from tests.mechanisms.oracle import inputs, normal, refuses


def test_sizes_of_any_integer_type():
    for of in (np.uint8, np.int8, np.int64):
        table = normal(1, 8, 2)
        np.testing.assert_array_equal(m.alibi_bias(2, of(100), of(7)), m.alibi_bias(2, 100, 7))
        np.testing.assert_array_equal(m.t5_bias(table, of(100), of(120)), m.t5_bias(table, 100, 120))


def test_an_empty_batch_is_rotated():
    assert m.rotary(normal(1, 0, 3, 4)).shape == (0, 3, 4)
    assert m.rotary(normal(1, 0, 3, 2, 4)).shape == (0, 3, 2, 4)


QUERY, KEY, VALUE = inputs(B=1, T=5, S=9, H=1, G=1, K=7, V=6)
RAGGED = [[0], [1, 2]]
BAD = {
    "a bias of many heads": (
        lambda: m.alibi_bias(1 << 16, 1 << 16, 1 << 16),
        "queries: expected at most 2..32 numbers",
    ),
    "nested positions": (lambda: m.sinusoids(RAGGED, 4), "positions: expected integers, got lists of different"),
    "nested edges": (lambda: m.Neighbours.from_edges(RAGGED, 3), "edges: expected integers, got lists of different"),
    "no edges": (lambda: m.Neighbours.from_edges(None, 3), r"edges: expected pairs of nodes, got shape \(\)"),
    "many nodes": (lambda: m.Neighbours.from_edges([(0, 1)], 10**15), "nodes: expected at most 1073741824"),
    "nested starts": (
        lambda: m.attend(QUERY, KEY, VALUE, seen=m.Sentences(RAGGED)),
        "query_starts: expected integers, got lists of different",
    ),
    "nested indices": (
        lambda: m.attend(QUERY, KEY, VALUE, seen=m.Neighbours([0] * 6, RAGGED)),
        "indices: expected integers, got lists of different",
    ),
    "no paths": (
        lambda: m.heterogeneous_attention(
            normal(1, 3, 4), normal(2, 2, 3, 4), normal(3, 1, 2, 6), None, normal(4, 3, 6), normal(5, 3), normal(6, 3)
        ),
        "metapaths: expected a list of Neighbours, got NoneType",
    ),
    "a wide memory": (
        lambda: m.content_weights(normal(1, 1, 2, 5000), normal(2, 1, 5, 5000), np.ones((1, 2), np.float32)),
        "key: expected a width of at most 4096, got 5000",
    ),
}


def test_misuse_is_told_in_one_line():
    for call, message in BAD.values():
        refuses(call, message)


@pytest.mark.parametrize("parts", [(), (m.Mask(np.arange(45).reshape(5, 9) % 4 > 0),)], ids=["alone", "with a mask"])
def test_values_that_are_not_finite_count_for_those_who_see_them_alone(parts):
    query, key, value = inputs(B=2, T=5, S=9, H=4, G=2, K=7, V=6)
    places = m.LocalPredictive(normal(5, 3, 7), normal(6, 3), 2)
    given = {"score": m.ScaledDot(softcap=3.0), "seen": (m.Padded([4, 7]), places, *parts)}
    expected, weights = m.attend(query, key, value, **given, return_weights=True)
    padding = value.copy()
    for b, length in enumerate((4, 7)):
        padding[b, length:] = np.nan
    np.testing.assert_array_equal(m.attend(query, key, padding, **given), expected)
    endless = value.copy()
    endless[1, 3, 1, 2] = np.inf
    got = m.attend(query, key, endless, **given)
    seeing = np.zeros(got.shape, bool)
    seeing[1, :, 2:, 2] = weights[1, 2:, :, 3].T > 0
    assert seeing.any() and not seeing[1, :, 2:, 2].all()
    np.testing.assert_array_equal(got[seeing], np.inf)
    np.testing.assert_array_equal(got[~seeing], expected[~seeing])
