"""What does not fit is told in one line, and nothing else happens."""

from functools import partial

import numpy as np

from fastattn import mechanisms as m
from tests.mechanisms.oracle import inputs, normal, refuses

QUERY, KEY, VALUE = inputs(B=2, T=5, S=9, H=4, G=2, K=7, V=6)
W, U, V = normal(1, 8, 7), normal(2, 8, 7), normal(3, 8)
PLACES = m.LocalPredictive(W, V, 3)
BAD = {
    "float64": ({"query": QUERY.astype(float)}, "query: expected a NumPy array of float32, got float64"),
    "a list": ({"key": [1.0]}, "key: expected a NumPy array of float32, got list"),
    "two axes": ({"query": QUERY[0, 0]}, r"query: expected \(B, T, K\) or \(B, T, H, K\), got shape \(4, 7\)"),
    "no heads in the key": ({"key": KEY[:, :, 0]}, "key: expected 4 axes as in the query"),
    "another batch": ({"key": KEY[:1], "value": VALUE[:1]}, "key: expected batch 2"),
    "heads that do not divide": (
        {"query": QUERY[:, :, :3]},
        "key: expected batch 2 and a number of heads that divides 3",
    ),
    "no head": ({"query": QUERY[:, :, :0]}, "query: expected a head and a width"),
    "no width": ({"query": QUERY[..., :0]}, "query: expected a head and a width"),
    "fewer values": ({"value": VALUE[:, :8]}, r"value: expected \(2, 9, 2\)"),
    "no width of values": ({"value": VALUE[..., :0]}, r"value: expected \(2, 9, 2\)"),
    "a width beyond all heads'": ({"key": normal(1, 2, 9, 2, 4097)}, "key: expected a width of at most 4096, got 4097"),
    "another width of keys": ({"key": KEY[..., :6]}, "key: expected the query's width 7, got 6"),
    "no key": ({"key": None}, "key: expected a NumPy array of float32; only Location"),
    "no value": ({"value": None}, "value: expected a NumPy array of float32; only Pointer and Saliency"),
    "an unknown score": ({"score": "dot"}, "score: expected one of Dot, ScaledDot, .* got str"),
    "a class": ({"score": m.ScaledDot}, "score: expected one of .* got type"),
    "an unknown mask": ({"seen": np.ones(9, bool)}, "seen: expected one of Everything, .* got ndarray"),
    "an unknown part": ({"seen": (m.Everything(), None)}, "seen: expected one of .* got NoneType"),
    "an unknown normalizer": ({"normalizer": "soft"}, "normalizer: expected one of Soft, .* got str"),
    "weights or not": ({"return_weights": 1}, "return_weights must be True or False"),
    "no threads": ({"threads": 0}, "threads must be at least 1"),
    "a scale": ({"score": m.ScaledDot(scale=np.nan)}, "scale: expected a finite number"),
    "a softcap": ({"score": m.ScaledDot(softcap=-1.0)}, "softcap: expected a finite number of at least 0"),
    "a bias": (
        {"score": m.ScaledDot(bias=normal(1, 3, 3))},
        r"bias: expected a shape that broadcasts to \(2, 4, 5, 9\)",
    ),
    "a hidden bias": (
        {"score": m.ScaledDot(bias=normal(1, 3, 3)), "seen": m.Restricted(3)},
        r"bias: expected a shape that broadcasts to \(2, 4, 5, 9\)",
    ),
    "a bias of five axes": ({"score": m.ScaledDot(bias=normal(1, 1, 1, 1, 1, 1))}, "bias: expected"),
    "a bias of float64": ({"score": m.ScaledDot(bias=np.zeros((5, 9)))}, "bias: expected a NumPy array of float32"),
    "a sharpness": ({"score": m.Content(-1.0)}, "sharpness: expected a finite number of at least 0"),
    "a general weight": ({"score": m.General(normal(1, 7, 6))}, "weight: expected a last axis of 7, the key's width"),
    "a general weight's queries": (
        {"score": m.General(normal(1, 6, 7))},
        "weight: expected a last axis of 7, the width",
    ),
    "a general weight's heads": ({"score": m.General(normal(1, 3, 7, 7))}, "weight: expected one for each of 4 heads"),
    "places": (
        {"score": m.Location(normal(1, 8, 7)), "value": normal(1, 2, 9, 4, 6), "key": None},
        "weight: expected at least 9",
    ),
    "places' heads": ({"score": m.Location(normal(1, 9, 7)), "key": None}, "value: expected 4 heads"),
    "additive, too wide": ({"score": m.Additive(normal(1, 4097, 7), U, V)}, "query_weight: expected at most 4096 rows"),
    "additive rows": (
        {"score": m.Additive(W, U[:7], V)},
        "key_weight: expected 8 rows, as many as in query_weight, got 7",
    ),
    "additive keys": ({"score": m.Additive(W, U[:, :6].copy(), V)}, "key_weight: expected a last axis of 7"),
    "additive vector": ({"score": m.Additive(W, U, V[:7])}, "vector: expected 8 numbers"),
    "additive bias": ({"score": m.Additive(W, U, V, V[:7])}, "bias: expected 8 numbers"),
    "additive float64": (
        {"score": m.Additive(W.astype(float), U, V)},
        "query_weight: expected a NumPy array of float32",
    ),
    "additive, a number": ({"score": m.Additive(W, U, 1.0)}, "vector: expected a NumPy array of float32, got float"),
    "graph vector": ({"score": m.Graph(normal(1, 13))}, "vector: expected 14 numbers"),
    "graph slope": ({"score": m.Graph(normal(1, 14), np.inf)}, "slope: expected a finite number"),
    "lengths": ({"seen": m.Padded([3, 10])}, "lengths: expected 0 to 9, got 3 to 10"),
    "negative lengths": ({"seen": m.Padded(-1)}, "lengths: expected 0 to 9"),
    "three lengths": ({"seen": m.Padded([1, 2, 3])}, r"lengths: expected integers of shape \(2,\)"),
    "nested lengths": ({"seen": m.Padded([[1], [2, 3]])}, "lengths: expected integers"),
    "lengths of floats": ({"seen": m.Padded(1.0)}, "lengths: expected integers"),
    "two causal": ({"seen": (m.Causal(), m.Causal(2))}, "seen: expected one Causal"),
    "an offset": ({"seen": m.Causal(2**70)}, "offset: expected"),
    "a size": ({"seen": m.Restricted(0)}, "size must be at least 1"),
    "a distance": ({"seen": m.LocalMonotonic(-1)}, "distance: expected 0 to"),
    "a mask of numbers": ({"seen": m.Mask(np.ones((5, 9)))}, "mask: expected a NumPy array of bool, got float64"),
    "a mask's shape": (
        {"seen": m.Mask(np.ones((5, 8), bool))},
        r"mask: expected a shape that broadcasts to \(2, 4, 5, 9\)",
    ),
    "places' weight": ({"seen": m.LocalPredictive(W[:, :6].copy(), V, 3)}, "weight: expected a last axis of 7"),
    "places' vector": ({"seen": m.LocalPredictive(W, V[:7], 3)}, "vector: expected 8 numbers"),
    "places' distance": ({"seen": m.LocalPredictive(W, V, -1.0)}, "distance: expected a finite number of at least 0"),
    "two places": ({"seen": (PLACES, PLACES)}, "seen: expected one LocalPredictive"),
    "sentences of a batch": ({"seen": m.Sentences([0, 5], [0, 9])}, "query: expected a batch of 1"),
    "a hard choice in sentences of a batch": (
        {"seen": m.Sentences([0, 5], [0, 9]), "normalizer": m.Hard()},
        "query: expected a batch of 1",
    ),
    "a seed": ({"normalizer": m.Hard(seed=-1)}, "seed: expected 0 to"),
    "a seed of floats": ({"normalizer": m.Hard(seed=1.5)}, "seed: expected integers"),
    "a grid": ({"normalizer": m.Saliency((2, 4))}, "grid: expected axes whose product is 9"),
    "a grid of one number": ({"normalizer": m.Saliency(9)}, "grid: expected a tuple of axes, got int"),
    "a grid of nothing": ({"normalizer": m.Saliency((0, 9))}, "grid must be at least 1"),
}


