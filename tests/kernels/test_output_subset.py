"""Projections onto subsets of the vocabulary: the oracle, the whole projection, and other company agree."""

from dataclasses import replace

import numpy as np
import pytest

from fastattn.kernels.arguments import CHUNK, SUBSET_ROWS
from fastattn.ops import cpu as operations
from fastattn.ops.cpu.project import log_softmax
from fastattn.simd.target import LANES
from fastattn.spec.rounding import quantize
from tests.kernels.promises import SubsetRows, choices_agree_with_the_oracle

PRECISIONS = ["float32", "bfloat16", "int8"]
V = 3 * CHUNK + 5
LENGTHS = (1, LANES - 1, LANES, LANES + 1, CHUNK, CHUNK + 3, V)
TOLERANCE = {"float32": 2e-5, "bfloat16": 2e-4, "int8": 2e-5}


def make_layer(precision: str, width: int, quantized: bool = False, input_scale: float | None = None) -> SubsetRows:
    weight = np.random.default_rng(width).standard_normal((V, width), np.float32)
    if quantized:
        weight = replace(quantize(weight, ""), input_scale=input_scale)
    return SubsetRows(operations, precision, weight, LENGTHS, [1, SUBSET_ROWS + 2, 3, 1, 2, 4, 1])


@pytest.mark.parametrize("precision", PRECISIONS)
def test_agrees_with_the_oracle(precision):
    for quantized in (False, True):
        for width in (1, 24, 64, 70, 256):
            choices_agree_with_the_oracle(make_layer(precision, width, quantized), TOLERANCE[precision])


def test_in_int8_logits_are_those_of_the_whole_projection_to_the_bit():
    for width in (24, 256):
        for input_scale in (None, 9.0):
            layer = make_layer("int8", width, True, input_scale)
            logits = operations.linear(layer.x, layer.packed)
            for r, found in enumerate(operations.project_all(layer.x, layer.subset)):
                ids = layer.lists[r]
                expected = logits[r, ids]
                log_softmax(expected)
                np.testing.assert_array_equal(found[ids], expected)
                assert np.isneginf(np.delete(found, ids)).all()


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_row_does_not_depend_on_its_neighbours_or_the_threads(precision):
    layer = make_layer(precision, 70)
    targets = np.array([ids[0] for ids in layer.lists], np.int32)

    def run(rows, threads):
        chosen = np.arange(len(layer.lists))[rows]  # whose edits are contiguous, as a search's are
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


def test_nan_stays_in_its_row():
    layer = make_layer("float32", 24)
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
