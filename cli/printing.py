"""Messages and progress on the terminal. Results of commands go through ``open_output`` (``cli/lines.py``) instead."""

from typing import Any

import click

from fastattn.printable import counted, printable
from fastattn.system.progress import Progress


def say(text: str = "", err: bool = False) -> None:
    """Print a line on stdout or stderr; control characters, also line ends, are escaped."""
    click.echo(printable(text), err=err)


def as_json(value: Any, allow_nan: bool = True) -> str:
    import json  # imported at the first call, since it takes 1 ms

    return json.dumps(value, ensure_ascii=False, allow_nan=allow_nan)


class Compilation:
    """Counts compiled kernels; says once that some are compiled, names them on a terminal, reports a faulty cache."""

    def __init__(self, progress: Progress):
        from fastattn.runtime.compiling import cache_fault, on_compile

        self.kernels, self._fault_reported = 0, False
        self._progress, self._cache_fault = progress, cache_fault
        on_compile(self._on_kernel)

    def _on_kernel(self, kernel: str) -> None:
        self.kernels += 1
        if self.kernels == 1:
            self._progress.clear()
            say("fastattn: compiling kernels for this machine (once; takes about a minute)…", err=True)
        fault = self._cache_fault()
        if fault and not self._fault_reported:
            self._fault_reported = True
            self._progress.clear()
            say(f"fastattn: {fault}", err=True)
        self._progress.show(f"compiling {kernel}", at_once=True)

    def remark(self) -> str:
        """The end of a line of timings that says how many kernels were compiled meanwhile; "" if none was."""
        verb = "was" if self.kernels == 1 else "were"
        return f"; {counted(self.kernels, 'kernel')} {verb} compiled meanwhile" if self.kernels else ""


def duration(seconds: float) -> str:
    """``45 s``, ``3 min``, ``2 h 5 min``: rounded, since it is an estimate."""
    if seconds < 59.5:
        return f"{max(1, round(seconds))} s"
    minutes = max(1, round(seconds / 60))
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60:,} h {minutes % 60} min"
