"""Messages and progress on the terminal; results go through ``lines.open_output``."""

from typing import Any

import click

from fastattn.printable import counted, printable
from fastattn.system.progress import Progress


def say(text: str = "", err: bool = False) -> None:
    """Print a line on stdout or stderr, with control characters, line ends included, escaped."""
    click.echo(printable(text), err=err)


def as_json(value: Any, allow_nan: bool = True) -> str:
    import json  # where it is asked for: 1 ms

    return json.dumps(value, ensure_ascii=False, allow_nan=allow_nan)


class Compiling:
    """Says once that kernels are being compiled, and shows on a terminal which; says if they cannot be stored."""

    def __init__(self, progress: Progress):
        from fastattn.runtime.compiling import cache_fault, on_compile

        self.kernels = 0
        self._progress = progress
        self._cache_fault = cache_fault
        self._told = False
        on_compile(self._compiles)

    def _compiles(self, kernel: str) -> None:
        self.kernels += 1
        if self.kernels == 1:
            self._progress.clear()
            say("fastattn: compiling kernels for this machine (once; takes about a minute)…", err=True)
        fault = self._cache_fault()
        if fault and not self._told:  # the first message said once
            self._told = True
            self._progress.clear()
            say(f"fastattn: {fault}", err=True)
        self._progress.show(f"compiling {kernel}", at_once=True)

    def remark(self) -> str:
        """For a line of timings: how many kernels were compiled meanwhile."""
        verb = "was" if self.kernels == 1 else "were"
        return f"; {counted(self.kernels, 'kernel')} {verb} compiled meanwhile" if self.kernels else ""


def duration(seconds: float) -> str:
    """``45 s``, ``3 min``, ``2 h 5 min``: rounded, since it is an estimate."""
    if seconds < 59.5:
        return f"{max(1, round(seconds))} s"
    minutes = max(1, round(seconds / 60))
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60:,} h {minutes % 60} min"
