"""The oracle itself, against loops written out by hand and against formulas of another form."""

import math

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
    for activation in ACTIVATIONS:
        got = reference.linear(x[:, None], reference.pack_linear(np.ones((1, 1))), activation)[:, 0]
        np.testing.assert_allclose(got, [_activated(activation, value) for value in x], rtol=1e-12, atol=1e-15)
        assert np.isfinite(
            reference.linear(large, reference.pack_linear(np.ones((1, 1), np.float32)), activation)
        ).all()


def test_linear_adds_the_residual_after_the_product() -> None:
    x, weight, bias = np.array([[1.0, -2.0]]), np.array([[3.0, 1.0], [1.0, 1.0]]), np.array([0.5, -1.0])
    packed = reference.pack_linear(weight, bias)
    assert (packed.inputs, packed.outputs) == (2, 2)
    got = reference.linear(x, packed, "relu", np.array([[10.0, 20.0]]), np.array([[2.0, 4.0]]))
    np.testing.assert_array_equal(got, [[1.5 * 2 + 10, 0 * 4 + 20]])


def test_layer_norm_by_hand() -> None:
    x, residual, weight, bias = [1.0, 4.0, -2.0], [0.5, 0.0, 1.0], [2.0, 1.0, 3.0], [0.0, 1.0, -1.0]
    total = [a + b for a, b in zip(x, residual)]
    mean = sum(total) / 3
    variance = sum((value - mean) ** 2 for value in total) / 3
    expected = [(t - mean) / math.sqrt(variance + 1e-3) * w + b for t, w, b in zip(total, weight, bias)]
    rows = np.array([x]), np.array(weight), np.array(bias)
    np.testing.assert_allclose(reference.layer_norm(*rows, 1e-3, np.array([residual])), [expected], rtol=1e-14)
    unbiased = reference.layer_norm(np.array([total]), np.array(weight), None, 1e-3)
    np.testing.assert_allclose(unbiased + np.array(bias), [expected], rtol=1e-14)


def test_rms_norm_by_hand() -> None:
    total, weight = [1.5, 4.0, -1.0], [2.0, 1.0, 3.0]
    size = math.sqrt(sum(value**2 for value in total) / 3 + 1e-3)
    got = reference.rms_norm(np.array([[1.0, 4.0, -2.0]]), np.array(weight), 1e-3, np.array([[0.5, 0.0, 1.0]]))
    np.testing.assert_allclose(got, [[t / size * w for t, w in zip(total, weight)]], rtol=1e-14)


def test_embed() -> None:
    table, positions = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[10.0, 20.0], [30.0, 40.0]])
    ids = np.array([1, -1, 0], np.int32)
    np.testing.assert_array_equal(reference.embed(ids, table, 2.0), [[6, 8], [0, 0], [2, 4]])
    got = reference.embed(ids, table, 2.0, np.array([0, 1, 1], np.int32), positions)
    np.testing.assert_array_equal(got, [[16, 28], [30, 40], [32, 44]])
    np.testing.assert_array_equal(table, [[1, 2], [3, 4]])


def test_rotate_turns_each_pair_as_a_complex_number() -> None:
    for interleaved in (False, True):
        rng = np.random.default_rng(0)
        x = rng.standard_normal((3, 1 + 2 * 6))
        angle = rng.standard_normal((5, 2))
        positions = np.array([4, 0, 2], np.int32)
        got = x.copy()
        reference.rotate(got, positions, np.cos(angle), np.sin(angle), 1, 2, 6, interleaved)
        for n in range(3):
            for head in range(2):
                start = 1 + head * 6
                for i in range(2):
                    a, b = (start + 2 * i, start + 2 * i + 1) if interleaved else (start + i, start + i + 2)
                    turned = complex(x[n, a], x[n, b]) * complex(
                        math.cos(angle[positions[n], i]), math.sin(angle[positions[n], i])
                    )
                    assert got[n, a] == pytest.approx(turned.real) and got[n, b] == pytest.approx(turned.imag)
                np.testing.assert_array_equal(got[n, start + 4 : start + 6], x[n, start + 4 : start + 6])
        np.testing.assert_array_equal(got[:, 0], x[:, 0])


def _attend_by_hand(query, keys, values, seen, scale, bias, softcap):
    """One query over the keys for which ``seen`` holds, number by number."""

    def score(key):
        scaled = sum(q * k for q, k in zip(query, key)) * scale
        return softcap * math.tanh(scaled / softcap) if softcap else scaled

    scores = {s: score(keys[s]) + bias[s] for s in range(len(keys)) if seen[s]}
    scores = {s: score for s, score in scores.items() if score != -math.inf}
    total = sum(math.exp(score) for score in scores.values())
    weights = [math.exp(scores[s]) / total if s in scores else 0.0 for s in range(len(keys))]
    return weights, [sum(w * value[i] for w, value in zip(weights, values)) for i in range(len(query))]


