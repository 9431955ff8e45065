"""A worker process, as the program that started it sees it: a pipe for what it should do, one for its answers."""

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

# Run before anything is imported but what Python itself needs: modules are looked for where the program finds them,
# and neither in the current folder nor in the program's own script.
_CHILD = "import sys; sys.path[:] = sys.argv[1:]; from fastattn.processes.child import main; main()"
ENDED = ["ended"]
Answers = queue.SimpleQueue  # of lists: number, kind, content; ENDED after the last
_PATIENCE = 2.0  # seconds that an ended process gets, to finish a file that it writes, say
# Seconds without a sign of life, which comes every ``child.BEAT``, after which a process is ended: somebody has stopped
# it. So many looks make them up: of a program that was stopped itself, with its processes, only one is in vain. Until
# the first sign it has longer: files may come slowly.
SILENCE, _LOOKS, _BEFORE_THE_FIRST = 60.0, 4, 10

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
        command = [sys.executable, "-c", _CHILD, *map(os.path.abspath, sys.path)]
        try:
            self._process = subprocess.Popen(command, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **apart)
        except OSError as error:
            raise FastattnError(f"no worker process can be started: {error}") from error
        self._input: Any = self._process.stdin
        self._output: Any = self._process.stdout
        self._inbox = _Inbox(self._process)
        self._sending, self._is_torn = threading.Lock(), False
        self._numbers = itertools.count(1)
        self.failure: FastattnError | None = None
        _started.add(self)
        # Of this object the thread knows nothing, so that it keeps no process alive.
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
        """Whether it can be asked: neither ended, nor left by an interrupt with half a message."""
        is_whole = not self._is_torn and self.failure is None and not self._inbox.ended
        return is_whole and self._process.poll() is None

    @property
    def has_loaded(self) -> bool:
        """Whether it has ever been ready to do something."""
        return self._inbox.has_loaded

    def request(self, owner: Hashable, answers: Answers, what: str, content: list[Any], caller: int) -> int:
        """Have it do something; the answer goes to a queue, under the number that is returned.

        owner  who asks, see ``cancel_all``
        """
        number = next(self._numbers)
        self._inbox.routes[number] = owner, answers
        self._send([number, what, content, caller])
        if self._inbox.ended:  # perhaps before it was known who waits
            answers.put(ENDED)
        return number

    def cancel(self, number: int) -> None:
        if self._inbox.routes.pop(number, None) is not None:
            self._send([number, "cancel", [], 0])

    def cancel_all(self, owner: Hashable) -> None:
        """Drop all that an owner wanted whom an interrupt has ended."""
        for number, (route_owner, _) in list(self._inbox.routes.items()):
            if route_owner == owner:
                self.cancel(number)

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
            self._reader.join(_PATIENCE)  # perhaps it has said why
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
        self._process.returncode = 0  # not this one's to wait for, nor to ask


def _forget_all() -> None:
    for process in list(_started):
        process.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


class _Inbox:
    """What is heard of a process, by a thread that reads it.

    routes      number of a question -> the owner, and the queue for the answer, of who waits for it
    ended       holds something once no more answers come: why, if that is known
    has_loaded  whether the process has its model
    """

    def __init__(self, process: subprocess.Popen):
        self.routes: dict[int, tuple[Hashable, Answers]] = {}
        self.ended: list[FastattnError | None] = []
        self.has_loaded = self._has_begun = False
        self._process = process
        self._stream: Any = process.stdout
        self._poll: Any = None
        if hasattr(select, "poll"):  # Windows has neither that nor SIGSTOP
            self._poll = select.poll()
            self._poll.register(self._stream, select.POLLIN)

    def read(self) -> None:
        """Hand out answers until there are no more."""
        try:
            with self._stream, contextlib.suppress(Closed):
                while not self.ended:
                    self._hand_out(read_message(self))
        except Exception as error:  # noqa: BLE001  no memory, or no message: what a start-up file of Python's prints
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
        """As a stream's; where nothing comes for too long it ends the process."""
        seconds = SILENCE if self._has_begun else _BEFORE_THE_FIRST * SILENCE
        if self._poll is not None and not any(self._poll.poll(1000 * seconds / _LOOKS) for _ in range(_LOOKS)):
            reason = f"a worker process gave no sign of life for {seconds:g} seconds, and was ended"
            self.ended.append(FastattnError(reason))
            self._process.kill()
            raise Closed
        self._has_begun = True
        count: int = self._stream.readinto(room)
        return count
