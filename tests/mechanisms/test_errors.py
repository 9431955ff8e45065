"""What does not fit is told in one line, and nothing else happens; what is unusual but fits is computed."""

from functools import partial

import numpy as np
import pytest

from fastattn import mechanisms as m
from fastattn.errors import InputError
from tests.mechanisms.oracle import CLUB, EDGES, inputs, layer, normal, shares
from tests.messages import refused

QUERY, KEY, VALUE = inputs(B=2, T=5, S=9, H=4, G=2, K=7, V=6)
W, U, V = normal(1, 8, 7), normal(2, 8, 7), normal(3, 8)
PLACES = m.LocalPredictive(W, V, 3)
ONES = np.ones((2, 3), np.float32)
RAGGED = [[0], [1, 2]]
NO_SENTENCES = [
    ([0, 5], [0, 3, 9]), ([0, 4], [0, 9]), ([1, 5], [0, 9]), ([0, 5], [0, 8]), ([0, 3, 2, 5], [0, 3, 4, 9]), ([], []),
    ([[0, 5]], None), ([0, 2**70], None), (RAGGED, None),
]  # fmt: skip
FIRST = {"query": QUERY[:1], "key": KEY[:1], "value": VALUE[:1]}
# Arguments of attend in place of those that fit.
ATTEND = {
    "arrays": [
        {"query": QUERY.astype(float)}, {"key": [1.0]}, {"query": QUERY[0, 0]}, {"key": KEY[:, :, 0]},
        {"key": KEY[:1], "value": VALUE[:1]}, {"query": QUERY[:, :, :3]}, {"query": QUERY[:, :, :0]},
        {"query": QUERY[..., :0]}, {"value": VALUE[:, :8]}, {"value": VALUE[..., :0]},
        {"key": normal(1, 2, 9, 2, 4097)}, {"key": KEY[..., :6]}, {"key": None}, {"value": None},
    ],
    "kinds": [
        {"score": "dot"}, {"score": m.ScaledDot}, {"seen": np.ones(9, bool)}, {"seen": (m.Everything(), None)},
        {"normalizer": "soft"}, {"return_weights": 1}, {"threads": 0},
    ],
    "scores": [
        {"score": m.ScaledDot(scale=np.nan)}, {"score": m.ScaledDot(softcap=-1.0)},
        {"score": m.ScaledDot(bias=normal(1, 3, 3))},
        {"score": m.ScaledDot(bias=normal(1, 3, 3)), "seen": m.Restricted(3)},
        {"score": m.ScaledDot(bias=normal(1, 1, 1, 1, 1, 1))}, {"score": m.ScaledDot(bias=np.zeros((5, 9)))},
        {"score": m.Content(-1.0)}, {"score": m.General(normal(1, 7, 6))}, {"score": m.General(normal(1, 6, 7))},
        {"score": m.General(normal(1, 3, 7, 7))},
        {"score": m.Location(normal(1, 8, 7)), "value": normal(1, 2, 9, 4, 6), "key": None},
        {"score": m.Location(normal(1, 9, 7)), "key": None}, {"score": m.Additive(normal(1, 4097, 7), U, V)},
        {"score": m.Additive(W, U[:7], V)}, {"score": m.Additive(W, U[:, :6].copy(), V)},
        {"score": m.Additive(W, U, V[:7])}, {"score": m.Additive(W, U, V, V[:7])},
        {"score": m.Additive(W.astype(float), U, V)}, {"score": m.Additive(W, U, 1.0)},
        {"score": m.Graph(normal(1, 13))}, {"score": m.Graph(normal(1, 14), np.inf)},
    ],
    "seen": [
        *({"seen": m.Padded(lengths)} for lengths in ([3, 10], -1, [1, 2, 3], [[1], [2, 3]], 1.0)),
        {"seen": (m.Causal(), m.Causal(2))}, {"seen": m.Causal(2**70)}, {"seen": m.Restricted(0)},
        {"seen": m.LocalMonotonic(-1)}, {"seen": m.Mask(np.ones((5, 9)))}, {"seen": m.Mask(np.ones((5, 8), bool))},
        {"seen": m.LocalPredictive(W[:, :6].copy(), V, 3)}, {"seen": m.LocalPredictive(W, V[:7], 3)},
        {"seen": m.LocalPredictive(W, V, -1.0)}, {"seen": (PLACES, PLACES)}, {"seen": m.Sentences([0, 5], [0, 9])},
        {"seen": m.Sentences([0, 5], [0, 9]), "normalizer": m.Hard()},
        *(FIRST | {"seen": m.Sentences(*starts)} for starts in NO_SENTENCES),
        FIRST | {"seen": (m.Sentences([0, 2, 5], [0, 7, 9]), m.Padded(3))},
        {"seen": m.Neighbours([0] * 6, RAGGED)},
    ],
    "normalizers": [
        {"normalizer": m.Hard(seed=-1)}, {"normalizer": m.Hard(seed=1.5)}, {"normalizer": m.Saliency((2, 4))},
        {"normalizer": m.Saliency(9)}, {"normalizer": m.Saliency((0, 9))},
    ],
}  # fmt: skip


