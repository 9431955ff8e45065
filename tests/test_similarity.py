"""fastattn.similarity where float32 ends, against float64; ordinary vectors are in test_encoder.py."""

import numpy as np
import pytest

from fastattn.similarity import SIMILARITIES, similarity, unit_length

pytestmark = pytest.mark.filterwarnings("error")


def naive(a, b, function):
    a, b = np.atleast_2d(a).astype(np.longdouble), np.atleast_2d(b).astype(np.longdouble)
    if function == "dot":
        return a @ b.T
    if function == "cosine":
        return (a @ b.T) / np.sqrt((a**2).sum(axis=1))[:, None] / np.sqrt((b**2).sum(axis=1))
    differences = a[:, None] - b
    return -np.abs(differences).sum(axis=2) if function == "manhattan" else -np.sqrt((differences**2).sum(axis=2))


@pytest.mark.parametrize("function", SIMILARITIES)
@pytest.mark.parametrize("size", [1e10, 1e18, 1e20, 1e30, 3e38, 1e100])
def test_vectors_of_any_size(function, size):
    random = np.random.default_rng(1)
    a, b = random.uniform(-1, 1, (3, 8)), random.uniform(-1, 1, (2, 8))
    kind = np.float32 if size < 1e39 else np.float64
    a, b = (np.concatenate([x * size, x]).astype(kind) for x in (a, b))
    with np.errstate(over="ignore"):
        expected = naive(a, b, function).astype(np.float32)
    found = similarity(a, b, function)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6 if function == "cosine" else 1e-5)


def test_two_large_vectors_are_alike():
    vector = np.full(4, 1e30, np.float32)
    assert similarity(vector, vector) == pytest.approx(1)
    assert similarity(vector, -vector) == pytest.approx(-1)
    large = np.array([1e30, 1e30], np.float32)
    np.testing.assert_array_equal(similarity(large, large * np.array([1, -1], np.float32), "dot"), [[0]])


def test_a_large_row_changes_no_bit_of_the_others():
    x = np.random.default_rng(2).standard_normal((3, 8)).astype(np.float32)
    expected = unit_length(x)
    mixed = np.concatenate(
        [x, x[:1] * np.float32(1e30), np.full((1, 8), np.inf, np.float32), np.zeros((1, 8), np.float32)]
    )
    with np.errstate(invalid="ignore"):
        found = unit_length(mixed)
    np.testing.assert_array_equal(found[:3], expected)
    np.testing.assert_allclose(found[3], expected[0], rtol=1e-6)
    assert not found[5].any()
