"""A progress line on a terminal."""

import sys
import threading
import time

from fastattn.printable import printable

_FIRST_AFTER = 0.5  # seconds; quick work shows nothing
_EVERY = 0.1


class Progress:
    """One line, redrawn in place at most ten times a second; silent where stderr is no terminal."""

    def __init__(self, enabled: bool = True):
        self.enabled = enabled and sys.stderr is not None and sys.stderr.isatty()
        self._next = time.monotonic() + _FIRST_AFTER
        self._lock = threading.RLock()  # so that one that an interrupt left held stops not its own thread
        self._drawn = 0  # columns that hold something

    def show(self, text: str, at_once: bool = False) -> None:
        """Draw ``text``, unless the last drawing is too recent."""
        with self._lock:
            now = time.monotonic()
            if not self.enabled or (now < self._next and not at_once):
                return
            self._next = now + _EVERY
            text = printable(text)[: self._width()]
            self._write("\r" + text.ljust(self._drawn))  # spaces, since not every terminal knows how to erase
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
    def _width() -> int:
        import shutil

        return max(20, shutil.get_terminal_size().columns - 1)

    @staticmethod
    def _write(text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()
