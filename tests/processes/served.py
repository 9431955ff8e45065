"""What worker processes of tests serve, without a model: see ``pool_of``."""

import builtins
import os
import signal
import sys
import time
import warnings
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import numpy as np

from fastattn.processes import worker_process
from fastattn.processes.pool import Chunk, ProcessPool, _Dispatcher, pool_scheduler
from tests.scheduling.by_hand import SchedulerByHand

BEGIN = "import sys; sys.path[:] = sys.argv[1:]; from fastattn.processes import child; child.BEAT = 0.05; child.main()"


def settled(things=None, error=None):
    future = Future()
    if error is None:
        future.set_result(things)
    else:
        future.set_exception(error)
    return future


def serve(threads):
    """What a process does, see ``child.main``."""
    endless = []

    def signal_itself(caller, number, mark):
        """Once, if there is a file in which it can be marked."""
        if mark is None or not Path(mark).exists():
            if mark is not None:
                Path(mark).touch()
            os.kill(os.getpid(), number)
        return settled(["went on"])

    def wait(caller):
        endless.append(Future())
        return endless[-1]

    def say(caller):
        """What is for people to read."""
        sys.stdout.write("printed\n")
        sys.stdout.flush()
        warnings.warn("warned of", stacklevel=1)
        warnings.warn("of no use any more", DeprecationWarning, stacklevel=1)
        return settled([np.float32(0.5), os.environ["RAYON_NUM_THREADS"]])

    def fail(caller, name, later):
        error = getattr(builtins, name)("a reason")
        if not later:
            raise error
        return settled(error=error)

    if threads > 1:
        raise MemoryError("for so many threads")
    return {
        "echo": lambda caller, things: settled(things),
        "signal": signal_itself,
        "wait": wait,
        "cancelled": lambda caller: settled([sum(future.cancelled() for future in endless), len(endless)]),
        "say": say,
        "fail": fail,
    }


def is_gone(number):
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


def chunk(what, *content):
    return Chunk(what, [*content], 1, 1)


def plan_of(*chunks):
    def plan():
        return (yield [*chunks])

    return plan


def dispatching(pool):
    """A scheduler by hand, of one slot that asks a process of the pool."""
    return SchedulerByHand(lambda slot: _Dispatcher(pool, slot), 1, lambda count: nullcontext(), 1, 1)


def echoes(count):
    return [chunk("echo", [n]) for n in range(count)]


@contextmanager
def pool_of(count, monkeypatch, begin=BEGIN):
    """Processes that serve the above."""
    monkeypatch.setattr(worker_process, "_CHILD", begin)
    pool = ProcessPool(count, [__name__, 1])
    try:
        yield pool, pool_scheduler(pool)
    finally:
        pool.close()


KILL = int(getattr(signal, "SIGKILL", 9))
STOP = int(getattr(signal, "SIGSTOP", 19))
