"""fastattn.attention where float32 ends: offsets, biases and scales of any size, against the formula in float64."""

import numpy as np
import pytest

import fastattn
from fastattn.ops import float64_attention
from tests.array_attention.formula import attend
from tests.kernels.cases import normal

LARGEST = float(np.finfo(np.float32).max)
pytestmark = pytest.mark.filterwarnings("error")


def arrays(positions=5, keys=9):
    return normal(1, 2, positions, 4, 8), normal(2, 2, keys, 2, 8), normal(3, 2, keys, 2, 8)


def agrees(query, key, value, rtol=1e-7, atol=2e-6, **options):
    """The result and weights are those of the formula in float64; returned with the logarithms of sums."""
    found = fastattn.attention(query, key, value, **options, return_weights=True, return_logsumexp=True)
    for one, oracle in zip(found[:2], attend(query, key, value, **options)):
        np.testing.assert_allclose(one, oracle, rtol=rtol, atol=atol)
    np.testing.assert_array_equal(fastattn.attention(query, key, value, **options), found[0])
    return found


def test_an_offset_of_any_size_is_no_other_one():
    unsigned = [(np.uint64(2**64 - 1), 9), (np.array([2**64 - 1, 3], np.uint64), [9, 3])]
    for offset, as_if in [*unsigned, (2**70, 9), (-(2**70), -9), ([2**63, -1], [9, -1]), ([2**80, 0], [9, 0])]:
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
def test_a_bias_of_any_size(name, monkeypatch):
    mask = np.random.default_rng(1).random((5, 9)) < 0.6
    for options in ({}, {"causal": True}, {"mask": mask}, {"window": (2, 2), "sinks": 2}, {"sinks": normal(2, 4)}):
        monkeypatch.setattr(float64_attention, "CHUNK", 10)
        bias = normal(4, 2, 4, 5, 9)
        ordinary, ordinary_weights = fastattn.attention(*arrays(), bias=bias, **options, return_weights=True)
        bias[1, 2, 3] = np.resize(np.array(BIASES[name], np.float32), 9)
        out, weights, _ = agrees(*arrays(), bias=bias, **options)
        out[1, 3, 2], weights[1, 2, 3] = ordinary[1, 3, 2], ordinary_weights[1, 2, 3]
        np.testing.assert_array_equal(out, ordinary)
        np.testing.assert_array_equal(weights, ordinary_weights)


@pytest.mark.parametrize("scale", [3e38, -3e38, 1e290, 1e36, 1e7, 1e-40, -1e-45, 1e-300])
def test_a_scale_of_any_size(scale):
    query, key, value = arrays()
    for size in np.float32([1, 1e4]):  # for the least of scales it is the queries and keys that make a score
        agrees(query * size, key * size, value, scale=scale, lengths=[9, 0], bias=normal(5, 9))


@pytest.mark.parametrize("softcap", [1e-300, 1e-40, 1e-29, 9e29, 3e38, 1e300])
def test_a_cap_of_any_size(softcap):
    for scale in (1.0, 1e36):
        agrees(*arrays(), scale=scale, softcap=softcap, lengths=[9, 0], bias=normal(5, 9))


def test_scores_that_overflow_are_capped_all_the_same():
    """Products of both signs, whose sum is no number in float32, and a bias beyond what it can be multiplied by."""
    query, key, value = arrays()
    query[1, 3], key[1, 4, 0] = np.resize(np.float32([1e25, -1e25]), 8), 1e20
    bias = normal(5, 9)
    bias[2] = 3e38
    for more in ({}, {"bias": bias}):
        agrees(query, key, value, softcap=30.0, **more, atol=2e-5)


def test_values_of_zero_and_hidden_rows_are_left_alone():
    query, key, value = arrays()
    bias = normal(6, 5, 9)
    bias[2] = -np.inf
    _, expected = fastattn.attention(query, key, value, bias=bias, return_weights=True)
    out, weights = fastattn.attention(query, key, np.zeros_like(value), bias=bias, return_weights=True)
    np.testing.assert_array_equal(weights, expected)
    assert not out.any() and not weights[:, :, 2].any()


def test_rows_that_see_no_nan_or_infinite_key_are_as_without_it():
    """Beside rows that see one, where scores are computed in float64, by their scale or by a bias that overflows."""
    for scale in (1e31, 1.0):
        query, key, value = arrays(9)
        bias = np.where(np.arange(9) == 1, np.float32(3e38), np.float32(0))
        expected = fastattn.attention(query, key, value, scale=scale, bias=bias, causal=True)
        for number in (np.nan, np.inf):
            key[:, 5] = number
            out = fastattn.attention(query, key, value, scale=scale, bias=bias, causal=True)
            np.testing.assert_array_equal(out[:, :5], expected[:, :5])


def test_learned_sinks_of_any_size():
    sinks = np.array([3e38, -3e38, 1, 2e37], np.float32)
    logs = fastattn.attention(*arrays(5, 0), sinks=sinks, return_logsumexp=True)[1]
    np.testing.assert_array_equal(logs, np.broadcast_to(sinks[:, None], (2, 4, 5)))
    query, key, value = arrays()
    for bias in (normal(5, 9), np.array([3e38, *[0] * 8], np.float32)):
        options = {"sinks": sinks, "bias": bias, "lengths": [9, 0]}
        *_, logs = agrees(query, key, value, **options, rtol=1e-6)
        np.testing.assert_allclose(logs, attend(query, key, value, **options)[2], rtol=1e-6, atol=2e-6)


def test_blocks_of_a_ragged_batch_are_cut_to_each_sentence():
    """Where rows see no key, and where they overflow."""
    query, key, value = (x[0] for x in arrays(12, 14))
    starts = [0, 5, 12], [0, 3, 14]
    states = np.random.default_rng(0).integers(0, 2, (1, 4, 4, 6))
    blocks = fastattn.BlockMask(states, 7, 11, 2)
    shown = states.astype(bool).repeat(2, axis=2).repeat(2, axis=3)[:, :, :7, :11]
    for scale in (None, 1e31):
        out = fastattn.attention_ragged(query, key, value, *starts, block_mask=blocks, scale=scale)
        for (t, end_t), (s, end_s) in zip(*(zip(one[:-1], one[1:]) for one in starts)):
            mask = shown[:, :, : end_t - t, : end_s - s]
            one = fastattn.attention(
                query[None, t:end_t], key[None, s:end_s], value[None, s:end_s], mask=mask, scale=scale
            )
            np.testing.assert_array_equal(out[t:end_t], one[0])


def test_scores_of_minus_infinity_are_hidden_keys_at_any_scale():
    query, key, value = (np.ones((1, 2, 1, 4), np.float32) for _ in range(3))
    query[0, 1, 0, 0] = -np.inf
    for scale in (1.0, 1e31):
        out, weights, log = fastattn.attention(
            query, key, value, scale=scale, return_weights=True, return_logsumexp=True
        )
        assert (out[0, 0] == 1).all() and not out[0, 1].any() and not weights[0, 0, 1].any()
        assert log[0, 0, 1] == -np.inf
