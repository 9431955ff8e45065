"""The server's soak: clients that send requests, leave half way, or send malformed ones, for a given time.

Every answer must equal that to the request alone, every fault must get its status; ``bench/soak.py --server`` runs it.
"""

import contextlib
import http.client
import json
import random
import socket
import struct
import threading
import time
from collections.abc import Callable
from urllib.parse import urlsplit

from bench.server import SERVE, Server, running
from bench.soak import run_threads

HUGE = 100 << 20  # bytes of a body
TRANSLATED, ENCODED = "/translate", "/embed"


class Clients:
    """Clients' requests to a server; add: counts a request (its name, how many answers differ, whether it failed)."""

    def __init__(self, server: Server, sentences: list[str], add: Callable[[str, int, bool], None]):
        self._address, self._add = urlsplit(server.address), add
        self._bodies = [(TRANSLATED, {"q": text, "source": "en", "target": "pt"}) for text in sentences]
        self._bodies += [(ENCODED, {"inputs": [text]}) for text in sentences]
        self._expected = [server.ask(path, body) for path, body in self._bodies]
        self.kinds: dict[str, Callable[[random.Random], None]] = {
            "answers": self._ask,
            "clients that go away": self._leave,
            "bodies of 100 MB": self._huge,
            "bodies that are no UTF-8": lambda rng: self._refused(b'{"q": "\xff"}', 400),
            "bodies that are no JSON": lambda rng: self._refused(b'{"q": ', 400),
            "lists of 10,000 texts": lambda rng: self._refused(
                json.dumps({"q": ["a"] * 10_000, "source": "en", "target": "pt"}).encode(), 413
            ),
            "floods of headers": self._flood,
        }
        self._shares = [100, 20, 0.2, 5, 5, 1, 5]

    def run(self, seed: str, over: threading.Event) -> None:
        rng = random.Random(seed)
        while not over.is_set():
            (name,) = rng.choices(list(self.kinds), self._shares)
            try:
                self.kinds[name](rng)
            except Exception as error:  # noqa: BLE001  counted and shown; the others go on
                print(f"{name}: {type(error).__name__}: {error}", flush=True)
                self._add(name, 0, True)
            else:
                self._add(name, 0, False)

    def _post(self, path: str, body: bytes) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(self._address.hostname or "", self._address.port, timeout=120)
        with contextlib.closing(connection):
            connection.request("POST", path, body, {"content-type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read()

    def _ask(self, rng: random.Random) -> None:
        number = rng.randrange(len(self._bodies))
        path, body = self._bodies[number]
        result = self._post(path, json.dumps(body).encode())
        if result[0] != 200:
            raise RuntimeError(f"status {result[0]}")
        if result[1] != self._expected[number]:
            self._add("answers", 1, False)

    def _socket(self) -> socket.socket:
        return socket.create_connection((self._address.hostname or "", self._address.port or 0), timeout=120)

    def _leave(self, rng: random.Random) -> None:
        """Send a part of a request, or all, wait for a moment, and close the connection; half of them by a reset."""
        path, body = rng.choice(self._bodies)
        content = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n"
        whole = f"{head}content-length: {len(content)}\r\n\r\n".encode() + content
        with self._socket() as client:
            client.sendall(whole[: rng.choice((rng.randrange(len(whole)), len(whole)))])
            time.sleep(rng.choice((0.0, 0.002, 0.02)))
            if rng.random() < 0.5:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def _huge(self, rng: random.Random) -> None:
        part = b"a" * (1 << 16)
        with self._socket() as client:
            client.sendall(f"POST {TRANSLATED} HTTP/1.1\r\nhost: a\r\ncontent-length: {HUGE}\r\n\r\n".encode())
            with contextlib.suppress(ConnectionError):  # the server need not read on once it has refused
                for _ in range(HUGE // len(part)):
                    client.sendall(part)
            self._expect(client, 413)

    def _flood(self, rng: random.Random) -> None:
        with self._socket() as client:
            with contextlib.suppress(ConnectionError):
                client.sendall(
                    b"GET /health HTTP/1.1\r\n" + b"".join(b"h%d: %s\r\n" % (n, b"x" * 100) for n in range(2000))
                )
            self._expect(client, 431, 400)

    @staticmethod
    def _expect(client: socket.socket, *statuses: int) -> None:
        reply = b""
        with contextlib.suppress(ConnectionError):  # a reset may overtake the answer
            reply = client.recv(4096)
        if reply and int(reply.split()[1]) not in statuses:
            raise RuntimeError(f"status {reply.split()[1].decode()}, expected {statuses[0]}")

    def _refused(self, body: bytes, status: int) -> None:
        actual, _ = self._post(TRANSLATED, body)
        if actual != status:
            raise RuntimeError(f"status {actual}, expected {status}")


def soak_server(
    minutes: float, seed: int, sentences: list[str], add: Callable[[str, int, bool], None]
) -> tuple[int, list[int]]:
    """(how many kinds of requests there are, the server's memory each second)."""
    with running([*SERVE, "-m", "en-pt", "-m", "minilm"]) as server:
        clients, over = Clients(server, sentences, add), threading.Event()
        samples = run_threads(lambda number: clients.run(f"{seed} {number}", over), over, minutes, server.memory)
    return len(clients.kinds), samples
