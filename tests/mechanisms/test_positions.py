"""Positions against the papers' formulas, number by number in float64."""

import numpy as np
import pytest

from fastattn.errors import InputError
from fastattn.mechanisms import (
    add_positions,
    alibi_bias,
    alibi_slopes,
    concatenate_positions,
    learned,
    rotary,
    sinusoids,
    t5_bias,
)
from fastattn.ops.reference.mechanisms import positions
from tests.mechanisms.oracle import normal


@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("base", [10000.0, 50.0])
def test_sinusoids(interleaved, base):
    expected = positions.sinusoids(40, 12, interleaved, base)
    got = sinusoids(40, 12, interleaved=interleaved, base=base)
    np.testing.assert_allclose(got, expected, atol=1e-7)
    np.testing.assert_array_equal(sinusoids([7, 0, 39], 12, interleaved=interleaved, base=base), got[[7, 0, 39]])
    assert got.dtype == np.float32 and sinusoids(0, 12).shape == (0, 12)


def test_sinusoids_of_far_and_negative_positions():
    far = np.array([10**9, -3])
    angle = far[:, None] * 10000.0 ** (-np.arange(0, 6, 2) / 6)
    np.testing.assert_allclose(
        sinusoids(far, 6, interleaved=False), np.hstack([np.sin(angle), np.cos(angle)]), atol=1e-6
    )


def test_learned_positions():
    table = normal(1, 9, 4)
    np.testing.assert_array_equal(learned(table, 3), table[:3])
    np.testing.assert_array_equal(learned(table, np.array([8, 0, 8])), table[[8, 0, 8]])


def test_positions_are_added_or_put_beside():
    x, table = normal(1, 2, 5, 4), sinusoids(5, 4)
    np.testing.assert_array_equal(add_positions(x, table), x + table)
    both = concatenate_positions(x, sinusoids(5, 6))
    np.testing.assert_array_equal(both[..., :4], x)
    np.testing.assert_array_equal(both[1, :, 4:], sinusoids(5, 6))


@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("width", [None, 6])
@pytest.mark.parametrize("given", [None, [5, 0, 1000, -2]])
def test_rotary(interleaved, width, given):
    x = normal(1, 2, 4, 3, 10)
    before = x.copy()
    places = np.arange(4) if given is None else np.array(given)
    got = rotary(x, given, width=width, interleaved=interleaved)
    expected = positions.rotary(x.astype(float), places, width or 10, interleaved)
    np.testing.assert_allclose(got, expected, atol=1e-6)
    np.testing.assert_array_equal(x, before)
    np.testing.assert_array_equal(rotary(x[:, :, 1], given, width=width, interleaved=interleaved), got[:, :, 1])


def test_turned_products_depend_on_the_distance_alone():
    query, key = np.repeat(normal(1, 1, 1, 1, 8), 9, axis=1), np.repeat(normal(2, 1, 1, 1, 8), 9, axis=1)
    products = rotary(query)[0, :, 0] @ rotary(key)[0, :, 0].T
    for distance in range(-5, 6):
        diagonal = np.diagonal(products, distance)
        np.testing.assert_allclose(diagonal, diagonal[0], atol=2e-6)


@pytest.mark.parametrize("heads", [1, 2, 3, 5, 8, 12, 20, 31, 64])
def test_alibi(heads):
    np.testing.assert_allclose(alibi_slopes(heads), positions.alibi_slopes(heads), rtol=1e-6)
    bias = alibi_bias(heads, 4, 9, offset=5)
    for t in range(4):
        for s in range(9):
            np.testing.assert_allclose(bias[:, t, s], alibi_slopes(heads) * (s - t - 5), rtol=1e-6)
    np.testing.assert_array_equal(alibi_bias(heads, 4, 9, offset=5, symmetric=True), -np.abs(bias))


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (8, 20), (4, 3)])
def test_t5(bidirectional, buckets, max_distance):
    table = normal(1, buckets, 3)
    bias = t5_bias(table, 50, 60, bidirectional=bidirectional, max_distance=max_distance, offset=3)
    for t in range(0, 50, 7):
        for s in range(60):
            bucket = positions.t5_bucket(s - t - 3, buckets, max_distance, bidirectional)
            np.testing.assert_array_equal(bias[:, t, s], table[bucket])


def bad(call, message):
    with pytest.raises(InputError, match=message) as error:
        call()
    assert "\n" not in str(error.value)


def test_what_does_not_fit():
    x = normal(1, 2, 5, 4)
    bad(lambda: sinusoids(4, 3), "width: expected an even number")
    bad(lambda: sinusoids(4, 2**40), "width: expected an even number of at most")
    bad(lambda: sinusoids(2**24, 2**20), "positions: expected at most")
    bad(lambda: sinusoids(2**60, 4), "positions: expected 0 to")
    bad(lambda: sinusoids(-1, 4), "positions: expected 0 to")
    bad(lambda: sinusoids([[1]], 4), "positions: expected a count or one axis")
    bad(lambda: sinusoids([1.5], 4), "positions: expected integers")
    bad(lambda: sinusoids(4, 4, base=0), "base: expected a finite number of at least")
    bad(lambda: learned(normal(1, 4, 4), 5), "positions: expected 0 to 3")
    bad(lambda: learned(normal(1, 4, 4), [-1]), "positions: expected 0 to")
    bad(lambda: add_positions(x, sinusoids(4, 4)), "positions: expected 5, one for each of x's, got 4")
    bad(lambda: add_positions(x, sinusoids(5, 6)), "positions: expected a width of 4")
    bad(lambda: rotary(x, width=6), "width: expected at most 4")
    bad(lambda: rotary(x, [1]), "positions: expected 5")
    bad(lambda: rotary(normal(1, 2, 5, 3)), "width: expected an even number")
    bad(lambda: alibi_slopes(0), "heads must be at least 1")
    bad(lambda: alibi_slopes(2**40), "heads: expected at most")
    bad(lambda: alibi_bias(2, 2**20, 2**20), "queries: expected at most")
    bad(lambda: alibi_bias(2, -1, 2), "queries: expected 0 to")
    bad(lambda: t5_bias(normal(1, 3, 2), 2, 2), "table: expected 4 buckets or more")
    bad(lambda: t5_bias(normal(1, 32, 2), 2, 2, max_distance=8), "table: expected 4 buckets or more")
