"""Projections onto subsets of the vocabulary: the oracle, the whole projection, and other company agree."""

import numpy as np
import pytest

from fastattn.kernels.arguments import CHUNK, SUBSET_ROWS
from fastattn.ops import cpu as operations
from fastattn.ops import reference
from fastattn.ops.cpu.project import log_softmax
from fastattn.ops.steps import NO_EDITS, Edits
from fastattn.simd.target import LANES
from fastattn.spec.quantized import QuantizedTensor
from fastattn.spec.rounding import quantize

PRECISIONS = ["float32", "bfloat16", "int8"]
V = 3 * CHUNK + 5
LENGTHS = (1, LANES - 1, LANES, LANES + 1, CHUNK, CHUNK + 3, V)
TOLERANCE = {"float32": 2e-5, "bfloat16": 2e-4, "int8": 2e-5}


class Layer:
    """A projection onto V words, lists of them of LENGTHS, and rows that choose from each: one, and then many."""

    def __init__(self, precision: str, width: int, quantized: bool = False, input_scale: float | None = None):
        rng = np.random.default_rng(width)
        self.weight = rng.standard_normal((V, width), np.float32)
        if quantized:
            rounded = quantize(self.weight, "")
            self.weight = QuantizedTensor(rounded.values_FD, rounded.multipliers_F, input_scale)
        self.bias = rng.standard_normal(V, np.float32)
        self.lists = [np.sort(rng.permutation(V)[:length]).astype(np.int32) for length in LENGTHS]
        self.of = np.repeat(np.arange(len(LENGTHS)), [1, SUBSET_ROWS + 2, 3, 1, 2, 4, 1])
        self.x = rng.standard_normal((len(self.of), width), np.float32)
        self.edits = self._edits(rng)
        self.packed, self.subset = self.build(operations, precision)
        self.oracle, self.oracle_picked = self.build(reference, precision)

    def build(self, ops, precision):
        packed = ops.pack_linear(self.weight, self.bias, precision)
        rows = ops.pack_rows(self.weight, packed)
        subset = [ops.select_outputs(rows, ids) for ids in self.lists]
        return packed, [subset[i] for i in self.of]

    def _edits(self, rng):
        """Ids on the row's list and others, and padding."""
        suppressed, penalized = (rng.integers(0, V, (len(self.of), 6)).astype(np.int32) for _ in range(2))
        for r, i in enumerate(self.of):
            suppressed[r, :2] = rng.choice(self.lists[i], 2)
            penalized[r, :2] = rng.permutation(self.lists[i])[:2] if LENGTHS[i] > 1 else -1
            penalized[r] = [p if p not in penalized[r, :n] else -1 for n, p in enumerate(penalized[r])]
        suppressed[::2, 5] = -1
        return Edits(suppressed, penalized, 1.7, rng.normal(size=penalized.shape).astype(np.float32))


@pytest.mark.parametrize("precision", PRECISIONS)
def test_agrees_with_the_oracle(precision):
    for quantized in (False, True):
        for width in (1, 24, 64, 70, 256):
            layer = Layer(precision, width, quantized)
            x, atol = layer.x.astype(np.float64), TOLERANCE[precision]
            for edits in (NO_EDITS, layer.edits):
                expected = reference.project_all(x, layer.oracle_picked, edits)
                found = operations.project_all(layer.x, layer.subset, edits)
                np.testing.assert_allclose(found, expected, rtol=0, atol=atol)
                values, ids = operations.project_top_k(layer.x, layer.subset, 5, edits)
                expected_values, expected_ids = reference.project_top_k(x, layer.oracle_picked, 5, edits)
                np.testing.assert_allclose(values, expected_values, rtol=0, atol=atol)
                left = np.isfinite(expected_values)
                np.testing.assert_array_equal(ids, np.where(left, expected_ids, -1))
                targets = np.random.default_rng(width).integers(0, V, len(x)).astype(np.int32)
                targets[::2] = [layer.lists[i][-1] for i in layer.of[::2]]
                log_probs = operations.log_probs(layer.x, layer.subset, targets, edits)
                np.testing.assert_allclose(log_probs, expected[np.arange(len(x)), targets], rtol=0, atol=atol)
                assert np.isneginf(log_probs).any() and np.isfinite(log_probs).any()


