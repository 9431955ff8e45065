"""Locks around compiling and loading: one thread at a time, none while the process forks, few while it ends."""

import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from fastattn.system.worker_threads import start_thread

_Result = TypeVar("_Result")

compiling = threading.RLock()  # of whoever compiles: Numba's state and LLVM's
linking = threading.RLock()  # of whoever loads, which takes no time; taken last
AGAIN = object()
_of_variants: dict[tuple[str, str, str], threading.RLock] = {}  # type: ignore[valid-type]
_held: list[Any] = []
_LOOK = 0.02  # seconds
_GRACE = 5.0  # seconds for which a process that ends is not held up by the threads that it had
_STACK = 16 << 20  # bytes
_ended_at = 0.0  # on the monotonic clock, once the process ends
_older: set[int | None] = set()  # the threads that there were then, but for the one in which it ends


def lock_of_variant(module: str, name: str, key: str) -> Any:
    """Of who loads or compiles this variant, or waits for another process that does."""
    return _of_variants.setdefault((module, name, key), threading.RLock())


def in_turn(lock: Any, work: Callable[[], Any]) -> Any:
    """``work()`` under a lock, tried again as long as it returns AGAIN; others have the lock in between."""
    while True:
        with lock:
            result = AGAIN if _is_to_stay() else work()
        if result is not AGAIN:
            return result
        time.sleep(_LOOK)


def _is_to_stay() -> bool:
    """Whether the process ends, in another thread, and nobody knows that it waits for this one.

    What this thread began it would not finish: LLVM's own state goes with the process. But a handler of ``atexit`` may
    wait for it, which is called after ours if it was there before: a process that still runs then is not about to end.
    """
    return threading.get_ident() in _older and time.monotonic() < _ended_at + _GRACE


def end() -> None:
    """Wait for the kernel that a daemon thread compiles or loads; begin none.

    What is compiled stays: who runs it is not waited for.
    """
    global _ended_at
    _ended_at = time.monotonic()
    _older.update(thread.ident for thread in threading.enumerate() if thread is not threading.current_thread())
    for lock in _all():
        with lock:
            pass


def _all() -> list[Any]:
    """In the order in which one thread takes them: Numba's, if that was imported, while it compiles."""
    numba = sys.modules.get("numba.core.compiler_lock")
    return [compiling, *([] if numba is None else [numba.global_compiler_lock]), linking]


def _before_fork() -> None:
    """A child forked while another thread compiles or loads would inherit what that one left in the middle."""
    global _held
    compiling.acquire()
    _held = _all()
    for lock in _held[1:]:
        lock.acquire()


def _after_fork() -> None:
    for lock in reversed(_held):
        lock.release()


def _after_fork_in_child() -> None:
    _after_fork()
    _of_variants.clear()  # whose threads are not here


def with_room(work: Callable[[], _Result]) -> _Result:
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
