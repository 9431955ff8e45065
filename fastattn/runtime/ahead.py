"""Starts a second process that compiles the slowest kernels beside the first, where the cache is still empty.

Which kernels: ``second_process``. Each process claims what it compiles, and waits for what the other has claimed.
"""

import contextlib
import functools
import os
import sys
from pathlib import Path

from fastattn.runtime.threads import thread_limit

SWITCH = "FASTATTN_COMPILE_AHEAD"  # 0: no second process
# As a worker process begins: modules are looked for where this program finds them, not in the current folder first.
# The process that was started ends at once, and is waited for: its child is nobody's to wait for but the system's.
_BEGIN = """
import os, sys
if os.fork():
    os._exit(0)
sys.path[:] = sys.argv[1:]
from fastattn.runtime.second_process import main
main()
"""
_lifeline: list[int] = []  # of the second process: at its other end it sees that this process is gone


@functools.cache
def begin_ahead() -> None:
    """Start the second process, once; not on one CPU, nor where files cannot be locked."""
    if os.environ.get(SWITCH) == "0" or thread_limit() < 2 or sys.platform == "win32" or not _is_python():
        return
    command = [sys.executable, "-c", _BEGIN, *map(os.path.abspath, sys.path)]
    with contextlib.suppress(OSError):
        inside, outside = os.pipe()
        _lifeline.append(outside)
        try:
            silence = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (1, 2)]
            files = [(os.POSIX_SPAWN_DUP2, inside, 0), *silence]
            process = os.posix_spawn(sys.executable, command, {**os.environ, SWITCH: "0"}, file_actions=files)
        finally:
            os.close(inside)
        os.waitpid(process, 0)


def _is_python() -> bool:
    """Whether sys.executable is Python, not a frozen program or one that embeds it, which would run once more."""
    return not getattr(sys, "frozen", False) and Path(sys.executable or "").stem.startswith("python")
