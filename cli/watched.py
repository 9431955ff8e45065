"""Someone to act on an end that the process itself cannot act on: by SIGKILL, or by a library that calls abort.

Ray's compiled part does that where it loses its cluster, and its own words are among hundreds of lines of logs. Its
agents try for a minute after the end of their cluster to tell it of what they lost.
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

from fastattn.cli import interrupt

_MARK = "FASTATTN_BATCH"  # in the environment of what the process starts, which children inherit
# Reads until the other end is closed; ends what has the mark, which Linux alone shows; says the message unless the last
# byte was that of a good end.
_WATCH = """
import os, sys, time
last = part = os.read(0, 64)
while part:
    last, part = part, os.read(0, 64)
def marked():
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                if os.fsencode(sys.argv[2]) in file.read().split(b"\\0"):
                    yield int(name)
        except OSError:
            pass
for _ in range(100 * os.path.isdir("/proc")):
    left = list(marked())
    for number in left:
        try:
            os.kill(number, 9)
        except OSError:
            pass
    if not left:
        break
    time.sleep(0.05)
if last[-1:] != b".":
    os.write(2, sys.argv[1].encode() + b"\\n")
"""


@contextlib.contextmanager
def watched(message: str) -> Iterator[None]:
    """However the process ends inside the block, or the block itself, the processes that it started there are ended.

    If that is by neither an exception nor a signal that is handled, ``message`` is printed.
    """
    reading, writing = os.pipe()
    mark = os.urandom(16).hex()
    try:
        command = [sys.executable, "-I", "-S", "-c", _WATCH, message, f"{_MARK}={mark}"]
        # In a session of its own, so that Ctrl-C is not for it.
        watcher = subprocess.Popen(command, stdin=reading, stdout=subprocess.DEVNULL, start_new_session=True)
    except OSError:  # no room for one more process: then there is nobody
        os.close(writing)
        yield
        return
    finally:
        os.close(reading)

    def end_well() -> None:
        with contextlib.suppress(OSError):
            os.write(writing, b".")

    interrupt.before_end.append(end_well)
    os.environ[_MARK] = mark
    try:
        yield
    finally:
        del os.environ[_MARK]
        interrupt.before_end.remove(end_well)
        end_well()
        os.close(writing)
        watcher.wait()
