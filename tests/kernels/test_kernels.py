"""Every operation of the table, compiled and in NumPy, against reference in float64; what holds beyond the table."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from bench.operations.rows import rotate
from fastattn.kernels.arguments import GROUP, NR
from fastattn.ops import cpu as operations
from fastattn.ops import reference
from fastattn.ops.steps import NO_EDITS, Edits
from tests.kernels.cases import BY_OPERATION, check
from tests.kernels.promises import PROMISES


@pytest.mark.parametrize("operation", BY_OPERATION)
def test_reference_one_thread_and_two_agree(operation: str):
    """At every awkward size: float32 with float64 within rounding, the numbers of threads bit for bit."""
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
    """What rounding leaves in the mean, much beside such deviations, is taken off: only the mean's own step stays."""
    mean, deviation = 1000, 1e-3
    for width in (384, 1024):
        x_ND = (np.random.default_rng(2).standard_normal((9, width)) * deviation + mean).astype(np.float32)
        parameters = np.ones(width, np.float32), np.zeros(width, np.float32)
        y_ND = operations.layer_norm(x_ND, *parameters, 1e-12).astype(np.float64)
        step = np.spacing(np.float32(mean)) / x_ND.std(axis=1, dtype=float).min()
        assert np.abs(y_ND.mean(axis=1)).max() < 0.51 * step
        np.testing.assert_allclose(y_ND.std(axis=1), 1, rtol=1e-5)


def test_a_row_does_not_depend_on_the_others():
    rng = np.random.default_rng(0)
    x_ND = rng.standard_normal((200, 45)).astype(np.float32)
    packed = operations.pack_linear(rng.standard_normal((150, 45)).astype(np.float32))
    alone = [operations.linear(x_ND[n : n + 1], packed, "swish")[0] for n in range(200)]
    best, ids = zip(*(operations.project_top_k(x_ND[n : n + 1], packed, 5) for n in range(200)))
    for rows in (2, 3, 4, 5, 6, 7, 13, 97, 200):
        np.testing.assert_array_equal(operations.linear(x_ND[:rows], packed, "swish"), alone[:rows])
        together, ids_together = operations.project_top_k(x_ND[:rows], packed, 5)
        np.testing.assert_array_equal(together, np.concatenate(best[:rows]))
        np.testing.assert_array_equal(ids_together, np.concatenate(ids[:rows]))


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_promises(promise: Callable):
    promise(operations)


def test_a_residual_is_added_in_the_same_order_for_any_rows_and_threads():
    for outputs in (NR - 1, GROUP * NR - 1, GROUP * NR, 2 * GROUP * NR - 5):
        rng = np.random.default_rng(outputs)
        x_ND, residual_NF = (rng.standard_normal((7, size)).astype(np.float32) for size in (37, outputs))
        packed = operations.pack_linear(rng.standard_normal((outputs, 37)).astype(np.float32), residual_NF[0])
        together = operations.linear(x_ND, packed, residual_NF=residual_NF)
        for rows, threads in itertools.product((1, 2, 3, 4), (1, 2)):
            with operations.use_threads(threads):
                few = operations.linear(x_ND[:rows], packed, residual_NF=residual_NF[:rows])
            np.testing.assert_array_equal(few, together[:rows])


WIDTHS = (1, 15, 16, 17, 100)


def test_a_row_of_hidden_scores_is_zero():
    for width in WIDTHS:
        x_NS = np.full((3, width), -np.inf, np.float32)
        x_NS[1, -1] = -3e38
        expected = np.zeros_like(x_NS)
        expected[1, -1] = 1
        np.testing.assert_array_equal(operations.softmax(x_NS), expected)


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


def test_the_input_stays_and_so_do_the_bits_of_a_row_among_others():
    x_NS = np.random.default_rng(0).standard_normal((4, 21)).astype(np.float32)
    before, wide_NS = x_NS.copy(), np.pad(x_NS, ((2, 2), (0, 0)))
    alone = operations.softmax(x_NS)
    np.testing.assert_array_equal(x_NS, before)
    np.testing.assert_array_equal(operations.softmax(wide_NS)[2:-2], alone)


def test_agrees_with_reference():
    for rows, heads, width, turned in ((1, 1, 2, 2), (3, 2, 8, 4), (17, 5, 64, 64), (40, 3, 33, 32)):
        for interleaved in (False, True):
            check(rotate(rows, heads, width, turned, interleaved), operations)


