"""Positions against the papers' formulas, number by number in float64."""

import numpy as np

from fastattn import mechanisms as m
from fastattn.layers.attention import relative_buckets
from fastattn.ops.reference.mechanisms import positions
from tests.mechanisms.oracle import normal, refuses


def test_sinusoids():
    for base in (10000.0, 50.0):
        for interleaved in (True, False):
            expected = positions.sinusoids(40, 12, interleaved, base)
            got = m.sinusoids(40, 12, interleaved=interleaved, base=base)
            np.testing.assert_allclose(got, expected, atol=1e-7)
            np.testing.assert_array_equal(
                m.sinusoids([7, 0, 39], 12, interleaved=interleaved, base=base), got[[7, 0, 39]]
            )
            assert got.dtype == np.float32 and m.sinusoids(0, 12).shape == (0, 12)


def test_sinusoids_of_far_and_negative_positions():
    far = np.array([10**9, -3])
    angle = far[:, None] * 10000.0 ** (-np.arange(0, 6, 2) / 6)
    np.testing.assert_allclose(
        m.sinusoids(far, 6, interleaved=False), np.hstack([np.sin(angle), np.cos(angle)]), atol=1e-6
    )


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
    for given in (None, [5, 0, 1000, -2]):
        for width in (None, 6):
            for interleaved in (True, False):
                x = normal(1, 2, 4, 3, 10)
                before = x.copy()
                places = np.arange(4) if given is None else np.array(given)
                got = m.rotary(x, given, width=width, interleaved=interleaved)
                expected = positions.rotary(x.astype(float), places, width or 10, interleaved)
                np.testing.assert_allclose(got, expected, atol=1e-6)
                np.testing.assert_array_equal(x, before)
                np.testing.assert_array_equal(
                    m.rotary(x[:, :, 1], given, width=width, interleaved=interleaved), got[:, :, 1]
                )


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
        for t in range(4):
            for s in range(9):
                np.testing.assert_allclose(bias[:, t, s], m.alibi_slopes(heads) * (s - t - 5), rtol=1e-6)
        np.testing.assert_array_equal(m.alibi_bias(heads, 4, 9, offset=5, symmetric=True), -np.abs(bias))


def test_t5():
    for buckets, max_distance in ((32, 128), (8, 20), (4, 3)):
        for bidirectional in (True, False):
            table = normal(1, buckets, 3)
            bias = m.t5_bias(table, 50, 60, bidirectional=bidirectional, max_distance=max_distance, offset=3)
            for t in range(0, 50, 7):
                for s in range(60):
                    bucket = positions.t5_bucket(s - t - 3, buckets, max_distance, bidirectional)
                    np.testing.assert_array_equal(bias[:, t, s], table[bucket])


def test_a_bucket_that_begins_where_a_logarithm_is_exact():
    """As float32 has it, in which models were trained: in float64 log(2) / log(32) * 5 is below 1."""
    found = relative_buckets(-np.array([7, 8, 15, 16, 64]), 9, 128, bidirectional=False)
    np.testing.assert_array_equal(found, [4, 5, 5, 6, 8])


def test_what_does_not_fit():
    x = normal(1, 2, 5, 4)
    refuses(lambda: m.sinusoids(4, 3), "width: expected an even number")
    refuses(lambda: m.sinusoids(4, 2**40), "width: expected an even number of at most")
    refuses(lambda: m.sinusoids(2**24, 2**20), "positions: expected at most")
    refuses(lambda: m.sinusoids(2**60, 4), "positions: expected 0 to")
    refuses(lambda: m.sinusoids(-1, 4), "positions: expected 0 to")
    refuses(lambda: m.sinusoids([[1]], 4), "positions: expected a count or one axis")
    refuses(lambda: m.sinusoids([1.5], 4), "positions: expected integers")
    refuses(lambda: m.sinusoids(4, 4, base=0), "base: expected a finite number of at least")
    refuses(lambda: m.learned(normal(1, 4, 4), 5), "positions: expected 0 to 3")
    refuses(lambda: m.learned(normal(1, 4, 4), [-1]), "positions: expected 0 to")
    refuses(lambda: m.add_positions(x, m.sinusoids(4, 4)), "positions: expected 5, one for each of x's, got 4")
    refuses(lambda: m.add_positions(x, m.sinusoids(5, 6)), "positions: expected a width of 4")
    refuses(lambda: m.rotary(x, width=6), "width: expected at most 4")
    refuses(lambda: m.rotary(x, [1]), "positions: expected 5")
    refuses(lambda: m.rotary(normal(1, 2, 5, 3)), "width: expected an even number")
    refuses(lambda: m.alibi_slopes(0), "heads must be at least 1")
    refuses(lambda: m.alibi_slopes(2**40), "heads: expected at most")
    refuses(lambda: m.alibi_bias(2, 2**20, 2**20), "queries: expected at most")
    refuses(lambda: m.alibi_bias(2, -1, 2), "queries: expected 0 to")
    refuses(lambda: m.t5_bias(normal(1, 3, 2), 2, 2), "table: expected 4 buckets or more")
    refuses(lambda: m.t5_bias(normal(1, 32, 2), 2, 2, max_distance=8), "table: expected 4 buckets or more")
