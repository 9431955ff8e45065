"""Around compiling, without a compiler: listeners, locks, a thread with a large stack, a second process that helps.

One thread compiles at a time; none compiles while the process forks, and few while it ends.
"""

import contextlib
import functools
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from fastattn.runtime.threads import thread_limit
from fastattn.system.cache_folder import cache_root
from fastattn.system.cpus import can_start_python
from fastattn.system.worker_threads import start_thread

_Result = TypeVar("_Result")

_listeners: list[Callable[[str], None]] = []
cache_faults: list[OSError] = []  # of this process, in the order in which they came

SWITCH = "FASTATTN_COMPILE_AHEAD"  # 0: no second process
# Like a worker process it looks for modules where this program finds them, not in the current folder first. The process
# that is started forks and ends at once, and this one waits for it: only the system has to wait for its child.
_SECOND_PROCESS = """
import os, sys
if os.fork():
    os._exit(0)
sys.path[:] = sys.argv[1:]
from fastattn.runtime.handle import compile_variants
compile_variants()
"""
_lifeline: list[int] = []  # the end of a pipe from which the second process sees that this process has ended

compiling = threading.RLock()  # held while a thread compiles, for the state of Numba and LLVM
linking = threading.RLock()  # held while a thread loads code, which is quick; taken last
RETRY = object()
_variant_locks: dict[tuple[str, str, str], threading.RLock] = {}  # type: ignore[valid-type]
_held_locks: list[Any] = []
_LOOK = 0.02  # seconds
_GRACE = 5.0  # seconds for which the threads of an ending process begin no work
_STACK = 16 << 20  # bytes
_ended_at = 0.0  # on the monotonic clock, once the process ends
_threads_at_end: set[int | None] = set()  # the threads of that moment, without the thread in which the process ends


def lock_of_variant(module: str, name: str, key: str) -> Any:
    """The lock of the thread that loads or compiles this variant, or waits for another process that does."""
    return _variant_locks.setdefault((module, name, key), threading.RLock())


def retry_under_lock(lock: Any, work: Callable[[], Any]) -> Any:
    """``work()`` under a lock, again as long as it returns RETRY; the lock is free in between."""
    while True:
        with lock:
            result = RETRY if _must_stay() else work()
        if result is not RETRY:
            return result
        time.sleep(_LOOK)


def _must_stay() -> bool:
    """Whether this thread must begin nothing because another thread ends the process.

    The thread could not finish its work: LLVM's own state goes with the process. But a handler of ``atexit`` that was
    registered before ours is called after it, and may wait for this thread: after _GRACE the thread goes on.
    """
    return threading.get_ident() in _threads_at_end and time.monotonic() < _ended_at + _GRACE


def end() -> None:
    """Wait for the kernel that a daemon thread compiles or loads, and let no thread begin another.

    Threads that run compiled code are not waited for.
    """
    global _ended_at
    _ended_at = time.monotonic()
    _threads_at_end.update(thread.ident for thread in threading.enumerate() if thread is not threading.current_thread())
    for lock in _locks():
        with lock:
            pass


def _locks() -> list[Any]:
    """All locks in the order in which a thread takes them: that of Numba, if it is imported, while it compiles."""
    # There is no lock yet while another thread imports the module: then no thread compiles.
    numba_lock = getattr(sys.modules.get("numba.core.compiler_lock"), "global_compiler_lock", None)
    return [compiling, *([] if numba_lock is None else [numba_lock]), linking]


def _before_fork() -> None:
    """Take all locks: a child would inherit half of what another thread compiles or loads."""
    global _held_locks
    compiling.acquire()
    _held_locks = _locks()
    for lock in _held_locks[1:]:
        lock.acquire()


def _after_fork() -> None:
    for lock in reversed(_held_locks):
        lock.release()


def _after_fork_in_child() -> None:
    _after_fork()
    _variant_locks.clear()  # the threads that hold them are not in the child


def with_large_stack(work: Callable[[], _Result]) -> _Result:
    """``work()`` in a thread with the stack that Numba and LLVM need; the main thread has one, others may not."""
    if threading.current_thread() is threading.main_thread():
        return work()
    results: list[_Result] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:  # noqa: BLE001  raised again below
            failures.append(error)

    thread = threading.Thread(target=run, name="fastattn compiling", daemon=True)
    with linking:  # another thread here would take this size for the size before
        before = threading.stack_size(_STACK)
        try:
            start_thread(thread)
        except (RuntimeError, MemoryError):
            thread = threading.current_thread()
        finally:
            threading.stack_size(before)
    if thread is threading.current_thread():  # the system gives no thread: work with the stack that there is
        return work()
    thread.join()
    if failures:
        raise failures[0]
    return results[0]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)


def on_compile(listener: Callable[[str], None]) -> None:
    """Call ``listener(name)`` before a kernel is compiled, but not before one is loaded."""
    _listeners.append(listener)


def notify_of_compiling(name: str) -> None:
    for listener in _listeners:
        listener(name)


def cache_fault() -> str:
    """Why this process could not store compiled code, as a message for the user; "" if it could."""
    if not cache_faults:
        return ""
    reason = cache_faults[0].strerror or cache_faults[0]
    return f"cannot keep kernels in the cache {cache_root()}: {reason}; FASTATTN_CACHE names another folder"


@functools.cache
def start_second_process() -> None:
    """Start a second process, once, that compiles the slowest kernels, ``handle.VARIANTS``, beside this process.

    Each process claims what it compiles, and waits for what the other has claimed. There is no second process on one
    CPU or where files cannot be locked.
    """
    if os.environ.get(SWITCH) == "0" or thread_limit() < 2 or sys.platform == "win32" or not can_start_python():
        return
    command = [sys.executable, "-c", _SECOND_PROCESS, *map(os.path.abspath, sys.path)]
    with contextlib.suppress(OSError):
        inside, outside = os.pipe()
        _lifeline.append(outside)
        try:
            silence = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (1, 2)]
            files = [(os.POSIX_SPAWN_DUP2, inside, 0), *silence]
            process = os.posix_spawn(sys.executable, command, {**os.environ, SWITCH: "0"}, file_actions=files)
        finally:
            os.close(inside)
        os.waitpid(process, 0)
