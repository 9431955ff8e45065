"""A process that acts when this one ends by SIGKILL, or by a library that calls abort.

Ray's compiled part calls abort where it loses its cluster, with an error among hundreds of lines of logs. Its agents
go on for a minute after their cluster's end.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial

_MARK = "FASTATTN_BATCH"  # in the environment of what the process starts, which children inherit
_ROUNDS, _PAUSE = 200, 0.05  # seconds
_LOOK = 2.0  # seconds between looks, each of which takes some milliseconds


@contextlib.contextmanager
def watched(message: str) -> Iterator[None]:
    """End all processes that were started in the block, however the block or this process ends.

    Print ``message`` if neither an exception nor a handled signal ended this process.
    """
    from fastattn.cli import interrupt  # not in the process that runs this file

    reading, writing = os.pipe()
    mark = os.urandom(16).hex()
    try:
        command = [sys.executable, "-I", "-S", __file__, message, f"{_MARK}={mark}"]
        # In a session of its own, so that Ctrl-C is not for it.
        process = subprocess.Popen(command, stdin=reading, stdout=subprocess.DEVNULL, start_new_session=True)
    except OSError:  # no room for one more process: then there is nobody
        os.close(writing)
        yield
        return
    finally:
        os.close(reading)

    def end(end_mark: bytes) -> None:
        with contextlib.suppress(OSError):
            os.write(writing, end_mark)

    end_by_signal = partial(end, b"!")
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


def _descendants(mark: bytes, earlier: dict[int, bytes]) -> dict[int, bytes]:
    """Number -> start of processes in ``earlier`` or with ``mark`` in their environment, and of their descendants.

    Ray's agents overwrite their environment with a title: only their parent shows whose they are, while it lives. Empty
    without /proc.
    """
    parents: dict[int, int] = {}
    starts: dict[int, bytes] = {}
    marked: set[int] = set()
    for name in filter(str.isdigit, os.listdir("/proc") if os.path.isdir("/proc") else ()):
        with contextlib.suppress(OSError):  # ended meanwhile, or another user's
            with open(f"/proc/{name}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
            number, parents[int(name)], starts[int(name)] = int(name), int(fields[1]), fields[19]
            if earlier.get(number) == fields[19] and fields[0] != b"Z":
                marked.add(number)
            with open(f"/proc/{name}/environ", "rb") as file:
                if mark in file.read().split(b"\0"):
                    marked.add(number)
    count = 0
    while count < len(marked):
        count = len(marked)
        marked |= {number for number, parent in parents.items() if parent in marked}
    return {number: starts[number] for number in marked}


def _end_all(mark: bytes, earlier: dict[int, bytes], rounds: int) -> None:
    """Kill these processes until ``rounds`` looks in a row find none: a starting process has no mark for a moment."""
    empty = 0
    for _ in range(_ROUNDS):
        running = _descendants(mark, earlier)
        for number in running:
            with contextlib.suppress(OSError):
                os.kill(number, signal.SIGKILL)
        empty = 0 if running else empty + 1
        if empty == rounds:
            return
        time.sleep(_PAUSE)


def _watch() -> None:
    """Run as a process with the arguments MESSAGE NAME=VALUE: kill the processes that a job leaves behind.

    Standard input ends when the job's process has ended: after "." behind the block, after "!" by a handled signal, or
    empty, and then MESSAGE is printed.
    """
    mark, earlier = os.fsencode(sys.argv[2]), dict[int, bytes]()
    last = part = b""
    while True:
        # Look now and then: once the parent of Ray's agents is gone, nothing shows whose they are.
        if os.name == "posix" and not select.select([0], [], [], _LOOK)[0]:
            earlier |= _descendants(mark, {})
            continue
        last, part = part, os.read(0, 64)
        if not part:
            break
    if not last:
        os.write(2, os.fsencode(sys.argv[1]) + b"\n")
    if os.name == "posix":
        _end_all(mark, earlier, 1 if last == b"." else 20)


if __name__ == "__main__":
    _watch()
