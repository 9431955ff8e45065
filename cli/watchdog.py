"""A second process, which cleans up when this process ends by SIGKILL or by a library that calls abort.

Ray's compiled part calls abort when it loses its cluster, with an error among hundreds of lines of logs. Ray's agents
live for a minute after their cluster's end.
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

_MARK = "FASTATTN_BATCH"  # environment variable by which processes that the block starts are recognized
_MOST_SCANS, _PAUSE_SECONDS = 200, 0.05  # scans of ``_kill_all``, and the pause after each
_SCAN_SECONDS = 2.0  # between two scans of /proc, each of which takes some milliseconds


@contextlib.contextmanager
def watchdog(message: str) -> Iterator[None]:
    """End all processes that were started in the block, however the block or this process ends.

    The watchdog prints ``message`` if this process ends in the block by neither an exception nor a handled signal.
    """
    from fastattn.cli import interrupt  # here, since the watchdog runs this file where no fastattn is importable

    read_end, write_end = os.pipe()
    mark = os.urandom(16).hex()
    try:
        command = [sys.executable, "-I", "-S", __file__, message, f"{_MARK}={mark}"]
        # In a new session, so that Ctrl-C does not reach the watchdog.
        process = subprocess.Popen(command, stdin=read_end, stdout=subprocess.DEVNULL, start_new_session=True)
    except OSError:  # no room for one more process: go on without a watchdog
        os.close(write_end)
        yield
        return
    finally:
        os.close(read_end)

    def report_end(reason: bytes) -> None:
        with contextlib.suppress(OSError):
            os.write(write_end, reason)

    end_by_signal = partial(report_end, b"!")
    interrupt.end_callbacks.append(end_by_signal)
    os.environ[_MARK] = mark
    try:
        yield
    finally:
        del os.environ[_MARK]
        interrupt.end_callbacks.remove(end_by_signal)
        report_end(b".")
        os.close(write_end)
        process.wait()


def _descendants(mark: bytes, earlier_processes: dict[int, bytes]) -> dict[int, bytes]:
    """Process id -> start time, for living ``earlier_processes``, processes with ``mark`` in their environment, and the
    descendants of both. Empty without /proc.

    Ray's agents overwrite their environment with a title, so that only a living parent shows whose they are.
    """
    parents: dict[int, int] = {}
    starts: dict[int, bytes] = {}
    found_pids: set[int] = set()
    for name in filter(str.isdigit, os.listdir("/proc") if os.path.isdir("/proc") else ()):
        with contextlib.suppress(OSError):  # the process has ended, or is another user's
            with open(f"/proc/{name}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
            pid, parents[int(name)], starts[int(name)] = int(name), int(fields[1]), fields[19]
            if earlier_processes.get(pid) == fields[19] and fields[0] != b"Z":
                found_pids.add(pid)
            with open(f"/proc/{name}/environ", "rb") as file:
                if mark in file.read().split(b"\0"):
                    found_pids.add(pid)
    previous_count = 0
    while previous_count < len(found_pids):
        previous_count = len(found_pids)
        found_pids |= {pid for pid, parent in parents.items() if parent in found_pids}
    return {pid: starts[pid] for pid in found_pids}


def _kill_all(mark: bytes, earlier_processes: dict[int, bytes], empty_scans: int) -> None:
    """Kill ``_descendants`` until ``empty_scans`` in a row find none: a starting process has no mark for a moment."""
    empty_in_row = 0
    for _ in range(_MOST_SCANS):
        processes = _descendants(mark, earlier_processes)
        for pid in processes:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        empty_in_row = 0 if processes else empty_in_row + 1
        if empty_in_row == empty_scans:
            return
        time.sleep(_PAUSE_SECONDS)


def _watch() -> None:
    """Run as a process with the arguments MESSAGE NAME=VALUE: kill the processes that the job leaves behind.

    Standard input ends with the block or the job's process: after "." with the block, after "!" with the process by a
    handled signal, after nothing with the process in another way, and then MESSAGE is printed.
    """
    mark, earlier_processes = os.fsencode(sys.argv[2]), dict[int, bytes]()
    reason = received = b""
    while True:
        # Scan now and then: once the parent of Ray's agents is gone, nothing shows whose they are.
        if os.name == "posix" and not select.select([0], [], [], _SCAN_SECONDS)[0]:
            earlier_processes |= _descendants(mark, {})
            continue
        reason, received = received, os.read(0, 64)
        if not received:
            break
    if not reason:
        os.write(2, os.fsencode(sys.argv[1]) + b"\n")
    if os.name == "posix":
        _kill_all(mark, earlier_processes, 1 if reason == b"." else 20)


if __name__ == "__main__":
    _watch()
