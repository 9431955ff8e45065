"""Wrappers: what kernels are called through takes arguments of its types, refuses others, and loses no reference."""

import ctypes
import sys
import threading
from collections import namedtuple

import numpy as np
import pytest
from numba import njit, prange

from fastattn.runtime.compiling import compiling
from fastattn.runtime.handle import CompiledFunction
from fastattn.runtime.jit import kernel
from fastattn.runtime.machine_code import MISMATCH, signature_of

Pair = namedtuple("Pair", "first second")


@kernel
def collect(array, numbers, pair, nothing, out):
    for i in prange(0, len(out)):
        out[i] = (
            array[i, 1]
            + numbers[0] * 10
            + numbers[1] * 1000
            + (100000 if numbers[2] else 0)
            + pair.second[0]
            + pair.first
        )


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


def test_arguments_of_every_kind_arrive() -> None:
    out = np.zeros(3)
    collect(*arguments(out=out))
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
    collect(*arguments(array=read_only))
    collect(*arguments(array=np.zeros((3, 2), np.float32).view(np.memmap)))
    collect(*arguments(numbers=(np.int32(5), np.float32(1), np.bool_(False))))
    collect(*arguments(array=np.zeros((3, 4), np.float32)[:, ::1][:, :4]))
    assert len(collect.variants) == forms


WRONG = [
    {"numbers": (7, 0.5, True)},
    {"numbers": (True, np.float32(0.5), True)},
    {"numbers": (7.0, np.float32(0.5), True)},
    {"numbers": (7, np.float32(0.5))},
    {"numbers": [7, np.float32(0.5), True]},
    {"numbers": (2**70, np.float32(0.5), True)},
    {"pair": (3, np.full(2, 0.25))},
    {"nothing": 0},
    {"out": [0.0]},
    {"array": None},
    {"array": np.zeros((3, 2), ">f4")},
    {"array": np.zeros((3, 2, 1), np.float32)},
]


def test_a_wrapper_refuses_what_is_of_other_types() -> None:
    collect(*arguments())
    (wrapper,) = collect.wrappers[:1]
    for wrong in WRONG:
        assert wrapper(0, 0, *arguments(**wrong)) == -1, wrong
        assert wrapper(0, 0, *arguments()) > 0
    assert wrapper(0, 0) == wrapper(0, 0, *arguments()[:-1]) == wrapper(0, 0, *arguments(), 1) == -1


def test_what_no_kernel_takes_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="no kernel takes a list"):
        collect(*arguments(numbers=[1]))
    collect(*arguments())
    with pytest.raises(TypeError, match="does not take these values"):
        collect(*arguments(numbers=(2**70, np.float32(0.5), True)))


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
    function = CompiledFunction(__name__, "weigh", 3)
    assert function(4, 5, -6) == 444
    run = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 3)(function.address())
    assert run(1, 2, 3) == 123


def test_a_function_says_what_it_does_not_take() -> None:
    with pytest.raises(TypeError, match="weigh does not take"):
        CompiledFunction(__name__, "weigh", 3)(4, 5, 1 << 63)


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


def test_a_function_that_is_there_waits_for_no_compiler() -> None:
    function = CompiledFunction(__name__, "weigh", 3)
    assert function(4, 5, -6) == 444
    found: list[int] = []
    caller = threading.Thread(target=lambda: found.append(function(1, 2, 3)), daemon=True)
    with compiling:
        caller.start()
        caller.join(20)
        assert found == [123]


def test_a_named_tuple_of_a_function() -> None:
    local = namedtuple("local", "first second", module="a-b")
    local.__qualname__ = "test.<locals>.local"
    out = np.zeros(3)
    collect(*arguments(pair=local(3, np.full(2, 0.25)), out=out))
    np.testing.assert_array_equal(out, np.array([1, 3, 5]) + 70 + 500 + 100000 + 0.25 + 3)


def test_numbas_own_functions_work_beside() -> None:
    assert njit(lambda x: x + 1)(2) == 3
