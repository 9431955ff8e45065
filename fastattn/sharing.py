"""Work shared among Python threads, none of which outlives the call: a child that is forked later waits for none."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

from fastattn.caller_warnings import warn

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def share(work: Callable[[int], None], workers: int, stop: Callable[[], None]) -> None:
    """Call ``work(number)`` for each number below ``workers``: the first here, the others in threads of their own.

    Where one raises, or an interrupt comes, ``stop`` shall make the others return; they are waited for, and what was
    raised first is raised here. For a thread that the system does not give, the work is done here, after the first.
    """
    failures: list[BaseException] = []

    def attempt(number: int) -> None:
        try:
            work(number)
        except BaseException as error:  # noqa: BLE001  raised again below
            failures.append(error)
            stop()

    threads: list[threading.Thread] = []
    try:
        for number in range(1, workers):
            thread = threading.Thread(target=attempt, args=(number,), name=f"fastattn worker {number}", daemon=True)
            threads.append(thread)
            try:
                start(thread)
            except (RuntimeError, MemoryError) as error:  # no more threads, or none because Python is ending
                threads.pop()
                tell_of_refusal(error)
                break
        for number in (0, *range(1 + len(threads), workers)):
            attempt(number)
    except BaseException:
        stop()
        raise
    finally:
        for thread in threads:
            if thread.is_alive():  # an interrupt may have come before it was
                thread.join()
    if failures:
        raise failures[0]


def start(thread: threading.Thread) -> None:
    """Start it; RuntimeError or MemoryError where there is none to be had.

    An interrupt passes through, also where Python's own lock is left without having been taken, which hides it behind
    a RuntimeError.
    """
    try:
        thread.start()
    except RuntimeError as error:
        if "new thread" not in str(error) and error.__context__ is not None:
            raise error.__context__ from None
        raise


def tell_of_refusal(error: BaseException) -> None:
    """Warn, once a process, that the system gives no thread; what was to be shared is done by those that there are.

    Not where Python gives none to a daemon thread because the process ends: nobody is to do anything about that.
    """
    global _told
    if not _told and "interpreter shutdown" not in str(error):
        _told = True
        warn(f"work goes on with fewer threads than asked for: {error}")


_told = False


def share_out(function: Callable[[_Item], _Result], items: Sequence[_Item], workers: int) -> list[_Result]:
    """function(item) of each item, in order; ``workers`` threads take them one by one."""
    results: dict[int, _Result] = {}
    waiting = deque(enumerate(items))

    def work(number: int) -> None:
        while waiting:
            try:
                place, item = waiting.popleft()
            except IndexError:  # another was quicker
                return
            results[place] = function(item)

    share(work, min(workers, len(items)), waiting.clear)
    return [results[place] for place in range(len(items))]
