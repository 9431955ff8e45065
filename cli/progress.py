"""What a person at a terminal sees while work is going on, all of it on stderr."""

import sys
import threading
import time

import click

_FIRST_AFTER = 0.5  # seconds; quick work shows nothing
_EVERY = 0.1


class Progress:
    """One line, redrawn in place at most ten times a second; silent where stderr is no terminal."""

    def __init__(self, enabled: bool = True):
        self.enabled = enabled and sys.stderr is not None and sys.stderr.isatty()
        self._next = time.monotonic() + _FIRST_AFTER
        self._lock = threading.Lock()
        self._drawn = False

    def show(self, text: str, at_once: bool = False) -> None:
        """Draw ``text``, unless the last drawing is too recent."""
        with self._lock:
            now = time.monotonic()
            if not self.enabled or (now < self._next and not at_once):
                return
            self._next = now + _EVERY
            self._drawn = True
            self._write("\r\033[K" + text[: self._width()])

    def clear(self) -> None:
        """Leave the terminal's line empty."""
        with self._lock:
            if self._drawn:
                self._write("\r\033[K")
                self._drawn = False

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


class Compiling:
    """Says once that kernels are compiled, which takes a while on the first run, and on a terminal which."""

    def __init__(self, progress: Progress):
        from fastattn.kernels.jit import on_compile

        self.kernels = 0
        self._progress = progress
        on_compile(self._compiles)

    def _compiles(self, kernel: str) -> None:
        self.kernels += 1
        if self.kernels == 1:
            self._progress.clear()
            click.echo("fastattn: compiling kernels for this machine (once; takes about a minute)…", err=True)
        self._progress.show(f"compiling {kernel}", at_once=True)

    def remark(self) -> str:
        """For a line of timings: how many kernels were compiled while it was measured."""
        return f"; {self.kernels} kernels were compiled meanwhile" if self.kernels else ""


def rate(done: int, total_bytes: int | None, consumed: int, seconds: float) -> str:
    """``1,234 lines, 56 lines/s, 78%``; the percentage is of the bytes of the input, where its size is known."""
    text = f"{done:,} lines, {done / max(seconds, 1e-9):,.1f} lines/s"
    return text + (f", {min(100, 100 * consumed // total_bytes)}%" if total_bytes else "")
