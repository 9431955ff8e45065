"""A process of its own, run as a file by ``watched``, that ends what a job has begun and left: MESSAGE NAME=VALUE.

Standard input is closed when the job's process has ended: with "." behind the block, with "!" by a signal that it
handled, with nothing where it was lost, of which MESSAGE tells.
"""

import contextlib
import os
import signal
import sys
import time

_ROUNDS, _PAUSE = 200, 0.05  # seconds


def begun(mark: bytes) -> set[int]:
    """The processes with ``mark`` in their environment, and what descends from them; none where there is no /proc.

    Ray's agents write their titles over their environment, so that their parent alone shows whose they are.
    """
    parents: dict[int, int] = {}
    found: set[int] = set()
    for name in filter(str.isdigit, os.listdir("/proc") if os.path.isdir("/proc") else ()):
        with contextlib.suppress(OSError):  # ended meanwhile, or another user's
            with open(f"/proc/{name}/stat", "rb") as file:
                parents[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
            with open(f"/proc/{name}/environ", "rb") as file:
                if mark in file.read().split(b"\0"):
                    found.add(int(name))
    count = 0
    while count < len(found):
        count = len(found)
        found |= {number for number, parent in parents.items() if parent in found}
    return found


def end(mark: bytes, rounds: int) -> None:
    """End them all, until so many looks in a row found none: one that is being started lacks the mark for a moment."""
    empty = 0
    for _ in range(_ROUNDS):
        left = begun(mark)
        for number in left:
            with contextlib.suppress(OSError):
                os.kill(number, signal.SIGKILL)
        empty = 0 if left else empty + 1
        if empty == rounds:
            return
        time.sleep(_PAUSE)


def main() -> None:
    """Wait for the end."""
    last = part = os.read(0, 64)
    while part:
        last, part = part, os.read(0, 64)
    if not last:
        os.write(2, os.fsencode(sys.argv[1]) + b"\n")
    if os.name == "posix":
        end(os.fsencode(sys.argv[2]), 1 if last == b"." else 20)


if __name__ == "__main__":
    main()
