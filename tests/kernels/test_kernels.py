"""Every compiled operation against reference in float64, at awkward sizes; serial and parallel forms bit for bit."""

import itertools

import numpy as np
import pytest

from bench.operations.table import Problem
from fastattn.kernels.arguments import GROUP, NR
from fastattn.ops import cpu as operations
from fastattn.ops import reference
from fastattn.ops.steps import Edits
from fastattn.spec.architecture import ACTIVATIONS
from tests.kernels.cases import CASES, check

MINE = [case for case in CASES if hasattr(operations, case.operation)]


@pytest.mark.parametrize("case", MINE, ids=lambda case: case.name)
def test_agrees_with_reference(case: Problem):
    check(case, operations)


@pytest.mark.parametrize("width", [384, 1024])
def test_layer_norm_of_rows_far_from_zero(width):
    """What rounding leaves in the mean, much beside such deviations, is taken off: only the mean's own step stays."""
    mean, deviation = 1000, 1e-3
    x_ND = (np.random.default_rng(2).standard_normal((9, width)) * deviation + mean).astype(np.float32)
    y_ND = operations.layer_norm(x_ND, np.ones(width, np.float32), np.zeros(width, np.float32), 1e-12).astype(
        np.float64
    )
    assert np.abs(y_ND.mean(axis=1)).max() < 0.51 * np.spacing(np.float32(mean)) / x_ND.std(axis=1, dtype=float).min()
    np.testing.assert_allclose(y_ND.std(axis=1), 1, rtol=1e-5)


@pytest.mark.parametrize("case", MINE, ids=lambda case: case.name)
def test_threads_change_no_bit(case: Problem):
    with operations.use_threads(1):
        alone = case.call(operations, case.arrays)
    with operations.use_threads(2):
        shared = case.call(operations, case.arrays)
    for one, other in zip(alone, shared, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 6, 7, 13, 97, 200])
def test_a_row_does_not_depend_on_the_others(rows: int):
    rng = np.random.default_rng(rows)
    x_ND = rng.standard_normal((rows, 45)).astype(np.float32)
    packed = operations.pack_linear(rng.standard_normal((150, 45)).astype(np.float32))
    together = operations.linear(x_ND, packed, "swish")
    best, ids = operations.project_top_k(x_ND, packed, 5)
    for n in range(0, rows, 7):
        alone_best, alone_ids = operations.project_top_k(x_ND[n : n + 1], packed, 5)
        np.testing.assert_array_equal(operations.linear(x_ND[n : n + 1], packed, "swish")[0], together[n])
        np.testing.assert_array_equal(alone_best[0], best[n])
        np.testing.assert_array_equal(alone_ids[0], ids[n])


def test_the_best_logits_are_those_of_the_best_log_probabilities():
    rng = np.random.default_rng(0)
    weight_VD, x_RD = (rng.standard_normal(shape, np.float32) for shape in ((1300, 24), (9, 24)))
    packed, suppressed_RJ = operations.pack_linear(weight_VD), np.arange(18, dtype=np.int32).reshape(9, 2)
    expected = operations.linear(x_RD, packed)
    _, ids = operations.project_top_k(x_RD, packed, 3, Edits(suppressed_RJ))
    values, same = operations.project_top_k(x_RD, packed, 3, Edits(suppressed_RJ), normalized=False)
    np.testing.assert_array_equal(same, ids)
    np.testing.assert_array_equal(values, np.take_along_axis(expected, ids.astype(np.int64), axis=1))


@pytest.mark.parametrize(
    "logits",
    [
        [1.5] + [-np.inf] * 60,
        [1e10] + [0.0] * 80,
        [-1e12] * 70,
        [2.5e38, 1.0],
        [2e38, -1e38],
        [-2.5e38] * 5,
        [1e30, 9e29],
    ],
    ids=lambda logits: f"{len(logits)} of {logits[0]:.0e}",
)
def test_log_probabilities_of_logits_of_any_size(logits):
    weight_VD, x_RD = np.array(logits, np.float32)[:, None], np.ones((1, 1), np.float32)
    values, ids = operations.project_top_k(x_RD, operations.pack_linear(weight_VD), 2)
    oracle = reference.pack_linear(weight_VD.astype(np.float64))
    expected, _ = reference.project_top_k(x_RD.astype(np.float64), oracle, 2)
    # the sum's logarithm is a float32 as large as the logits
    allowed = max(1e-6, np.spacing(np.abs(weight_VD[np.isfinite(weight_VD)]).max()))
    np.testing.assert_allclose(values, expected.astype(np.float32), rtol=1e-6, atol=allowed)
    assert values.max() <= 0 and ids[0, 0] == np.argmax(logits)


def test_top_k_of_fewer_ids_than_k():
    packed = operations.pack_linear(np.eye(3, dtype=np.float32))
    suppressed = np.array([[0, 2]], np.int32)
    values, ids = operations.project_top_k(np.ones((1, 3), np.float32), packed, 4, Edits(suppressed))
    assert ids.tolist() == [[1, -1, -1, -1]]
    assert values[0, 0] == 0 and np.isneginf(values[0, 1:]).all()


def test_nothing_is_probable_where_every_id_is_ruled_out():
    packed = operations.pack_linear(np.eye(3, dtype=np.float32))
    x_RD, suppressed_RJ = np.ones((2, 3), np.float32), np.array([[0, 1, 2], [0, -1, -1]], np.int32)
    values, ids = operations.project_top_k(x_RD, packed, 2, Edits(suppressed_RJ))
    assert np.isneginf(values[0]).all() and ids.tolist() == [[-1, -1], [1, 2]]
    log_probs = operations.log_probs(x_RD, packed, np.array([1, 1], np.int32), Edits(suppressed_RJ))
    assert np.isneginf(log_probs[0]) and log_probs[1] == values[1, 0]


@pytest.mark.parametrize("outputs", [NR - 1, GROUP * NR - 1, GROUP * NR, 2 * GROUP * NR - 5])
def test_a_residual_is_added_in_the_same_order_for_any_rows_and_threads(outputs: int):
    rng = np.random.default_rng(outputs)
    x_ND, residual_NF = (rng.standard_normal((7, size)).astype(np.float32) for size in (37, outputs))
    packed = operations.pack_linear(rng.standard_normal((outputs, 37)).astype(np.float32), residual_NF[0])
    together = operations.linear(x_ND, packed, residual_NF=residual_NF)
    for rows, threads in itertools.product((1, 2, 3, 4), (1, 2)):
        with operations.use_threads(threads):
            few = operations.linear(x_ND[:rows], packed, residual_NF=residual_NF[:rows])
        np.testing.assert_array_equal(few, together[:rows])


@pytest.mark.parametrize("activation", ["none", *ACTIVATIONS])
def test_activations_keep_nan_and_infinity(activation: str):
    x_ND = np.array([[np.nan], [np.inf], [1.0]], np.float32)
    packed = operations.pack_linear(np.ones((3, 1), np.float32))
    got, expected = (
        operations.linear(x_ND, packed, activation),
        reference.linear(x_ND, reference.pack_linear(np.ones((3, 1), np.float32)), activation),
    )
    np.testing.assert_allclose(got, expected, rtol=1e-6)
