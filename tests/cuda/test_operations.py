"""Every operation on Numba's simulator against reference in float64, at the awkward sizes that Python can take."""

import numpy as np
import pytest

from bench import cuda_on_host as on_host
from bench.operations.table import Problem
from fastattn.arguments.images import PixelGrid, Window
from fastattn.errors import InputError
from fastattn.ops import cuda
from fastattn.ops.protocol import ImageOps
from tests.kernels.cases import CASES, check
from tests.ops import test_ops as protocol

MOST_PRODUCTS = 60_000  # multiply-adds of a layer that Python can take
MOST_SCORES = 15_000  # and of queries with keys; tests of attention have the tiles' edges too
MOST_STEPS = 60_000  # and of the states of recurrent layers


def fits(case: Problem) -> bool:
    """Whether there is such an operation, and the simulator takes about a second or less."""
    if case.form.get("precision") == "int4" or case.operation in vars(ImageOps):  # which cards have not
        return False
    arrays, longest = case.arrays, 0
    if case.operation in ("attention", "pack_distances"):
        longest = int(np.diff(arrays.get("key_starts", arrays.get("starts"))).max(initial=0))
        return arrays.get("query", arrays.get("rows")).size * longest <= MOST_SCORES
    if case.operation == "attention_step":
        return arrays["query"].size * arrays["index"].shape[1] <= MOST_SCORES
    if case.operation == "recur":
        return len(arrays["x"]) * arrays["weight_0"].size <= MOST_STEPS
    weight = arrays.get("weight")
    return weight is None or weight.ndim < 2 or len(arrays["x"]) * weight.size <= MOST_PRODUCTS


FITTING = [case for case in CASES if fits(case)]


@pytest.mark.parametrize("operation", sorted({case.operation for case in FITTING}))
def test_agrees_with_reference(operation: str) -> None:
    for case in FITTING:
        if case.operation == operation:
            check(case, on_host)


@pytest.mark.slow
def test_long_recurrent_layers_agree_with_reference() -> None:
    for case in CASES:
        if case.operation == "recur" and not fits(case):
            check(case, on_host)


def test_int4_is_refused() -> None:
    with pytest.raises(InputError, match='cache_precision "int8" is the CPU\'s alone'):
        on_host.empty_table(1, 1, np.dtype(np.int8))
    with pytest.raises(InputError, match='precision "int4" is the CPU\'s alone'):
        on_host.pack_linear(np.ones((1, 32), np.float32), None, "int4")


def test_images_are_refused() -> None:
    x_ND, grid = np.ones((4, 1), np.float32), PixelGrid(1, 2, 2)
    for name, arguments in (("convolve", (Window((1, 1)), [])), ("gate_pixels", ()), ("pool_areas", (grid, "max"))):
        with pytest.raises(InputError, match='^images are computed on device "cpu" alone$'):
            getattr(cuda, name)(x_ND, grid, *arguments)


def test_an_operation_takes_what_the_protocol_says() -> None:
    for name, operation in protocol.OPERATIONS.items():
        _, *expected = protocol.parameters(operation)
        assert protocol.parameters(getattr(cuda, name)) == expected, name
