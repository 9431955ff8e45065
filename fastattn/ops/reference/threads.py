"""The number of threads of the operations, which NumPy chooses."""

from collections.abc import Iterator
from contextlib import contextmanager

from fastattn.system.cpus import usable_cpus


@contextmanager
def use_threads(count: int) -> Iterator[None]:
    """Does nothing: NumPy chooses the threads of its matrix products."""
    yield


def current_threads() -> int:
    """The number of threads that the operations use themselves."""
    return 1


def thread_limit() -> int:
    """The number of threads that this process may use."""
    return usable_cpus().threads
