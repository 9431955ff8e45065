"""The number of threads of the operations, which NumPy chooses."""

from contextlib import AbstractContextManager, nullcontext

from fastattn.system.cpus import usable_cpus


def use_threads(count: int) -> AbstractContextManager[None]:
    """Does nothing: NumPy chooses the threads of its matrix products."""
    return nullcontext()


def current_threads() -> int:
    """The number of threads that the operations use themselves."""
    return 1


def thread_limit() -> int:
    """The number of threads that this process may use."""
    return usable_cpus().threads
