"""Attention whose products round their operands to bfloat16, where the CPU has such products; else in float32."""

import numpy as np
import pytest

from fastattn.arguments.attention import Heads, RaggedBatch
from fastattn.kernels.attention.arguments import COLUMNS, KEYS, MOST_ROWS, NARROW_STEP, ROWS
from fastattn.ops import cpu as operations
from fastattn.ops import reference
from fastattn.simd.target import LANES, TARGET
from fastattn.spec.rounding import bfloat16_bits
from tests.kernels.cases import fill_new_memory, normal
from tests.simd.amx_sums import widened

IS_NARROW = TARGET.bfloat16 in ("dot", "tiles")
STEP = max(NARROW_STEP, LANES)  # of widths that narrow products take


def rounded(values: np.ndarray) -> np.ndarray:
    return widened(bfloat16_bits(values)).astype(float) if IS_NARROW else values.astype(float)


def by_formula(query_TK, key_SK, value_SV, bias_TS=0.0):
    """The softmax of products of rounded operands; weights are rounded for the sum of values, not for their total."""
    scale = np.float32(query_TK.shape[1] ** -0.5 / np.log(2))
    scores_TS = (rounded(query_TK * scale) @ rounded(key_SK).T) * np.log(2) + bias_TS
    weights_TS = np.exp(scores_TS - scores_TS.max(axis=1, keepdims=True))
    return rounded(weights_TS.astype(np.float32)) @ rounded(value_SV) / weights_TS.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("length", [1, ROWS + 1, COLUMNS, KEYS, KEYS + 1, 307])
def test_products_in_bfloat16(length):
    heads = Heads(4, 2, 2 * COLUMNS, key_column=8 * COLUMNS, value_column=12 * COLUMNS, value_width=21, narrow=True)
    sentences = [normal(n, count, 12 * COLUMNS + 42) for n, count in enumerate((length, 9, 40))]

    def run(chosen):
        starts = np.cumsum([0, *map(len, chosen)])
        rows = np.concatenate(chosen)
        out = operations.attention(rows, rows, rows, RaggedBatch(starts, starts), heads)
        return np.split(out, starts[1:-1])

    together = run(sentences)
    for one, out in zip(sentences, together):
        starts = np.array([0, len(one)])
        exact = reference.attention(*3 * [one.astype(float)], RaggedBatch(starts, starts), heads)
        np.testing.assert_allclose(out, exact, atol=0.03)
        with operations.use_threads(1):
            np.testing.assert_array_equal(run([one])[0], out)
    hidden = sentences[0].copy()
    hidden[-1, heads.key_column] = np.nan
    assert np.isnan(run([hidden, sentences[1]])[0]).any() and np.isfinite(run([hidden, sentences[1]])[1]).all()


SHAPES = [  # queries, keys, the width of a query's head, that of a value's
    (5, 1, STEP, 16), (MOST_ROWS, COLUMNS + 1, STEP, COLUMNS), (MOST_ROWS + 1, COLUMNS // 2, 2 * STEP, 2 * COLUMNS + 3),
    (3 * ROWS, 3 * COLUMNS - 1, 3 * STEP, 5), (2 * MOST_ROWS - 1, KEYS, STEP, 4 * COLUMNS),
    (7, 2 * KEYS + 40, 2 * STEP, 5 * COLUMNS), (ROWS + 2, KEYS + 1, STEP, COLUMNS),
]  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_products_of_rounded_operands(shape):
    T, S, K, V = shape
    query, key, value, bias = normal(1, T, K) * 2, normal(2, S, K), normal(3, S, V), normal(4, 1, 1, T, S)
    batch = RaggedBatch(np.array([0, T]), np.array([0, S]))
    heads = Heads(1, 1, K, value_width=V, narrow=True)
    for given in (None, bias):
        found = operations.attention(query, key, value, batch, heads, bias_BHTS=given)
        expected = by_formula(query, key, value, 0.0 if given is None else given[0, 0])
        # weights are relative to other maxima: each differs by a rounding of its own
        np.testing.assert_allclose(found, expected, atol=0.012 if IS_NARROW else 1e-5)
        assert np.sqrt(np.square(found - expected).mean()) < (0.0015 if IS_NARROW else 1e-6)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_what_memory_held_before_changes_nothing(shape, monkeypatch):
    """Tiles read whole steps, rows and panels: whatever memory held before, not a number above all."""
    T, S, K, V = shape
    query, key, value = normal(1, T, K), normal(2, S, K), normal(3, S, V)
    arguments = RaggedBatch(np.array([0, T]), np.array([0, S])), Heads(1, 1, K, value_width=V, narrow=True)
    expected = operations.attention(query, key, value, *arguments)
    fill_new_memory(monkeypatch)
    np.testing.assert_array_equal(operations.attention(query, key, value, *arguments), expected)


def test_a_weight_of_nothing_is_zero():
    """Scores far below the maximum: their exponentials are 0, not what an exponent that overflows leaves."""
    query = np.full((ROWS + 1, STEP), 30, np.float32)
    key = np.concatenate([query[:1], -query[:1], 0 * query[:1], -query[:1] / 3])
    value = np.array([[1], [np.float32(3e38)], [np.float32(3e38)], [-3e38]], np.float32)
    batch = RaggedBatch(np.array([0, len(query)]), np.array([0, len(key)]))
    found = operations.attention(query, key, value, batch, Heads(1, 1, STEP, value_width=1, narrow=True))
    np.testing.assert_array_equal(found, np.ones((len(query), 1)))
