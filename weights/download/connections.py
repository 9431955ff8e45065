"""HTTP connections with limits: a slow one is given up, and a busy server is asked again.

http.client's timeout is for a single wait; a server that sends a byte before each ends could go on for ever.
"""

import http.client
import io
import socket
import time
from email.utils import parsedate_to_datetime
from typing import Any

# In STALL_SECONDS of waiting at least STALL_BYTES must arrive: 1 kB/s, at which the catalog's largest archive would
# take a day, and a seventh of a modem's speed. A longer timeout of pip's replaces STALL_SECONDS.
STALL_SECONDS = 60.0
STALL_BYTES = 60_000
# Bytes before a body: http.client accepts a hundred headers of 64 KiB, and any number of interim responses.
LONGEST_HEAD = 8 << 20

# The server or a proxy is busy, perhaps only briefly.
BUSY = frozenset({429, 502, 503, 504})
WAITS = (0.5, 1.0, 2.0)  # seconds before the second, third and last request
LONGEST_WAIT = 30.0  # a server that asks for more by Retry-After is given up


class StalledError(Exception):
    """Too few bytes arrive, or too many before a body."""


def wait_before(attempt: int, status: int, retry_after: str | None) -> float | None:
    """Seconds before the next request, after ``attempt`` (from 0) was answered with ``status``; None: give up."""
    if status not in BUSY or attempt >= len(WAITS):
        return None
    wait = max(WAITS[attempt], _seconds(retry_after))
    return wait if wait <= LONGEST_WAIT else None


def _seconds(retry_after: str | None) -> float:
    """The seconds of a Retry-After header, which is a number or a date; 0 if it is missing or invalid."""
    text = (retry_after or "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:10])
    try:
        return parsedate_to_datetime(text).timestamp() - time.time()
    except (ValueError, TypeError, IndexError, OverflowError):
        return 0.0


class _Paced(io.RawIOBase):
    """The bytes of a socket; StalledError if they arrive too slowly. Only the time spent waiting counts."""

    def __init__(self, source: Any, timeout: float) -> None:
        super().__init__()
        self._source = source
        self._patience = max(STALL_SECONDS, timeout)
        self._waited = 0.0
        self._came = 0
        self.allowed: int | None = LONGEST_HEAD

    def readable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._source.fileno()

    def readinto(self, buffer: Any) -> int | None:
        start = time.monotonic()
        count = self._source.readinto(buffer)
        self._waited += time.monotonic() - start
        self._came += count or 0
        if self.allowed is not None:
            self.allowed -= count or 0
            if self.allowed < 0:
                raise StalledError(f"more than {LONGEST_HEAD} bytes of headers")
        if count and self._waited > self._patience:
            if self._came < STALL_BYTES:
                raise StalledError(f"stalled: {self._came} bytes in {self._waited:.0f} seconds")
            self._waited, self._came = 0.0, 0
        return count

    def close(self) -> None:
        super().close()
        self._source.close()


class _Response(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *arguments: Any, **options: Any) -> None:
        super().__init__(sock, *arguments, **options)
        self._paced = _Paced(self.fp.detach(), sock.gettimeout() or 0.0)  # type: ignore[attr-defined]
        self.fp = io.BufferedReader(self._paced)

    def begin(self) -> None:
        super().begin()
        self._paced.allowed = None


class HttpConnection(http.client.HTTPConnection):
    """An HTTPConnection that gives up slow responses, also a proxy's."""

    response_class = _Response


class HttpsConnection(http.client.HTTPSConnection):
    """An HTTPSConnection that gives up slow responses, also a proxy's."""

    response_class = _Response
