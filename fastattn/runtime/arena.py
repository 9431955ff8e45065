"""Allocation of the arrays that kernels pass on: while a step is recorded, from an arena that outlives the arrays."""

import math
import threading
from bisect import bisect_left
from typing import Any

import numpy as np

from fastattn.runtime.threads import current_threads

ALIGNMENT = 64
MIN_GROWTH = 1 << 18  # bytes by which an arena grows, at least


class Arena:
    """An allocator for the arrays of programs that run one at a time: freed memory serves later arrays.

    When an array is dropped while a step is recorded, every call that reads the array is recorded already. So later
    arrays of the recording may use the memory again.
    """

    def __init__(self) -> None:
        self._chunks: list[np.ndarray] = []  # all memory
        self._free: list[tuple[int, int]] = []  # addresses (first, end), ascending, never adjacent

    @property
    def size(self) -> int:
        return sum(len(chunk) for chunk in self._chunks)

    def empty(self, shape: Any, dtype: Any) -> np.ndarray:
        """``np.empty``; the memory is free again when nothing refers to the array."""
        dtype, shape = np.dtype(dtype), (shape,) if isinstance(shape, int) else shape
        size = -(-math.prod(shape) * dtype.itemsize // ALIGNMENT) * ALIGNMENT
        if not size:
            return np.empty(shape, dtype)
        n = next((n for n, (first, end) in enumerate(self._free) if end - first >= size), None)
        if n is None:
            chunk = np.empty(max(size, MIN_GROWTH) + ALIGNMENT, np.uint8)
            self._chunks.append(chunk)
            first = -(-chunk.ctypes.data // ALIGNMENT) * ALIGNMENT
            self.give_back(first, first + max(size, MIN_GROWTH))
            return self.empty(shape, dtype)
        first, end = self._free[n]
        self._free[n : n + 1] = [(first + size, end)] if first + size < end else []
        return np.asarray(_Block(self, first, first + size, shape, dtype))

    def give_back(self, first: int, end: int, bisect_left: Any = bisect_left) -> None:
        """Free a range of memory. ``bisect_left`` is a default: a process that ends clears the module's names first."""
        n = bisect_left(self._free, (first, end))
        if n < len(self._free) and self._free[n][0] == end:
            end = self._free.pop(n)[1]
        if n and self._free[n - 1][1] == first:
            n -= 1
            first = self._free.pop(n)[0]
        self._free.insert(n, (first, end))


class _Block:
    """A block of an arena's memory, the base of arrays; the block is freed with the last of them."""

    def __init__(self, arena: Arena, first: int, end: int, shape: tuple[int, ...], dtype: np.dtype):
        self._arena, self._first, self._end = arena, first, end
        self.__array_interface__ = {"data": (first, False), "shape": shape, "typestr": dtype.str, "version": 3}

    def __del__(self) -> None:
        self._arena.give_back(self._first, self._end)


class _ThreadState(threading.local):
    """For a thread that records a step: the arena of its arrays, and the ``recording.Program`` that takes its calls."""

    arena: Arena | None = None
    program: Any = None


state = _ThreadState()


def empty(shape: Any, dtype: Any = np.float32) -> np.ndarray:
    """``np.empty``; while this thread records, in its arena."""
    arena = state.arena
    return np.empty(shape, dtype) if arena is None else arena.empty(shape, dtype)


def is_in_arena(base: Any) -> bool:
    """Whether an array with this ``base`` lies in an arena, or is a view of an array that does."""
    return type(base) is _Block or type(base) is np.ndarray and type(base.base) is _Block


def make_scratch_parts(tasks: int, *shape: int, dtype: type = np.uint8) -> np.ndarray:
    """Scratch memory [parts, *shape] for ``jit.take_part``, not cleared: a part for each thread, at most one a task."""
    return empty((min(tasks, current_threads()), *shape), dtype)
