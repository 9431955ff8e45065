"""Ctrl-C and kill end the process at once, even inside compiled code.

Python runs signal handlers between bytecodes, so a long compiled call or a pool that waits for its workers would hold
an interrupt back. But the C part of Python writes a signal's number to a file descriptor as soon as the signal arrives
(signal.set_wakeup_fd). A thread waits for the number, removes unfinished files and ends the process.
"""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from fastattn.system.atomic_files import discard_unfinished

end_callbacks: list[Callable[[], None]] = []  # called before a signal ends the process
_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")


def exit_on_signals() -> None:
    """Let each of _SIGNALS end the process with exit code 128 + its number, without a traceback."""
    # A signal that the parent process ignores (nohup, a background job) stays ignored.
    signals = [getattr(signal, name) for name in _SIGNALS if hasattr(signal, name)]
    signals = [number for number in signals if signal.getsignal(number) not in (signal.SIG_IGN, None)]
    wait_for_byte, descriptor, owner = _wakeup_channel()
    watcher = threading.Thread(target=_watch, args=(wait_for_byte, owner, signals), name="signals", daemon=True)
    try:
        watcher.start()
    except RuntimeError:  # the system gives no thread: Python ends the process once compiled code returns
        for number in signals:
            signal.signal(number, lambda number, frame: _end_process(number))
        return
    signal.set_wakeup_fd(descriptor, warn_on_full_buffer=False)
    for number in signals:
        signal.signal(number, lambda number, frame: None)


def restore_signals() -> None:
    """Undo ``exit_on_signals``, for a server, which finishes its requests in progress after a signal."""
    signal.set_wakeup_fd(-1)
    for name in _SIGNALS:
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) not in (signal.SIG_IGN, None):
            signal.signal(number, signal.default_int_handler if name == "SIGINT" else signal.SIG_DFL)


@contextlib.contextmanager
def message_at_signal(message: Callable[[], str]) -> Iterator[None]:
    """If a signal ends the process in the block, write the line ``message()`` to the stderr of before the block."""
    try:
        stderr = os.dup(2)
    except OSError:  # the process has no stderr
        yield
        return

    def write_message() -> None:
        line = "\n" * os.isatty(stderr) + message() + "\n"  # a line of progress may be on the terminal
        with contextlib.suppress(OSError):
            os.write(stderr, line.encode())

    end_callbacks.append(write_message)
    try:
        yield
    finally:
        end_callbacks.remove(write_message)
        os.close(stderr)


def _wakeup_channel() -> tuple[Callable[[], bytes], int, Any]:
    """(a function that waits for a byte; a descriptor that takes bytes without waiting; what keeps the two open)."""
    if os.name == "posix":
        read_end, write_end = os.pipe()
        os.set_blocking(write_end, False)
        return lambda: os.read(read_end, 1), write_end, None
    import socket  # Windows takes sockets only; elsewhere pipes save an import of 2 ms

    pair = socket.socketpair()
    pair[1].setblocking(False)
    return lambda: pair[0].recv(1), pair[1].fileno(), pair


def _watch(wait_for_byte: Callable[[], bytes], owner: Any, signals: list[int]) -> None:
    """Wait for one of the signals. The thread holds ``owner``, so that the descriptors' numbers are not reused."""
    number = 0
    while number not in signals:
        number = wait_for_byte()[0]
    _end_process(number)


def _end_process(number: int) -> None:
    discard_unfinished()
    for callback in end_callbacks:
        callback()
    if sys.stderr is not None and sys.stderr.isatty():
        with contextlib.suppress(OSError):
            os.write(2, b"\n")
    os._exit(128 + number)
