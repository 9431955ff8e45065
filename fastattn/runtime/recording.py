"""Recorded steps: the kernel calls of a function with their arguments, which compiled code makes again without Python.

While a function is recorded, its kernels do not run: their calls are noted. So the function must not depend on what
kernels compute, and everything that changes between runs must lie in arrays that stay in place.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from fastattn.runtime.arena import Arena, is_in_arena, state
from fastattn.runtime.handle import pool_and_threads, run_program
from fastattn.runtime.threads import setting


class Unrecordable(Exception):
    """The function computes outside of kernels."""


def unrecordable() -> None:
    """Raise Unrecordable while the thread records; operations that compute in NumPy call it."""
    if state.program is not None:
        raise Unrecordable


class Program:
    """Recorded calls, as addresses of machine code and of its arguments.

    arena  holds the arrays between kernels; the program keeps other arrays
    """

    def __init__(self, arena: Arena):
        self._arena = arena
        self._kept: list[np.ndarray] = []
        self._calls: list[tuple[int, int]] = []
        self._calls_C2 = np.empty((0, 2), np.int64)

    def add(self, kernel: Any, arguments: tuple) -> None:
        """Note a call. Raises Unrecordable where only Numba's public interface compiles."""
        call = kernel.record(*arguments)
        if call is None:
            raise Unrecordable
        entry, packed = call
        self._kept.append(packed)
        _keep_arrays(arguments, self._kept)
        self._calls.append((entry, packed.ctypes.data))

    def run(self, most: int, stop_1: np.ndarray) -> None:
        """Make the calls, in order, up to ``most`` times, until ``stop_1[0]``, int64, is not 0 after the last call."""
        if len(self._calls_C2) != len(self._calls):
            self._calls_C2 = np.array(self._calls, np.int64)
        pool, threads = pool_and_threads()
        run_program(pool, threads, self._calls_C2.ctypes.data, len(self._calls_C2), most, stop_1.ctypes.data)


def _keep_arrays(arguments: tuple, arrays: list[np.ndarray]) -> None:
    """Add the arrays among the arguments that are in no arena."""
    for argument in arguments:
        kind = type(argument)
        if kind is np.ndarray:
            base = argument.base
            if base is None or not is_in_arena(base):
                arrays.append(argument)
        elif kind is not int and kind is not bool and kind is not float:
            if isinstance(argument, tuple):
                _keep_arrays(argument, arrays)
            elif isinstance(argument, np.ndarray):
                arrays.append(argument)


class StepRecorder:
    """Records functions as programs that share an arena, so that only one of them may run at a time."""

    def __init__(self) -> None:
        self.arena = Arena()

    @property
    def size(self) -> int:
        return self.arena.size

    def record(self, function: Callable[[], Any]) -> Program | None:
        """The kernel calls of the function; None if it also computes outside of kernels."""
        program = Program(self.arena)
        state.program, state.arena = program, self.arena
        try:
            function()
        except Unrecordable:
            return None
        finally:
            state.program = state.arena = None
        return program


def recorder() -> StepRecorder | None:
    """A new StepRecorder; None where Numba's threads run kernels."""
    return None if setting.by_numba else StepRecorder()
