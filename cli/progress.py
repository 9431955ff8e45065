"""What a person at a terminal sees while work is going on, all of it on stderr."""

import math
import sys
import threading
import time
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from fastattn.cli.lines import Lines

_FIRST_AFTER = 0.5  # seconds; quick work shows nothing
_EVERY = 0.1


class Progress:
    """One line, redrawn in place at most ten times a second; silent where stderr is no terminal."""

    def __init__(self, enabled: bool = True):
        self.enabled = enabled and sys.stderr is not None and sys.stderr.isatty()
        self._next = time.monotonic() + _FIRST_AFTER
        self._lock = threading.Lock()
        self._drawn = 0  # columns that hold something

    def show(self, text: str, at_once: bool = False) -> None:
        """Draw ``text``, unless the last drawing is too recent."""
        with self._lock:
            now = time.monotonic()
            if not self.enabled or (now < self._next and not at_once):
                return
            self._next = now + _EVERY
            text = text[: self._width()]
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


def rate(lines: "Lines", seconds: float) -> str:
    """``1,234 lines, 56.7 lines/s, 890 characters/s``: of the lines that are finished."""
    seconds = max(seconds, 1e-9)
    done, characters = lines.finished, lines.finished_characters
    return f"{done:,} line{'s' * (done != 1)}, {done / seconds:,.1f} lines/s, {characters / seconds:,.0f} characters/s"


def pace(lines: "Lines", seconds: float) -> str:
    """``rate``, and ``, 78%, 3 min left`` where the input's size is known."""
    text = rate(lines, seconds)
    if lines.size and lines.finished:
        done = min(1.0, lines.finished_bytes / lines.size)
        text += f", {math.floor(100 * done)}%"
        if done < 1:
            text += f", {duration(seconds / done - seconds)} left"
    return text


def duration(seconds: float) -> str:
    """``45 s``, ``3 min``, ``2 h 5 min``: as exactly as a guess deserves."""
    if seconds < 59.5:
        return f"{max(1, round(seconds))} s"
    minutes = max(1, round(seconds / 60))
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60:,} h {minutes % 60} min"
