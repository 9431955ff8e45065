"""A kernel's loop over prange: the same source as Numba takes it, as Python runs it, and cut into a run of tasks."""

import importlib
import inspect
import pkgutil
import traceback

import numba
import numpy as np
import pytest
from numba import prange

from fastattn import kernels
from fastattn.runtime.handle import Kernel
from fastattn.runtime.jit import kernel
from fastattn.runtime.loop import cut_loop

BLOCK = 4


def double(x_N, out_N):
    """Blocks of numbers."""
    N = len(x_N)
    blocks = -(-N // BLOCK)
    for block in prange(0, blocks):
        for n in range(block * BLOCK, min(N, (block + 1) * BLOCK)):
            out_N[n] = x_N[n] + x_N[n]


def divide(x_N, by):
    for n in prange(0, len(x_N)):
        x_N[n] = x_N[n] // by


FORMS = double, numba.njit(double), kernel(double)


def test_the_forms_of_a_kernel_agree():
    cut = cut_loop(double)
    for count in (0, 1, 4, 5, 37):
        x_N = np.arange(count, dtype=np.float32)
        for form in FORMS:
            out_N = np.full(count, -1, np.float32)
            form(x_N, out_N)
            np.testing.assert_array_equal(out_N, 2 * x_N)
        tasks = -(-count // BLOCK)
        out_N = np.full(count, -1, np.float32)
        assert cut(0, 0, x_N, out_N) == tasks and (out_N == -1).all()
        for first in range(0, tasks, 2):
            assert cut(first, first + 2, x_N, out_N) == tasks
            np.testing.assert_array_equal(out_N[: (first + 2) * BLOCK], 2 * x_N[: (first + 2) * BLOCK])
            assert (out_N[(first + 2) * BLOCK :] == -1).all()


def test_tasks_that_there_are_not_are_not_done():
    numbers = [4, 6, 8]
    assert cut_loop(divide)(1, 99, numbers, 2) == 3 and numbers == [4, 3, 4]
    assert cut_loop(divide)(5, 99, numbers, 2) == 3 and numbers == [4, 3, 4]


def test_names_and_lines_are_the_functions_own():
    cut = cut_loop(divide)
    assert (cut.__name__, cut.__doc__, cut.__module__) == ("divide", None, __name__)
    assert cut_loop(double).__doc__ == "Blocks of numbers."
    with pytest.raises(ZeroDivisionError) as caught:
        cut(0, 1, [1], 0)
    last = traceback.extract_tb(caught.value.__traceback__)[-1]
    _, start = inspect.getsourcelines(divide)
    assert (last.filename, last.lineno, last.name) == (__file__, start + 2, "divide")


def without_a_loop(x_N):
    x_N[0] = 1


def with_a_plain_loop(x_N):
    for _ in prange(0, 1):
        pass
    for n in range(len(x_N)):
        x_N[n] = 1


def that_goes_on(x_N):
    for n in prange(0, len(x_N)):
        x_N[n] = 1
    x_N[0] = 2


def with_one_argument(x_N):
    for n in prange(len(x_N)):
        x_N[n] = 1


def from_one_on(x_N):
    for n in prange(1, len(x_N)):
        x_N[n] = 1


def with_two(x_N):
    for n in prange(0, len(x_N)):
        for m in prange(0, 2):
            x_N[n] = m


@pytest.mark.parametrize(
    ("function", "what"),
    [
        (without_a_loop, "it is without one"),
        (with_a_plain_loop, "it ends in line {3}, which is none"),
        (that_goes_on, "it ends in line {3}, which is none"),
        (with_one_argument, "it has prange(len(x_N)) in line {1}"),
        (from_one_on, "it has prange(1, len(x_N)) in line {1}"),
        (with_two, "it has more than one"),
    ],
)
def test_what_is_no_kernel_is_told_with_its_place(function, what):
    start = inspect.getsourcelines(function)[1]
    for line in (1, 3):
        what = what.replace(f"{{{line}}}", str(start + line))
    with pytest.raises(TypeError) as caught:
        kernel(function)
        cut_loop(function)
    said = "expected one loop over prange(0, tasks), its last statement"
    assert str(caught.value) == f"{__file__}:{start}: kernel {function.__name__}: {said}; {what}"


def test_a_kernel_in_a_closure_is_refused_when_it_is_defined():
    more = np.ones(3)

    def add(x_N):
        for n in prange(0, len(x_N)):
            x_N[n] += more[n]

    with pytest.raises(TypeError, match="kernel add: expected a kernel that uses no variables of a function around it"):
        kernel(add)


def test_every_kernel_can_be_cut():
    names = [room.name for room in pkgutil.walk_packages(kernels.__path__, "fastattn.kernels.")]
    found = [value for name in names for value in vars(importlib.import_module(name)).values()]
    mine = {value for value in found if isinstance(value, Kernel)}
    assert len(mine) > 10
    for each in mine:
        cut = inspect.signature(cut_loop(each.function))
        assert list(cut.parameters)[2:] == list(inspect.signature(each.function).parameters)
