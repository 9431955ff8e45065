"""Ctrl-C and kill end the process at once, even inside compiled code.

Python runs its signal handlers between bytecodes, so a long compiled call or a pool that waits for its workers would
hold an interrupt back. The C part of Python's handling, however, writes the signal's number to a file descriptor as
soon as the signal arrives (signal.set_wakeup_fd); a thread waits for that, removes unfinished files and exits.
"""

import contextlib
import os
import signal
import socket
import sys
import threading

from fastattn.atomic_files import discard_unfinished

_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")


def exit_on_signals() -> None:
    """From now on these signals end the process with exit code 128 + their number and no traceback."""
    # One that the parent chose to ignore (nohup, a background job) stays ignored.
    wanted = [getattr(signal, name) for name in _SIGNALS if hasattr(signal, name)]
    wanted = [number for number in wanted if signal.getsignal(number) not in (signal.SIG_IGN, None)]
    reading, writing = socket.socketpair()  # Windows takes sockets alone
    writing.setblocking(False)
    # The thread owns both ends: were `writing` collected, the descriptor could become someone else's.
    watcher = threading.Thread(target=_watch, args=(reading, writing, wanted), name="signals", daemon=True)
    try:
        watcher.start()
    except RuntimeError:  # the system gives no thread: Python's handling, once compiled code returns
        for number in wanted:
            signal.signal(number, lambda number, frame: _end(number))
        return
    signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
    for number in wanted:
        signal.signal(number, lambda number, frame: None)


def _watch(reading: socket.socket, writing: socket.socket, wanted: list[int]) -> None:
    number = 0
    while number not in wanted:
        number = reading.recv(1)[0]
    _end(number)


def _end(number: int) -> None:
    discard_unfinished()
    if sys.stderr is not None and sys.stderr.isatty():
        with contextlib.suppress(OSError):
            os.write(2, b"\n")
    os._exit(128 + number)
