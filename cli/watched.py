"""Someone to tell of an end that the process itself cannot tell of: by SIGKILL, or by a library that calls abort.

Ray's compiled part does that where it loses its cluster, and its own words are among hundreds of lines of logs.
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

from fastattn.cli import interrupt

# Reads until the other end is closed, and says the message unless the last byte was that of a good end.
_WATCH = """
import os, sys
last = part = os.read(0, 64)
while part:
    last, part = part, os.read(0, 64)
if last[-1:] != b".":
    os.write(2, sys.argv[1].encode() + b"\\n")
"""


@contextlib.contextmanager
def watched(message: str) -> Iterator[None]:
    """If the process ends inside the block without an exception or a signal that it handles, ``message`` is printed."""
    reading, writing = os.pipe()
    try:
        command = [sys.executable, "-I", "-S", "-c", _WATCH, message]
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
    try:
        yield
    finally:
        interrupt.before_end.remove(end_well)
        end_well()
        os.close(writing)
        watcher.wait()
