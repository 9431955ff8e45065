"""A kernel's loop as Numba, Python and a run of tasks take it; wrappers take its types and lose no reference."""

import ctypes
import inspect
import sys
import threading
import traceback
from collections import namedtuple

import numba
import numpy as np
import pytest
from numba import prange

from fastattn.runtime.compiling import compile_lock
from fastattn.runtime.handle import CompiledFunction
from fastattn.runtime.jit import kernel
from fastattn.runtime.loop import cut_loop
from fastattn.runtime.machine_code import MISMATCH, signature_of
from tests.messages import refused

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


Pair = namedtuple("Pair", "first second")


@kernel
def collect(array, numbers, pair, nothing, out):
    for i in prange(0, len(out)):
        whole = numbers[0] * 10 + (100000 if numbers[2] else 0)
        out[i] = array[i, 1] + whole + numbers[1] * 1000 + pair.second[0] + pair.first


@kernel
def copy(source, out):
    for i in prange(0, len(out)):
        out[i] = source[i]


def arguments(**other) -> tuple:
    given = {
        "array": np.arange(6, dtype=np.float32).reshape(3, 2),
        "numbers": (7, np.float32(0.5), True),
        "pair": Pair(3, np.full(2, 0.25)),
        "nothing": None,
        "out": np.zeros(3),
    } | other
    return tuple(given.values())


Local = namedtuple("local", "first second", module="a-b")
Local.__qualname__ = "test.<locals>.local"


@pytest.mark.parametrize("pair", [Pair, Local], ids=["a module's", "a function's"])
def test_arguments_of_every_kind_arrive(pair) -> None:
    """Named tuples too, wherever they are defined."""
    out = np.zeros(3)
    collect(*arguments(pair=pair(3, np.full(2, 0.25)), out=out))
    np.testing.assert_array_equal(out, np.array([1, 3, 5]) + 70 + 500 + 100000 + 0.25 + 3)


def test_another_form_is_another_key_and_all_work() -> None:
    """Of another dtype, kind, layout and alignment."""
    single, double, whole = np.zeros(3, np.float32), np.zeros(3), np.zeros(3, np.int16)
    strided, odd = np.zeros((3, 2))[:, 0], np.frombuffer(bytes(7), np.int16, offset=1)
    forms = single, double, whole, strided, odd
    assert len({signature_of((array,), []) for array in forms}) == len(forms)
    assert signature_of((np.zeros((3, 1))[:, 0],), []) == signature_of((double,), [])
    for array in (*forms, *forms):
        out = np.ones(3)
        copy(array + array.dtype.type(2) if array.flags.aligned else array, out)
        assert (out == (2 if array.flags.aligned else 0)).all()


def test_a_form_serves_what_differs_in_values_only() -> None:
    collect(*arguments())
    forms = len(collect.variants)
    read_only = np.zeros((3, 2), np.float32)
    read_only.flags.writeable = False
    for array in (read_only, read_only.view(np.memmap), np.zeros((3, 4), np.float32)[:, ::1][:, :4]):
        collect(*arguments(array=array))
    collect(*arguments(numbers=(np.int32(5), np.float32(1), np.bool_(False))))
    assert len(collect.variants) == forms


WRONG = [
    ("numbers", (7, 0.5, True)),
    ("numbers", (True, np.float32(0.5), True)),
    ("numbers", (7.0, np.float32(0.5), True)),
    ("numbers", (7, np.float32(0.5))),
    ("numbers", [7, np.float32(0.5), True]),
    ("numbers", (2**70, np.float32(0.5), True)),
    ("pair", (3, np.full(2, 0.25))),
    ("nothing", 0),
    ("out", [0.0]),
    ("array", None),
    ("array", np.zeros((3, 2), ">f4")),
    ("array", np.zeros((3, 2, 1), np.float32)),
]


def test_a_wrapper_refuses_what_is_of_other_types() -> None:
    collect(*arguments())
    (wrapper,) = collect.wrappers[:1]
    for name, value in WRONG:
        assert wrapper(0, 0, *arguments(**{name: value})) == -1, (name, value)
        assert wrapper(0, 0, *arguments()) > 0
    assert wrapper(0, 0) == wrapper(0, 0, *arguments()[:-1]) == wrapper(0, 0, *arguments(), 1) == -1
    for name, value in (("numbers", [1]), WRONG[5]):
        with refused(TypeError):
            collect(*arguments(**{name: value}))


def test_a_call_leaves_all_references_as_they_were() -> None:
    given = arguments(numbers=(2**40, np.float32(0.5), True))
    watched = [*given, *given[1], *given[2]]
    collect(*given)
    before = [sys.getrefcount(value) for value in watched]
    for _ in range(100):
        collect(*given)
        collect.wrappers[0](0, 0, *arguments(nothing=1))
    assert [sys.getrefcount(value) for value in watched] == before


def test_a_recorded_call_is_made_by_its_entry() -> None:
    out = np.zeros(3)
    given = arguments(out=out)
    call = collect.record(*given)
    if call is None:
        pytest.skip("this Numba has no wrappers")
    entry, place = call
    run = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 3)(entry)
    assert run(place.ctypes.data, 1, 2) == 3 and (out != 0).tolist() == [False, True, False]
    given[0][2, 1] += 1
    assert run(place.ctypes.data, 0, 99) == 3
    np.testing.assert_array_equal(out - out[0], [0, 2, 5])


def weigh(first, second, third):
    return first * 100 + second * 10 + third


def test_a_function_of_integers() -> None:
    """Once it is there it waits for no compiler."""
    function = CompiledFunction(__name__, "weigh", 3)
    assert function(4, 5, -6) == 444
    run = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 3)(function.address())
    assert run(1, 2, 3) == 123
    with refused(TypeError, "weigh"):
        function(4, 5, 1 << 63)
    found: list[int] = []
    caller = threading.Thread(target=lambda: found.append(function(1, 2, 3)), daemon=True)
    with compile_lock:
        caller.start()
        caller.join(20)
        assert found == [123]


class Fickle:
    """A wrapper that gives these answers first: what another thread changes between two calls."""

    def __init__(self, wrapper, *answers: int):
        self.wrapper, self.answers = wrapper, list(answers)

    def __call__(self, pool: int, threads: int, *arguments) -> int:
        found = self.wrapper(0, 0, *arguments) if threads == 0 and not pool else self.answers and self.answers.pop(0)
        return found or self.wrapper(pool, threads, *arguments)


@pytest.mark.parametrize("answers", [(1, MISMATCH), (1, 1), (MISMATCH,)])
def test_a_call_is_made_whatever_its_first_tries_gave(monkeypatch: pytest.MonkeyPatch, answers: tuple[int]) -> None:
    source, out = np.arange(3.0), np.zeros(3)
    copy(source, np.zeros(3))
    monkeypatch.setattr(copy, "wrappers", [Fickle(wrapper, *answers) for wrapper in copy.wrappers])
    copy(source, out)
    np.testing.assert_array_equal(out, source)


def test_a_call_is_recorded_whole() -> None:
    source, out = np.arange(3.0), np.zeros(3)
    copy(source, out)
    key = signature_of((source, out), [])
    form = copy.variants[key]
    copy.variants[key] = form._replace(wrapper=Fickle(form.wrapper, MISMATCH))
    recorded, expected = copy.record(source, out), form.wrapper(0, 0, source, out)
    copy.variants[key] = form
    assert recorded is not None
    place = np.zeros(expected // 8 + 1, np.int64)
    assert form.wrapper(place.ctypes.data, 0, source, out) == expected
    np.testing.assert_array_equal(recorded[1][: expected // 8], place[: expected // 8])
