"""Lines of text from arguments, a file or standard input: UTF-8 whatever the locale says."""

import contextlib
import os
import stat
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from typing import BinaryIO

import click

from fastattn.errors import InputError
from fastattn.files import as_text, open_bytes, raw_lines


class Lines:
    """An iterator of lines without their ends; what cannot be text is an InputError that names the line.

    size      bytes in all, None where that is not known
    finished, finished_bytes, finished_characters   of the lines that ``finish`` was told of, in their order
    """

    def __init__(self, source: Iterable[bytes], name: str, size: int | None = None, terminal: bool = False):
        self._source = source
        self.name = name
        self.size = size
        self.terminal = terminal
        self.finished = self.finished_bytes = self.finished_characters = 0
        self._pending: deque[tuple[int, int]] = deque()  # bytes and characters of lines given out, not finished

    def __iter__(self) -> Iterator[str]:
        for number, line in enumerate(self._source, start=1):
            text = as_text(line, number, self.name)
            self._pending.append((len(line), len(text)))
            yield text

    def finish(self, count: int) -> None:
        """The work on the next ``count`` lines is done."""
        self.finished += count
        for _ in range(count):
            size, characters = self._pending.popleft()
            self.finished_bytes += size
            self.finished_characters += characters


def open_lines(texts: tuple[str, ...], path: str | None) -> Lines:
    """The texts given as arguments, else the lines of ``path``, else (None or "-") those of standard input."""
    if texts and path is not None:
        raise click.UsageError("give texts or --input, not both")
    if texts:
        encoded = [line + b"\n" for text in texts for line in os.fsencode(text).split(b"\n")]
        return Lines(encoded, "argument", size=sum(map(len, encoded)))
    if path is not None and path != "-":
        return _open_file(path)
    stream = _standard_input()
    if stream.isatty():
        click.echo("fastattn: type or paste lines; Ctrl-D (Windows: Ctrl-Z, Enter) ends", err=True)
    return Lines(raw_lines(stream, "standard input"), "standard input", _size(stream), stream.isatty())


def _open_file(path: str) -> Lines:
    file = open_bytes(path)
    return Lines(_closing(file, raw_lines(file, path)), path, _size(file))


def _size(file: BinaryIO) -> int | None:
    """The bytes that a file still holds; None for a pipe, a terminal or a device."""
    with contextlib.suppress(OSError, ValueError):
        status = os.fstat(file.fileno())
        if stat.S_ISREG(status.st_mode):
            return status.st_size - file.tell()
    return None


def _closing(file: BinaryIO, lines: Iterator[bytes]) -> Iterator[bytes]:
    with file:
        yield from lines


def _standard_input() -> BinaryIO:
    if sys.stdin is None:
        raise InputError("standard input is closed; give texts or --input FILE")
    return sys.stdin.buffer
