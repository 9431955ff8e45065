"""Lines of text from arguments, a file or standard input: UTF-8 whatever the locale says."""

import contextlib
import os
import stat
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO

import click

from fastattn.cli.printing import say
from fastattn.errors import FastattnError, InputError, LineError
from fastattn.printable import counted
from fastattn.system import files
from fastattn.system.files import as_text, open_bytes, raw_lines
from fastattn.system.records import dataclass


@dataclass
class InputLine:
    """A line of the input; ``text`` of an invalid line is as much of it as can be decoded."""

    location: str
    text: str
    size: int  # bytes
    error: FastattnError | None = None


class InputLines:
    """Lines without their ends, read in bursts, and the outcome of each.

    source    lines with their ends, and None wherever the next one is not ready
    size      bytes in all, None if unknown
    on_error  for a line that fails: "stop" raises its error; "skip" and "mark" keep it in its InputLine
    refuse    why a line fails that can be read, or None: may be set before the first burst
    finished, finished_bytes, finished_characters   counts of the lines that ``finish`` returned
    """

    def __init__(self, source: Iterable[bytes | None], name: str, size: int | None = None, on_error: str = "stop"):
        self._source = iter(source)
        self.name = name
        self.size = size
        self.finished = self.finished_bytes = self.finished_characters = 0
        self.refuse: Callable[[str], str | None] = lambda text: None
        self._stops = on_error == "stop"
        self._read = 0
        self._ended = False
        self._pending: deque[InputLine] = deque()  # given out, not finished
        self._failed, self._first = 0, ""

    def bursts(self) -> Iterator[Iterator[str]]:
        """Yield iterators over the lines' texts; each ends where the next line is not ready.

        Use up one before taking the next. An invalid line is an empty text, or raises InputError.
        """
        while not self._ended:
            yield self._burst()

    def _burst(self) -> Iterator[str]:
        for raw in self._source:
            if raw is None:
                return
            self._read += 1
            line = self._line(raw)
            self._pending.append(line)
            yield "" if line.error else line.text
        self._ended = True

    def _line(self, raw: bytes) -> InputLine:
        location = f"{self.name}, line {self._read}"
        try:
            text = as_text(raw, self._read, self.name)
            if (reason := self.refuse(text)) is not None:
                raise InputError(f"{location}: {reason}")
            return InputLine(location, text, len(raw))
        except InputError as error:
            if self._stops:
                raise
            text = "" if len(raw) > files.LONGEST_LINE else raw.decode("utf-8", "replace").rstrip("\r\n")
            return InputLine(location, text, len(raw), error)

    def finish(self, error: FastattnError | None = None) -> InputLine:
        """Mark the next line as done, or as failed with ``error``, and return it."""
        line = self._pending.popleft()
        if error is not None:
            line.error = type(error)(f"{line.location}: {error}")
            if self._stops:
                raise line.error
        if line.error is not None:
            self._failed += 1
            self._first = self._first or str(line.error)
        self.finished += 1
        self.finished_bytes += line.size
        self.finished_characters += len(line.text)
        return line

    def check(self, done: str) -> None:
        """Raise LineError if lines failed; ``done`` says what was done to the others."""
        if self._failed:
            count = f"{self._failed:,} of {counted(self.finished, 'line')}"
            verb = "was" if self._failed == 1 else "were"
            raise LineError(f"{count} {verb} not {done}, the first: {self._first}")


def open_lines(texts: tuple[str, ...], path: str | None, on_error: str = "stop", from_file: str = "-i") -> InputLines:
    """The texts given as arguments, else the lines of ``path``, else (None or "-") those of standard input.

    from_file  what the command line has before a file whose lines are meant
    """
    if texts and path is not None:
        raise click.UsageError("give texts or --input, not both")
    if texts:
        if name := next(filter(os.path.isfile, texts), None):
            say(
                f"fastattn: {name} is the text, and not the file of that name; {from_file} {name} is for its lines",
                True,
            )
        encoded = [line + b"\n" for text in texts for line in os.fsencode(text).split(b"\n")]
        return InputLines(encoded, "argument", sum(map(len, encoded)), on_error)
    if path is not None and path != "-":
        file = open_bytes(path)
        return InputLines(_closing(file, _read(file, path)), path, _size(file), on_error)
    stream = _standard_input()
    if stream.isatty():
        click.echo("fastattn: type or paste lines; Ctrl-D (Windows: Ctrl-Z, Enter) ends", err=True)
    return InputLines(_read(stream, "standard input"), "standard input", _size(stream), on_error)


def _read(file: BinaryIO, name: str) -> Iterator[bytes | None]:
    """The lines of a file; for pipes and the like also None at pauses."""
    with contextlib.suppress(OSError, ValueError):  # no file of the system's
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            from fastattn.cli.arriving import arriving_lines, open_source  # not for texts given as arguments

            return arriving_lines(open_source(file), name)
    return raw_lines(file, name)


def _size(file: BinaryIO) -> int | None:
    """The bytes that a file still holds; None for a pipe, a terminal or a device."""
    with contextlib.suppress(OSError, ValueError):
        status = os.fstat(file.fileno())
        if stat.S_ISREG(status.st_mode):
            return status.st_size - file.tell()
    return None


def _closing(file: BinaryIO, lines: Iterator[bytes | None]) -> Iterator[bytes | None]:
    with file:
        yield from lines


def _standard_input() -> BinaryIO:
    if sys.stdin is None:
        raise InputError("standard input is closed; give texts or --input FILE")
    return sys.stdin.buffer
