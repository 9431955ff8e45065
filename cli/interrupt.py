"""Ctrl-C and kill end the process at once, even inside compiled code.

Python runs its signal handlers between bytecodes, so a long compiled call or a pool that waits for its workers would
hold an interrupt back. The C part of Python's handling, however, writes the signal's number to a file descriptor as
soon as the signal arrives (signal.set_wakeup_fd); a thread waits for that, removes unfinished files and exits.
"""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from fastattn.system.atomic_files import discard_unfinished

before_end: list[Callable[[], None]] = []  # called where a signal ends the process
_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")


def exit_on_signals() -> None:
    """From now on _SIGNALS end the process with exit code 128 + their number and no traceback."""
    # A signal that the parent chose to ignore (nohup, a background job) stays ignored.
    signals = [getattr(signal, name) for name in _SIGNALS if hasattr(signal, name)]
    signals = [number for number in signals if signal.getsignal(number) not in (signal.SIG_IGN, None)]
    read, writing, owner = _channel()
    watcher = threading.Thread(target=_watch, args=(read, owner, signals), name="signals", daemon=True)
    try:
        watcher.start()
    except RuntimeError:  # the system gives no thread: Python's handling, once compiled code returns
        for number in signals:
            signal.signal(number, lambda number, frame: _end(number))
        return
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    for number in signals:
        signal.signal(number, lambda number, frame: None)


def leave_signals() -> None:
    """Undo ``exit_on_signals``, for a server, which finishes requests in progress when a signal tells it to end."""
    signal.set_wakeup_fd(-1)
    for name in _SIGNALS:
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) not in (signal.SIG_IGN, None):
            signal.signal(number, signal.default_int_handler if name == "SIGINT" else signal.SIG_DFL)


@contextlib.contextmanager
def last_words(words: Callable[[], str]) -> Iterator[None]:
    """If a signal ends the process inside the block, write the line ``words()`` to what is stderr at the beginning."""
    try:
        stderr = os.dup(2)
    except OSError:  # there is none
        yield
        return

    def say() -> None:
        line = "\n" * os.isatty(stderr) + words() + "\n"  # behind a line of progress
        with contextlib.suppress(OSError):
            os.write(stderr, line.encode())

    before_end.append(say)
    try:
        yield
    finally:
        before_end.remove(say)
        os.close(stderr)


def _channel() -> tuple[Callable[[], bytes], int, Any]:
    """(a function that waits for a byte; a descriptor to write to without waiting; the descriptors' owner)."""
    if os.name == "posix":
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        return lambda: os.read(reading, 1), writing, None
    import socket  # Windows takes sockets alone; elsewhere they would only take 2 ms to import

    pair = socket.socketpair()
    pair[1].setblocking(False)
    return lambda: pair[0].recv(1), pair[1].fileno(), pair


def _watch(read: Callable[[], bytes], owner: Any, signals: list[int]) -> None:
    """Wait for a signal; the thread keeps the descriptors' owner, so that their numbers are not reused."""
    number = 0
    while number not in signals:
        number = read()[0]
    _end(number)


def _end(number: int) -> None:
    discard_unfinished()
    for call in before_end:
        call()
    if sys.stderr is not None and sys.stderr.isatty():
        with contextlib.suppress(OSError):
            os.write(2, b"\n")
    os._exit(128 + number)