def test_is_told_in_a_line():
    for changes, message in BAD.values():
        refuses(partial(m.attend, **{"query": QUERY, "key": KEY, "value": VALUE, **changes}), message)


NO_SENTENCES = [
    ([0, 5], [0, 3, 9]),
    ([0, 4], [0, 9]),
    ([1, 5], [0, 9]),
    ([0, 5], [0, 8]),
    ([0, 3, 2, 5], [0, 3, 4, 9]),
    ([], []),
    ([[0, 5]], None),
    ([0, 2**70], None),
]


def test_sentences_that_are_none():
    for query_starts, key_starts in NO_SENTENCES:
        arrays = QUERY[:1], KEY[:1], VALUE[:1]
        refuses(partial(m.attend, *arrays, seen=m.Sentences(query_starts, key_starts)), "starts: expected")


def test_arrays_in_any_order_and_read_only():
    turned = tuple(np.asfortranarray(x) for x in (QUERY, KEY, VALUE))
    for array in turned:
        array.flags.writeable = False
    for options in ({}, {"score": m.Additive(np.asfortranarray(W), U, V)}, {"seen": PLACES}):
        np.testing.assert_array_equal(m.attend(*turned, **options), m.attend(QUERY, KEY, VALUE, **options))


def test_a_pointer_returns_its_weights_twice_if_asked():
    one, other = m.attend(QUERY, KEY, None, normalizer=m.Pointer(), return_weights=True)
    np.testing.assert_array_equal(one, other)
