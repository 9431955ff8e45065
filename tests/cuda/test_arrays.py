"""Operations on callers' arrays against reference, small random cases: search, mechanisms, unit vectors."""

from typing import Any

import numpy as np
import pytest

from fastattn.ops import cuda, reference
from fastattn.ops.cuda.card import THREADS, TILE
from fastattn.ops.cuda.search import PIECE
from tests.kernels.cases import normal
from tests.kernels.promises import (
    equal_scores_are_in_the_order_of_ids,
    found_rows_are_the_nearest,
    length_of_rows_that_have_none,
    same,
    searches,
    what_is_no_number_displaces_none,
)

SPECIAL = np.array([np.nan, -np.inf, 2, np.nan, np.inf, -3], np.float32)


def close(got: np.ndarray, expected: np.ndarray) -> None:
    assert got.dtype == np.float32 and type(got) is np.ndarray
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=2e-6)


@searches
@pytest.mark.parametrize("Q, N, D", [(1, 1, 1), (2, PIECE + 1, 2), (TILE + 1, PIECE - 1, 3), (3, 2 * PIECE + TILE, 5)])
def test_nearest_rows(Q: int, N: int, D: int, dtype: Any, form: dict[str, bool], monkeypatch: Any) -> None:
    """Some of the pieces come to the card after the others, and rows lie apart."""
    monkeypatch.setattr("fastattn.ops.cuda.search.SCORES", Q * PIECE)
    monkeypatch.setattr("fastattn.ops.cuda.search.QUERIES", TILE)
    rng = np.random.default_rng(N + D)
    wide = rng.standard_normal((N, D + 2)) if np.dtype(dtype).kind == "f" else rng.integers(-128, 256, (N, D + 2))
    corpus = wide.astype(dtype)[::-1, 1:-1]
    queries = rng.integers(-3, 100, (Q, D)).astype(np.float32 if np.dtype(dtype).kind == "f" else dtype)
    found_rows_are_the_nearest(cuda.nearest_rows, queries, corpus, form)


