"""A worker process, as its program sees it: a pipe for requests and a pipe for answers."""

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
from fastattn.processes.messages import Closed, message_parts, read_message, write_parts
from fastattn.system.worker_threads import start_thread

# Runs before any import but Python's own: the process looks for modules where the program finds them, and neither in
# the current folder nor in the program's own script.
_CHILD = "import sys; sys.path[:] = sys.argv[1:]; from fastattn.processes.child import main; main()"
ENDED = ["ended"]
Answers = queue.SimpleQueue  # of lists: number, kind, content; ENDED after the last
_PATIENCE = 2.0  # seconds that a process gets to end, for example to finish a file
# A process that gives no sign of life, which comes every ``child.BEAT``, for SILENCE seconds was stopped by somebody,
# and is killed. The time is cut into _LOOKS polls: if the program itself was stopped together with its processes, only
# one poll is in vain. The first sign may take longer: files may come slowly.
SILENCE, _LOOKS, _BEFORE_THE_FIRST = 60.0, 4, 10

_started: "weakref.WeakSet[WorkerProcess]" = weakref.WeakSet()


class WorkerProcess:
    """A process that serves one model to all threads of this program.

    It ends with its input, and so with this program, however the program ends.
    """

    def __init__(self, arguments: list[Any]):
        """``arguments`` are those of ``child.main``; FastattnError where no process can be started."""
        if not sys.executable or getattr(sys, "frozen", False):
            raise FastattnError("worker processes need a Python executable (sys.executable): use processes=1")
        # Only this program handles a terminal's interrupt.
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
        self._inbox = _Inbox(self._process)
        self._sending, self._is_torn = threading.Lock(), False
        self._numbers = itertools.count(1)
        self.failure: FastattnError | None = None
        _started.add(self)
        # The thread has no reference to this object, so that it keeps no process alive.
        self._reader = threading.Thread(target=self._inbox.read, name="fastattn reader", daemon=True)
        try:
            start_thread(self._reader)
        except (RuntimeError, MemoryError) as error:
            self.end()
            raise FastattnError(f"no worker process can be used: {error}") from error
        self._send(arguments)

    @property
    def number(self) -> int:
        return self._process.pid

    @property
    def is_usable(self) -> bool:
        """Whether it takes requests: it has not ended, and no interrupt has left it half a message."""
        is_whole = not self._is_torn and self.failure is None and not self._inbox.ended
        return is_whole and self._process.poll() is None

    @property
    def has_loaded(self) -> bool:
        return self._inbox.has_loaded

    def request(self, owner: Hashable, answers: Answers, what: str, content: list[Any], caller: int) -> int:
        """Send a request, whose answer goes to the queue ``answers`` under the number that is returned.

        owner  of the request, see ``cancel_all``
        """
        number = next(self._numbers)
        self._inbox.routes[number] = owner, answers
        self._send([number, what, content, caller])
        if self._inbox.ended:  # perhaps before the route was there
            answers.put(ENDED)
        return number

    def cancel(self, number: int) -> None:
        if self._inbox.routes.pop(number, None) is not None:
            self._send([number, "cancel", [], 0])

    def cancel_all(self, owner: Hashable) -> None:
        """Cancel all requests of an owner whom an interrupt has ended."""
        for number, (route_owner, _) in list(self._inbox.routes.items()):
            if route_owner == owner:
                self.cancel(number)

    def _send(self, message: list[Any]) -> None:
        """Send a message; a message to a process that has ended is lost."""
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
        """The error for requests to a process that has ended by itself."""
        if self.failure is None:
            self.end()
            self._reader.join(_PATIENCE)  # the last answer may be the reason
            self.failure = next(filter(None, self._inbox.ended), None)
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
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def forget(self) -> None:
        """In a forked child: close this copy of the pipes, so that the process ends with its own program."""
        for stream in (self._input, self._output):
            with contextlib.suppress(OSError):
                stream.close()
        self._process.returncode = 0  # only the parent can wait for it


def _forget_all() -> None:
    for process in list(_started):
        process.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


class _Inbox:
    """The answers of a process, read by a thread of their own.

    routes      number of a request -> (its owner, the queue for its answer)
    ended       not empty once no more answers come: the reason, if it is known
    has_loaded  whether the process has its model
    """

    def __init__(self, process: subprocess.Popen):
        self.routes: dict[int, tuple[Hashable, Answers]] = {}
        self.ended: list[FastattnError | None] = []
        self.has_loaded = self._has_begun = False
        self._process = process
        self._stream: Any = process.stdout
        self._poll: Any = None
        if hasattr(select, "poll"):  # Windows has neither poll nor SIGSTOP
            self._poll = select.poll()
            self._poll.register(self._stream, select.POLLIN)

    def read(self) -> None:
        try:
            with self._stream, contextlib.suppress(Closed):
                while not self.ended:
                    self._hand_out(read_message(self))
        except Exception as error:  # noqa: BLE001  no memory, or no message but a print of a start-up file of Python
            text = str(error) if isinstance(error, FastattnError) else f"{type(error).__name__}: {error}"
            self.ended.append(FastattnError(f"a worker process cannot be understood: {text}"))
        self.ended.append(None)
        self._broadcast(ENDED)

    def _hand_out(self, answer: list[Any]) -> None:
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
            self.ended.append(content)

    def _broadcast(self, answer: list[Any]) -> None:
        for answers in {id(answers): answers for _, answers in list(self.routes.values())}.values():
            answers.put(answer)

    def readinto(self, room: memoryview) -> int:
        """Like a stream's ``readinto``; kills the process where nothing comes for too long."""
        seconds = SILENCE if self._has_begun else _BEFORE_THE_FIRST * SILENCE
        if self._poll is not None and not any(self._poll.poll(1000 * seconds / _LOOKS) for _ in range(_LOOKS)):
            reason = f"a worker process gave no sign of life for {seconds:g} seconds, and was ended"
            self.ended.append(FastattnError(reason))
            self._process.kill()
            raise Closed
        self._has_begun = True
        count: int = self._stream.readinto(room)
        return count
