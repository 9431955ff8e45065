"""Positions against the papers' formulas, number by number in float64."""

from itertools import product

import numpy as np

from fastattn import mechanisms as m
from fastattn.layers.attention import relative_buckets
from fastattn.ops.reference.mechanisms import positions
from tests.mechanisms.oracle import normal


def test_sinusoids():
    for base, interleaved in product((10000.0, 50.0), (True, False)):
        options = {"interleaved": interleaved, "base": base}
        got = m.sinusoids(40, 12, **options)
        np.testing.assert_allclose(got, positions.sinusoids(40, 12, interleaved, base), atol=1e-7)
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
        np.testing.assert_allclose(got, positions.rotary(x.astype(float), places, width or 10, interleaved), atol=1e-6)
        np.testing.assert_array_equal(x, before)
        np.testing.assert_array_equal(m.rotary(x[:, :, 1], given, **options), got[:, :, 1])


def test_turned_products_depend_on_the_distance_alone():
    query, key = np.repeat(normal(1, 1, 1, 1, 8), 9, axis=1), np.repeat(normal(2, 1, 1, 1, 8), 9, axis=1)
    products = m.rotary(query)[0, :, 0] @ m.rotary(key)[0, :, 0].T
    for distance in range(-5, 6):
        diagonal = np.diagonal(products, distance)
        np.testing.assert_allclose(diagonal, diagonal[0], atol=2e-6)


def test_alibi():
    for heads in (1, 2, 3, 5, 8, 12, 20, 31, 64):
        np.testing.assert_allclose(m.alibi_slopes(heads), positions.alibi_slopes(heads), rtol=1e-6)
        bias = m.alibi_bias(heads, 4, 9, offset=5)
        distance_TS = np.arange(9) - np.arange(4)[:, None] - 5
        np.testing.assert_allclose(bias, m.alibi_slopes(heads)[:, None, None] * distance_TS, rtol=1e-6)
        np.testing.assert_array_equal(m.alibi_bias(heads, 4, 9, offset=5, symmetric=True), -np.abs(bias))


def test_t5():
    for (buckets, max_distance), bidirectional in product(((32, 128), (8, 20), (4, 3)), (True, False)):
        table = normal(1, buckets, 3)
        bias = m.t5_bias(table, 50, 60, bidirectional=bidirectional, max_distance=max_distance, offset=3)
        for t, s in product(range(0, 50, 7), range(60)):
            bucket = positions.t5_bucket(s - t - 3, buckets, max_distance, bidirectional)
            np.testing.assert_array_equal(bias[:, t, s], table[bucket])


def test_a_bucket_that_begins_where_a_logarithm_is_exact():
    """As float32 has it, in which models were trained: in float64 log(2) / log(32) * 5 is below 1."""
    found = relative_buckets(-np.array([7, 8, 15, 16, 64]), 9, 128, bidirectional=False)
    np.testing.assert_array_equal(found, [4, 5, 5, 6, 8])
