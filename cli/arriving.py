"""Lines from a pipe, a FIFO, a socket or a terminal, and pauses where no line is ready.

A sender who waits for each answer sends no more until it comes: the lines read so far must be answered at once. A
sender who is faster than the work is read without a pause.
"""

import os
import queue
import selectors
import threading
from collections.abc import Iterator
from typing import Any, BinaryIO

from fastattn.errors import FastattnError
from fastattn.system import files

PART = 1 << 16  # bytes: what a pipe holds on Linux
PARTS_AHEAD = 16  # of a thread that reads


class Polled:
    """Bytes in parts, of a file descriptor that can be polled."""

    def __init__(self, file: BinaryIO):
        self._raw: Any = getattr(file, "raw", file)
        self._selector = getattr(selectors, "PollSelector", selectors.SelectSelector)()
        self._selector.register(file, selectors.EVENT_READ)

    def is_ready(self) -> bool:
        """Whether ``read`` would not have to wait: there are bytes, or the end."""
        return bool(self._selector.select(0))

    def read(self) -> bytes:
        """The bytes that are ready, or the next ones; b"" at the end."""
        part = None
        while part is None:  # of a descriptor that is set not to block
            self._selector.select()
            part = self._raw.read(PART)
        return part


class Threaded:
    """``Polled`` for Windows, where a pipe cannot be polled: a thread reads it."""

    def __init__(self, file: BinaryIO):
        self._raw: Any = getattr(file, "raw", file)  # a lock of the buffer's would hold up the end of the process
        self._parts: queue.Queue[bytes | OSError] = queue.Queue(PARTS_AHEAD)
        threading.Thread(target=self._fetch, name="input", daemon=True).start()

    def _fetch(self) -> None:
        part = b"first"
        while part:
            try:
                part = self._raw.read(PART)
            except OSError as error:
                self._parts.put(error)
                return
            self._parts.put(part)

    def is_ready(self) -> bool:
        """Whether the thread has read something."""
        return not self._parts.empty()

    def read(self) -> bytes:
        """What the thread has read, or reads next."""
        part = self._parts.get()
        if isinstance(part, OSError):
            raise part
        return part


Source = Polled | Threaded


def open_source(file: BinaryIO) -> Source:
    """The kind of source that the system supports."""
    return Polled(file) if os.name == "posix" else Threaded(file)


def arriving_lines(source: Source, name: str) -> Iterator[bytes | None]:
    """Yield lines with their ends, and None wherever the next one is not ready.

    A line over LONGEST_LINE is cut, and yielded as soon as it is over. Raises FastattnError where reading fails.
    """
    held = bytearray()  # of a line that has not ended
    dropping = new = False  # the rest of a line too long; lines given out since the last None
    while part := _read(source, name):
        *ended, begun = part.split(b"\n")
        for piece in ended:
            if not dropping:
                yield bytes(held) + piece + b"\n"
            held.clear()
            dropping, new = False, True
        if not dropping:
            held += begun
        if len(held) > files.LONGEST_LINE:
            yield bytes(held)
            held.clear()
            dropping = new = True
        if new and not source.is_ready():
            yield None
            new = False
    if held:
        yield bytes(held)


def _read(source: Source, name: str) -> bytes:
    try:
        return source.read()
    except OSError as error:
        raise FastattnError(f"cannot read {name}: {error.strerror or error}") from error
