"""vectors.similarity where float32 ends, against float64, and pair by pair; more in test_encoder_calls.py."""

import numpy as np
import pytest

from fastattn.errors import InputError
from fastattn.vectors.search import (
    PAIRWISE_SIMILARITIES,
    SIMILARITIES,
    similarity,
    similarity_pairwise,
    unit_length,
)

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
    allowance = {"rtol": 2e-5, "atol": 2e-6 if function == "cosine" else 1e-5}
    np.testing.assert_allclose(found, expected, **allowance)
    pairs = similarity_pairwise(a[:4], b, function)
    assert pairs.dtype == np.float32 and pairs.shape == (4,)
    np.testing.assert_allclose(pairs, np.diag(expected[:4]), **allowance)


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


def test_pairs_have_the_same_functions():
    assert set(PAIRWISE_SIMILARITIES) == set(SIMILARITIES)
    vector = np.full(4, 1e30, np.float32)
    np.testing.assert_allclose(similarity_pairwise([vector, -vector], [vector, vector]), [1, -1], rtol=1e-6)
    large = np.array([1e30, 1e30], np.float32)
    np.testing.assert_array_equal(similarity_pairwise(large, large * np.array([1, -1], np.float32), "dot"), [0])
    assert similarity_pairwise(np.zeros((0, 3)), np.zeros((0, 3))).shape == (0,)


def test_neighbours_change_no_bit_of_a_pair():
    a, b = np.random.default_rng(3).standard_normal((2, 50, 77), np.float32)
    for function in SIMILARITIES:
        together = similarity_pairwise(a, b, function)
        alone = [similarity_pairwise(a[n], b[n], function)[0] for n in range(50)]
        np.testing.assert_array_equal(together, alone)


def test_what_are_no_pairs():
    with pytest.raises(InputError, match=r"pairs of vectors are expected, got shapes \(2, 3\) and \(1, 3\)"):
        similarity_pairwise(np.zeros((2, 3)), np.zeros((1, 3)))
    with pytest.raises(InputError, match=r"one width are expected, got shapes \(2, 3\) and \(2, 4\)"):
        similarity_pairwise(np.zeros((2, 3)), np.zeros((2, 4)))
    with pytest.raises(InputError, match="unknown similarity 'best'; known: cosine, dot"):
        similarity_pairwise(np.zeros(3), np.zeros(3), "best")


@pytest.mark.parametrize("function", SIMILARITIES)
def test_pairs_are_those_of_sentence_transformers(function):
    theirs = pytest.importorskip("sentence_transformers.util.similarity")
    names = {"cosine": "cos_sim", "dot": "dot_score", "euclidean": "euclidean_sim", "manhattan": "manhattan_sim"}
    a, b = np.random.default_rng(4).standard_normal((2, 9, 33), np.float32)
    expected = getattr(theirs, f"pairwise_{names[function]}")(a, b).numpy()
    np.testing.assert_allclose(similarity_pairwise(a, b, function), expected, rtol=1e-5, atol=1e-5)
