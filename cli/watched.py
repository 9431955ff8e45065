"""Someone to act on an end that the process itself cannot act on: by SIGKILL, or by a library that calls abort.

Ray's compiled part does that where it loses its cluster, and its own words are among hundreds of lines of logs. Its
agents try for a minute after the end of their cluster to tell it of what they lost.
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from fastattn.cli import interrupt

_MARK = "FASTATTN_BATCH"  # in the environment of what the process starts, which children inherit


@contextlib.contextmanager
def watched(message: str) -> Iterator[None]:
    """However the process ends inside the block, or the block itself, the processes that it started there are ended.

    If that is by neither an exception nor a signal that is handled, ``message`` is printed.
    """
    reading, writing = os.pipe()
    mark = os.urandom(16).hex()
    try:
        watcher = str(Path(__file__).with_name("watcher.py"))
        command = [sys.executable, "-I", "-S", watcher, message, f"{_MARK}={mark}"]
        # In a session of its own, so that Ctrl-C is not for it.
        process = subprocess.Popen(command, stdin=reading, stdout=subprocess.DEVNULL, start_new_session=True)
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
        process.wait()
