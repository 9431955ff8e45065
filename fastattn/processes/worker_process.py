"""A worker process, as the program that started it sees it: a pipe for what it should do, one for its answers."""

import contextlib
import itertools
import os
import queue
import subprocess
import sys
import threading
import weakref
from collections.abc import Hashable
from typing import Any, BinaryIO

from fastattn.errors import FastattnError
from fastattn.processes.messages import Closed, message_parts, read_message, write_parts
from fastattn.worker_threads import start_thread

# Run before anything is imported but what Python itself needs: modules are looked for where the program finds them,
# and neither in the current folder nor in the program's own script.
_BEGIN = "import sys; sys.path[:] = sys.argv[1:]; from fastattn.processes.child import main; main()"
ENDED = ["ended"]
Answers = queue.SimpleQueue  # of lists: number, kind, content; ENDED after the last
_PATIENCE = 2.0  # seconds that an ended process gets, to finish a file that it writes, say

_started: "weakref.WeakSet[WorkerProcess]" = weakref.WeakSet()


class WorkerProcess:
    """A process that serves one model to any threads of this program.

    It ends when its input does: with this program, however that ends.
    """

    def __init__(self, arguments: list[Any]):
        """``arguments`` are those of ``child.main``; FastattnError where no process can be started."""
        if not sys.executable or getattr(sys, "frozen", False):
            raise FastattnError("worker processes need a Python executable (sys.executable): use processes=1")
        # A terminal's interrupt is this program's to handle.
        apart: dict[str, Any] = {"start_new_session": True}
        if sys.platform == "win32":
            apart = {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
        command = [sys.executable, "-c", _BEGIN, *map(os.path.abspath, sys.path)]
        try:
            self._process = subprocess.Popen(command, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **apart)
        except OSError as error:
            raise FastattnError(f"no worker process can be started: {error}") from error
        self._input: Any = self._process.stdin
        self._output: Any = self._process.stdout
        self._sending, self._is_torn = threading.Lock(), False
        self._routes: dict[int, tuple[Hashable, Answers]] = {}  # the place and the queue of those who wait for answers
        self._numbers = itertools.count(1)
        self._ended: list[FastattnError | None] = []  # holds something once no more answers come: why, if it said so
        self.failure: FastattnError | None = None
        _started.add(self)
        # Of this object the thread knows only what it needs, so that it keeps no process alive.
        what = self._output, self._routes, self._ended
        reader = threading.Thread(target=_read, args=what, name="fastattn reader", daemon=True)
        try:
            start_thread(reader)
        except (RuntimeError, MemoryError) as error:
            self.end()
            raise FastattnError(f"no worker process can be used: {error}") from error
        self._send(arguments)

    @property
    def number(self) -> int:
        """The system's number of the process."""
        return self._process.pid

    @property
    def is_usable(self) -> bool:
        """Whether it can be asked: neither ended, nor left by an interrupt with half a message."""
        return not self._is_torn and self.failure is None and not self._ended

    def ask(self, place: Hashable, answers: Answers, what: str, content: list[Any], caller: int) -> int:
        """Have it do something; the answer goes to a queue, under the number that is returned.

        place  who asks, see ``leave_all``
        """
        number = next(self._numbers)
        self._routes[number] = place, answers
        self._send([number, what, content, caller])
        if self._ended:  # perhaps before it was known who waits
            answers.put(ENDED)
        return number

    def leave(self, number: int) -> None:
        """Drop what it was asked for."""
        if self._routes.pop(number, None) is not None:
            self._send([number, "cancel", [], 0])

    def leave_all(self, place: Hashable) -> None:
        """Drop all that was asked for from a place, by one whom an interrupt ended."""
        for number in [number for number, (other, _) in list(self._routes.items()) if other == place]:
            self.leave(number)

    def _send(self, message: list[Any]) -> None:
        """Send a message; one to a process that has ended is lost."""
        parts = message_parts(message)
        with self._sending:
            try:
                write_parts(self._input, parts)
            except Closed:
                pass
            except BaseException:
                self._is_torn = True
                raise

    def fail(self) -> FastattnError:
        """The error for those who wait for the answers of a process that has ended by itself."""
        if self.failure is None:
            self.end()
            self.failure = next(filter(None, self._ended), None)
        if self.failure is None:
            code = self._process.returncode
            reason = f"was killed by signal {-code}" if code is not None and code < 0 else f"ended with status {code}"
            self.failure = FastattnError(f"a worker process {reason}; what it was at is lost")
        return self.failure

    def close(self) -> None:
        """Have the process end."""
        with contextlib.suppress(OSError):
            self._input.close()

    def end(self) -> None:
        """End the process and wait until it is gone."""
        self.close()
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def forget(self) -> None:
        """In a forked child: close this copy of the pipes, so that the process ends with its own program."""
        for stream in (self._input, self._output):
            with contextlib.suppress(OSError):
                stream.close()
        self._process.returncode = 0  # not this one's to wait for
        self._ended.append(None)


def _forget_all() -> None:
    for process in list(_started):
        process.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


def _read(stream: BinaryIO, routes: dict[int, tuple[Hashable, Answers]], ended: list[FastattnError | None]) -> None:
    try:
        with stream, contextlib.suppress(Closed):
            while True:
                answer = read_message(stream)
                if answer[0]:
                    _, answers = routes.pop(answer[0], (None, None))
                    if answers is not None:
                        answers.put(answer)
                else:
                    if answer[1] == "unusable":  # perhaps before anybody asks
                        ended.append(answer[2])
                    _tell_all(routes, answer)
    except Exception as error:  # noqa: BLE001  no memory, or no message: what a start-up file of Python's prints
        ended.append(FastattnError(f"a worker process cannot be understood: {type(error).__name__}: {error}"))
    ended.append(None)
    _tell_all(routes, ENDED)


def _tell_all(routes: dict[int, tuple[Hashable, Answers]], answer: list[Any]) -> None:
    for answers in {id(answers): answers for _, answers in list(routes.values())}.values():
        answers.put(answer)
