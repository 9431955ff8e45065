"""Every operation of the table, compiled and in NumPy, against reference in float64; what holds beyond the table."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from fastattn.arguments.steps import NO_EDITS, Edits
from fastattn.ops import cpu as operations
from fastattn.ops import reference
from tests.kernels.cases import BY_OPERATION, check, normal
from tests.kernels.promises import PROMISES


@pytest.mark.parametrize("operation", BY_OPERATION)
def test_reference_one_thread_and_two_agree(operation: str):
    for case in BY_OPERATION[operation]:
        for result in case.call(reference, case.arrays):
            assert result.dtype in (np.float32, np.int32), case.name
        check(case, reference)
        with operations.use_threads(1):
            alone = case.call(operations, case.arrays)
            check(case, operations)
        with operations.use_threads(2):
            shared = case.call(operations, case.arrays)
        for one, other in zip(alone, shared, strict=True):
            np.testing.assert_array_equal(one, other, err_msg=case.name)


def test_layer_norm_of_rows_far_from_zero():
    mean, deviation = 1000, 1e-3
    for width in (384, 1024):
        x_ND = (np.random.default_rng(2).standard_normal((9, width)) * deviation + mean).astype(np.float32)
        parameters = np.ones(width, np.float32), np.zeros(width, np.float32)
        y_ND = operations.layer_norm(x_ND, *parameters, 1e-12).astype(np.float64)
        step = np.spacing(np.float32(mean)) / x_ND.std(axis=1, dtype=float).min()
        assert np.abs(y_ND.mean(axis=1)).max() < 0.51 * step
        np.testing.assert_allclose(y_ND.std(axis=1), 1, rtol=1e-5)


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_promises(promise: Callable):
    promise(operations)


WIDTHS = (1, 15, 16, 17, 100)


def test_a_row_that_is_no_number_stays_alone():
    for width in WIDTHS:
        for place in (0, -1):
            for bad in (np.nan, np.inf):
                x_NS = np.random.default_rng(width).standard_normal((3, width)).astype(np.float32)
                expected = operations.softmax(x_NS)
                x_NS[1, place] = bad
                expected[1] = np.nan
                np.testing.assert_array_equal(operations.softmax(x_NS), expected)


def test_scores_of_any_size():
    largest = np.finfo(np.float32).max
    x_NS = np.array([[largest, -largest, 0], [largest, largest, -np.inf], [1e-45, 0, -1e-45]], np.float32)
    expected = [[1, 0, 0], [0.5, 0.5, 0], [1 / 3, 1 / 3, 1 / 3]]
    np.testing.assert_allclose(operations.softmax(x_NS), expected, rtol=1e-7)


WORDS, WIDTH, CAP = 301, 24, 5.0  # the last panel and the last vector have columns without an output
PENALIZED, SUPPRESSED = np.array([[3, 7], [300, -1], [5, 6]], np.int32), np.array([[9, -1], [4, 8], [300, 2]], np.int32)
BIASED, BIASES = np.array([3, 300, 11], np.int32), np.array([-4, 2.5, 9], np.float32)
EDITS = Edits(SUPPRESSED, PENALIZED, 1.7, None, CAP, BIASED, BIASES)


X_RD, WEIGHT_VD, BIAS_V = normal(3, 3, WIDTH), normal(4, WORDS, WIDTH), normal(5, WORDS)


def test_a_cap_and_biases_come_before_penalties_and_suppressed_ids() -> None:
    capped_RV = CAP * np.tanh((X_RD.astype(np.float64) @ WEIGHT_VD.T + BIAS_V) / CAP)
    edited_RV = capped_RV.copy()
    edited_RV[:, BIASED] += BIASES
    for logits_V, penalized, suppressed in zip(edited_RV, PENALIZED, SUPPRESSED):
        for j in penalized[penalized >= 0]:
            logits_V[j] *= 1.7 if logits_V[j] < 0 else 1 / 1.7
        logits_V[suppressed[suppressed >= 0]] = -np.inf
    given = (EDITS, edited_RV), (NO_EDITS._replace(cap=CAP), capped_RV)
    for ops, subset, (edits, logits_RV) in itertools.product((operations, reference), (False, True), given):
        packed, ids = ops.pack_linear(WEIGHT_VD, BIAS_V), np.arange(WORDS, dtype=np.int32)
        ids = ids[ids % 7 > 1] if subset else ids
        outputs = [ops.select_outputs(ops.pack_rows(WEIGHT_VD, packed), ids)] * 3 if subset else packed
        expected_RV = np.where(np.isin(np.arange(WORDS), ids), logits_RV, -np.inf)
        expected_RV -= np.log(np.exp(expected_RV).sum(axis=1, keepdims=True))
        np.testing.assert_allclose(ops.project_all(X_RD, outputs, edits), expected_RV, atol=1e-5)
        log_probs_R = ops.log_probs(X_RD, outputs, np.full(3, ids[-1], np.int32), edits)
        np.testing.assert_allclose(log_probs_R, expected_RV[:, ids[-1]], atol=1e-5)
        values_R9, ids_R9 = ops.project_top_k(X_RD, outputs, 9, edits)
        np.testing.assert_array_equal(ids_R9, np.argsort(-expected_RV, axis=1)[:, :9])
        np.testing.assert_allclose(values_R9, -np.sort(-expected_RV, axis=1)[:, :9], atol=1e-5)


def test_not_a_number_stays_one() -> None:
    x_RD = X_RD.copy()
    x_RD[1, 3] = np.nan
    values_R1, _ = operations.project_top_k(x_RD, operations.pack_linear(WEIGHT_VD, BIAS_V), 1, EDITS)
    assert np.isnan(values_R1[1, 0]) and np.isfinite(values_R1[[0, 2]]).all()
