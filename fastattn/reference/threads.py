"""How many threads the operations use: NumPy's own affair."""

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def use_threads(count: int) -> Iterator[None]:
    """Changes nothing: the threads of NumPy's matrix products are its own affair."""
    yield


def current_threads() -> int:
    """How many threads the operations use, as far as they know."""
    return 1


def thread_limit() -> int:
    """How many threads this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
