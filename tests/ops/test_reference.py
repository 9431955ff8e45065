"""The oracle itself, against loops written out by hand and against formulas of another form."""

import cmath
import math
from itertools import product

import numpy as np
import pytest

from bench.operations.table import starts_of
from fastattn.ops import reference
from fastattn.ops.attention import Heads, KeyIndex, RaggedBatch
from fastattn.ops.reference.matmul import erf
from fastattn.ops.steps import Edits
from fastattn.spec.architecture import ACTIVATIONS


def test_erf() -> None:
    for dtype, allowed in ((np.float64, 1e-15), (np.float32, 1e-6)):
        x = np.concatenate([np.linspace(-6, 6, 401), [0.0, 1e-30, 40.0, -40.0]]).astype(dtype)
        expected = [math.erf(value) for value in x]
        assert erf(x).dtype == dtype
        np.testing.assert_allclose(erf(x), expected, rtol=0, atol=allowed)


def _activated(name: str, x: float) -> float:
    def sigmoid(z: float) -> float:
        return 1 / (1 + math.exp(-z))

    return {
        "relu": max(x, 0.0),
        "gelu": x * 0.5 * math.erfc(-x / math.sqrt(2)),
        "gelu_tanh": x * sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)),
        "gelu_sigmoid": x * sigmoid(1.702 * x),
        "swish": x * sigmoid(x),
        "tanh": math.tanh(x),
        "sigmoid": sigmoid(x),
        "relu_squared": max(x, 0.0) ** 2,
        "mish": x * math.tanh(math.log1p(math.exp(x))),
    }[name]


def test_activations() -> None:
    x, large = np.linspace(-8, 8, 65), np.array([[-1e4], [1e4]], np.float32)
    exact, rounded = (reference.pack_linear(np.ones((1, 1), dtype)) for dtype in (np.float64, np.float32))
    for activation in ACTIVATIONS:
        expected = [_activated(activation, value) for value in x]
        got = reference.linear(x[:, None], exact, activation)[:, 0]
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-15)
        assert np.isfinite(reference.linear(large, rounded, activation)).all()


def test_linear_adds_the_residual_after_the_product() -> None:
    x, weight, bias = np.array([[1.0, -2.0]]), np.array([[3.0, 1.0], [1.0, 1.0]]), np.array([0.5, -1.0])
    packed = reference.pack_linear(weight, bias)
    assert (packed.inputs, packed.outputs) == (2, 2)
    got = reference.linear(x, packed, "relu", np.array([[10.0, 20.0]]), np.array([[2.0, 4.0]]))
    np.testing.assert_array_equal(got, [[1.5 * 2 + 10, 0 * 4 + 20]])


def test_norms_by_hand() -> None:
    x, residual = np.array([[1.0, 4.0, -2.0]]), np.array([[0.5, 0.0, 1.0]])
    weight, bias, total = np.array([2.0, 1.0, 3.0]), np.array([0.0, 1.0, -1.0]), (1.5, 4.0, -1.0)
    variance = sum((value - 1.5) ** 2 for value in total) / 3
    expected = [(t - 1.5) / math.sqrt(variance + 1e-3) * w + b for t, w, b in zip(total, weight, bias)]
    np.testing.assert_allclose(reference.layer_norm(x, weight, bias, 1e-3, residual), [expected], rtol=1e-14)
    unbiased = reference.layer_norm(x + residual, weight, None, 1e-3)
    np.testing.assert_allclose(unbiased + bias, [expected], rtol=1e-14)
    size = math.sqrt(sum(value**2 for value in total) / 3 + 1e-3)
    got = reference.rms_norm(x, weight, 1e-3, residual)
    np.testing.assert_allclose(got, [[t / size * w for t, w in zip(total, weight)]], rtol=1e-14)


def test_embed() -> None:
    table, positions = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[10.0, 20.0], [30.0, 40.0]])
    ids = np.array([1, -1, 0], np.int32)
    np.testing.assert_array_equal(reference.embed(ids, table, 2.0), [[6, 8], [0, 0], [2, 4]])
    got = reference.embed(ids, table, 2.0, np.array([0, 1, 1], np.int32), positions)
    np.testing.assert_array_equal(got, [[16, 28], [30, 40], [32, 44]])
    np.testing.assert_array_equal(table, [[1, 2], [3, 4]])


def test_rotate_turns_each_pair_as_a_complex_number() -> None:
    rng = np.random.default_rng(0)
    x, angle, positions = (
        rng.standard_normal((3, 1 + 2 * 6)),
        rng.standard_normal((5, 2)),
        np.array([4, 0, 2], np.int32),
    )
    for interleaved in (False, True):
        got, expected = x.copy(), x.copy()
        reference.rotate(got, positions, np.cos(angle), np.sin(angle), 1, 2, 6, interleaved)
        for n, start, i in product(range(3), (1, 7), range(2)):
            a, b = (start + 2 * i, start + 2 * i + 1) if interleaved else (start + i, start + i + 2)
            turned = complex(x[n, a], x[n, b]) * cmath.rect(1, angle[positions[n], i])
            expected[n, a], expected[n, b] = turned.real, turned.imag
        np.testing.assert_allclose(got, expected, rtol=1e-12)


