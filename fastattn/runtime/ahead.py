"""Where nothing is compiled yet, a second process compiles what is needed late and takes long, beside the first.

Nearly every model takes these forms, whatever its precision. Each process claims what it compiles, so that whoever
needs a form that the other one is at waits for that.
"""

import contextlib
import functools
import os
import sys
import threading
from pathlib import Path

from fastattn.runtime.threads import thread_limit

_ROWS, _TYPES = "(f2C,f2C,f2C,f2C)", "fastattn.kernels.attention.types"
_SCORES = f"{_TYPES}:ScoreArguments(F,F,f1C,I,I,I,I,f1C,f2C,I,f1C,I,I,B2C)"
_MASK = f"{_TYPES}:MaskArguments(B1C,I,I,I,I,B1C,I,I,I,I,I,I)"
_SHAPE, _OUTPUTS = f"{_TYPES}:ShapeArguments(I,I,I,I,I)", f"{_TYPES}:OutputArguments(f4C,f1C,I,I,I)"
# (file, kernel, key): in the order in which a model that encodes and decodes first needs them.
FORMS = (
    (
        "attention.sentences",
        "attend",
        f"{_ROWS},({','.join('I' * 16)}),(l1C,l1C,l2C,I),{_SHAPE},{_MASK},{_SCORES},{_OUTPUTS},f2C,l1C",
    ),
    ("attention.step", "attend_rows", f"{_ROWS},(i2C,l1C,l1C,l1C),(I,I,I,I),(I,I,I),{_SCORES},f3C,f2C,I"),
)
SWITCH = "FASTATTN_COMPILE_AHEAD"  # 0: no second process
# As a worker process begins: modules are looked for where this program finds them, not in the current folder first.
# The process that was started ends at once, and is waited for: its child is nobody's to wait for but the system's.
_BEGIN = """
import os, sys
if os.fork():
    os._exit(0)
sys.path[:] = sys.argv[1:]
from fastattn.runtime.ahead import main
main()
"""
_lifeline: list[int] = []  # of the second process: at its other end it sees that this process is gone


@functools.cache
def begin_ahead() -> None:
    """Start the second process, once; not on one CPU, nor where processes cannot tell each other what they are at."""
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


def main() -> None:
    """Compile all FORMS that nobody has or is at; end, whatever it is at, with the first process or at Ctrl-C."""
    import signal  # 1 ms, of every start

    from fastattn.runtime.handle import kernel_named

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=lambda: os._exit(len(os.read(0, 1))), daemon=True).start()
    for file, name, key in FORMS:
        kernel_named(file, name).compile_ahead(key)
