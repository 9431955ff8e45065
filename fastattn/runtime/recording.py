"""Recorded steps: the kernel calls of a function, kept with their arguments, to be made again without Python.

While a function is recorded no kernel runs: only what it calls is noted. So it must decide nothing by what kernels
compute, and all that changes from one run to the next must lie in arrays that stay where they are.
"""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from fastattn.runtime.threads import setting


class Unrecordable(Exception):
    """The function computes outside of kernels."""


class _State(threading.local):
    calls: list[tuple[Any, tuple]] | None = None


_state = _State()


def unrecordable() -> None:
    """Called by what computes in NumPy: no recording would have it."""
    if _state.calls is not None:
        raise Unrecordable


def is_recorded(kernel: Any, arguments: tuple) -> bool:
    """Whether the calling thread records; then this call is noted, and not to be made."""
    if _state.calls is None:
        return False
    _state.calls.append((kernel, arguments))
    return True


class Program:
    """Recorded calls, as addresses of machine code and of its arguments."""

    def __init__(self, calls: list[tuple[Any, tuple]]):
        recorded = [kernel.record(*arguments) for kernel, arguments in calls]
        if None in recorded:
            raise Unrecordable
        self._kept = calls, recorded
        self._calls_C2 = np.array([(entry, place.ctypes.data) for entry, place in recorded], np.int64)

    def run(self, most: int, stop_1: np.ndarray) -> None:
        """Make the calls, in order, up to ``most`` times: until ``stop_1[0]``, int64, is not 0 after the last."""
        from fastattn.runtime.handle import counted_on, run_program

        pool, threads = counted_on()
        run_program(pool, threads, self._calls_C2.ctypes.data, len(self._calls_C2), most, stop_1.ctypes.data)


def recorder() -> "Recorder | None":
    """What records calls of kernels; None where Numba's threads run them."""
    return None if setting.by_numba else Recorder()


class Recorder:
    """Records functions."""

    def record(self, function: Callable[[], Any]) -> Program | None:
        """The kernel calls of the function; None if it computes outside of kernels too."""
        calls: list[tuple[Any, tuple]] = []
        _state.calls = calls
        try:
            function()
        except Unrecordable:
            return None
        finally:
            _state.calls = None
        return Program(calls)