def test_in_int8_logits_are_those_of_the_whole_projection_to_the_bit():
    for width in (24, 256):
        for input_scale in (None, 9.0):
            layer = Layer("int8", width, True, input_scale)
            logits = operations.linear(layer.x, layer.packed)
            for r, found in enumerate(operations.project_all(layer.x, layer.subset)):
                ids = layer.lists[layer.of[r]]
                expected = logits[r, ids]
                log_softmax(expected)
                np.testing.assert_array_equal(found[ids], expected)
                assert np.isneginf(np.delete(found, ids)).all()


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_row_does_not_depend_on_its_neighbours_or_the_threads(precision):
    layer = Layer(precision, 70)
    targets = np.array([layer.lists[i][0] for i in layer.of], np.int32)

    def run(rows, threads):
        chosen = np.arange(len(layer.of))[rows]  # whose edits are contiguous, as a search's are
        x, subset, edits = layer.x[chosen], [layer.subset[r] for r in chosen], layer.edits.of(chosen)
        with operations.use_threads(threads):
            return (
                *operations.project_top_k(x, subset, 5, edits),
                operations.project_all(x, subset, edits),
                operations.log_probs(x, subset, targets[chosen], edits),
            )

    whole = run(np.s_[:], 1)
    for rows in (np.s_[:], np.s_[:1], np.s_[3:5], np.s_[2::3], np.s_[::-1], np.s_[20:]):
        for found, expected in zip(run(rows, 2), whole, strict=True):
            np.testing.assert_array_equal(found, expected[rows])


def test_the_words_around_a_word_change_no_logit():
    """Differences of log-probabilities are those of logits, in any list."""
    rng = np.random.default_rng(1)
    weight, x = rng.integers(-3, 4, (V, 32)).astype(np.float32), rng.integers(-3, 4, (1, 32)).astype(np.float32)
    rows = operations.pack_rows(weight, operations.pack_linear(weight))
    logits = (x @ weight.T)[0]
    for first in range(0, 40, 7):
        ids = np.r_[first, 41 : 60 + first].astype(np.int32)
        (found,) = operations.project_all(x, [operations.select_outputs(rows, ids)])
        np.testing.assert_allclose(found[ids] - found[first], logits[ids] - logits[first], atol=1e-5)


def test_fewer_words_than_asked_for_none_left_and_ties():
    rows = operations.pack_rows(np.eye(6, dtype=np.float32), operations.pack_linear(np.eye(6, dtype=np.float32)))
    x, subset = np.ones((2, 6), np.float32), operations.select_outputs(rows, np.array([1, 4, 5], np.int32))
    values, ids = operations.project_top_k(x, [subset] * 2, 5)
    assert ids.tolist() == [[1, 4, 5, -1, -1]] * 2
    np.testing.assert_allclose(values[:, :3], -np.log(3), rtol=1e-6)
    assert np.isneginf(values[:, 3:]).all()
    values, ids = operations.project_top_k(x, [subset] * 2, 2, Edits(np.array([[1, 4, 5], [4, 0, 1]], np.int32)))
    assert np.isneginf(values[0]).all() and ids.tolist() == [[-1, -1], [5, -1]] and values[1, 0] == 0


def test_nan_stays_in_its_row():
    layer = Layer("float32", 24)
    layer.x[2, 3] = np.nan
    values, _ = operations.project_top_k(layer.x, layer.subset, 2)
    found = np.isnan(values).any(axis=1)
    assert found[2] and not np.delete(found, 2).any()


def test_weights_that_fit_are_not_copied():
    weight = np.ones((V, 256), np.float32)
    assert operations.pack_rows(weight, operations.pack_linear(weight)).rows_FD is weight
    quantized = quantize(weight, "")
    rows = operations.pack_rows(quantized, operations.pack_linear(quantized, None, "int8"))
    assert rows.rows_FD is quantized.values_FD
