"""Allocation of the arrays between kernels: while steps are recorded, from an arena that outlives the arrays."""

import math
import threading
from bisect import bisect_left
from typing import Any

import numpy as np

from fastattn.runtime.threads import current_threads

ALIGNMENT = 64
LEAST = 1 << 18  # bytes that an arena grows by


class Arena:
    """An allocator for the arrays of programs that run one at a time: freed memory is used for the next arrays.

    When an array is dropped while a step is recorded, all that reads it has been recorded: as memory is used again by
    the calls themselves, so it is by their recording.
    """

    def __init__(self) -> None:
        self._rooms: list[np.ndarray] = []
        self._free: list[tuple[int, int]] = []  # addresses (first, end), ascending, never side by side

    @property
    def size(self) -> int:
        """Its bytes."""
        return sum(len(room) for room in self._rooms)

    def empty(self, shape: Any, dtype: Any) -> np.ndarray:
        """``np.empty``; its memory is free again when nothing refers to it."""
        dtype, shape = np.dtype(dtype), (shape,) if isinstance(shape, int) else shape
        size = -(-math.prod(shape) * dtype.itemsize // ALIGNMENT) * ALIGNMENT
        if not size:
            return np.empty(shape, dtype)
        fitting = (n for n, (first, end) in enumerate(self._free) if end - first >= size)
        n = next(fitting, None)
        if n is None:
            room = np.empty(max(size, LEAST) + ALIGNMENT, np.uint8)
            self._rooms.append(room)
            first = -(-room.ctypes.data // ALIGNMENT) * ALIGNMENT
            self.give_back(first, first + max(size, LEAST))
            return self.empty(shape, dtype)
        first, end = self._free[n]
        self._free[n : n + 1] = [(first + size, end)] if first + size < end else []
        return np.asarray(_Block(self, first, first + size, shape, dtype))

    def give_back(self, first: int, end: int, bisect_left: Any = bisect_left) -> None:
        """Free a range of memory. ``bisect_left`` is bound, as the last arrays may go after the module's names."""
        n = bisect_left(self._free, (first, end))
        if n < len(self._free) and self._free[n][0] == end:
            end = self._free.pop(n)[1]
        if n and self._free[n - 1][1] == first:
            n -= 1
            first = self._free.pop(n)[0]
        self._free.insert(n, (first, end))


class _Block:
    """A block of an arena's memory, which an array is a view of; it is given back with the last array."""

    def __init__(self, arena: Arena, first: int, end: int, shape: tuple[int, ...], dtype: np.dtype):
        self._arena, self._first, self._end = arena, first, end
        self.__array_interface__ = {"data": (first, False), "shape": shape, "typestr": dtype.str, "version": 3}

    def __del__(self) -> None:
        self._arena.give_back(self._first, self._end)


class _ThreadState(threading.local):
    """While a thread records: where its arrays come from, and what notes its calls of kernels (``recording``)."""

    arena: Arena | None = None
    program: Any = None


state = _ThreadState()


def empty(shape: Any, dtype: Any = np.float32) -> np.ndarray:
    """``np.empty``, from the arena of this thread if it has one."""
    arena = state.arena
    return np.empty(shape, dtype) if arena is None else arena.empty(shape, dtype)


def is_in_arena(base: Any) -> bool:
    """Whether an array with this ``base`` is one of an arena, or a view of one."""
    return type(base) is _Block or type(base) is np.ndarray and type(base.base) is _Block


def make_scratch_parts(tasks: int, *shape: int, dtype: type = np.uint8) -> np.ndarray:
    """Scratch memory [parts, *shape] for ``jit.take_part``, not cleared.

    As many parts as the caller has threads, but no more than tasks.
    """
    return empty((min(tasks, current_threads()), *shape), dtype)
