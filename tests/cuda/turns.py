"""A block of the simulator whose threads take turns: one runs until its next barrier, then the next one does.

Arrays and types within kernels are NumPy's, and device functions are called as they are: what the simulator wraps them
in takes most of its time.
"""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from numba.cuda.simulator import kernel as simulator
from numba.cuda.simulator.kernelapi import Dim3

PLAIN = {"float32": np.float32, "int32": np.int32, "int64": int, "uint32": int, "uint64": int}  # for Numba's types
_call = simulator.FakeCUDAKernel.__call__


def call(function: Any, *arguments: Any) -> Any:
    """In place of ``FakeCUDAKernel.__call__``: within a kernel most modules have its ``cuda`` already."""
    if function._device and function.fn.__globals__.get("cuda") is simulator._kernel_context:
        return function.fn(*arguments)
    return _call(function, *arguments)


def bare(argument: Any) -> Any:
    """The NumPy array of an array of the simulator; likewise those of a named tuple."""
    if isinstance(argument, tuple):
        return type(argument)(*map(bare, argument)) if hasattr(argument, "_fields") else tuple(map(bare, argument))
    argument = getattr(argument, "_item", argument)
    return getattr(argument, "_ary", argument)


def refusing_arrays_of_the_host(start: Callable) -> Callable:
    """``card._start``, which on a card would send such an array at each launch, with a warning, and fetch it back."""

    def has_one(argument: Any) -> bool:
        return any(map(has_one, argument)) if isinstance(argument, tuple) else isinstance(argument, np.ndarray)

    def checked(kernel: Any, blocks: Any, arguments: tuple) -> None:
        assert not has_one(arguments), "a kernel is given an array of the host"
        assert all(type(count) is int for count in (blocks if isinstance(blocks, tuple) else (blocks,))), blocks
        start(kernel, blocks, arguments)

    return checked


class _Thread(threading.Thread):
    """One thread of a block, as kernels in the simulator ask for it: by threading.current_thread()."""

    def __init__(self, block: "BlockOfTurns", place: tuple[int, ...], grid_point: tuple[int, ...], call: Callable):
        super().__init__(target=self._guarded, daemon=True)
        self.block, self.call, self.error = block, call, None
        self.blockIdx, self.threadIdx = Dim3(*grid_point), Dim3(*place)
        x, y, z = place
        self.thread_id = x + block.dimensions[0] * (y + block.dimensions[1] * z)
        self.turn, self.pause = threading.Lock(), threading.Lock()  # another thread releases them
        self.turn.acquire()
        self.pause.acquire()
        self.ended = False

    def _guarded(self) -> None:
        self.turn.acquire()
        try:
            with np.errstate(all="ignore"):  # a card says nothing
                self.call()
        except Exception as error:  # noqa: BLE001  raised where the kernel was launched
            self.error = error
        self.ended = True
        self.pause.release()

    def syncthreads(self) -> None:
        self.pause.release()
        self.turn.acquire()


class BlockOfTurns:
    """In place of ``BlockManager``: a barrier that only some threads of a block reach is an error."""

    def __init__(self, function: Callable, grid: Any, dimensions: tuple[int, ...], debug: bool):
        self.function, self.dimensions = function, dimensions

    def run(self, grid_point: tuple[int, ...], *arguments: Any) -> None:
        given = tuple(map(bare, arguments))
        threads = [
            _Thread(self, place, grid_point, lambda: self.function(*given)) for place in np.ndindex(*self.dimensions)
        ]
        if sum(grid_point) % 2:  # so that what lacks a barrier is seen, whichever thread should wait
            threads.reverse()
        for thread in threads:
            thread.start()
        while not all(thread.ended for thread in threads):
            assert not any(thread.ended for thread in threads), "a barrier that not all threads of the block reach"
            for thread in threads:
                thread.turn.release()
                thread.pause.acquire()
                if thread.error is not None:
                    raise thread.error
