"""Every operation on Numba's simulator against reference in float64, at the awkward sizes that Python can take."""

import pytest

from bench.operations.table import Problem
from fastattn.ops import cuda
from tests.cuda import on_host
from tests.kernels.cases import CASES, check

# Products of queries and keys that take the simulator about a second; tests of attention have the tiles' edges too.
MOST_PRODUCTS = 40_000


def products(case: Problem) -> int:
    """Of attention, those of all queries with the keys of the longest sentence; 0 of other operations."""
    arrays = case.arrays
    if case.operation == "attention":
        return arrays["query"].size * int(max(arrays["key_starts"][1:] - arrays["key_starts"][:-1], default=0))
    if case.operation == "pack_distances":
        return arrays["rows"].size * int(max(arrays["starts"][1:] - arrays["starts"][:-1], default=0))
    return arrays["query"].size * arrays["index"].shape[1] if case.operation == "attention_step" else 0


MINE = [case for case in CASES if hasattr(cuda, case.operation) and products(case) <= MOST_PRODUCTS]


@pytest.mark.parametrize("case", MINE, ids=lambda case: case.name)
def test_agrees_with_reference(case: Problem) -> None:
    check(case, on_host)
