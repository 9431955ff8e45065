"""A Neural Turing Machine's four steps against the paper's sums, alone and together."""

import numpy as np

from fastattn.mechanisms import address, content_weights, interpolate, sharpen, shift
from fastattn.ops.reference.mechanisms import addressing
from tests.mechanisms.oracle import check, normal, shares

SIZES = [(1, 1, 1, 1), (2, 3, 11, 5), (1, 4, 128, 20)]


def between(seed, low, high, *shape):
    return np.random.default_rng(seed).uniform(low, high, shape).astype(np.float32)


def test_each_step_and_all_of_them():
    for size in SIZES:
        B, H, N, M = size
        key, memory, previous = normal(1, B, H, M), normal(2, B, N, M), shares(3, B, H, N)
        strength, gate, exponent = between(4, 0, 9, B, H), between(5, 0, 1, B, H), between(6, 1, 5, B, H)
        shifts = shares(7, B, H, min(N, 5))
        check(content_weights(key, memory, strength), addressing.content_weights, key, memory, strength)
        weights = shares(8, B, H, N)
        check(interpolate(weights, previous, gate), addressing.interpolate, weights, previous, gate)
        check(shift(previous, shifts), addressing.shift, previous, shifts)
        check(sharpen(previous, exponent), addressing.sharpen, previous, exponent)
        got = address(key, memory, previous, strength=strength, gate=gate, shifts=shifts, exponent=exponent)
        check(got, addressing.address, key, memory, previous, strength, gate, shifts, exponent)
        np.testing.assert_allclose(got.sum(axis=-1), 1, rtol=1e-5)


def test_a_whole_shift_moves_every_place_around_the_end():
    weights = np.eye(1, 5, 4, dtype=np.float32)[None]
    forward = np.array([[[0, 0, 1]]], np.float32)
    assert shift(weights, forward).tolist() == [[[1, 0, 0, 0, 0]]]
    assert shift(weights, forward[..., ::-1].copy()).tolist() == [[[0, 0, 0, 1, 0]]]


def test_a_closed_gate_keeps_the_last_weights_and_an_open_one_forgets_them():
    weights, previous = shares(1, 1, 2, 9), shares(2, 1, 2, 9)
    out = interpolate(weights, previous, np.array([[0, 1]], np.float32))
    np.testing.assert_array_equal(out[0, 0], previous[0, 0])
    np.testing.assert_array_equal(out[0, 1], weights[0, 1])


def test_the_sharpest_of_exponents_leaves_the_greatest():
    for exponent in (1.0, 30.0, 1e4, 1e30):
        weights = np.array([[[0.3, 0.3001, 0.2, 0.1999, 0]]], np.float32)
        out = sharpen(weights, np.array([[exponent]], np.float32))
        check(out, lambda w: addressing.sharpen(w / w.max(), np.array([[exponent]])), weights)  # noqa: B023
        assert out[0, 0, 4] == 0


def test_extreme_contents():
    memory = normal(1, 1, 9, 4, size=1e30)
    key = np.concatenate([memory[:, :1] * np.float32(1e-38), np.zeros((1, 1, 4), np.float32)], axis=1)
    weights = content_weights(key, memory, np.array([[1e6, 1e6]], np.float32))
    assert weights[0, 0, 0] > 0.999
    np.testing.assert_allclose(weights[0, 1], 1 / 9, rtol=1e-6)
