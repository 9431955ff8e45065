"""Every operation of the table, compiled and in NumPy, against reference in float64; what holds beyond the table."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from fastattn.kernels.arguments import GROUP, NR
from fastattn.ops import cpu as operations
from fastattn.ops import reference
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
