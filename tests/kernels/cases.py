"""Every operation of the table (bench/operations) at its awkward sizes, and what agreement with the oracle is.

The allowance of ``check`` is twice the error of the same formula in float32, plus a floor.
"""

from typing import Any

import numpy as np

from bench.operations import OPERATIONS
from bench.operations.table import Problem
from fastattn.ops import reference

FLOOR = 1e-6
CASES = [operation.problem(size) for operation in OPERATIONS.values() for size in operation.awkward]
BY_OPERATION = {name: [case for case in CASES if case.operation == name] for name in OPERATIONS}


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def float64(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: array.astype(np.float64) if array.dtype == np.float32 else array for name, array in arrays.items()}


def check(case: Problem, ops: Any) -> None:
    """Assert that ``ops`` agrees with the float64 reference about as well as the float32 reference does."""
    got = case.call(ops, case.arrays)
    naive = case.call(reference, case.arrays)
    expected = case.call(reference, float64(case.arrays))
    for i, (one, other, oracle) in enumerate(zip(got, naive, expected, strict=True)):
        assert one.shape == oracle.shape and one.dtype == other.dtype, f"{case.name}: result {i} has another form"
        if i in case.exact:
            np.testing.assert_array_equal(one, oracle, err_msg=case.name)
        elif one.size:
            finite = np.isfinite(oracle)
            np.testing.assert_array_equal(one[~finite], oracle[~finite], err_msg=case.name)
            scale = np.abs(oracle[finite]).max(initial=0.0)
            allowed = 2 * np.abs(other[finite] - oracle[finite]).max(initial=0.0) + FLOOR * max(scale, 1.0)
            error = np.abs(one[finite] - oracle[finite]).max(initial=0.0)
            assert error <= allowed, f"{case.name}: result {i} is off by {error}, allowed {allowed}"
