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
# Reads until the other end is closed: nothing where the process was lost. Then ends what has the mark, where there is
# /proc, and what descends from that: Ray's agents write their titles over their environment. One that is being started
# lacks the mark for a moment: none may be found for a second, but where the block itself has ended (".").
_WATCH = """
import os, sys, time
last = part = os.read(0, 64)
while part:
    last, part = part, os.read(0, 64)
if not last:
    os.write(2, sys.argv[1].encode() + b"\\n")
def begun():
    parents, found = {}, set()
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                parents[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
            with open(f"/proc/{name}/environ", "rb") as file:
                if os.fsencode(sys.argv[2]) in file.read().split(b"\\0"):
                    found.add(int(name))
        except OSError:
            pass
    count = 0
    while count < len(found):
        count = len(found)
        found |= {number for number, parent in parents.items() if parent in found}
    return found
gone = 0
for _ in range(200 * os.path.isdir("/proc")):
    left = begun()
    for number in left:
        try:
            os.kill(number, 9)
        except OSError:
            pass
    gone = 0 if left else gone + 1
    if gone == (1 if last == b"." else 20):
        break
    time.sleep(0.05)
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

    def end(how: bytes) -> None:
        with contextlib.suppress(OSError):
            os.write(writing, how)

    def end_by_signal() -> None:
        end(b"!")

    interrupt.before_end.append(end_by_signal)
    os.environ[_MARK] = mark
    try:
        yield
    finally:
        del os.environ[_MARK]
        interrupt.before_end.remove(end_by_signal)
        end(b".")
        os.close(writing)
        watcher.wait()
