"""Where nothing is compiled yet, a second process compiles what is needed late and takes long, beside the first.

Nearly every model takes these forms, whatever its precision. Each process claims what it compiles, so that whoever
needs a form that the other one is at waits for that.
"""

import contextlib
import functools
import os
import sys
from pathlib import Path

from fastattn.runtime.threads import thread_limit

_ROWS, _FORM = "(f2C,f2C,f2C,f2C)", "(F,F,f1C,I,I,I,I,f1C,f2C,I,f1C,I,I,B2C)"
_MASK = "(B1C,I,I,I,I,B1C,I,I,I,I,I,I)"
# (file, kernel, key): in the order in which a model that encodes and decodes first needs them.
FORMS = (
    (
        "attention.sentences",
        "attend",
        f"{_ROWS},({','.join('I' * 16)}),(l1C,l1C),(I,I,I,I,I),(l2C,I),{_MASK},{_FORM},(f4C,f1C,I,I,I),f2C,l1C",
    ),
    ("attention.step", "attend_rows", f"{_ROWS},(i2C,l1C,l1C,l1C),(I,I,I,I),(I,I,I),{_FORM},f3C,f2C,I"),
)
SWITCH = "FASTATTN_COMPILE_AHEAD"  # 0: no second process
# As a worker process begins: modules are looked for where this program finds them, not in the current folder first.
_BEGIN = "import sys; sys.path[:] = sys.argv[1:]; from fastattn.runtime.ahead import main; main()"


@functools.cache
def begin_ahead() -> None:
    """Start the second process, once; not on one CPU, nor where processes cannot tell each other what they are at."""
    if os.environ.get(SWITCH) == "0" or thread_limit() < 2 or sys.platform == "win32" or not _is_python():
        return
    command = [sys.executable, "-c", _BEGIN, *map(os.path.abspath, sys.path)]
    silence = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(3)]
    # In a process group of its own: an interrupt at the keyboard is not for it, what it has begun serves the next run.
    # Nobody waits for it: it would only have saved time.
    with contextlib.suppress(OSError):
        os.posix_spawn(sys.executable, command, {**os.environ, SWITCH: "0"}, file_actions=silence, setpgroup=0)


def _is_python() -> bool:
    """Whether sys.executable is Python, not a frozen program or one that embeds it, which would run once more."""
    return not getattr(sys, "frozen", False) and Path(sys.executable or "").stem.startswith("python")


def main() -> None:
    """Compile all FORMS that nobody has or is at."""
    from fastattn.runtime.handle import kernel_named

    for file, name, key in FORMS:
        kernel_named(file, name).compile_ahead(key)
