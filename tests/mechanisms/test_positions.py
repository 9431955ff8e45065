"""Positions and the addressing of a memory against the papers' formulas, number by number in float64."""

from itertools import product

import numpy as np

from fastattn import mechanisms as m
from fastattn.layers.attention import relative_buckets
from fastattn.mechanisms import address, content_weights, interpolate, sharpen, shift
from fastattn.ops.reference import mechanisms as formulas
from tests.mechanisms.oracle import check, normal, shares


def test_sinusoids():
    for base, interleaved in product((10000.0, 50.0), (True, False)):
        options = {"interleaved": interleaved, "base": base}
        got = m.sinusoids(40, 12, **options)
        np.testing.assert_allclose(got, formulas.sinusoids(40, 12, interleaved, base), atol=1e-7)
        np.testing.assert_array_equal(m.sinusoids([7, 0, 39], 12, **options), got[[7, 0, 39]])
        assert got.dtype == np.float32 and m.sinusoids(0, 12).shape == (0, 12)


def test_sinusoids_of_far_and_negative_positions():
    far = np.array([10**9, -3])
    angle = far[:, None] * 10000.0 ** (-np.arange(0, 6, 2) / 6)
    expected = np.hstack([np.sin(angle), np.cos(angle)])
    np.testing.assert_allclose(m.sinusoids(far, 6, interleaved=False), expected, atol=1e-6)


def test_learned_positions():
    table = normal(1, 9, 4)
    np.testing.assert_array_equal(m.learned(table, 3), table[:3])
    np.testing.assert_array_equal(m.learned(table, np.array([8, 0, 8])), table[[8, 0, 8]])


def test_positions_are_added_or_put_beside():
    x, table = normal(1, 2, 5, 4), m.sinusoids(5, 4)
    np.testing.assert_array_equal(m.add_positions(x, table), x + table)
    both = m.concatenate_positions(x, m.sinusoids(5, 6))
    np.testing.assert_array_equal(both[..., :4], x)
    np.testing.assert_array_equal(both[1, :, 4:], m.sinusoids(5, 6))


def test_rotary():
    x = normal(1, 2, 4, 3, 10)
    before = x.copy()
    for given, width, interleaved in product((None, [5, 0, 1000, -2]), (None, 6), (True, False)):
        options = {"width": width, "interleaved": interleaved}
        places = np.arange(4) if given is None else np.array(given)
        got = m.rotary(x, given, **options)
        np.testing.assert_allclose(got, formulas.rotary(x.astype(float), places, width or 10, interleaved), atol=1e-6)
        np.testing.assert_array_equal(x, before)
        np.testing.assert_array_equal(m.rotary(x[:, :, 1], given, **options), got[:, :, 1])


def test_alibi():
    for heads in (1, 2, 3, 5, 8, 12, 20, 31, 64):
        np.testing.assert_allclose(m.alibi_slopes(heads), formulas.alibi_slopes(heads), rtol=1e-6)
        bias = m.alibi_bias(heads, 4, 9, offset=5)
        distance_TS = np.arange(9) - np.arange(4)[:, None] - 5
        np.testing.assert_allclose(bias, m.alibi_slopes(heads)[:, None, None] * distance_TS, rtol=1e-6)
        np.testing.assert_array_equal(m.alibi_bias(heads, 4, 9, offset=5, symmetric=True), -np.abs(bias))


def test_t5():
    for (buckets, max_distance), bidirectional in product(((32, 128), (8, 20), (4, 3)), (True, False)):
        table = normal(1, buckets, 3)
        bias = m.t5_bias(table, 50, 60, bidirectional=bidirectional, max_distance=max_distance, offset=3)
        for t, s in product(range(0, 50, 7), range(60)):
            bucket = formulas.t5_bucket(s - t - 3, buckets, max_distance, bidirectional)
            np.testing.assert_array_equal(bias[:, t, s], table[bucket])


def test_a_bucket_that_begins_where_a_logarithm_is_exact():
    """As float32 has it, in which models were trained: in float64 log(2) / log(32) * 5 is below 1."""
    found = relative_buckets(-np.array([7, 8, 15, 16, 64]), 9, 128, bidirectional=False)
    np.testing.assert_array_equal(found, [4, 5, 5, 6, 8])


SIZES = [(1, 1, 1, 1), (2, 3, 11, 5), (1, 4, 128, 20)]


def between(seed, low, high, *shape):
    return np.random.default_rng(seed).uniform(low, high, shape).astype(np.float32)


def test_each_step_and_all_of_them():
    for size in SIZES:
        B, H, N, M = size
        key, memory, previous = normal(1, B, H, M), normal(2, B, N, M), shares(3, B, H, N)
        strength, gate, exponent = between(4, 0, 9, B, H), between(5, 0, 1, B, H), between(6, 1, 5, B, H)
        shifts = shares(7, B, H, min(N, 5))
        check(content_weights(key, memory, strength), formulas.content_weights, key, memory, strength)
        weights = shares(8, B, H, N)
        check(interpolate(weights, previous, gate), formulas.interpolate, weights, previous, gate)
        check(shift(previous, shifts), formulas.shift, previous, shifts)
        check(sharpen(previous, exponent), formulas.sharpen, previous, exponent)
        got = address(key, memory, previous, strength=strength, gate=gate, shifts=shifts, exponent=exponent)
        check(got, formulas.address, key, memory, previous, strength, gate, shifts, exponent)
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
        check(out, lambda w: formulas.sharpen(w / w.max(), np.array([[exponent]])), weights)  # noqa: B023
        assert out[0, 0, 4] == 0


def test_extreme_contents():
    memory = normal(1, 1, 9, 4, size=1e30)
    key = np.concatenate([memory[:, :1] * np.float32(1e-38), np.zeros((1, 1, 4), np.float32)], axis=1)
    weights = content_weights(key, memory, np.array([[1e6, 1e6]], np.float32))
    assert weights[0, 0, 0] > 0.999
    np.testing.assert_allclose(weights[0, 1], 1 / 9, rtol=1e-6)