def test_attention_by_hand() -> None:
    for softcap in (0.0, 1.25):
        for full_bias in (False, True):
            for causal, offset in ((False, None), (True, None), (True, (1, -2, 0))):
                rng = np.random.default_rng(1)
                heads, key_heads, width, queries, keys = 4, 2, 3, (2, 3, 0), (3, 2, 1)
                query = rng.standard_normal((5, 1 + heads * width))
                key, value = (
                    rng.standard_normal((6, 2 + key_heads * width)),
                    rng.standard_normal((6, key_heads * width)),
                )
                bias = rng.standard_normal((3 if full_bias else 1, heads, 3 if full_bias else 1, 3))
                bias[0, 0, 0, 1] = -np.inf
                weights = np.full((3, heads, 3, 3), np.nan)
                query_starts, key_starts = starts_of(queries), starts_of(keys)
                seen_N2 = reference.seen_around(
                    query_starts, np.diff(key_starts), np.array(offset or [0]), -1, 0 if causal else -1
                )
                got = reference.attention(
                    query,
                    key,
                    value,
                    RaggedBatch(query_starts, key_starts, seen_N2),
                    Heads(heads, key_heads, width, query_column=1, key_column=2, scale=0.7, softcap=softcap),
                    bias_BHTS=bias,
                    weights_BHTS=weights,
                )
                full = np.broadcast_to(bias, (3, heads, 3, 3))
                for b in range(3):
                    own_keys = slice(key_starts[b], key_starts[b + 1])
                    for h in range(heads):
                        columns = slice((h // 2) * width, (h // 2 + 1) * width)
                        for t in range(queries[b]):
                            row = query_starts[b] + t
                            shift = 0 if offset is None else offset[b]
                            expected_weights, expected = _attend_by_hand(
                                query[row, 1 + h * width : 1 + (h + 1) * width],
                                key[own_keys, 2:][:, columns],
                                value[own_keys, columns],
                                [not causal or s <= t + shift for s in range(keys[b])],
                                0.7,
                                full[b, h, t],
                                softcap,
                            )
                            np.testing.assert_allclose(
                                got[row, h * width : (h + 1) * width], expected, rtol=1e-12, atol=1e-14
                            )
                            np.testing.assert_allclose(
                                weights[b, h, t, : keys[b]], expected_weights, rtol=1e-12, atol=1e-14
                            )
                            assert not weights[b, h, t, keys[b] :].any()
                    assert not weights[b, :, queries[b] :].any()


def test_attention_step_is_attention_of_one_query_over_gathered_keys() -> None:
    rng = np.random.default_rng(2)
    heads, key_heads, width = 4, 2, 3
    query, cache = rng.standard_normal((3, 12)), rng.standard_normal((9, 12))
    index = np.array([[8, 1, 1, 4], [0, 2, 0, 0], [5, 5, 5, 5]], np.int32)
    lengths, bias = np.array([4, 2, 0], np.int32), rng.standard_normal((3, heads, 4))
    weights = np.full((3, heads, 4), np.nan)
    form = Heads(heads, key_heads, width, value_column=6, softcap=0.9)
    got = reference.attention_step(
        query, cache, cache, KeyIndex(index, lengths), form, bias_NHS=bias, weights_NHS=weights
    )
    for r in range(3):
        gathered = cache[index[r, : lengths[r]]]
        one = np.full((1, heads, 1, max(int(lengths[r]), 1)), np.nan)
        expected = reference.attention(
            query[r : r + 1],
            gathered,
            gathered,
            RaggedBatch(np.array([0, 1]), np.array([0, lengths[r]])),
            form,
            bias_BHTS=bias[None, r, :, None],
            weights_BHTS=one,
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


def test_project_top_k_where_everything_is_suppressed() -> None:
    packed = reference.pack_linear(np.array([[1.0], [2.0]]))
    log_probs, ids = reference.project_top_k(np.ones((1, 1)), packed, 2, Edits(np.array([[0, 1]])))
    np.testing.assert_array_equal(ids, [[0, 1]])
    np.testing.assert_array_equal(log_probs, [[-np.inf, -np.inf]])


def test_log_probs_of_large_logits() -> None:
    packed = reference.pack_linear(np.array([[0.0], [1000.0], [999.0]]))
    got = reference.log_probs(np.ones((3, 1)), packed, np.array([0, 1, 2]))
    rest = math.log1p(math.exp(-1))
    np.testing.assert_allclose(got, [-1000 - rest, -rest, -1 - rest], rtol=1e-14)


def test_threads() -> None:
    assert reference.thread_limit() >= 1
    with reference.use_threads(1):
        pass