def test_equal_scores_lengths_and_what_is_no_number() -> None:
    what_is_no_number_displaces_none(cuda.nearest_rows, 2)
    equal_scores_are_in_the_order_of_ids(cuda.nearest_rows, 2, PIECE // 2 + 1)
    length_of_rows_that_have_none(cuda.nearest_rows)


def test_sums_of_integers_are_exact() -> None:
    corpus, queries = np.full((4, 300), 255, np.uint8), np.full((1, 300), 255, np.uint8)
    corpus[[0, 2], 0], queries[0, 0] = (253, 254), 1  # sums beyond 2**24, which one apart are one float32
    scores, ids = cuda.nearest_rows(queries, corpus, 4)
    assert ids.tolist() == [[1, 3, 2, 0]] and scores[0, 0] == 299 * 255 * 255 + 255


def test_unit_vectors() -> None:
    for shape in ((0, 3), (2, 0), (3, 1), (2, 3, THREADS + 1), (7,)):
        x = normal(1, *shape)
        if shape == (3, 1):
            x[:, 0] = 0, 1e-45, -3e38
        close(cuda.unit_vectors(x), reference.unit_vectors(x.astype(np.float64)))


def test_a_vector_without_direction() -> None:
    for bad in (np.nan, np.inf):
        x = normal(2, 3, THREADS + 2)
        alone = cuda.unit_vectors(x)
        x[1, -1], alone[1] = bad, np.nan
        np.testing.assert_array_equal(cuda.unit_vectors(x), alone)


B, T, S, H, G, K, V = 2, 3, 2 * THREADS + 1, 4, 2, 5, THREADS + 2
QUERY, KEY, VALUE = normal(3, B, T, H, K), normal(4, B, S, G, K), normal(5, B, S, G, V)
RNG = np.random.default_rng(6)
FIRSTS = RNG.integers(0, S, (B, T, H))
WINDOWS = np.stack([FIRSTS, np.minimum(FIRSTS + RNG.integers(0, S, FIRSTS.shape), S)], axis=-1)
WINDOWS[0, 0, 0], WINDOWS[0, 0, 1], WINDOWS[1, 1, 2] = (0, S), (2, 2), (0, THREADS)


def test_best_keys() -> None:
    for bias in (None, (1, 1, T, S), (B, H, 1, 1), (1, H, T, 1), (B, 1, 1, S)):
        for vector in (None, normal(7, H, K)):
            seen = np.ascontiguousarray(WINDOWS[:, :, 1])
            for key in (KEY, KEY.take(np.arange(S) % 3, axis=1), np.repeat(KEY[:, :1], S, axis=1)):  # equal scores too
                options: dict[str, Any] = {"seen_BT2": seen, "factor": -0.3, "vector_HK": vector}
                if bias is not None:
                    options["bias_BHTS"] = np.where(normal(8, *bias) < -1, -np.inf, 3 * normal(9, *bias)).astype(
                        np.float32
                    )
                expected = reference.best_keys(QUERY, key, **options)
                got = cuda.best_keys(QUERY, key, **options)
                assert got.dtype == np.int64 and (expected == -1).any()
                np.testing.assert_array_equal(got, expected)


def test_best_keys_of_none_and_of_what_is_no_number() -> None:
    seen = np.array([[[0, 6], [0, 1], [1, 2], [3, 6]]])
    options: dict[str, Any] = {"seen_BT2": seen, "bias_BHTS": SPECIAL.reshape(1, 1, 1, 6)}
    query, key = np.ones((1, 4, 1, 1), np.float32), np.ones((1, 6, 1, 1), np.float32)
    assert cuda.best_keys(query, key, **options).tolist() == [[[4, -1, -1, 4]]]
    assert cuda.best_keys(query, key[:, :0], seen_BT2=0 * seen).tolist() == [[[-1] * 4]]


def test_local_attention() -> None:
    for spread in (0.0, 0.02):
        weights, expected_weights = np.full((B, H, T, S), 7, np.float32), np.zeros((B, H, T, S))
        centres = (S * RNG.random((B, T, H))).astype(np.float32)
        arrays, options = (QUERY, KEY, VALUE, centres), {"scale": 2.0, "decay": spread}
        wide = [array.astype(np.float64) for array in arrays]
        expected = reference.local_attention(*wide, WINDOWS, **options, weights_BHTS=expected_weights)
        close(cuda.local_attention(*arrays, WINDOWS, **options, weights_BHTS=weights), expected)
        close(weights, expected_weights)
        alone = [array[1:] for array in arrays]
        same(
            cuda.local_attention(*alone, WINDOWS[1:], **options), cuda.local_attention(*arrays, WINDOWS, **options)[1:]
        )


def test_a_score_that_is_no_number_makes_its_query_so() -> None:
    key = KEY.copy()
    key[0, 1] = np.nan
    got = cuda.local_attention(QUERY, key, VALUE, np.zeros((B, T, H), np.float32), WINDOWS, scale=1.0, decay=0.0)
    sees = (WINDOWS[0, ..., 0] <= 1) & (1 < WINDOWS[0, ..., 1])
    assert (
        sees.any() and np.isnan(got[0][sees]).all() and np.isfinite(got[0][~sees]).all() and np.isfinite(got[1]).all()
    )


def test_graph_attention() -> None:
    for kind in ("terms", "dots"):
        degrees = [0, 1, THREADS, THREADS + 1, 0, 3 * THREADS + 2, 2]
        starts, M = np.cumsum([0, *degrees]), 5
        indices, N = np.random.default_rng(7).integers(0, M, starts[-1]), len(degrees)
        value, more = 3 * normal(10, M, H, V), () if kind == "terms" else (K,)
        pair = 3 * normal(11, N, H, *more), normal(12, M, H, *more)
        weights, expected_weights = np.full((len(indices), H), 7, np.float32), np.zeros((len(indices), H))
        options: dict[str, Any] = {kind: tuple(array.astype(np.float64) for array in pair), "factor": 0.2}
        expected = reference.graph_attention(
            value.astype(np.float64), starts, indices, weights_EH=expected_weights, **options
        )
        options[kind] = pair
        close(cuda.graph_attention(value, starts, indices, weights_EH=weights, **options), expected)
        close(weights, expected_weights)
        close(cuda.graph_attention(value, starts, indices, **options), expected)
