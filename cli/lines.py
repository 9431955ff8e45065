"""Lines of text from arguments, a file or standard input: UTF-8 whatever the locale says."""

import contextlib
import os
import stat
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from typing import BinaryIO

import click

from fastattn.errors import FastattnError, InputError

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# Bytes. No text has longer lines; an endless file of something else, a device say, would fill the memory.
LONGEST_LINE = 1 << 26


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
            size = len(line)
            if number == 1:
                line = line.removeprefix(_BYTE_ORDER_MARK)
            text = _decode(line.removesuffix(b"\n").removesuffix(b"\r"), f"{self.name}, line {number}")
            self._pending.append((size, len(text)))
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
    return Lines(_lines_of(stream, "standard input"), "standard input", _size(stream), stream.isatty())


def _open_file(path: str) -> Lines:
    try:
        file = open(path, "rb")
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    return Lines(_closing(file, _lines_of(file, path)), path, _size(file))


def _size(file: BinaryIO) -> int | None:
    """The bytes that a file still holds; None for a pipe, a terminal or a device."""
    with contextlib.suppress(OSError, ValueError):
        status = os.fstat(file.fileno())
        if stat.S_ISREG(status.st_mode):
            return status.st_size - file.tell()
    return None


def _lines_of(file: BinaryIO, name: str) -> Iterator[bytes]:
    number = 0
    while True:
        try:
            line = file.readline(LONGEST_LINE + 1)
        except OSError as error:
            raise FastattnError(f"cannot read {name}: {error.strerror}") from error
        if not line:
            return
        number += 1
        if len(line) > LONGEST_LINE:
            raise InputError(f"{name}, line {number}: longer than {LONGEST_LINE:,} bytes, so this is not text")
        yield line


def _closing(file: BinaryIO, lines: Iterator[bytes]) -> Iterator[bytes]:
    with file:
        yield from lines


def _standard_input() -> BinaryIO:
    if sys.stdin is None:
        raise InputError("standard input is closed; give texts or --input FILE")
    return sys.stdin.buffer


def _decode(line: bytes, place: str) -> str:
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        wrong = f"byte 0x{line[error.start]:02x} at column {error.start + 1}"
        raise InputError(f"{place}: not UTF-8 ({wrong}); convert the text first, for example with iconv") from None
    if "\0" in text:
        raise InputError(f"{place}: a NUL byte, so this is not text; UTF-16 has to be converted to UTF-8 first")
    return text
