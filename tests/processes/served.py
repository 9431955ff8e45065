"""What worker processes of tests serve, without a model: see ``pool_of``."""

import builtins
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

from fastattn.processes import worker_process
from fastattn.processes.pool import Chunk, ProcessPool, pool_scheduler
from fastattn.scheduling.request import Plan
from fastattn.scheduling.scheduler import Scheduler

BEGIN = "import sys; sys.path[:] = sys.argv[1:]; from fastattn.processes import child; child.BEAT = 0.05; child.main()"


def serve(threads: int) -> dict[str, Callable[..., Future]]:
    """What a process does, see ``child.main``."""
    endless: list[Future] = []

    def echo(caller: int, things: list[object]) -> Future:
        future: Future = Future()
        future.set_result(things)
        return future

    def signal_itself(caller: int, number: int, mark: str | None) -> Future:
        """Once, if there is a file in which it can be marked."""
        if mark is None or not Path(mark).exists():
            if mark is not None:
                Path(mark).touch()
            os.kill(os.getpid(), number)
        return echo(caller, ["went on"])

    def wait(caller: int) -> Future:
        endless.append(Future())
        return endless[-1]

    def cancelled(caller: int) -> Future:
        return echo(caller, [sum(future.cancelled() for future in endless), len(endless)])

    def say(caller: int) -> Future:
        """What is for people to read."""
        sys.stdout.write("printed\n")
        sys.stdout.flush()
        warnings.warn("warned of", stacklevel=1)
        warnings.warn("of no use any more", DeprecationWarning, stacklevel=1)
        return echo(caller, [np.float32(0.5), os.environ["RAYON_NUM_THREADS"]])

    def fail(caller: int, name: str, later: bool) -> Future:
        error = getattr(builtins, name)("a reason")
        if not later:
            raise error
        future: Future = Future()
        future.set_exception(error)
        return future

    does = {"echo": echo, "signal": signal_itself, "wait": wait, "cancelled": cancelled, "say": say, "fail": fail}
    if threads > 1:
        raise MemoryError("for so many threads")
    return does


def is_gone(number: int) -> bool:
    """Within a while."""
    for _ in range(6000):
        try:
            os.kill(number, 0)
            with suppress(OSError):  # a zombie that nobody waited for is gone too
                if Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                    return True
        except ProcessLookupError:
            return True
        time.sleep(0.01)
    return False


def chunk(what: str, *content: object) -> Chunk:
    return Chunk(what, [*content], 1, 1)


def plan_of(*chunks: Chunk) -> Callable[[], Plan]:
    def plan() -> Plan:
        return (yield [*chunks])

    return plan


def echoes(count: int) -> list[Chunk]:
    return [chunk("echo", [n]) for n in range(count)]


@contextmanager
def pool_of(count: int, monkeypatch: pytest.MonkeyPatch, begin: str = BEGIN) -> Iterator[tuple[ProcessPool, Scheduler]]:
    """Processes that serve the above."""
    monkeypatch.setattr(worker_process, "_BEGIN", begin)
    pool = ProcessPool(count, [__name__, 1])
    try:
        yield pool, pool_scheduler(pool)
    finally:
        pool.close()


KILL = int(getattr(signal, "SIGKILL", 9))
STOP = int(getattr(signal, "SIGSTOP", 19))
