"""A worker process as its pipes show it: what it answers, when it shows that it lives, and how it ends."""

import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from fastattn.errors import FastattnError, OutOfMemoryError
from fastattn.processes.messages import Closed, message_parts, read_message, write_parts
from tests.processes import served
from tests.processes.served import BEGIN


class Child:
    """A process that serves what ``served`` does; ``heard`` has its answers as they come."""

    def __init__(self, threads: int):
        command = [sys.executable, "-c", BEGIN, *map(os.path.abspath, sys.path)]
        environment = {name: value for name, value in os.environ.items() if name != "RAYON_NUM_THREADS"}
        pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        self.process: Any = subprocess.Popen(command, bufsize=0, env=environment, **pipes)
        self.heard: queue.SimpleQueue[list[Any]] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._hear, daemon=True)
        self._reader.start()
        self.send([served.__name__, threads])

    def _hear(self) -> None:
        with suppress(Closed):
            while True:
                self.heard.put(read_message(self.process.stdout))

    def send(self, message: list[Any]) -> None:
        write_parts(self.process.stdin, message_parts(message))

    def next_answer(self) -> list[Any]:
        """But for signs of life."""
        while (answer := self.heard.get(timeout=60))[1] == "alive":
            pass
        return answer

    def end(self) -> tuple[int, bytes]:
        """(its status once its input has ended, what it wrote for people)."""
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        written = self.process.stderr.read()
        self._reader.join()
        self.process.stdout.close()
        self.process.stderr.close()
        return self.process.wait(60), written

    def answer_to(self, what: str, *content: object) -> list[Any]:
        self.send([7, what, [*content], 0])
        return self.next_answer()


@pytest.fixture
def child() -> Iterator[Child]:
    child = Child(1)
    try:
        assert child.next_answer() == [0, "loaded", None]
        yield child
    finally:
        child.process.kill()
        if not child.process.stderr.closed:
            child.end()


def test_it_shows_that_it_lives_while_it_works(child: Child) -> None:
    child.send([1, "wait", [], 0])
    for _ in range(5):
        assert child.heard.get(timeout=60) == [0, "alive", None]


def test_what_it_prints_is_no_answer_and_warnings_are(child: Child) -> None:
    """It has as many threads for tokenizers as it was given."""
    assert child.answer_to("say") == [0, "warning", "warned of"]
    assert child.next_answer() == [7, "done", [0.5, "1"]]
    assert child.end() == (0, b"printed\n")


def test_errors_are_those_of_fastattn(child: Child) -> None:
    for later in (False, True):
        number, kind, error = child.answer_to("fail", "KeyError", later)
        assert (number, kind, type(error)) == (7, "failed", FastattnError)
        assert str(error) == "a worker process failed: KeyError: 'a reason'"
        assert type(child.answer_to("fail", "MemoryError", later)[2]) is OutOfMemoryError
    number, kind, error = child.answer_to("nothing that it does")
    assert (number, kind) == (7, "failed") and "KeyError" in str(error)
    assert child.answer_to("echo", ["goes on"]) == [7, "done", ["goes on"]]


def test_what_is_cancelled_is_dropped_and_not_answered(child: Child) -> None:
    child.send([1, "wait", [], 0])
    assert child.answer_to("cancelled") == [7, "done", [0, 1]]
    for number in (1, 1, 99):  # again, and what it never had
        child.send([number, "cancel", [], 0])
    assert child.answer_to("cancelled") == [7, "done", [1, 1]]


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_an_interrupt_is_not_its_own_to_handle(child: Child) -> None:
    child.process.send_signal(signal.SIGINT)
    assert child.answer_to("echo", ["goes on"]) == [7, "done", ["goes on"]]


def test_something_else_than_a_message_ends_it(child: Child) -> None:
    child.process.stdin.write(b"something else")
    number, kind, error = child.next_answer()
    assert (number, kind) == (0, "unusable") and "something else than a message came" in str(error)
    assert child.process.wait(60) == 1


def test_one_that_cannot_load_says_why_and_waits_for_its_end() -> None:
    child = Child(2)
    number, kind, error = child.next_answer()
    assert (number, kind, type(error)) == (0, "unusable", OutOfMemoryError) and "so many threads" in str(error)
    assert child.process.poll() is None
    assert child.end() == (0, b"")
