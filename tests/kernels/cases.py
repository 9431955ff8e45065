"""Every operation of the table (bench/operations) at its awkward sizes, and what agreement with the oracle is.

The allowance of ``check`` is twice the error of the same formula in float32, plus a floor.
"""

from typing import Any

import numpy as np
import pytest

from bench.operations import OPERATIONS
from bench.operations.table import Problem
from fastattn.ops import reference

FLOOR = 1e-6
CASES = [operation.problem(size) for operation in OPERATIONS.values() for size in operation.awkward]
BY_OPERATION = {name: [case for case in CASES if case.operation == name] for name in OPERATIONS}


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def fill_new_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set all bits of arrays that NumPy leaves as memory was: what no number should come of."""
    empty = np.empty

    def full_of_bits(*arguments: Any, **options: Any) -> np.ndarray:
        array = empty(*arguments, **options)
        array.view(np.uint8)[...] = 0xFF
        return array

    monkeypatch.setattr(np, "empty", full_of_bits)


def float64(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: array.astype(np.float64) if array.dtype == np.float32 else array for name, array in arrays.items()}


def check(case: Problem, ops: Any) -> None:
    """Assert that ``ops`` agrees with the float64 reference about as well as the float32 reference does."""
    got = case.call(ops, case.arrays)
    naive = case.call(reference, case.arrays)
    expected = case.call(reference, float64(case.arrays))
    for i, (one, other, oracle) in enumerate(zip(got, naive, expected, strict=True)):
        assert (one.shape, one.dtype) == (oracle.shape, other.dtype), f"{case.name}: result {i} has another form"
        if i in case.exact:
            np.testing.assert_array_equal(one, oracle, err_msg=case.name)
        else:
            near(one, other, oracle, f"{case.name}: result {i}")


def near(one: np.ndarray, naive: np.ndarray, exact: np.ndarray, name: str = "result") -> None:
    """Assert that a result is off by no more than twice what the same formula in float32 is, and the floor."""
    assert one.shape == exact.shape, f"{name} has another shape"
    finite = np.isfinite(exact)
    np.testing.assert_array_equal(one[~finite], exact[~finite], err_msg=name)
    allowed = 2 * np.abs(naive[finite] - exact[finite]).max(initial=0) + FLOOR * np.abs(exact[finite]).max(initial=1)
    error = np.abs(one[finite] - exact[finite]).max(initial=0)
    assert error <= allowed, f"{name} is off by {error}, allowed {allowed}"
