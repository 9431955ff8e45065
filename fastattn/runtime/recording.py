"""Recorded steps: a function's kernel calls with their arguments, which compiled code makes again without Python.

While a function is recorded, its kernels do not run: their calls are noted. So the function must not depend on results
of kernels, and everything that changes between runs must lie in arrays that stay in place.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from fastattn.runtime.arena import Arena, is_in_arena, state
from fastattn.runtime.handle import pool_and_threads, run_program
from fastattn.runtime.threads import setting


class Unrecordable(Exception):
    """The recorded function computes outside of kernels, or kernels cannot be recorded."""


def unrecordable() -> None:
    """Raise Unrecordable while the thread records; operations that compute in NumPy call it."""
    if state.program is not None:
        raise Unrecordable


class Program:
    """Recorded calls: addresses of machine code and of packed arguments.

    arena   has the memory of arrays that kernels pass on; the program keeps all other arrays alive
    result  what the recorded function returned: its arrays stay in place
    """

    result: Any = None

    def __init__(self, arena: Arena):
        self._arena = arena
        self._arrays: list[np.ndarray] = []
        self._calls: list[tuple[int, int]] = []
        self._calls_C2 = np.empty((0, 2), np.int64)

    def add(self, kernel: Any, arguments: tuple) -> None:
        """Note a call. Raises Unrecordable where only Numba's public interface compiles."""
        call = kernel.record(*arguments)
        if call is None:
            raise Unrecordable
        entry, packed = call
        self._arrays.append(packed)
        _add_arrays(arguments, self._arrays)
        self._calls.append((entry, packed.ctypes.data))

    def run(self, max_runs: int, stop_1: np.ndarray) -> None:
        """Make all calls in order, up to ``max_runs`` times, until the int64 ``stop_1[0]`` is not 0 after a run."""
        if len(self._calls_C2) != len(self._calls):
            self._calls_C2 = np.array(self._calls, np.int64)
        pool, threads = pool_and_threads()
        run_program(pool, threads, self._calls_C2.ctypes.data, len(self._calls_C2), max_runs, stop_1.ctypes.data)


def _add_arrays(arguments: tuple, arrays: list[np.ndarray]) -> None:
    """Add to ``arrays`` those among the arguments that are in no arena."""
    for argument in arguments:
        class_ = type(argument)
        if class_ is np.ndarray:
            base = argument.base
            if base is None or not is_in_arena(base):
                arrays.append(argument)
        elif class_ is not int and class_ is not bool and class_ is not float:
            if isinstance(argument, tuple):
                _add_arrays(argument, arrays)
            elif isinstance(argument, np.ndarray):
                arrays.append(argument)


class StepRecorder:
    """Records functions as programs that share an arena, so that only one of the programs may run at a time."""

    def __init__(self) -> None:
        self.arena = Arena()

    @property
    def size(self) -> int:
        return self.arena.size

    @property
    def is_usable(self) -> bool:
        """Whether programs may run: Numba's threads have no way to run them."""
        return not setting.by_numba

    def record(self, function: Callable[[], Any]) -> Program | None:
        """The kernel calls of ``function``; None if it also computes outside of kernels."""
        program = Program(self.arena)
        state.program, state.arena = program, self.arena
        try:
            program.result = function()
        except Unrecordable:
            return None
        finally:
            state.program = state.arena = None
        return program


def recorder() -> StepRecorder | None:
    """A new StepRecorder; None where Numba's threads run kernels."""
    return None if setting.by_numba else StepRecorder()