@pytest.mark.parametrize("part", ATTEND)
def test_attend(part):
    for changes in ATTEND[part]:
        with refused(InputError):
            m.attend(**{"query": QUERY, "key": KEY, "value": VALUE, **changes})


X, HEADS = normal(1, 2, 5, 4), (normal(2, 2, 3, 4), normal(3, 1, 2, 6), None, normal(4, 3, 6), normal(5, 3))
POSITIONS = [
    partial(m.sinusoids, 4, 3), partial(m.sinusoids, 4, 2**40), partial(m.sinusoids, 2**24, 2**20),
    partial(m.sinusoids, 2**60, 4), partial(m.sinusoids, -1, 4), partial(m.sinusoids, [[1]], 4),
    partial(m.sinusoids, [1.5], 4), partial(m.sinusoids, 4, 4, base=0), partial(m.sinusoids, RAGGED, 4),
    partial(m.learned, normal(1, 4, 4), 5), partial(m.learned, normal(1, 4, 4), [-1]),
    partial(m.add_positions, X, m.sinusoids(4, 4)), partial(m.add_positions, X, m.sinusoids(5, 6)),
    partial(m.rotary, X, width=6), partial(m.rotary, X, [1]), partial(m.rotary, normal(1, 2, 5, 3)),
    partial(m.alibi_slopes, 0), partial(m.alibi_slopes, 2**40), partial(m.alibi_bias, 2, 2**20, 2**20),
    partial(m.alibi_bias, 2, -1, 2), partial(m.alibi_bias, 1 << 16, 1 << 16, 1 << 16),
    partial(m.t5_bias, normal(1, 3, 2), 2, 2), partial(m.t5_bias, normal(1, 32, 2), 2, 2, max_distance=8),
]  # fmt: skip
ADDRESS = [
    {"key": normal(1, 2, 3, 5)}, {"memory": normal(1, 1, 6, 4)}, {"memory": normal(1, 2, 6, 4).astype(float)},
    {"previous": shares(3, 2, 3, 5)}, {"strength": -ONES}, {"strength": ONES[:, :2]}, {"gate": 1.5 * ONES},
    {"gate": np.nan * ONES}, *({"shifts": shares(4, 2, 3, size)} for size in (2, 7, 0)), {"exponent": ONES / 2},
]  # fmt: skip
GOOD = {
    "key": normal(1, 2, 3, 4), "memory": normal(2, 2, 6, 4), "previous": shares(3, 2, 3, 6), "strength": ONES,
    "gate": ONES, "shifts": shares(4, 2, 3, 3), "exponent": ONES,
}  # fmt: skip
FEATURES, WEIGHT, VECTOR = ARRAYS = layer(F=10, H=2, V=6)
STARTS, INDICES, NODES = CLUB.starts, CLUB.indices, FEATURES[None]
NO_NEIGHBOURS = [
    (STARTS[:-1], INDICES), (STARTS[::-1].copy(), INDICES), (np.where(np.arange(35) == 5, 190, STARTS), INDICES),
    (STARTS, INDICES + 1), (STARTS, INDICES - 1), (STARTS, INDICES.astype(float)), (STARTS, INDICES[None]),
    (STARTS - 1, INDICES),
]  # fmt: skip
TWICE = m.Neighbours([0, 2, *[2] * 33], [4, 4])
GRAPHS = [
    *(partial(m.graph_attention, *ARRAYS, m.Neighbours(*wrong)) for wrong in NO_NEIGHBOURS),
    *(partial(m.attend, NODES, NODES, NODES, seen=m.Neighbours(*wrong)) for wrong in NO_NEIGHBOURS),
    partial(m.attend, NODES, NODES, NODES, score=m.ScaledDot(softcap=1.0), seen=TWICE),
    partial(m.graph_attention, FEATURES, WEIGHT[:, :, 1:], VECTOR, CLUB),
    partial(m.graph_attention, FEATURES, WEIGHT, VECTOR[:, 1:], CLUB),
    partial(m.graph_attention, FEATURES, WEIGHT, VECTOR[:1], CLUB), partial(m.graph_attention, *ARRAYS, EDGES),
    *(partial(m.Neighbours.from_edges, edges, 4) for edges in ([(0, 4)], [(0, 1, 2)], RAGGED, None)),
    partial(m.Neighbours.from_edges, [(0, 1)], 10**15),
    partial(m.heterogeneous_attention, FEATURES, WEIGHT, normal(1, 1, 2, 12), [], *ARRAYS),
    partial(m.heterogeneous_attention, normal(1, 3, 4), *HEADS, normal(6, 3)),
]  # fmt: skip
OTHERS = {
    "positions": POSITIONS,
    "addressing": [
        *(partial(m.address, **GOOD | changes) for changes in ADDRESS),
        partial(m.content_weights, normal(1, 1, 2, 5000), normal(2, 1, 5, 5000), ONES[:1, :2]),
    ],
    "graphs": GRAPHS,
}  # fmt: skip


