"""uvicorn with the application: a process, or several behind one port."""

import os
import socket
import tempfile
from dataclasses import replace
from typing import Any

import uvicorn
from uvicorn.supervisors import Multiprocess

from fastattn.errors import FastattnError
from fastattn.serve.models import ServedModel
from fastattn.serve.settings import ServerSettings, read_keys
from fastattn.system.cpus import default_threads

HEADERS = 16 << 10  # bytes of a request's line and headers


def uvicorn_options(settings: ServerSettings, host: str, port: int) -> dict[str, Any]:
    """The arguments of uvicorn, but for the application."""
    return {
        "host": host,
        "port": port,
        "workers": settings.processes,
        "http": "h11",  # which bounds headers
        "ws": "none",
        "h11_max_incomplete_event_size": HEADERS,
        "log_level": "warning",
        "access_log": False,
        "server_header": False,
        "timeout_graceful_shutdown": round(settings.timeout) + 1,
    }


def run_server(settings: ServerSettings, host: str, port: int) -> None:
    """Serve until SIGTERM or an interrupt; what runs then is finished, within ``settings.timeout``.

    Raises CheckpointError and the like for models, InputError for keys that cannot be had, FastattnError where nothing
    can listen.
    """
    if settings.keys:
        read_keys(settings.keys)
    for name, path in settings.models:
        ServedModel(name, path).look()  # what is wrong with it is said before anything starts
    if settings.processes > 1 and settings.threads is None:
        settings = replace(settings, threads=max(1, default_threads() // settings.processes))
    settings.publish()
    config = uvicorn.Config("fastattn.serve.app:make_app", factory=True, **uvicorn_options(settings, host, port))
    try:
        if settings.processes == 1:
            uvicorn.Server(config).run()
            return
        with tempfile.TemporaryDirectory(prefix="fastattn-serve-") as folder:
            os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
            listening = config.bind_socket()
            # An answer is written in two parts. What is accepted inherits this; one process has it from asyncio.
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            Multiprocess(config, sockets=[listening]).run()
    except SystemExit:
        raise FastattnError(f"the server on {host}:{port} has ended: the line above says why") from None
