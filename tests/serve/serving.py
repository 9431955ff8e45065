"""Servers for tests: in this process, or one of its own, and how to ask them over a socket."""

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import uvicorn

from fastattn.serve.app import make_app
from fastattn.serve.server import uvicorn_options
from fastattn.serve.settings import ServerSettings


class Asked:
    """A server at a port."""

    def __init__(self, port: int):
        self.port = port

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def raw(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, bytes, dict[str, str]]:
        """(status, body, headers); a dict is sent as JSON, names of headers have - for _."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if isinstance(body, dict | list):
            body = json.dumps(body).encode()
            named.setdefault("content-type", "application/json")
        with contextlib.closing(self.connection()) as connection:
            connection.request(method, path, body, named)
            answer = connection.getresponse()
            return answer.status, answer.read(), {name.lower(): value for name, value in answer.getheaders()}

    def post(self, path: str, body: Any, **headers: str) -> tuple[int, Any]:
        status, content, _ = self.raw("POST", path, body, **headers)
        return status, json.loads(content)

    def get(self, path: str, **headers: str) -> tuple[int, Any]:
        status, content, _ = self.raw("GET", path, **headers)
        return status, json.loads(content)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@contextlib.contextmanager
def serving(**settings: Any) -> Iterator[Asked]:
    """A server in a thread of this process; yields when it answers."""
    port, chosen = free_port(), ServerSettings(**settings)
    config = uvicorn.Config(make_app(chosen), **uvicorn_options(chosen, "127.0.0.1", port))
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the server did not start"
        time.sleep(0.01)
    try:
        yield Asked(port)
    finally:
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive(), "the server did not end"


@contextlib.contextmanager
def serving_process(*arguments: str) -> Iterator[tuple[Asked, subprocess.Popen[str]]]:
    """``fastattn serve`` with arguments, in a process of its own; yields when it answers."""
    port = free_port()
    command = [sys.executable, "-m", "fastattn", "serve", "--port", str(port), *arguments]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    asked, said = Asked(port), list[str]()
    drain = threading.Thread(target=lambda: said.extend(process.stderr or ()), daemon=True)
    drain.start()
    try:
        for _ in range(600):
            assert process.poll() is None, "".join(said)
            with contextlib.suppress(OSError, http.client.HTTPException):
                if asked.raw("GET", "/health")[0] == 200:
                    break
            time.sleep(0.1)
        yield asked, process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # its workers too
        process.wait()
        drain.join(10)
        if process.stderr is not None:
            process.stderr.close()
