"""The threads that run kernels: how many, and whether they are those of fastattn's pool or Numba's."""

import contextlib
import ctypes
import os
import sys
import threading
from collections.abc import Callable, Iterator

import numpy as np

from fastattn.errors import InputError, check_count
from fastattn.system.cpus import default_threads
from fastattn.system.environment import THREADING
from fastattn.system.worker_threads import start_thread, warn_of_fewer_threads


class _ThreadSettings(threading.local):
    threads: int | None = None


_state = _ThreadSettings()


def thread_limit() -> int:
    """How many threads this process may use; with Numba's threads, at most as many as Numba started."""
    if not setting.by_numba:
        return default_threads()
    from numba import config

    return min(default_threads(), int(config.NUMBA_NUM_THREADS))


class NumbaTeam:
    """Numba's threading layer: TBB, OpenMP or workqueue, as NUMBA_THREADING_LAYER and the machine decide."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_concurrent = False  # whether several Python threads may call at once

    def call(self, function: Callable, arguments: tuple) -> None:
        """Call a function that Numba compiled with ``parallel=True``.

        Two Python threads that enter the workqueue at once would end the process: a lock lets one in at a time.
        """
        import numba

        if self._is_concurrent:
            function(*arguments)
            return
        with self._lock:
            function(*arguments)
            self._is_concurrent = numba.threading_layer() != "workqueue"


class _ProcessThreading:
    """The process's choice of threads; ``pool_obstacle``: why the pool cannot be used, "" if it can."""

    def __init__(self) -> None:
        self.by_numba = os.environ.get("FASTATTN_THREADING") == "numba"
        self.pool_obstacle = ""
        self.team = NumbaTeam()

    def forbid_pool(self, reason: str) -> None:
        """From now on only Numba itself can compile kernels and share them among threads."""
        self.pool_obstacle, self.by_numba = reason, True

    def after_fork(self) -> None:
        """In a forked child, use the pool in place of GNU's OpenMP, whose first loop would end the child."""
        self.team = NumbaTeam()  # a thread of the parent may have held its lock
        if self.by_numba and not self.pool_obstacle and sys.platform == "linux":
            import numba

            with contextlib.suppress(ValueError):  # Numba has run nothing in parallel yet
                self.by_numba = numba.threading_layer() != "omp"


setting = _ProcessThreading()


def set_threading(name: str) -> None:
    """Choose the threads of kernels in this process from now on: "pool" or "numba"; default: FASTATTN_THREADING.

    pool   fastattn's own threads: no thread waits for another that the system does not let run
    numba  the threads of Numba's threading layer, for programs that keep them busy already; a child that is forked
           after OpenMP ran uses the pool
    Results have the same bits. Do not call it inside ``use_threads``. InputError for another name.
    """
    if name not in THREADING:
        raise InputError(f"threading should be {' or '.join(map(repr, THREADING))}, is {name!r}")
    if name == "pool" and setting.pool_obstacle:
        raise InputError(f"threading can only be 'numba' here: {setting.pool_obstacle}")
    setting.by_numba = name == "numba"


@contextlib.contextmanager
def use_threads(count: int) -> Iterator[None]:
    """Kernels that this Python thread calls inside the block use ``count`` threads; InputError for less than one.

    The limit is NUMBA_NUM_THREADS, by default the CPUs that the process may use; a greater number counts as the limit.
    Translator and Encoder have an option ``threads`` of their own. Any number of Python threads may compute at once:
    one of them has the pool's helpers, all others work alone. With Numba's threads this is ``numba.set_num_threads``.
    """
    count = min(check_count("threads", count), thread_limit())
    old_count = _state.threads
    numba_threads = _numba_threads() if setting.by_numba else 0
    _state.threads = count
    try:
        if numba_threads:
            _set_numba_threads(count)
        yield
    finally:
        _state.threads = old_count
        if numba_threads:
            _set_numba_threads(numba_threads)


def current_threads() -> int:
    """The number of threads of a kernel that is called here: that of ``use_threads``, by default all."""
    count = _state.threads
    if count is not None:
        return count
    return _numba_threads() if setting.by_numba else thread_limit()


def _numba_threads() -> int:
    import numba  # slow to import, and needed only for Numba's threads

    return numba.get_num_threads()


def _set_numba_threads(count: int) -> None:
    import numba

    numba.set_num_threads(count)


