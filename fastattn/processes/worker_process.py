"""A worker process, as the program that started it sees it: a pipe for what it should do, one for its answers."""

import contextlib
import os
import queue
import subprocess
import sys
import threading
import weakref
from typing import Any, BinaryIO

from fastattn.errors import FastattnError
from fastattn.processes.messages import Closed, read_message, write_message
from fastattn.worker_threads import start_thread

# Run before anything is imported but what Python itself needs: modules are looked for where the program finds them,
# and neither in the current folder nor in the program's own script.
_BEGIN = "import sys; sys.path[:] = sys.argv[1:]; from fastattn.processes.child import main; main()"
NEWS, ENDED = ["news"], ["ended"]
_PATIENCE = 2.0  # seconds that an ended process gets, to finish a file that it writes, say

_started: "weakref.WeakSet[WorkerProcess]" = weakref.WeakSet()


class WorkerProcess:
    """A process that serves one model.

    answers  what it has sent; NEWS where the one who waits for them should look around, ENDED after the last

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
        assert self._process.stdin is not None and self._process.stdout is not None
        self._input: Any = self._process.stdin
        self._output: Any = self._process.stdout
        self.answers: queue.SimpleQueue[list[Any]] = queue.SimpleQueue()
        self.failure: FastattnError | None = None
        self._writing, self._numbers = False, 0
        _started.add(self)
        reader = threading.Thread(target=_read, args=(self._output, self.answers), name="fastattn reader", daemon=True)
        try:
            start_thread(reader)
        except (RuntimeError, MemoryError) as error:
            self.end()
            raise FastattnError(f"no worker process can be used: {error}") from error
        self._reader = reader
        self.send(arguments)

    @property
    def number(self) -> int:
        """The system's number of the process."""
        return self._process.pid

    @property
    def is_usable(self) -> bool:
        """Whether it can be sent to: neither ended, nor left by an interrupt with half a message."""
        return not self._writing and self.failure is None and self._reader.is_alive()

    def send(self, message: list[Any]) -> None:
        """Send a message; one to a process that has ended is lost, and ``answers`` says so."""
        self._writing = True
        with contextlib.suppress(Closed):
            write_message(self._input, message)
        self._writing = False

    def next_number(self) -> int:
        """A number for a message that will be answered."""
        self._numbers += 1
        return self._numbers

    def drop_all(self) -> None:
        """Have it leave what it is at, and forget its answers."""
        if self._numbers:
            self.send([0, "drop", [], 0])

    def fail(self) -> FastattnError:
        """The error for those who wait for the answers of a process that has ended by itself."""
        if self.failure is None:
            self.end()
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


def _forget_all() -> None:
    for process in list(_started):
        process.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


def _read(stream: BinaryIO, answers: "queue.SimpleQueue[list[Any]]") -> None:
    with stream, contextlib.suppress(Closed):
        while True:
            answers.put(read_message(stream))
    answers.put(ENDED)
