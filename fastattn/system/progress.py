"""A progress line on a terminal."""

import contextlib
import sys
import threading
import time

from fastattn.printable import printable

_FIRST_DELAY, _INTERVAL, _LOG_INTERVAL = 0.5, 0.1, 60.0  # seconds; work shorter than the first shows nothing


class Progress:
    """One line, redrawn in place at most ten times a second; silent where stderr is no terminal.

    log  for work of hours: write a line a minute at most where stderr is no terminal
    """

    def __init__(self, enabled: bool = True, log: bool = False):
        self.enabled = enabled and sys.stderr is not None and sys.stderr.isatty()
        self._logs = log and enabled and sys.stderr is not None and not self.enabled
        self._next_time = time.monotonic() + (_LOG_INTERVAL if self._logs else _FIRST_DELAY)
        self._lock = threading.RLock()  # an interrupt may leave it held: its thread can take it again
        self._columns = 0  # of the terminal's line that have text

    def show(self, text: str, at_once: bool = False) -> None:
        """Draw or log ``text``, unless the last text is too recent; ``at_once``: draw anyway."""
        with self._lock:
            now = time.monotonic()
            if self._logs and now >= self._next_time:
                self._next_time = now + _LOG_INTERVAL
                with contextlib.suppress(OSError):  # a full log is no reason to stop
                    self._write(f"fastattn: {printable(text)}\n")
            if not self.enabled or (now < self._next_time and not at_once):
                return
            self._next_time = now + _INTERVAL
            import shutil  # here, since only terminals need it

            text = printable(text)[: max(20, shutil.get_terminal_size().columns - 1)]
            self._write("\r" + text.ljust(self._columns))  # spaces: not every terminal can erase a line
            self._columns = len(text)

    def clear(self) -> None:
        """Empty the terminal's line."""
        with self._lock:
            if self._columns:
                self._write("\r" + " " * self._columns + "\r")
                self._columns = 0

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *failure: object) -> None:
        self.clear()

    @staticmethod
    def _write(text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()