def _attend_by_hand(query, keys, values, seen, bias, softcap):
    """One query over the keys for which ``seen`` holds, number by number."""
    scores = {}
    for s, key in enumerate(keys):
        scaled = sum(q * k for q, k in zip(query, key)) * 0.7
        score = (softcap * math.tanh(scaled / softcap) if softcap else scaled) + bias[s]
        if seen[s] and score != -math.inf:
            scores[s] = score
    total = sum(map(math.exp, scores.values()))
    weights = [math.exp(scores[s]) / total if s in scores else 0.0 for s in range(len(keys))]
    return weights, [sum(w * value[i] for w, value in zip(weights, values)) for i in range(len(query))]


OFFSETS = ((False, (0,)), (True, (0,)), (True, (1, -2, 0)))


@pytest.mark.parametrize(("softcap", "places", "masked"), [*product((0.0, 1.25), (1, 3), OFFSETS)])
def test_attention_by_hand(softcap, places, masked) -> None:
    (causal, offset), rng = masked, np.random.default_rng(1)
    query, key, value = (rng.standard_normal(shape) for shape in ((5, 1 + 4 * 3), (6, 2 + 2 * 3), (6, 2 * 3)))
    bias = rng.standard_normal((places, 4, places, 3))
    bias[0, 0, 0, 1] = -np.inf
    queries, query_starts, key_starts = (2, 3, 0), starts_of((2, 3, 0)), starts_of((3, 2, 1))
    around = np.diff(key_starts), np.array(offset), -1, 0 if causal else -1
    batch = RaggedBatch(query_starts, key_starts, reference.seen_around(query_starts, *around))
    form = Heads(4, 2, 3, query_column=1, key_column=2, scale=0.7, softcap=softcap)
    weights = np.full((3, 4, 3, 3), np.nan)
    got = reference.attention(query, key, value, batch, form, bias_BHTS=bias, weights_BHTS=weights)
    expected, expected_weights = np.empty((5, 12)), np.zeros((3, 4, 3, 3))
    full = np.broadcast_to(bias, (3, 4, 3, 3))
    for b, h in product(range(3), range(4)):
        own, columns = slice(*key_starts[b : b + 2]), slice((h // 2) * 3, (h // 2 + 1) * 3)
        keys, values = key[own, 2:][:, columns], value[own, columns]
        for t in range(queries[b]):
            row, shift = query_starts[b] + t, offset[b % len(offset)]
            seen = [not causal or s <= t + shift for s in range(len(keys))]
            one = query[row, 1 + h * 3 : 4 + h * 3]
            found, out = _attend_by_hand(one, keys, values, seen, full[b, h, t], softcap)
            expected_weights[b, h, t, : len(keys)], expected[row, h * 3 : (h + 1) * 3] = found, out
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(weights, expected_weights, rtol=1e-12, atol=1e-14)


def test_attention_step_is_attention_of_one_query_over_gathered_keys() -> None:
    rng = np.random.default_rng(2)
    heads, key_heads, width = 4, 2, 3
    query, cache = rng.standard_normal((3, 12)), rng.standard_normal((9, 12))
    index = np.array([[8, 1, 1, 4], [0, 2, 0, 0], [5, 5, 5, 5]], np.int32)
    lengths, bias = np.array([4, 2, 0], np.int32), rng.standard_normal((3, heads, 4))
    weights = np.full((3, heads, 4), np.nan)
    form = Heads(heads, key_heads, width, value_column=6, softcap=0.9)
    keys = KeyIndex(index, lengths)
    got = reference.attention_step(query, cache, cache, keys, form, bias_NHS=bias, weights_NHS=weights)
    for r in range(3):
        gathered = cache[index[r, : lengths[r]]]
        one = np.full((1, heads, 1, max(int(lengths[r]), 1)), np.nan)
        batch, added = RaggedBatch(np.array([0, 1]), np.array([0, lengths[r]])), bias[None, r, :, None]
        expected = reference.attention(
            query[r : r + 1], gathered, gathered, batch, form, bias_BHTS=added, weights_BHTS=one
        )
        np.testing.assert_allclose(got[r], expected[0], rtol=1e-13, atol=1e-15)
        np.testing.assert_allclose(weights[r, :, : lengths[r]], one[0, :, 0, : lengths[r]], rtol=1e-13)
        assert not weights[r, :, lengths[r] :].any()
    assert not got[2].any()


def test_project_top_k_orders_by_probability_then_by_id() -> None:
    # x = 1: the logits are the weights themselves.
    logits = [0.0, 2.0, 1.0, 2.0, -1.0, 1.0]
    packed = reference.pack_linear(np.array(logits)[:, None])
    log_probs, ids = reference.project_top_k(np.ones((2, 1)), packed, 4, Edits(np.array([[-1, -1], [3, 0]])))
    assert ids.dtype == np.int32
    np.testing.assert_array_equal(ids, [[1, 3, 2, 5], [1, 2, 5, 4]])
    totals = [sum(map(math.exp, logits)), sum(math.exp(logits[i]) for i in (1, 2, 4, 5))]
    expected = [[logits[i] - math.log(total) for i in row] for row, total in zip(ids, totals)]
    np.testing.assert_allclose(log_probs, expected, rtol=1e-14)
    log_probs, ids = reference.project_top_k(np.ones((1, 1)), packed, 2, Edits(np.arange(6)[None]))
    assert ids.tolist() == [[0, 1]] and log_probs.tolist() == [[-np.inf, -np.inf]]


def test_log_probs_of_large_logits() -> None:
    packed = reference.pack_linear(np.array([[0.0], [1000.0], [999.0]]))
    got = reference.log_probs(np.ones((3, 1)), packed, np.array([0, 1, 2]))
    rest = math.log1p(math.exp(-1))
    np.testing.assert_allclose(got, [-1000 - rest, -rest, -1 - rest], rtol=1e-14)
