"""Locks and threads for compiling, listeners, and processes that help; the compiler itself is elsewhere.

A second process takes a first translation from 29.2 s to 16.0 on two cores (docs/architecture.md, "Compiled code").
With a first process that compiles another variant while it waits for one, en-pt's first line takes 0.9 x the time, but
MiniLM's 1.15 x. One thread compiles at a time; no thread compiles while the process forks, nor for _GRACE seconds while
it ends.
"""

import contextlib
import functools
import os
import signal
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
cache_faults: list[OSError] = []  # errors of this process while it stored compiled code, in their order

SWITCH = "FASTATTN_COMPILE_AHEAD"  # 0: no other process
# What the other processes run, one program each. By default one process compiles the slowest kernels.
programs = ["from fastattn.runtime.handle import compile_variants; compile_variants()"]
# Another process looks for modules where this program finds them, not in the current folder first. It is a grandchild,
# whose parent ends at once: then the system, not this program, has to wait for the other process.
_START = """
import os, sys
if os.fork():
    os._exit(0)
program, *sys.path[:] = sys.argv[1:]
from fastattn.runtime.compiling import end_with_first_process
end_with_first_process()
exec(program)
"""
_lifeline: list[int] = []  # ends of pipes by which the other processes notice that this process has ended

compile_lock = threading.RLock()  # held while a thread compiles, for the state of Numba and LLVM
link_lock = threading.RLock()  # held while a thread loads code, which is quick; taken behind all other locks
RETRY = object()  # a result of work for ``retry_under_lock`` that another process does now: try again
_variant_locks: dict[tuple[str, str, str], threading.RLock] = {}  # type: ignore[valid-type]
_held_locks: list[Any] = []
_RETRY_AFTER = 0.02  # seconds
_GRACE = 5.0  # seconds for which the threads of an ending process begin no work
_STACK_BYTES = 16 << 20
_ended_at = 0.0  # when ``end_compiling`` was called, by the monotonic clock
_threads_at_end: set[int | None] = set()  # threads at that time, but for the thread that called ``end_compiling``


def lock_of_variant(module: str, name: str, key: str) -> Any:
    """The lock that a thread holds while it loads or compiles this variant, or waits for another process to do so."""
    return _variant_locks.setdefault((module, name, key), threading.RLock())


def retry_under_lock(lock: Any, work: Callable[[], Any]) -> Any:
    """``work()`` under a lock, again as long as it returns RETRY; the lock is free in between."""
    while True:
        with lock:
            result = RETRY if _must_wait() else work()
        if result is not RETRY:
            return result
        time.sleep(_RETRY_AFTER)


def _must_wait() -> bool:
    """Whether this thread must begin nothing because another thread ends the process.

    This thread could not finish its work, since LLVM's state goes with the process. But handlers of ``atexit`` that
    were registered before ``end_compiling`` run later, and may wait for this thread, so after _GRACE it may begin work.
    """
    return threading.get_ident() in _threads_at_end and time.monotonic() < _ended_at + _GRACE


def end_compiling() -> None:
    """Wait for the kernel that a daemon thread compiles or loads, and let no thread begin another one.

    The process does not wait for threads that run compiled code.
    """
    global _ended_at
    _ended_at = time.monotonic()
    _threads_at_end.update(thread.ident for thread in threading.enumerate() if thread is not threading.current_thread())
    for lock in _locks():
        with lock:
            pass


def _locks() -> list[Any]:
    """All locks in the order in which a thread takes them; Numba's own is among them once Numba is imported."""
    # The module has no lock yet while another thread imports it: then no thread compiles.
    numba_lock = getattr(sys.modules.get("numba.core.compiler_lock"), "global_compiler_lock", None)
    return [compile_lock, *([] if numba_lock is None else [numba_lock]), link_lock]


def _before_fork() -> None:
    """Take all locks, so that a child does not inherit the half-done work of another thread."""
    global _held_locks
    compile_lock.acquire()
    _held_locks = _locks()
    for lock in _held_locks[1:]:
        lock.acquire()


def _after_fork() -> None:
    for lock in reversed(_held_locks):
        lock.release()


def _after_fork_in_child() -> None:
    _after_fork()
    _variant_locks.clear()  # the threads that hold these locks are not in the child


def with_large_stack(work: Callable[[], _Result]) -> _Result:
    """``work()`` with the large stack that Numba and LLVM need: in the main thread, or in a new thread with one."""
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
    with link_lock:  # else another thread here would take _STACK_BYTES for the old size
        old_size = threading.stack_size(_STACK_BYTES)
        try:
            start_thread(thread)
        except (RuntimeError, MemoryError):
            thread = threading.current_thread()
        finally:
            threading.stack_size(old_size)
    if thread is threading.current_thread():  # the system gives no new thread: use this thread's stack
        return work()
    thread.join()
    if failures:
        raise failures[0]
    return results[0]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)


def on_compile(listener: Callable[[str], None]) -> None:
    """Call ``listener(name)`` before a kernel is compiled, but not before a kernel is loaded from the cache."""
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
def start_processes() -> None:
    """Start processes, once, that run ``programs`` at the same time.

    Each process claims the variants that it compiles, and waits for those that another process has claimed. There are
    no other processes on one CPU or where files cannot be locked.
    """
    if os.environ.get(SWITCH) == "0" or thread_limit() < 2 or sys.platform == "win32" or not can_start_python():
        return
    with contextlib.suppress(OSError):
        for program in programs:
            _start_process(program)


def _start_process(program: str) -> None:
    command = [sys.executable, "-c", _START, program, *map(os.path.abspath, sys.path)]
    read_end, write_end = os.pipe()
    _lifeline.append(write_end)
    try:
        no_output = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (1, 2)]
        files = [(os.POSIX_SPAWN_DUP2, read_end, 0), *no_output]
        process = os.posix_spawn(sys.executable, command, {**os.environ, SWITCH: "0"}, file_actions=files)
    finally:
        os.close(read_end)
    os.waitpid(process, 0)


def end_with_first_process() -> None:
    """Have this process, which ``start_processes`` has started, end at once with the first one, or at Ctrl-C."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=lambda: os._exit(len(os.read(0, 1))), daemon=True).start()
