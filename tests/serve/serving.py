"""Servers for tests: in this process, or one of its own, and how to ask them over a socket."""

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import uvicorn

from fastattn.serve.app import make_app
from fastattn.serve.server import uvicorn_options
from fastattn.serve.settings import ServerSettings

FORM = {"content_type": "application/x-www-form-urlencoded"}  # a header, as Asked has them


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


@contextlib.contextmanager
def serving(**settings: Any) -> Iterator[Asked]:
    """A server in a thread of this process; yields when it answers."""
    files = tempfile.TemporaryDirectory()
    chosen = ServerSettings(**settings, folder=files.name)
    config = uvicorn.Config(make_app(chosen), **uvicorn_options(chosen, "127.0.0.1", 0))
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the server did not start"
        time.sleep(0.01)
    try:
        yield Asked(server.servers[0].sockets[0].getsockname()[1])
    finally:
        server.should_exit = True
        thread.join(10)
        server.force_exit = True  # whatever client a test left waiting; tests of processes ask for a graceful end
        thread.join(60)
        assert not thread.is_alive(), "the server did not end"
        files.cleanup()


@contextlib.contextmanager
def serving_process(*arguments: str, before: Sequence[str] = ()) -> Iterator[tuple[Asked, subprocess.Popen[str]]]:
    """``fastattn serve`` with arguments, in a process of its own, at a port of the system's choice; yields when it
    answers. ``before``: a command that runs the server.
    """
    command = [*before, sys.executable, "-m", "fastattn", "serve", "--port", "0", *arguments]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    said = list[str]()
    drain = threading.Thread(target=lambda: said.extend(process.stderr or ()), daemon=True)
    drain.start()
    try:
        while not (ports := listening(process.pid)):
            assert process.poll() is None, "".join(said)
            time.sleep(0.05)
        asked = Asked(ports.pop())
        assert asked.raw("GET", "/health")[0] == 200
        yield asked, process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # its workers too
        process.wait()
        drain.join(10)
        if process.stderr is not None:
            process.stderr.close()


def listening(session: int) -> set[int]:
    """The ports at which processes of a session listen."""
    sockets = set[str]()
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.getsid(int(entry.name)) == session:
                sockets |= {os.readlink(one)[8:-1] for one in (entry / "fd").iterdir()}
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A" and row[9] in sockets}
