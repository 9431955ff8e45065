"""Maps a function in Python threads that end with the call: a process that is forked later has no such thread."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

from fastattn.errors import warn

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_warned = False


def map_in_threads(function: Callable[[_Item], _Result], items: Sequence[_Item], workers: int) -> list[_Result]:
    """[function(item) for item in items], in ``workers`` threads, the caller's included, which take items one by one.

    After an error or an interrupt no thread takes another item; the threads are joined, and the first error is raised
    in the caller. Where the system gives no more threads, the existing threads do all the work.
    """
    results: dict[int, _Result] = {}
    remaining_items = deque(enumerate(items))
    failures: list[BaseException] = []

    def work() -> None:
        try:
            while remaining_items:
                try:
                    index, item = remaining_items.popleft()
                except IndexError:  # another thread was quicker
                    return
                results[index] = function(item)
        except BaseException as error:  # noqa: BLE001  raised again below
            failures.append(error)
            remaining_items.clear()

    threads: list[threading.Thread] = []
    try:
        for number in range(1, min(workers, len(items))):
            thread = threading.Thread(target=work, name=f"fastattn worker {number}", daemon=True)
            threads.append(thread)
            try:
                start_thread(thread)
            except (RuntimeError, MemoryError) as error:  # no more threads, or Python is ending
                threads.pop()
                warn_of_fewer_threads(error)
                break
        work()
    except BaseException:
        remaining_items.clear()
        raise
    finally:
        for thread in threads:
            if thread.is_alive():  # an interrupt may have come before the thread started
                thread.join()
    if failures:
        raise failures[0]
    return [results[index] for index in range(len(items))]


def start_thread(thread: threading.Thread) -> None:
    """Start a thread; RuntimeError or MemoryError where the system gives none.

    An interrupt is raised itself, even where Python hides it behind the RuntimeError of a lock that is not held.
    """
    try:
        thread.start()
    except RuntimeError as error:
        if "new thread" not in str(error) and error.__context__ is not None:
            raise error.__context__ from None
        raise


def warn_of_fewer_threads(error: BaseException) -> None:
    """Warn, once in a process, that the system gives no more threads and the existing threads do all the work.

    There is no warning where Python refuses a thread because the process ends: nobody can act on that.
    """
    global _warned
    if not _warned and "interpreter shutdown" not in str(error):
        _warned = True
        warn(f"work goes on with fewer threads than asked for: {error}")