# Offsets of a pool's words, in bytes: the ticket, the number of parts that are done, what ``launch`` was called with,
# whether a job has the helpers. Words that change at different times lie in different cache lines.
TICKET, DONE, JOB_ENTRY, JOB_ARGUMENTS, JOB_TASKS, TAKEN = 0, 128, 256, 264, 272, 280
# Up to how many helpers a kernel need not call ``ensure``, and the address of ``launch`` as a C function.
READY, LAUNCHER = 288, 296
# Of each helper: whether it sleeps, the descriptors that it reads and that others write to wake it, a 1 to write, a
# word to read into; the CPU on which it fell asleep, its thread, and the CPUs that it may run on, a bit each.
HELPERS, HELPER_BYTES = 384, 256
SLEEPS, WAKE_READ_FD, WAKE_WRITE_FD, ONE, READ, CPU, THREAD, CPUS, CPUS_BYTES = 0, 8, 16, 24, 32, 40, 48, 128, 128
PART_BITS = 12
MOST_PARTS = (1 << PART_BITS) - 1
SPINS = 40_000  # how often a helper looks for work before it sleeps: about a millisecond
PATIENCE = 1_000  # how often the caller looks whether helpers have finished before it offers them its CPU
LINUX = sys.platform == "linux"


class Pool:
    """Helper threads for one job at a time; a caller works alone while another job has them.

    A job is cut into parts, which free threads take one by one. The caller takes parts too, and waits only for parts
    that helpers have begun: a helper that the system does not let run costs nothing but its help. If kernels ended in a
    barrier instead, all threads would wait there for such a helper, on a busy machine for milliseconds.

    All state is a few words of memory, which only compiled code changes while a job runs: no exception of a Python
    thread, such as an interrupt, can come between taking the pool and leaving it. One word, the ticket, holds the job's
    number, the number of its parts and the next free part: a compare-and-exchange takes a part, and fails where any of
    the three has changed. The other words of a job stay the same until all its parts are done.

    Helpers look for work for a while, then sleep; no caller waits for helpers to wake up. They neither hold the GIL nor
    wait for it: they sleep in compiled code, reading from an eventfd or a pipe, and end with the process, which waits
    neither for them nor for the job of a daemon thread.

    serve        the compiled ``pool_code.serve``
    max_helpers  the greatest number of helpers
    """

    def __init__(self, serve, max_helpers: int):
        memory = np.zeros((HELPERS + max_helpers * HELPER_BYTES + 128) // 8, np.int64)
        # Never freed: helpers read it while Python exits, and so may one whose Thread an interrupt kept from the list.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(memory))
        first = -memory.ctypes.data % 128 // 8
        self._words, self.address = memory[first:], memory.ctypes.data + 8 * first
        self._serve = serve
        self._max_helpers = max_helpers
        # Held while helpers are started. Reentrant: a thread that an interrupt kept from the release takes it again.
        self._starting = threading.RLock()
        self._helpers: list[threading.Thread] = []

    def ensure(self, count: int, launcher: int) -> int:
        """Start helpers until there are ``count``, with one warning if the system gives fewer.

        launcher  the address of the compiled ``launch``
        Returns ``count``, even where the system gave fewer; 0 while another Python thread starts helpers.
        """
        self._words[LAUNCHER // 8] = launcher
        if not self._starting.acquire(blocking=False):
            return 0
        try:
            while len(self._helpers) < min(count, self._max_helpers):
                self._helpers.append(self._start(len(self._helpers)))
            self._words[READY // 8] = len(self._helpers) if count <= self._max_helpers else MOST_PARTS
        except (RuntimeError, OSError, MemoryError) as error:
            self._max_helpers = len(self._helpers)
            self._words[READY // 8] = MOST_PARTS
            warn_of_fewer_threads(error)
        finally:
            self._starting.release()
        return count

    def _start(self, helper: int) -> threading.Thread:
        """Start a helper's thread. If an interrupt keeps it from ``_helpers``, a second one serves too: no harm."""
        offset = (HELPERS + helper * HELPER_BYTES) // 8
        if not self._words[offset + ONE // 8]:
            descriptors = (os.eventfd(0),) * 2 if hasattr(os, "eventfd") else os.pipe()
            self._words[offset + WAKE_READ_FD // 8], self._words[offset + WAKE_WRITE_FD // 8] = descriptors
            self._words[offset + ONE // 8] = 1
        arguments = self.address, helper
        thread = threading.Thread(target=self._serve, args=arguments, name=f"fastattn {helper}", daemon=True)
        start_thread(thread)
        if LINUX:
            for cpu in os.sched_getaffinity(0):
                if cpu < 8 * CPUS_BYTES:
                    bits = self._words[offset + CPUS // 8 :].view(np.uint64)
                    bits[cpu // 64] |= np.uint64(1 << cpu % 64)
            self._words[offset + CPU // 8], self._words[offset + THREAD // 8] = -1, thread.native_id or 0
        return thread
