"""Measures the time of kernels; costs nothing while nobody measures."""

import contextlib
import time
from collections.abc import Iterator
from typing import Any

from fastattn.runtime.handle import Kernel


@contextlib.contextmanager
def kernel_seconds() -> Iterator[dict[str, float]]:
    """Kernel -> seconds of its calls inside, compiling included: of the calling threads' own time, helpers' not.

    A kernel is named FILE.FUNCTION. The dictionary grows while kernels run. One clock at a time.
    """
    call, seconds = Kernel.__call__, dict[str, float]()

    def timed(kernel: Any, *arguments: Any) -> None:
        start = time.thread_time()
        try:
            call(kernel, *arguments)
        finally:
            name = kernel.label
            seconds[name] = seconds.get(name, 0.0) + time.thread_time() - start

    Kernel.__call__ = timed  # type: ignore[method-assign, assignment]
    try:
        yield seconds
    finally:
        Kernel.__call__ = call  # type: ignore[method-assign, assignment]
