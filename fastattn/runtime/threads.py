"""The threads of kernels: how many there are, and whether they are fastattn's pool or Numba's."""

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator

from fastattn.errors import InputError, check_count
from fastattn.system.cpus import default_threads
from fastattn.system.environment import THREADING


class _ThreadSettings(threading.local):
    threads: int | None = None


_state = _ThreadSettings()


def thread_limit() -> int:
    """How many threads this process may use; with Numba's threads at most as many as Numba started with."""
    if not setting.by_numba:
        return default_threads()
    from numba import config

    return min(default_threads(), int(config.NUMBA_NUM_THREADS))


class NumbaTeam:
    """Numba's threading layer: TBB, OpenMP or its workqueue, whichever NUMBA_THREADING_LAYER and the machine give."""

    def __init__(self) -> None:
        self._alone = threading.Lock()
        self._concurrent = False

    def call(self, function: Callable, arguments: tuple) -> None:
        """Call a function that Numba compiled in parallel.

        The workqueue ends the process when two Python threads enter it at once: there they do so one by one.
        """
        import numba

        if self._concurrent:
            function(*arguments)
            return
        with self._alone:
            function(*arguments)
            self._concurrent = numba.threading_layer() != "workqueue"


class _Setting:
    """The process's choice of threads; ``forced`` says why they can only be Numba's, "" if there is a choice."""

    def __init__(self) -> None:
        self.by_numba = os.environ.get("FASTATTN_THREADING") == "numba"
        self.forced = ""
        self.team = NumbaTeam()

    def force(self, reason: str) -> None:
        """From now on kernels can only be compiled, and shared among threads, by Numba itself."""
        self.forced, self.by_numba = reason, True

    def after_fork(self) -> None:
        """In a forked child, use the pool: GNU's OpenMP would end the process at its first loop."""
        self.team = NumbaTeam()  # another thread may have been inside, which is not here
        if self.by_numba and not self.forced and sys.platform == "linux":
            import numba

            with contextlib.suppress(ValueError):  # nothing was run in parallel yet
                self.by_numba = numba.threading_layer() != "omp"


setting = _Setting()


def set_threading(name: str) -> None:
    """Choose the threads of kernels in this process from now on: "pool" or "numba"; default: FASTATTN_THREADING.

    pool   fastattn's own: a thread that the system does not let run is waited for by nobody.
    numba  the team of Numba's threading layer, for programs that keep it busy already. In a child forked after OpenMP
           ran, the pool works in its place.
    Results have the same bits. Not while a ``use_threads`` is open. InputError for another name.
    """
    if name not in THREADING:
        raise InputError(f"threading should be {' or '.join(map(repr, THREADING))}, is {name!r}")
    if name == "pool" and setting.forced:
        raise InputError(f"threading can only be 'numba' here: {setting.forced}")
    setting.by_numba = name == "numba"


@contextlib.contextmanager
def use_threads(count: int) -> Iterator[None]:
    """Kernels that this Python thread calls inside use ``count`` threads; InputError for less than one.

    More than the limit, NUMBA_NUM_THREADS or the CPUs that the process may use, count as that many. Translator and
    Encoder have a number of their own, ``threads``. Any number of Python threads may compute at once: of the pool one
    has the help of others, the rest work alone. With Numba's threads this is ``numba.set_num_threads``.
    """
    count = min(check_count("threads", count), thread_limit())
    before = _state.threads
    masked = _numba_threads() if setting.by_numba else 0
    _state.threads = count
    try:
        if masked:
            _set_numba_threads(count)
        yield
    finally:
        _state.threads = before
        if masked:
            _set_numba_threads(masked)


def current_threads() -> int:
    """The number of threads of kernels called here: that of use_threads, by default all."""
    count = _state.threads
    if count is not None:
        return count
    return _numba_threads() if setting.by_numba else thread_limit()


def _numba_threads() -> int:
    import numba  # only where its threads are asked for: a start need not wait for it

    return numba.get_num_threads()


def _set_numba_threads(count: int) -> None:
    import numba

    numba.set_num_threads(count)
