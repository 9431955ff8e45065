"""A progress line on a terminal."""

import contextlib
import sys
import threading
import time

from fastattn.printable import printable

_FIRST_AFTER = 0.5  # seconds; quick work shows nothing
_EVERY = 0.1
_EVERY_LOGGED = 60.0


class Progress:
    """One line, redrawn in place at most ten times a second; silent where stderr is no terminal.

    log  write a line a minute at most where stderr is no terminal, for work of hours
    """

    def __init__(self, enabled: bool = True, log: bool = False):
        self.enabled = enabled and sys.stderr is not None and sys.stderr.isatty()
        self._logged = log and enabled and sys.stderr is not None and not self.enabled
        self._next = time.monotonic() + (_EVERY_LOGGED if self._logged else _FIRST_AFTER)
        self._lock = threading.RLock()  # an interrupt may leave it held: then its own thread goes on
        self._drawn = 0  # columns that are not empty

    def show(self, text: str, at_once: bool = False) -> None:
        """Draw ``text``, unless the last drawing is too recent."""
        with self._lock:
            now = time.monotonic()
            if self._logged and now >= self._next:
                self._next = now + _EVERY_LOGGED
                with contextlib.suppress(OSError):  # a full log is no reason to stop
                    self._write(f"fastattn: {printable(text)}\n")
            if not self.enabled or (now < self._next and not at_once):
                return
            self._next = now + _EVERY
            import shutil  # only for terminals

            text = printable(text)[: max(20, shutil.get_terminal_size().columns - 1)]
            self._write("\r" + text.ljust(self._drawn))  # spaces, since not every terminal can erase
            self._drawn = len(text)

    def clear(self) -> None:
        """Leave the terminal's line empty."""
        with self._lock:
            if self._drawn:
                self._write("\r" + " " * self._drawn + "\r")
                self._drawn = 0

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *failure: object) -> None:
        self.clear()

    @staticmethod
    def _write(text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()
