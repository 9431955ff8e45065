"""Processes that ask a hub for models, with a cache of their own."""

import os
import subprocess
import sys
from pathlib import Path

from tests.weights.download.hub_server import HubServer


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def run(server: HubServer | None, home: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A process with a hub and a cache of its own; no server: an endpoint where nobody listens."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "FASTATTN_OFFLINE"))}
    kept = {name: value for name, value in kept.items() if not name.lower().endswith("_proxy")}
    url = server.url if server is not None else "http://127.0.0.1:9"
    settings = {"HF_HOME": str(home), "HF_ENDPOINT": url, "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_XET": "1"}
    command = [sys.executable, *(argument.encode() for argument in arguments)]
    return subprocess.run(command, env=kept | settings | variables, capture_output=True, text=True, encoding="utf-8")


def command(
    server: HubServer | None, home: Path, *arguments: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    return run(server, home, "-m", "fastattn.cli", *arguments, **variables)


def fails(done: subprocess.CompletedProcess[str], code: int) -> str:
    assert done.returncode == code, done.stderr
    (line,) = done.stderr.splitlines()
    return line
