"""fastattn serve in a process of its own: its answers and memory."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SERVE = [sys.executable, "-m", "fastattn", "serve", "--port", "{port}"]
START = 180.0  # seconds, for loading and compiling


@dataclass(frozen=True)
class Server:
    address: str
    process: int

    def ask(self, path: str, body: Any) -> bytes:
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(self.address + path, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request) as answer:
            return bytes(answer.read())

    def memory(self) -> int:
        """Bytes that the process and its children own, with their shares of pages of several processes."""
        total, processes = 0, [self.process]
        while processes:
            process = processes.pop()
            with contextlib.suppress(OSError):
                for task in Path(f"/proc/{process}/task").iterdir():
                    processes += map(int, (task / "children").read_text().split())
                match = re.search(r"^Pss:\s+(\d+) kB", Path(f"/proc/{process}/smaps_rollup").read_text(), re.MULTILINE)
                total += int(match[1]) << 10 if match else 0
        return total


@contextlib.contextmanager
def running(command: Sequence[str], health: str = "/health") -> Iterator[Server]:
    """Run a command that serves at {port}; yields once it answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    process = subprocess.Popen(
        [part.format(port=port) for part in command],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        until = time.monotonic() + START
        while True:
            with contextlib.suppress(OSError), urllib.request.urlopen(address + health):
                break
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"{command[0]} did not start")
            time.sleep(0.1)
        yield Server(address, process.pid)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
