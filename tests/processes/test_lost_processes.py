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
from contextlib import suppress
from types import SimpleNamespace

import pytest

from fastattn.errors import FastattnError, OutOfMemoryError
from fastattn.processes import worker_process
from fastattn.processes.messages import PipeClosed, message_parts, read_message, write_parts
from fastattn.processes.worker_process import ENDED, SILENCE, _AnswerReader
from tests.processes import served
from tests.processes.served import BEGIN, KILL, STOP, chunk, dispatching, echoes, plan_of, pool_of

POSIX = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")


def eventually(holds, seconds=60.0):
    """Whether it holds within a while."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def no_thread_computes():
    return not any(thread.name.startswith("fastattn worker") for thread in threading.enumerate())


@POSIX
def test_what_a_killed_process_was_at_is_done_again(monkeypatch, tmp_path):
    with pool_of(2, monkeypatch) as (_, scheduler):
        chunks = [*echoes(20), chunk("signal", KILL, str(tmp_path / "killed")), *echoes(20)]
        results = scheduler.submit(plan_of(*chunks)).result(60)
    assert results == [*([n] for n in range(20)), ["went on"], *([n] for n in range(20))]


@POSIX
def test_a_chunk_that_ends_two_processes_fails_alone(monkeypatch):
    with pool_of(2, monkeypatch) as (_, scheduler):
        others = [scheduler.submit(plan_of(*echoes(9)), caller) for caller in range(6)]
        bad = scheduler.submit(plan_of(*echoes(3), chunk("signal", KILL, None)), "bad")
        others += [scheduler.submit(plan_of(*echoes(9)), caller) for caller in range(6)]
        with pytest.raises(FastattnError, match="a worker process was killed by signal 9"):
            bad.result(60)
        assert [other.result(60) for other in others] == [[[n] for n in range(9)]] * 12


@POSIX
def test_idle_processes_that_were_killed_fail_no_call(monkeypatch):
    with pool_of(2, monkeypatch) as (pool, scheduler):
        for _ in range(2):
            pool.start()
            assert eventually(lambda: all(process.has_loaded for process in pool._processes.values()))
            killed = list(pool._processes.values())
            for process in killed:
                os.kill(process.pid, signal.SIGKILL)
            for process in killed:  # a busy system is slow to kill
                assert eventually(lambda process=process: not process.is_usable)
            assert scheduler.submit(plan_of(*echoes(4))).result(60) == [[n] for n in range(4)]


@POSIX
def test_a_stopped_process_keeps_nobody(monkeypatch, tmp_path):
    """It is ended, and another one does what it was at."""
    monkeypatch.setattr(worker_process, "SILENCE", 1.0)
    with pool_of(1, monkeypatch) as (_, scheduler):
        stopped = scheduler.submit(plan_of(chunk("signal", STOP, str(tmp_path / "stopped"))))
        assert stopped.result(120) == [["went on"]]


def refused(*arguments, **how):
    raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")


@POSIX
def test_where_no_process_can_be_made_a_call_says_so_and_nothing_goes_on(monkeypatch):
    tries: list[int] = []
    with pool_of(3, monkeypatch) as (_, scheduler):
        with monkeypatch.context() as patch:
            patch.setattr(subprocess, "Popen", lambda *arguments, **how: tries.append(1) or refused())
            for call in (scheduler.run, lambda plan: scheduler.submit(plan).result(60)):
                with pytest.raises(FastattnError, match="no worker process can be started: .*temporarily unavailable"):
                    call(plan_of(*echoes(9)))
            assert eventually(no_thread_computes) and len(tries) <= 6
        assert scheduler.submit(plan_of(*echoes(9))).result(60) == [[n] for n in range(9)], "once one can be made"


@POSIX
def test_a_process_that_ends_while_it_loads_is_missed_by_nobody(monkeypatch, tmp_path):
    begin = f"import os, sys; os.path.exists({str(tmp_path / 'none')!r}) and sys.exit(7); " + BEGIN
    with pool_of(2, monkeypatch, begin) as (pool, scheduler):
        pool.process(1)
        assert scheduler.submit(plan_of(*echoes(9))).result(60)
        for process in [process for index, process in pool._processes.items() if index != 1]:
            os.kill(process.pid, signal.SIGKILL)
        (tmp_path / "none").touch()
        calls = [scheduler.submit(plan_of(*echoes(20)), caller) for caller in range(10)]
        assert [call.result(60) for call in calls] == [[[n] for n in range(20)]] * 10
        os.kill(pool.process(1).pid, signal.SIGKILL)
        with pytest.raises(FastattnError, match="a worker process ended with status 7"):
            scheduler.submit(plan_of(*echoes(9))).result(60)


@POSIX
def test_what_is_left_is_dropped_by_the_process_too(monkeypatch):
    with pool_of(1, monkeypatch) as (_, scheduler):
        waiting = scheduler.submit(plan_of(chunk("wait")), "one")
        for counts in ([0, 1], [1, 1]):
            assert eventually(lambda: scheduler.run(plan_of(chunk("cancelled"))) == [counts])  # noqa: B023
            waiting.cancel()


class OneThatEnds:
    """A process of which a question learns twice that it has ended."""

    has_loaded = is_usable = True

    def __init__(self, ends):
        self.ends = ends

    def cancel_all(self, owner): ...

    def request(self, owner, answers, *question):
        for answer in [ENDED, ENDED] if self.ends else [[1, "done", ["again"]]]:
            answers.put(answer)
        return 1

    def fail(self):
        assert self.ends, "the next one is ended too"
        self.is_usable = False
        return FastattnError("gone")


@POSIX
def test_what_one_process_said_is_not_taken_for_the_next_ones():
    processes = iter([OneThatEnds(True), OneThatEnds(False)])
    scheduler = dispatching(SimpleNamespace(process=lambda index: next(processes), check_open=lambda: None))
    request = scheduler.submit(plan_of(chunk("echo")))
    scheduler.finish_all()
    assert request.result(0) == [["again"]]


class Looks:
    """A poll that sees something at the last of so many looks."""

    def __init__(self, *looks):
        self.left, self.waited = list(looks), 0.0

    def poll(self, milliseconds):
        self.waited += milliseconds / 1000
        self.left[0] -= 1
        return [] if self.left[0] else [self.left.pop(0)]


@pytest.mark.skipif(not hasattr(select, "poll"), reason="no poll")
@POSIX
def test_silence_is_of_several_looks_and_longer_before_the_first_sign():
    command = [sys.executable, "-c", "import sys; sys.stdout.write('ab'); sys.stdout.flush(); sys.stdin.read()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as process:
        heard, room = _AnswerReader(process), memoryview(bytearray(1))
        heard._poll = looks = Looks(4, 4, 9)  # a program that was stopped itself, with its processes, looks in vain
        assert heard.readinto(room) == 1 and looks.waited == 10 * SILENCE
        assert heard.readinto(room) == 1 and looks.waited == 11 * SILENCE
        with pytest.raises(PipeClosed):
            heard.readinto(room)
        assert looks.waited == 12 * SILENCE
        assert process.wait(60), "it was ended"
        assert "no sign of life for 60 seconds" in str(heard.end_reasons[0])


class Child:
    """A process that serves what ``served`` does; ``heard`` has its answers as they come."""

    def __init__(self, threads):
        command = [sys.executable, "-c", BEGIN, *map(os.path.abspath, sys.path)]
        environment = {name: value for name, value in os.environ.items() if name != "RAYON_NUM_THREADS"}
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        self.process, self.heard = subprocess.Popen(command, bufsize=0, env=environment, **pipes), queue.SimpleQueue()
        self._reader = threading.Thread(target=self._hear, daemon=True)
        self._reader.start()
        self.send(served.__name__, threads)

    def _hear(self):
        with suppress(PipeClosed):
            while True:
                self.heard.put(read_message(self.process.stdout))

    def send(self, *message):
        write_parts(self.process.stdin, message_parts([*message]))

    def answer_to(self, what, *content):
        self.send(7, what, [*content], 0)
        return self.next_answer()

    def next_answer(self):
        """But for signs of life."""
        while (answer := self.heard.get(timeout=60))[1] == "alive":
            pass
        return answer

    def end(self):
        """(its status once its input has ended, what it wrote for people)."""
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        written = self.process.stderr.read()
        self._reader.join()
        self.process.stdout.close()
        self.process.stderr.close()
        return self.process.wait(60), written


@pytest.fixture
def child():
    child = Child(1)
    try:
        assert child.next_answer() == [0, "loaded", None]
        yield child
    finally:
        child.process.kill()
        if not child.process.stderr.closed:
            child.end()


def test_it_shows_that_it_lives_while_it_works(child):
    child.send(1, "wait", [], 0)
    for _ in range(5):
        assert child.heard.get(timeout=60) == [0, "alive", None]


def test_what_it_prints_is_no_answer_and_warnings_are(child):
    """It has as many threads for tokenizers as it was given."""
    assert child.answer_to("say") == [0, "warning", "warned of"]
    assert child.next_answer() == [7, "done", [0.5, "1"]]
    assert child.end() == (0, b"printed\n")


def test_errors_are_those_of_fastattn(child):
    for later in (False, True):
        number, kind, error = child.answer_to("fail", "KeyError", later)
        assert (number, kind, type(error)) == (7, "failed", FastattnError)
        assert str(error) == "a worker process failed: KeyError: 'a reason'"
        assert type(child.answer_to("fail", "MemoryError", later)[2]) is OutOfMemoryError
    number, kind, error = child.answer_to("nothing that it does")
    assert (number, kind) == (7, "failed") and "KeyError" in str(error)
    assert child.answer_to("echo", ["goes on"]) == [7, "done", ["goes on"]]


def test_what_is_cancelled_is_dropped_and_not_answered(child):
    child.send(1, "wait", [], 0)
    assert child.answer_to("cancelled") == [7, "done", [0, 1]]
    for number in (1, 1, 99):  # again, and what it never had
        child.send(number, "cancel", [], 0)
    assert child.answer_to("cancelled") == [7, "done", [1, 1]]


@POSIX
def test_an_interrupt_is_not_its_own_to_handle(child):
    child.process.send_signal(signal.SIGINT)
    assert child.answer_to("echo", ["goes on"]) == [7, "done", ["goes on"]]


def test_something_else_than_a_message_ends_it(child):
    child.process.stdin.write(b"something else")
    number, kind, error = child.next_answer()
    assert (number, kind) == (0, "unusable") and "something else than a message came" in str(error)
    assert child.process.wait(60) == 1


def test_one_that_cannot_load_says_why_and_waits_for_its_end():
    child = Child(2)
    number, kind, error = child.next_answer()
    assert (number, kind, type(error)) == (0, "unusable", OutOfMemoryError) and "so many threads" in str(error)
    assert child.process.poll() is None
    assert child.end() == (0, b"")
