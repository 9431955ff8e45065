"""Around compiling, without a compiler: who is told, by whom and when it is done, a second process that helps.

Locks: one thread compiles at a time, none while the process forks, few while it ends.
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
cache_faults: list[OSError] = []  # of this process, as they happened

SWITCH = "FASTATTN_COMPILE_AHEAD"  # 0: no second process
# As a worker process begins: modules are looked for where this program finds them, not in the current folder first.
# The process that was started ends at once, and is waited for: its child is nobody's to wait for but the system's.
_SECOND_PROCESS = """
import os, sys
if os.fork():
    os._exit(0)
sys.path[:] = sys.argv[1:]
from fastattn.runtime.handle import compile_variants
compile_variants()
"""
_lifeline: list[int] = []  # of the second process: at its other end it sees that this process is gone

compiling = threading.RLock()  # of whoever compiles: Numba's state and LLVM's
linking = threading.RLock()  # of whoever loads, which takes no time; taken last
RETRY = object()
_variant_locks: dict[tuple[str, str, str], threading.RLock] = {}  # type: ignore[valid-type]
_held_locks: list[Any] = []
_LOOK = 0.02  # seconds
_GRACE = 5.0  # seconds for which a process that ends is not held up by the threads that it had
_STACK = 16 << 20  # bytes
_ended_at = 0.0  # on the monotonic clock, once the process ends
_threads_at_end: set[int | None] = set()  # the threads that there were then, but for the one in which it ends


def lock_of_variant(module: str, name: str, key: str) -> Any:
    """Of who loads or compiles this variant, or waits for another process that does."""
    return _variant_locks.setdefault((module, name, key), threading.RLock())


def retry_under_lock(lock: Any, work: Callable[[], Any]) -> Any:
    """``work()`` under a lock, tried again as long as it returns AGAIN; others have the lock in between."""
    while True:
        with lock:
            result = RETRY if _must_stay() else work()
        if result is not RETRY:
            return result
        time.sleep(_LOOK)


def _must_stay() -> bool:
    """Whether the process ends, in another thread, and nobody knows that it waits for this one.

    What this thread began it would not finish: LLVM's own state goes with the process. But a handler of ``atexit`` may
    wait for it, which is called after ours if it was there before: a process that still runs then is not about to end.
    """
    return threading.get_ident() in _threads_at_end and time.monotonic() < _ended_at + _GRACE


def end() -> None:
    """Wait for the kernel that a daemon thread compiles or loads; begin none.

    What is compiled stays: who runs it is not waited for.
    """
    global _ended_at
    _ended_at = time.monotonic()
    _threads_at_end.update(thread.ident for thread in threading.enumerate() if thread is not threading.current_thread())
    for lock in _locks():
        with lock:
            pass


def _locks() -> list[Any]:
    """In the order in which one thread takes them: Numba's, if that was imported, while it compiles."""
    # None also while another thread imports the module: nobody compiles by it yet
    numba_lock = getattr(sys.modules.get("numba.core.compiler_lock"), "global_compiler_lock", None)
    return [compiling, *([] if numba_lock is None else [numba_lock]), linking]


def _before_fork() -> None:
    """A child forked while another thread compiles or loads would inherit what that one left in the middle."""
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
    _variant_locks.clear()  # whose threads are not here


def with_large_stack(work: Callable[[], _Result]) -> _Result:
    """``work()``, in a thread with the stack that Numba and LLVM need; the main thread has it, another may not."""
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
    with linking:  # another thread that does this would take this size for that of before
        before = threading.stack_size(_STACK)
        try:
            start_thread(thread)
        except (RuntimeError, MemoryError):
            thread = threading.current_thread()
        finally:
            threading.stack_size(before)
    if thread is threading.current_thread():  # no more threads: as far as it goes here
        return work()
    thread.join()
    if failures:
        raise failures[0]
    return results[0]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)


def on_compile(listener: Callable[[str], None]) -> None:
    """Call ``listener(name)`` before every kernel that is compiled from scratch, not when it is loaded."""
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
    """Start a second process, once, that compiles the slowest kernels beside this one, where the cache is still empty.

    Which: ``handle.VARIANTS``. Each process claims what it compiles, and waits for what the other has claimed.
    Not on one CPU, nor where files cannot be locked.
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
