"""HTTP connections that do not wait for ever: one whose bytes trickle in is given up, and a busy server is asked again.

http.client's timeout is that of one wait; a server that sends a byte before each ends would never be done with.
"""

import http.client
import io
import socket
import time
from email.utils import parsedate_to_datetime
from typing import Any

# In STALL_SECONDS of waiting at least STALL_BYTES must come: 1 kB/s, at which the catalog's largest archive would take
# a day, and a seventh of what a modem does. Who allows single waits of more, by pip's timeout, allows that for all.
STALL_SECONDS = 60.0
STALL_BYTES = 60_000
# What comes before a body: http.client takes a hundred headers of 64 KiB, and any number of interim responses.
LONGEST_HEAD = 8 << 20

# Busy, or someone on the way is: it may be over in a moment.
BUSY = frozenset({429, 502, 503, 504})
WAITS = (0.5, 1.0, 2.0)  # seconds before the second, third and last time of asking
LONGEST_WAIT = 30.0  # what asks for more by Retry-After is given up


class StalledError(Exception):
    """Too few bytes come, or too many before a body."""


def wait_before(attempt: int, status: int, retry_after: str | None) -> float | None:
    """Seconds before asking again, after ``attempt`` (from 0) was answered with ``status``; None: do not."""
    if status not in BUSY or attempt >= len(WAITS):
        return None
    wait = max(WAITS[attempt], _seconds(retry_after))
    return wait if wait <= LONGEST_WAIT else None


def _seconds(retry_after: str | None) -> float:
    """What a Retry-After header says, a number of seconds or a date; 0 for none that can be understood."""
    text = (retry_after or "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:10])
    try:
        return parsedate_to_datetime(text).timestamp() - time.time()
    except (ValueError, TypeError, IndexError, OverflowError):
        return 0.0


class _Paced(io.RawIOBase):
    """The bytes of a socket; StalledError where they come too slowly. Only the time spent waiting counts."""

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
    """Whose responses, a proxy's included, are read at a pace."""

    response_class = _Response


class HttpsConnection(http.client.HTTPSConnection):
    """Likewise."""

    response_class = _Response
