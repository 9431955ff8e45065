"""A block of the simulator whose threads take turns: one runs until its next barrier, then the next one does."""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from numba.cuda.simulator.kernelapi import Dim3


class _Thread(threading.Thread):
    """One thread of a block, as kernels in the simulator ask for it: by threading.current_thread()."""

    def __init__(self, block: "BlockOfTurns", place: tuple[int, ...], grid_point: tuple[int, ...], call: Callable):
        super().__init__(target=self._guarded, daemon=True)
        self.block, self.call, self.error = block, call, None
        self.blockIdx, self.threadIdx = Dim3(*grid_point), Dim3(*place)
        x, y, z = place
        self.thread_id = x + block.dimensions[0] * (y + block.dimensions[1] * z)
        self.turn, self.pause = threading.Semaphore(0), threading.Semaphore(0)
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
        threads = [
            _Thread(self, place, grid_point, lambda: self.function(*arguments))
            for place in np.ndindex(*self.dimensions)
        ]
        for thread in threads:
            thread.start()
        while not all(thread.ended for thread in threads):
            assert not any(thread.ended for thread in threads), "a barrier that not all threads of the block reach"
            for thread in threads:
                thread.turn.release()
                thread.pause.acquire()
                if thread.error is not None:
                    raise thread.error
