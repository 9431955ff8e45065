"""fastattn.attention where float32 ends: offsets, biases and scales of any size, against the formula in float64."""

import numpy as np
import pytest

import fastattn
from fastattn import attention_float64
from tests.kernels.test_attention import attend, normal

LARGEST = float(np.finfo(np.float32).max)


def arrays(positions=5, keys=9):
    return normal(1, 2, positions, 4, 8), normal(2, 2, keys, 2, 8), normal(3, 2, keys, 2, 8)


@pytest.mark.parametrize(
    ("offset", "as_if"),
    [
        (np.uint64(2**64 - 1), 9),
        (np.array([2**64 - 1, 3], np.uint64), [9, 3]),
        (2**70, 9),
        (-(2**70), -9),
        ([2**63, -1], [9, -1]),
        ([2**80, 0], [9, 0]),
    ],
)
def test_an_offset_of_any_size_is_no_other_one(offset, as_if):
    expected = fastattn.attention(*arrays(), causal=True, offset=as_if)
    np.testing.assert_array_equal(fastattn.attention(*arrays(), causal=True, offset=offset), expected)


BIASES = {
    "greatest": [3e38, 0],
    "two of them": [3e38, 3e38],
    "near each other": [3e38, 2.9e38],
    "least": [-LARGEST, -LARGEST],
    "some hidden": [-LARGEST, -np.inf],
    "both ends": [LARGEST, -LARGEST],
    "least, and one that is ordinary": [-LARGEST, 1.5],
}


@pytest.mark.parametrize("name", BIASES)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.filterwarnings("error")
def test_a_bias_of_any_size(name, causal, monkeypatch):
    """In one row of several: the others keep their bits."""
    monkeypatch.setattr(attention_float64, "CHUNK", 10)
    bias = normal(4, 2, 4, 5, 9)
    ordinary, ordinary_weights = fastattn.attention(*arrays(), bias=bias, causal=causal, return_weights=True)
    bias[1, 2, 3] = np.resize(np.array(BIASES[name], np.float32), 9)
    expected, expected_weights = attend(*arrays(), bias=bias, causal=causal)
    out, weights = fastattn.attention(*arrays(), bias=bias, causal=causal, return_weights=True)
    np.testing.assert_allclose(out, expected, atol=2e-6)
    np.testing.assert_allclose(weights, expected_weights, atol=1e-6)
    np.testing.assert_array_equal(fastattn.attention(*arrays(), bias=bias, causal=causal), out)
    out[1, 3, 2], weights[1, 2, 3] = ordinary[1, 3, 2], ordinary_weights[1, 2, 3]
    np.testing.assert_array_equal(out, ordinary)
    np.testing.assert_array_equal(weights, ordinary_weights)


def test_a_bias_of_one_number_a_row_changes_nothing():
    bias = np.full((5, 1), np.finfo(np.float32).min, np.float32)
    np.testing.assert_allclose(
        fastattn.attention(*arrays(), bias=bias, lengths=[9, 4]),
        attend(*arrays(), bias=bias, lengths=[9, 4])[0],
        atol=2e-6,
    )


@pytest.mark.parametrize("scale", [3e38, -3e38, 1e290, 1e36, 1e7, 1e-40, -1e-45, 1e-300])
@pytest.mark.filterwarnings("error")
def test_a_scale_of_any_size(scale):
    options = {"scale": scale, "lengths": [9, 0], "bias": normal(5, 9)}
    query, key, value = arrays()
    for size in (1, 1e4):  # for the least of scales it is the queries and keys that make a score
        expected, expected_weights = attend(query * np.float32(size), key * np.float32(size), value, **options)
        mine = query * np.float32(size), key * np.float32(size), value
        out, weights = fastattn.attention(*mine, **options, return_weights=True)
        np.testing.assert_allclose(out, expected, atol=2e-6)
        np.testing.assert_allclose(weights, expected_weights, atol=1e-6)


@pytest.mark.parametrize("softcap", [1e-300, 1e-40, 1e-29, 9e29, 3e38, 1e300])
@pytest.mark.parametrize("scale", [1.0, 1e36])
@pytest.mark.filterwarnings("error")
def test_a_cap_of_any_size(scale, softcap):
    options = {"scale": scale, "softcap": softcap, "lengths": [9, 0], "bias": normal(5, 9)}
    expected, expected_weights = attend(*arrays(), **options)
    out, weights = fastattn.attention(*arrays(), **options, return_weights=True)
    np.testing.assert_allclose(out, expected, atol=2e-6)
    np.testing.assert_allclose(weights, expected_weights, atol=1e-6)


@pytest.mark.filterwarnings("error")
def test_scores_that_overflow_are_capped_all_the_same():
    """Products of both signs, whose sum is no number in float32, and a bias beyond what it can be multiplied by."""
    query, key, value = arrays()
    query[1, 3], key[1, 4, 0] = np.resize(np.float32([1e25, -1e25]), 8), 1e20
    bias = normal(5, 9)
    bias[2] = 3e38
    for more in ({}, {"bias": bias}):
        out, weights = fastattn.attention(query, key, value, softcap=30.0, **more, return_weights=True)
        expected, expected_weights = attend(query, key, value, softcap=30.0, **more)
        np.testing.assert_allclose(out, expected, atol=2e-5)
        np.testing.assert_allclose(weights, expected_weights, atol=1e-5)


def test_a_scale_that_brings_large_queries_back():
    query, key, value = arrays()
    query, key = query * np.float32(1e22), key * np.float32(1e22)
    for scale in (1e-44, 3e-45):
        np.testing.assert_allclose(
            fastattn.attention(query, key, value, scale=scale), attend(query, key, value, scale=scale)[0], atol=2e-5
        )


def test_values_of_zero_and_hidden_rows_are_left_alone():
    """Their output is zero in ordinary calls too, and the weights are the kernel's."""
    query, key, value = arrays()
    bias = normal(6, 5, 9)
    bias[2] = -np.inf
    _, expected = fastattn.attention(query, key, value, bias=bias, return_weights=True)
    out, weights = fastattn.attention(query, key, np.zeros_like(value), bias=bias, return_weights=True)
    np.testing.assert_array_equal(weights, expected)
    assert not out.any() and not weights[:, :, 2].any()
