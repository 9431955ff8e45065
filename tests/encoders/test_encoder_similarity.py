"""Similarity as a checkpoint has it: the Encoder's own method."""

import numpy as np
import pytest

from fastattn.encoders.encoder import Encoder
from fastattn.errors import InputError
from tests.encoders.test_encoder import _encoder


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return _encoder()


@pytest.mark.parametrize(
    "function, expected",
    [
        ("dot", [[11, 6], [25, 12]]),
        ("cosine", [[11 / 125**0.5, 6 / 60**0.5], [1, 12 / 300**0.5]]),
        ("euclidean", [[-(8**0.5), -(8**0.5)], [0, -(20**0.5)]]),
        ("manhattan", [[-4, -4], [0, -6]]),
    ],
)
def test_similarity_is_the_checkpoints(function: str, expected: list) -> None:
    encoder = _encoder(similarity=function)
    a, b = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[3.0, 4.0]])
    got = encoder.similarity(a, b)
    assert got.dtype == np.float32 and got.shape == (2, 1)
    np.testing.assert_allclose(got[:, 0], [row[0] for row in expected], rtol=1e-6, atol=1e-6)
    assert encoder.similarity(a[0], b).shape == (1, 1)
    assert encoder.similarity(a, np.zeros((0, 2))).shape == (2, 0)
    with pytest.raises(InputError, match=r"one width are expected, got shapes \(2, 2\) and \(1, 3\)"):
        encoder.similarity(a, np.zeros((1, 3)))


@pytest.mark.parametrize("vectors", ["x", [[1.0], [2.0, 3.0]], np.ones(3) * 1j, None])
def test_similarity_of_what_are_no_vectors(encoder: Encoder, vectors: object) -> None:
    with pytest.raises(InputError, match="vectors"):
        encoder.similarity(vectors, np.ones(3))  # type: ignore[arg-type]


def test_a_vector_is_at_no_distance_from_itself() -> None:
    """Where |a|^2 + |b|^2 - 2 ab comes out below zero too."""
    vectors = np.random.default_rng(0).standard_normal((200, 384)).astype(np.float32)
    distances = np.diag(_encoder(similarity="euclidean").similarity(vectors, vectors))
    np.testing.assert_allclose(distances, 0, atol=1e-5)


def test_similarity_with_a_zero_vector_is_zero(encoder: Encoder) -> None:
    np.testing.assert_array_equal(encoder.similarity(np.zeros(2), np.ones(2)), [[0]])