def test_position_zero_and_other_columns_stay():
    for interleaved in (False, True):
        angle = np.arange(5)[:, None] * np.array([1.0, 0.1])
        x = np.random.default_rng(0).standard_normal((6, 20)).astype(np.float32)
        before = x.copy()
        tables = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
        operations.rotate(x, np.array([0, 1, 2, 3, 4, 0], np.int32), *tables, 5, 2, 6, interleaved)
        np.testing.assert_array_equal(x[[0, 5]], before[[0, 5]])
        turned = np.zeros(20, bool)
        turned[[5, 6, 7, 8, 11, 12, 13, 14]] = True
        np.testing.assert_array_equal(x[:, ~turned], before[:, ~turned])
        assert (x[1:5, turned] != before[1:5, turned]).all()


WORDS, WIDTH, CAP = 301, 24, 5.0  # the last panel and the last vector have columns without an output
PENALIZED, SUPPRESSED = np.array([[3, 7], [300, -1], [5, 6]], np.int32), np.array([[9, -1], [4, 8], [300, 2]], np.int32)
EDITS = Edits(SUPPRESSED, PENALIZED, 1.7, cap=CAP)


def _drawn() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    x_RD, weight_VD = rng.normal(size=(3, WIDTH)).astype(np.float32), rng.normal(size=(WORDS, WIDTH)).astype(np.float32)
    return x_RD, weight_VD, rng.normal(size=WORDS).astype(np.float32)


def _by_hand(edits: Edits, ids: np.ndarray) -> np.ndarray:
    """log_probs_RV, written out in float64; -inf but for the ids."""
    x_RD, weight_VD, bias_V = (array.astype(np.float64) for array in _drawn())
    logits_RV = CAP * np.tanh((x_RD @ weight_VD.T + bias_V) / CAP)
    for r, logits_V in enumerate(logits_RV):
        for j in () if edits.penalized_RJ is None else edits.penalized_RJ[r][edits.penalized_RJ[r] >= 0]:
            logits_V[j] *= edits.penalty if logits_V[j] < 0 else 1 / edits.penalty
        if edits.suppressed_RJ is not None:
            logits_V[edits.suppressed_RJ[r][edits.suppressed_RJ[r] >= 0]] = -np.inf
        logits_V[np.setdiff1d(np.arange(WORDS), ids)] = -np.inf
    return logits_RV - np.log(np.exp(logits_RV).sum(axis=1, keepdims=True))


def test_a_cap_comes_before_penalties_and_suppressed_ids() -> None:
    for subset in (False, True):
        for edits in (EDITS, NO_EDITS._replace(cap=CAP)):
            for ops in (operations, reference):
                x_RD, weight_VD, bias_V = _drawn()
                packed, ids = ops.pack_linear(weight_VD, bias_V), np.arange(WORDS, dtype=np.int32)
                outputs = packed
                if subset:
                    ids = ids[ids % 7 > 1]
                    outputs = [ops.select_outputs(ops.pack_rows(weight_VD, packed), ids)] * len(x_RD)
                expected_RV, kept = _by_hand(edits, ids), ids[-1]
                np.testing.assert_allclose(ops.project_all(x_RD, outputs, edits), expected_RV, atol=1e-5)
                targets_R = np.full(len(x_RD), kept, np.int32)
                np.testing.assert_allclose(
                    ops.log_probs(x_RD, outputs, targets_R, edits), expected_RV[:, kept], atol=1e-5
                )
                values_R9, ids_R9 = ops.project_top_k(x_RD, outputs, 9, edits)
                np.testing.assert_allclose(values_R9, -np.sort(-expected_RV, axis=1)[:, :9], atol=1e-5)
                np.testing.assert_allclose(
                    np.take_along_axis(expected_RV, ids_R9.astype(int), axis=1), values_R9, atol=1e-5
                )


def test_not_a_number_stays_one() -> None:
    x_RD, weight_VD, bias_V = _drawn()
    x_RD[1, 3] = np.nan
    values_R1, _ = operations.project_top_k(x_RD, operations.pack_linear(weight_VD, bias_V), 1, EDITS)
    assert np.isnan(values_R1[1, 0]) and np.isfinite(values_R1[[0, 2]]).all()
