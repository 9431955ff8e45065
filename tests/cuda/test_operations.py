"""Every operation on Numba's simulator against reference in float64, at the awkward sizes that Python can take."""

import pytest

from bench.operations.table import Problem
from fastattn.ops import cuda
from tests.cuda import on_host
from tests.kernels.cases import CASES, check

MINE = [case for case in CASES if hasattr(cuda, case.operation)]


@pytest.mark.parametrize("case", MINE, ids=lambda case: case.name)
def test_agrees_with_reference(case: Problem) -> None:
    check(case, on_host)
