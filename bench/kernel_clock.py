"""Measures the time of kernels; costs nothing while nobody measures."""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

from fastattn.runtime.handle import Kernel
from fastattn.runtime.recording import Program


@contextlib.contextmanager
def kernel_seconds() -> Iterator[dict[str, float]]:
    """Yield {kernel: seconds of its calls}: CPU time of the calling threads, without helpers'; compiling is included.

    A kernel is named FILE.FUNCTION; all kernels of recorded steps share the name "recorded steps". The dictionary grows
    while kernels run. Only one clock may run at a time.
    """
    seconds = dict[str, float]()

    def timed(call: Callable, name: Callable[[Any], str]) -> Callable:
        def run(kernel: Any, *arguments: Any) -> None:
            start = time.thread_time()
            try:
                call(kernel, *arguments)
            finally:
                seconds[name(kernel)] = seconds.get(name(kernel), 0.0) + time.thread_time() - start

        return run

    call, run = Kernel.__call__, Program.run
    Kernel.__call__ = timed(call, lambda kernel: kernel.label)  # type: ignore[method-assign]
    Program.run = timed(run, lambda program: "recorded steps")  # type: ignore[method-assign]
    try:
        yield seconds
    finally:
        Kernel.__call__, Program.run = call, run  # type: ignore[method-assign]
