"""A worker process from the side of its program: a pipe for requests and a pipe for answers."""

import contextlib
import itertools
import os
import queue
import select
import subprocess
import sys
import threading
import weakref
from collections.abc import Hashable
from typing import Any

from fastattn.errors import FastattnError
from fastattn.processes.messages import PipeClosed, message_parts, read_message, write_parts
from fastattn.system.worker_threads import start_thread

# The code of the process looks for modules where the program finds them, not in the current folder, and does not run
# the program's script.
_CHILD = "import sys; sys.path[:] = sys.argv[1:]; from fastattn.processes.child import main; main()"
ENDED = ["ended"]
Answers = queue.SimpleQueue  # of lists [number, kind, content], and ENDED when no more answers come
_END_SECONDS = 2.0  # the time that a process gets to end, for example to finish a file
# Every ``child.BEAT`` seconds a process gives a sign of life. A process that gives none for SILENCE seconds was stopped
# from outside, and is killed. The time is divided into _POLLS polls, so that only one poll is lost if the program was
# stopped together with its processes. The first sign may take _START_FACTOR times as long, since files may be slow.
SILENCE, _POLLS, _START_FACTOR = 60.0, 4, 10

_started: "weakref.WeakSet[WorkerProcess]" = weakref.WeakSet()


class WorkerProcess:
    """A process that serves one model to all threads of this program.

    The process ends with its input, and so with this program, however the program ends.
    """

    def __init__(self, arguments: list[Any]):
        """``arguments``: the first message, see ``child.main``. FastattnError if no process can be started."""
        if not sys.executable or getattr(sys, "frozen", False):
            raise FastattnError("worker processes need a Python executable (sys.executable): use processes=1")
        # In a group of its own, the process gets no interrupt from the terminal, which this program handles.
        group_options: dict[str, Any] = {"start_new_session": True}
        if sys.platform == "win32":
            group_options = {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
        command = [sys.executable, "-c", _CHILD, *map(os.path.abspath, sys.path)]
        try:
            self._process = subprocess.Popen(
                command, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **group_options
            )
        except OSError as error:
            raise FastattnError(f"no worker process can be started: {error}") from error
        self._input: Any = self._process.stdin
        self._output: Any = self._process.stdout
        self._answer_reader = _AnswerReader(self._process)
        self._send_lock, self._has_sent_half = threading.Lock(), False
        self._numbers = itertools.count(1)
        self.failure: FastattnError | None = None
        _started.add(self)
        # The thread has no reference to this object, so that the thread does not keep the process alive.
        self._reader = threading.Thread(target=self._answer_reader.read, name="fastattn reader", daemon=True)
        try:
            start_thread(self._reader)
        except (RuntimeError, MemoryError) as error:
            self.end()
            raise FastattnError(f"no worker process can be used: {error}") from error
        self._send(arguments)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_usable(self) -> bool:
        """Whether the process takes requests: it has not ended, and no interrupt has left it with half a message."""
        is_whole = not self._has_sent_half and self.failure is None and not self._answer_reader.end_reasons
        return is_whole and self._process.poll() is None

    @property
    def has_loaded(self) -> bool:
        return self._answer_reader.has_loaded

    def request(self, owner: Hashable, answers: Answers, kind: str, content: list[Any], caller: int) -> int:
        """Send a request of an owner; returns the number of the request and of its answer in the queue ``answers``."""
        number = next(self._numbers)
        self._answer_reader.routes[number] = owner, answers
        self._send([number, kind, content, caller])
        if self._answer_reader.end_reasons:  # perhaps before the route was added
            answers.put(ENDED)
        return number

    def cancel(self, number: int) -> None:
        if self._answer_reader.routes.pop(number, None) is not None:
            self._send([number, "cancel", [], 0])

    def cancel_all(self, owner: Hashable) -> None:
        """Cancel all requests of an owner, which an interrupt has ended."""
        for number, (route_owner, _) in list(self._answer_reader.routes.items()):
            if route_owner == owner:
                self.cancel(number)

    def _send(self, message: list[Any]) -> None:
        """Send a message; a message to a process that has ended is lost."""
        parts = message_parts(message)
        with self._send_lock:
            try:
                write_parts(self._input, parts)
            except PipeClosed:
                pass
            except BaseException:
                self._has_sent_half = True
                raise

    def fail(self) -> FastattnError:
        """End the process, and return the error for its requests: why the process ended by itself."""
        if self.failure is None:
            self.end()
            self._reader.join(_END_SECONDS)  # the last answer may tell the reason
            self.failure = next(filter(None, self._answer_reader.end_reasons), None)
        if self.failure is None:
            code = self._process.returncode
            reason = f"was killed by signal {-code}" if code is not None and code < 0 else f"ended with status {code}"
            self.failure = FastattnError(f"a worker process {reason}")
        return self.failure

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._input.close()

    def end(self) -> None:
        self.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def close_copies(self) -> None:
        """Close a forked child's copies of the pipes, so that the process ends with the program that started it."""
        for stream in (self._input, self._output):
            with contextlib.suppress(OSError):
                stream.close()
        self._process.returncode = 0  # only the parent can wait for it


def _close_all_copies() -> None:
    for process in list(_started):
        process.close_copies()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_all_copies)


class _AnswerReader:
    """Reads the answers of a process in a thread, and puts each into the queue of its request.

    routes      number of a request -> (the request's owner, the queue for the answer)
    end_reasons  not empty once no more answers come: the error that is the reason, or None
    has_loaded  whether the process has loaded its model
    """

    def __init__(self, process: subprocess.Popen):
        self.routes: dict[int, tuple[Hashable, Answers]] = {}
        self.end_reasons: list[FastattnError | None] = []
        self.has_loaded = self._has_received = False
        self._process = process
        self._stream: Any = process.stdout
        self._poll: Any = None
        if hasattr(select, "poll"):  # Windows has neither poll nor SIGSTOP
            self._poll = select.poll()
            self._poll.register(self._stream, select.POLLIN)

    def read(self) -> None:
        try:
            with self._stream, contextlib.suppress(PipeClosed):
                while not self.end_reasons:
                    self._deliver(read_message(self))
        except Exception as error:  # noqa: BLE001  no memory, or no message but a print of a start-up file of Python
            text = str(error) if isinstance(error, FastattnError) else f"{type(error).__name__}: {error}"
            self.end_reasons.append(FastattnError(f"a worker process cannot be understood: {text}"))
        self.end_reasons.append(None)
        self._broadcast(ENDED)

    def _deliver(self, answer: list[Any]) -> None:
        number, kind, content = answer
        if number:
            _, answers = self.routes.pop(number, (None, None))
            if answers is not None:
                answers.put(answer)
        elif kind == "warning":
            self._broadcast(answer)
        elif kind == "loaded":
            self.has_loaded = True
        elif kind == "unusable":
            self.end_reasons.append(content)

    def _broadcast(self, answer: list[Any]) -> None:
        for answers in {id(answers): answers for _, answers in list(self.routes.values())}.values():
            answers.put(answer)

    def readinto(self, buffer: memoryview) -> int:
        """Like a stream's ``readinto``, but kills the process if nothing arrives for too long."""
        seconds = SILENCE if self._has_received else _START_FACTOR * SILENCE
        if self._poll is not None and not any(self._poll.poll(1000 * seconds / _POLLS) for _ in range(_POLLS)):
            reason = f"a worker process gave no sign of life for {seconds:g} seconds, and was ended"
            self.end_reasons.append(FastattnError(reason))
            self._process.kill()
            raise PipeClosed
        self._has_received = True
        count: int = self._stream.readinto(buffer)
        return count
