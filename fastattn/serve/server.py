"""uvicorn with the application: a process, or several behind one port."""

import asyncio
import os
import socket
import sys
import tempfile
from dataclasses import replace
from typing import Any

import h11
import uvicorn
from prometheus_client import multiprocess
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.supervisors import Multiprocess

from fastattn.errors import FastattnError
from fastattn.serve.models import ServedModel
from fastattn.serve.settings import HEAD_BYTES, ServerSettings, read_keys
from fastattn.system.cpus import default_threads

HEAD_SECONDS = 10.0  # in which a request's line and headers should come
WRITE_SECONDS = 30.0  # in which a client should take what is written, a part at a time
GONE_SECONDS = 0.2  # between two looks at whether a client that sends no more has gone
LATE = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class ClockedConnection(H11Protocol):
    """uvicorn's h11, which bounds incomplete headers, with clocks for heads and for answers.

    A slow head gets a 408. A client that does not take its answer is cut off. A client that has sent its request and
    shuts its side of the connection is answered.
    """

    _clock: asyncio.TimerHandle | None = None
    _write_clock: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(0)  # the clock runs for all bytes that the system has not taken
        self._run_clock()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_clock = self.loop.call_later(WRITE_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._write_clock is not None:
            self._write_clock.cancel()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Whether the connection stays open, which a half-closed one does.

        A closed connection looks the same until something is written to it. So an interim answer is written: clients
        of HTTP/1.1 ignore it, a closed connection refuses it.
        """
        cycle = self.cycle
        if cycle is None or cycle.response_complete or cycle.more_body or cycle.scope["http_version"] != "1.1":
            return False
        cycle.keep_alive = False
        if not cycle.response_started:
            self.transport.write(self.conn.send(h11.InformationalResponse(status_code=100, headers=[])) or b"")
        self._look_for_client()
        return True

    def _look_for_client(self) -> None:
        if self.transport.is_closing():
            return
        if self.transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.transport.abort()
        else:
            self.loop.call_later(GONE_SECONDS, self._look_for_client)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._run_clock()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_clock()
        if self._write_clock is not None:
            self._write_clock.cancel()
        super().connection_lost(exc)

    def _run_clock(self) -> None:
        """Run the clock while a head is awaited, from its first byte on or from the connection's beginning."""
        if self.conn.their_state is not h11.IDLE:
            self._stop_clock()
        elif self._clock is None:
            self._clock = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def _stop_clock(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None

    def _give_up(self) -> None:
        self._clock = None
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self.transport.write(LATE)
            self.transport.close()


class Workers(Multiprocess):
    """uvicorn's worker processes; the requests of a worker that died are no longer counted as active.

    On Linux each worker listens at a socket of its own, and the system shares connections among them: at one shared
    socket, the first worker to wake takes all.
    """

    def __init__(self, config: uvicorn.Config, listening: socket.socket):
        self._handed_over: list[socket.socket] = []
        self._family, self._address = listening.family, listening.getsockname()
        if sys.platform == "linux":
            listening.close()  # it has shown that the port was free
            listening = self._bound()  # this socket holds the port
        self._listening = listening
        super().__init__(config, [listening])

    @property
    def sockets(self) -> list[socket.socket]:
        if sys.platform != "linux":
            return [self._listening]
        self._handed_over.append(self._bound())
        return self._handed_over[-1:]

    @sockets.setter
    def sockets(self, sockets: list[socket.socket]) -> None:
        pass

    def _bound(self) -> socket.socket:
        bound = socket.socket(self._family)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind(self._address)
        without_delay(bound)
        bound.set_inheritable(True)
        return bound

    def _leave_to_workers(self) -> None:
        """Close this process's copies: an open socket would go on listening when its worker dies."""
        while self._handed_over:
            self._handed_over.pop().close()

    def init_processes(self) -> None:
        super().init_processes()
        self._leave_to_workers()

    def keep_subprocess_alive(self) -> None:
        before = {process.pid: process for process in self.processes}
        super().keep_subprocess_alive()
        self._leave_to_workers()
        for pid, process in before.items():
            if process not in self.processes:
                multiprocess.mark_process_dead(pid)


def without_delay(listening: socket.socket) -> None:
    """Set TCP_NODELAY, which accepted connections inherit: an answer is written in two parts.

    A single process gets it from asyncio.
    """
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def uvicorn_options(settings: ServerSettings, host: str, port: int) -> dict[str, Any]:
    return {
        "host": host,
        "port": port,
        "workers": settings.processes,
        "http": ClockedConnection,
        "ws": "none",
        "h11_max_incomplete_event_size": HEAD_BYTES,
        "log_level": "warning",
        "access_log": False,
        "server_header": False,
        "timeout_graceful_shutdown": round(settings.timeout) + 1,
    }


def run_server(settings: ServerSettings, host: str, port: int) -> None:
    """Serve until SIGTERM or an interrupt; requests in progress are finished, within ``settings.timeout``.

    Raises CheckpointError and the like for models, InputError for an unreadable keys file, FastattnError where the port
    cannot be used.
    """
    if settings.keys:
        read_keys(settings.keys)
    for name, path in settings.models:
        ServedModel(name, path).look()  # report a faulty model before anything starts
    if settings.processes > 1 and settings.threads is None:
        settings = replace(settings, threads=max(1, default_threads() // settings.processes))
    config = uvicorn.Config("fastattn.serve.app:make_app", factory=True, **uvicorn_options(settings, host, port))
    try:
        with tempfile.TemporaryDirectory(prefix="fastattn-serve-") as folder:
            replace(settings, folder=folder).publish()
            if settings.processes == 1:
                uvicorn.Server(config).run()
                return
            os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
            listening = config.bind_socket()
            without_delay(listening)
            Workers(config, listening).run()
    except SystemExit:
        raise FastattnError(f"the server on {host}:{port} has ended: the line above says why") from None
