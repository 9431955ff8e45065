"""Processes that cannot be made, are killed, stopped or of no use: what they were at is done again, by others."""

import errno
import os
import queue
import select
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

from fastattn.errors import FastattnError
from fastattn.processes import worker_process
from fastattn.processes.messages import Closed
from fastattn.processes.pool import Chunk, _Dispatcher
from fastattn.processes.worker_process import ENDED, SILENCE, _Heard
from tests.processes.served import BEGIN, KILL, STOP, chunk, echoes, plan_of, pool_of
from tests.scheduling.by_hand import SchedulerByHand

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")


def eventually(holds: Callable[[], bool], seconds: float = 60.0) -> bool:
    """Whether it holds within a while."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def no_thread_computes() -> bool:
    return not any(thread.name.startswith("fastattn worker") for thread in threading.enumerate())


def test_what_a_killed_process_was_at_is_done_again(monkeypatch, tmp_path) -> None:
    with pool_of(2, monkeypatch) as (_, scheduler):
        chunks = [*echoes(20), chunk("signal", KILL, str(tmp_path / "killed")), *echoes(20)]
        results = scheduler.submit(plan_of(*chunks)).result(60)
    assert results == [*([n] for n in range(20)), ["went on"], *([n] for n in range(20))]


def test_a_chunk_that_ends_two_processes_fails_alone(monkeypatch) -> None:
    with pool_of(2, monkeypatch) as (_, scheduler):
        others = [scheduler.submit(plan_of(*echoes(9)), caller) for caller in range(6)]
        bad = scheduler.submit(plan_of(*echoes(3), chunk("signal", KILL, None)), "bad")
        others += [scheduler.submit(plan_of(*echoes(9)), caller) for caller in range(6)]
        with pytest.raises(FastattnError, match="a worker process was killed by signal 9"):
            bad.result(60)
        assert [other.result(60) for other in others] == [[[n] for n in range(9)]] * 12


def test_idle_processes_that_were_killed_fail_no_call(monkeypatch) -> None:
    with pool_of(2, monkeypatch) as (pool, scheduler):
        for _ in range(2):
            pool.start()
            assert eventually(lambda: all(process.has_loaded for process in pool._processes.values()))
            for process in list(pool._processes.values()):
                os.kill(process.number, signal.SIGKILL)
            assert scheduler.submit(plan_of(*echoes(4))).result(60) == [[n] for n in range(4)]


def test_a_stopped_process_keeps_nobody(monkeypatch, tmp_path) -> None:
    """It is ended, and another one does what it was at."""
    monkeypatch.setattr(worker_process, "SILENCE", 1.0)
    with pool_of(1, monkeypatch) as (_, scheduler):
        stopped = scheduler.submit(plan_of(chunk("signal", STOP, str(tmp_path / "stopped"))))
        assert stopped.result(120) == [["went on"]]


def refused(*arguments: Any, **how: Any) -> None:
    raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")


def test_where_no_process_can_be_made_a_call_says_so_and_nothing_goes_on(monkeypatch) -> None:
    tries: list[int] = []
    with pool_of(3, monkeypatch) as (_, scheduler):
        with monkeypatch.context() as patch:
            patch.setattr(subprocess, "Popen", lambda *arguments, **how: tries.append(1) or refused())
            for call in (scheduler.run, lambda plan: scheduler.submit(plan).result(60)):
                with pytest.raises(FastattnError, match="no worker process can be started: .*temporarily unavailable"):
                    call(plan_of(*echoes(9)))
            assert eventually(no_thread_computes) and len(tries) <= 6
        assert scheduler.submit(plan_of(*echoes(9))).result(60) == [[n] for n in range(9)], "once one can be made"


def test_a_process_that_cannot_be_made_is_missed_by_nobody(monkeypatch) -> None:
    """The other one does its work, and now and then it is tried again."""
    tries: list[int] = []
    with pool_of(2, monkeypatch) as (pool, scheduler):
        pool.process(1)
        with monkeypatch.context() as patch:
            patch.setattr(subprocess, "Popen", lambda *arguments, **how: tries.append(1) or refused())
            calls = [scheduler.submit(plan_of(*echoes(20)), caller) for caller in range(10)]
            assert [call.result(60) for call in calls] == [[[n] for n in range(20)]] * 10
            assert eventually(no_thread_computes) and 1 <= len(tries) <= 12
        assert scheduler.submit(plan_of(*echoes(9))).result(60) == [[n] for n in range(9)]


def test_a_process_that_ends_while_it_loads_is_missed_by_nobody(monkeypatch, tmp_path) -> None:
    begin = f"import os, sys; os.path.exists({str(tmp_path / 'none')!r}) and sys.exit(7); " + BEGIN
    with pool_of(2, monkeypatch, begin) as (pool, scheduler):
        pool.process(1)
        assert scheduler.submit(plan_of(*echoes(9))).result(60)
        for process in [process for index, process in pool._processes.items() if index != 1]:
            os.kill(process.number, signal.SIGKILL)
        (tmp_path / "none").touch()
        calls = [scheduler.submit(plan_of(*echoes(20)), caller) for caller in range(10)]
        assert [call.result(60) for call in calls] == [[[n] for n in range(20)]] * 10
        os.kill(pool.process(1).number, signal.SIGKILL)
        with pytest.raises(FastattnError, match="a worker process ended with status 7"):
            scheduler.submit(plan_of(*echoes(9))).result(60)


def test_what_is_left_is_dropped_by_the_process_too(monkeypatch) -> None:
    with pool_of(1, monkeypatch) as (_, scheduler):
        waiting = scheduler.submit(plan_of(chunk("wait")), "one")

        def counts() -> list[int]:
            (found,) = scheduler.submit(plan_of(chunk("cancelled")), "other").result(60)
            return found

        assert eventually(lambda: counts() == [0, 1])
        assert waiting.cancel()
        assert eventually(lambda: counts() == [1, 1])


class OneThatEnds:
    """A process of which a question learns twice that it has ended."""

    def __init__(self, ends: bool):
        self.is_usable, self.has_loaded, self.ends = True, True, ends
        self.asked: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()

    def leave_all(self, asker: object) -> None: ...

    def ask(self, asker: object, answers: Any, *question: Any) -> int:
        for answer in [ENDED, ENDED] if self.ends else [[1, "done", ["again"]]]:
            answers.put(answer)
        return 1

    def fail(self) -> FastattnError:
        assert self.ends, "the next one is ended too"
        self.is_usable = False
        return FastattnError("gone")


def test_what_one_process_said_is_not_taken_for_the_next_ones() -> None:
    processes = deque([OneThatEnds(True), OneThatEnds(False)])
    pool: Any = type(
        "Pool", (), {"process": lambda self, index: processes.popleft(), "check_open": lambda self: None}
    )()
    scheduler = SchedulerByHand(lambda slot: _Dispatcher(pool, slot), 1, lambda count: nullcontext(), 1, 1)
    request = scheduler.submit(plan_of(Chunk("echo", [], 1, 1)))
    scheduler.finish_all()
    assert request.result(0) == [["again"]]


class Looks:
    """A poll that sees something at the last of so many looks."""

    def __init__(self, *looks: int):
        self.left, self.waited = list(looks), 0.0

    def poll(self, milliseconds: float) -> list[Any]:
        self.waited += milliseconds / 1000
        self.left[0] -= 1
        return [] if self.left[0] else [self.left.pop(0)]


@pytest.mark.skipif(not hasattr(select, "poll"), reason="no poll")
def test_silence_is_of_several_looks_and_longer_before_the_first_sign() -> None:
    command = [sys.executable, "-c", "import sys; sys.stdout.write('ab'); sys.stdout.flush(); sys.stdin.read()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as process:
        heard, room = _Heard(process), memoryview(bytearray(1))
        heard._poll = looks = Looks(4, 4, 9)  # a program that was stopped itself, with its processes, looks in vain
        assert heard.readinto(room) == 1 and looks.waited == 10 * SILENCE
        assert heard.readinto(room) == 1 and looks.waited == 11 * SILENCE
        with pytest.raises(Closed):
            heard.readinto(room)
        assert looks.waited == 12 * SILENCE
        assert process.wait(60), "it was ended"
        assert "no sign of life for 60 seconds" in str(heard.ended[0])
