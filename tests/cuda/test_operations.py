"""Every operation on Numba's simulator against reference in float64, at the awkward sizes that Python can take."""

import pytest

from bench.operations.table import Problem
from fastattn.ops import cuda
from tests.cuda import on_host
from tests.kernels.cases import CASES, check

MOST_PRODUCTS = 250_000  # multiply-adds of a layer that Python can take


def _products(case: Problem) -> int:
    weight = case.arrays.get("weight")
    return 0 if weight is None or weight.ndim < 2 else len(case.arrays["x"]) * weight.size


MINE = [case for case in CASES if hasattr(cuda, case.operation) and _products(case) <= MOST_PRODUCTS]


@pytest.mark.parametrize("case", MINE, ids=lambda case: case.name)
def test_agrees_with_reference(case: Problem) -> None:
    check(case, on_host)
