"""uvicorn with the application, in one process or in several behind one port."""

import asyncio
import os
import socket
import sys
import tempfile
from dataclasses import replace
from functools import partial
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

HEAD_SECONDS = 10.0  # within which a request's line and headers should arrive
WRITE_SECONDS = 30.0  # within which a client should take each part of an answer
CLIENT_CHECK_SECONDS = 0.2  # between two checks whether a client that has shut its side of the connection has gone
# An answer is written in two parts, hence TCP_NODELAY, which connections inherit; asyncio sets it for a single process.
NO_DELAY = (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
TIMEOUT_ANSWER = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class TimedConnection(H11Protocol):
    """uvicorn's connection by h11, which bounds the size of incomplete headers, with timers for heads and for answers.

    A head, a request's line and headers, that comes late gets a 408. A client that does not take its answer is cut off.
    A client that shuts its side of the connection after its request gets its answer.
    """

    _head_timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(0)  # the timer runs until the system has taken all bytes
        self._update_head_timer()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_timer = self.loop.call_later(WRITE_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Whether the connection stays open: it does if the client has shut only its side and waits for an answer.

        If the client has gone, the connection looks the same until something is written. So an interim answer is
        written, which clients of HTTP/1.1 ignore and a closed connection refuses.
        """
        cycle = self.cycle
        if cycle is None or cycle.response_complete or cycle.more_body or cycle.scope["http_version"] != "1.1":
            return False
        cycle.keep_alive = False
        if not cycle.response_started:
            self.transport.write(self.conn.send(h11.InformationalResponse(status_code=100, headers=[])) or b"")
        self._abort_without_client()
        return True

    def _abort_without_client(self) -> None:
        """Abort the connection if its client has gone, else check again after a while."""
        if self.transport.is_closing():
            return
        if self.transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.transport.abort()
        else:
            self.loop.call_later(CLIENT_CHECK_SECONDS, self._abort_without_client)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._update_head_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head_timer()
        if self._write_timer is not None:
            self._write_timer.cancel()
        super().connection_lost(exc)

    def _update_head_timer(self) -> None:
        """Run the timer while a head is awaited, from the connection's beginning or from a later head's first byte."""
        if self.conn.their_state is not h11.IDLE:
            self._stop_head_timer()
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self._refuse_late_head)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _refuse_late_head(self) -> None:
        self._head_timer = None
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self.transport.write(TIMEOUT_ANSWER)
            self.transport.close()


class Workers(Multiprocess):
    """uvicorn's worker processes; metrics forget the active requests of a worker that died.

    On Linux each worker listens at its own socket, and the system shares connections among these sockets: at one socket
    for all, the first worker to wake takes all connections.
    """

    def __init__(self, config: uvicorn.Config, listener: socket.socket):
        self._worker_sockets: list[socket.socket] = []
        self._family, self._address = listener.family, listener.getsockname()
        if sys.platform == "linux":
            listener.close()  # uvicorn bound it, which showed that the port was free
            listener = self._bind_socket()  # never listens, but holds the port
        self._listener = listener
        super().__init__(config, [listener])

    @property
    def sockets(self) -> list[socket.socket]:
        if sys.platform != "linux":
            return [self._listener]
        self._worker_sockets.append(self._bind_socket())
        return self._worker_sockets[-1:]

    @sockets.setter
    def sockets(self, sockets: list[socket.socket]) -> None:
        pass  # uvicorn's constructor sets them

    def _bind_socket(self) -> socket.socket:
        new_socket = socket.socket(self._family)
        new_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        new_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        new_socket.bind(self._address)
        new_socket.setsockopt(*NO_DELAY)
        new_socket.set_inheritable(True)
        return new_socket

    def _close_worker_sockets(self) -> None:
        """Close this process's copies of the sockets: an open copy would go on listening when the worker dies."""
        while self._worker_sockets:
            self._worker_sockets.pop().close()

    def init_processes(self) -> None:
        super().init_processes()
        self._close_worker_sockets()

    def keep_subprocess_alive(self) -> None:
        processes_by_pid = {process.pid: process for process in self.processes}
        super().keep_subprocess_alive()
        self._close_worker_sockets()
        for pid, process in processes_by_pid.items():
            if process not in self.processes:
                multiprocess.mark_process_dead(pid)


def uvicorn_options(settings: ServerSettings, host: str, port: int) -> dict[str, Any]:
    return {
        "host": host,
        "port": port,
        "workers": settings.processes,
        "http": TimedConnection,
        "ws": "none",
        "forwarded_allow_ips": list(settings.proxies),
        "h11_max_incomplete_event_size": HEAD_BYTES,
        "log_level": "warning",
        "access_log": False,
        "server_header": False,
        "timeout_graceful_shutdown": round(settings.timeout) + 1,
    }


def _make_app(settings: ServerSettings) -> Any:
    from fastattn.serve.app import make_app  # not in the process that only watches workers

    return make_app(settings)


def run_server(settings: ServerSettings, host: str, port: int) -> None:
    """Serve until SIGTERM or an interrupt; then requests in progress have ``settings.timeout`` to be finished.

    Raises CheckpointError and the like for a faulty model, InputError for an unreadable keys file, FastattnError for a
    port that cannot be used.
    """
    if settings.keys:
        read_keys(settings.keys)
    for name, path in settings.models:
        ServedModel(name, path).read_kind()  # raises the errors of a faulty model before anything starts
    if settings.processes > 1 and settings.threads is None:
        settings = replace(settings, threads=max(1, default_threads() // settings.processes))
    try:
        with tempfile.TemporaryDirectory(prefix="fastattn-serve-") as folder:
            app = partial(_make_app, replace(settings, folder=folder))
            config = uvicorn.Config(app, factory=True, **uvicorn_options(settings, host, port))
            if settings.processes == 1:
                uvicorn.Server(config).run()
                return
            os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
            listener = config.bind_socket()
            listener.setsockopt(*NO_DELAY)
            Workers(config, listener).run()
    except SystemExit:
        raise FastattnError(f"the server on {host}:{port} has ended: the line above says why") from None
