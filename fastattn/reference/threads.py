"""The number of threads of the operations, which NumPy chooses."""

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def use_threads(count: int) -> Iterator[None]:
    """Does nothing: NumPy chooses the threads of its matrix products."""
    yield


def current_threads() -> int:
    """The number of threads that the operations use themselves."""
    return 1


def thread_limit() -> int:
    """The number of threads that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