@pytest.mark.parametrize("kind", OTHERS)
def test_other_functions(kind):
    for call in OTHERS[kind]:
        with refused(InputError):
            call()


def test_arrays_in_any_order_and_read_only():
    turned = tuple(np.asfortranarray(x) for x in (QUERY, KEY, VALUE))
    for array in turned:
        array.flags.writeable = False
    for options in ({}, {"score": m.Additive(np.asfortranarray(W), U, V)}, {"seen": PLACES}):
        np.testing.assert_array_equal(m.attend(*turned, **options), m.attend(QUERY, KEY, VALUE, **options))


def test_sizes_of_any_integer_type_and_an_empty_batch():
    table = normal(1, 8, 2)
    for of in (np.uint8, np.int8, np.int64):
        np.testing.assert_array_equal(m.alibi_bias(2, of(100), of(7)), m.alibi_bias(2, 100, 7))
        np.testing.assert_array_equal(m.t5_bias(table, of(100), of(120)), m.t5_bias(table, 100, 120))
    for shape in ((0, 3, 4), (0, 3, 2, 4)):
        assert m.rotary(normal(1, *shape)).shape == shape


@pytest.mark.parametrize("parts", [(), (m.Mask(np.arange(45).reshape(5, 9) % 4 > 0),)], ids=["alone", "with a mask"])
def test_values_that_are_not_finite_count_for_those_who_see_them_alone(parts):
    places = m.LocalPredictive(normal(5, 3, 7), normal(6, 3), 2)
    given = {"score": m.ScaledDot(softcap=3.0), "seen": (m.Padded([4, 7]), places, *parts)}
    expected, weights = m.attend(QUERY, KEY, VALUE, **given, return_weights=True)
    padding = VALUE.copy()
    for b, length in enumerate((4, 7)):
        padding[b, length:] = np.nan
    np.testing.assert_array_equal(m.attend(QUERY, KEY, padding, **given), expected)
    endless = VALUE.copy()
    endless[1, 3, 1, 2] = np.inf
    got = m.attend(QUERY, KEY, endless, **given)
    seeing = np.zeros(got.shape, bool)
    seeing[1, :, 2:, 2] = weights[1, 2:, :, 3].T > 0
    assert seeing.any() and not seeing[1, :, 2:, 2].all()
    np.testing.assert_array_equal(got[seeing], np.inf)
    np.testing.assert_array_equal(got[~seeing], expected[~seeing])
