"""What a case of an operation is, and how a namespace's result is held against the oracle's.

A case holds float32 arrays and a call that runs one operation of a namespace on them; ``float64`` gives the oracle's
arrays. The allowance of ``check`` is twice the error of the same formula in float32, plus a floor.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastattn import reference

FLOOR = 1e-6


@dataclass(frozen=True)
class Case:
    """``call(ops, arrays)`` returns the operation's result as a tuple of arrays."""

    name: str
    operation: str
    arrays: dict[str, np.ndarray]
    call: Callable[[Any, dict[str, np.ndarray]], tuple[np.ndarray, ...]]
    exact: tuple[int, ...] = ()  # which results must be equal, not merely close


def float64(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: array.astype(np.float64) if array.dtype == np.float32 else array for name, array in arrays.items()}


def check(case: Case, ops: Any) -> None:
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


def normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def starts_of(lengths: tuple[int, ...]) -> np.ndarray:
    """starts_B1 of sentences of these lengths."""
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
