"""Recorded steps: the launches of a function with their arguments, repeated without the operations' Python.

Arrays of the host hold what changes from run to run, and kernels read and write copies of them on the card. A run
copies the arrays to the card, makes its steps, and copies back the arrays that kernels write. Every few steps the host
reads whether to stop.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from fastattn.ops.cuda import card

STOP_CHECK_STEPS = 4  # steps between two checks by the host for a stop, after which kernels do nothing


def _array_key(array: np.ndarray) -> tuple[int, tuple[int, ...], str]:
    return array.ctypes.data, array.shape, array.dtype.str


class LaunchProgram:
    """Recorded launches.

    fillers        functions that are called before each run, to fill arrays of the host
    result         what the recorded function returned
    _copies        arrays of the host, which stay alive, and their copies on the card, by address, shape and type
    _written_keys  the keys of arrays that kernels write
    """

    result: Any = None

    def __init__(self) -> None:
        self.fillers: list[Callable[[], None]] = []
        self._launches: list[tuple[Any, Any, tuple]] = []
        self._copies: dict[tuple, tuple[np.ndarray, Any]] = {}
        self._written_keys: set[tuple] = set()
        self._graph: Any = None

    def add(self, kernel: Any, blocks: int | tuple[int, ...], arguments: tuple) -> None:
        self._launches.append((kernel, blocks, arguments))

    def copy_of(self, array: np.ndarray, written: bool = False) -> Any:
        """The copy on the card of a host's array that stays at its address."""
        if not array.flags.c_contiguous:
            raise card.HostNeeded
        key = _array_key(array)
        if key not in self._copies:
            self._copies[key] = array, card.empty(array.shape, array.dtype)
        if written:
            self._written_keys.add(key)
        return self._copies[key][1]

    def run(self, steps: int, stop_1: np.ndarray) -> None:
        """Make the launches ``steps`` times, or until ``stop_1[0]``, of an array that kernels write, is not 0."""
        counts = np.asarray(stop_1.base)
        for fill in self.fillers:
            fill()
        for array, copy in self._copies.values():
            card.send(array, copy)
        for step in range(steps):
            self._step(is_last=step == steps - 1)
            if step % STOP_CHECK_STEPS == STOP_CHECK_STEPS - 1:
                card.fetch(self._copies[_array_key(counts)][1], counts)
                if stop_1[0]:
                    break
        for key in self._written_keys:
            card.fetch(*reversed(self._copies[key]))

    def _step(self, is_last: bool) -> None:
        """Make all launches once: as one graph, if kernels are compiled and this is not the last step."""
        if self._graph is None and not is_last:
            self._graph = card.graph_of(self._launches)
        if self._graph is not None:
            self._graph()
            return
        for kernel, blocks, arguments in self._launches:
            card.launch(kernel, blocks, *arguments)


class LaunchRecorder:
    """Records functions as programs, of which one runs at a time."""

    size, is_usable = 0, True  # bytes of the host that programs use; whether programs may run

    def record(self, function: Callable[[], Any]) -> LaunchProgram | None:
        """The launches of the function; None if it needs a result on the host."""
        program = card.recording.program = LaunchProgram()
        try:
            program.result = function()
        except card.HostNeeded:
            return None
        finally:
            card.recording.program = None
        return program
