"""Lines of text from arguments, a file, standard input or a pipe, in UTF-8 whatever the locale; their results."""

import contextlib
import math
import os
import stat
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO

import click

from fastattn.cli.printing import Compiling, duration, say
from fastattn.errors import FastattnError, InputError, LineError
from fastattn.printable import counted
from fastattn.system import files
from fastattn.system.files import OutputFile, as_text, open_bytes, open_file, raw_lines
from fastattn.system.records import dataclass


@dataclass
class InputLine:
    """A line of the input; of an invalid line, ``text`` has what can be decoded."""

    location: str
    text: str
    size: int  # bytes
    error: FastattnError | None = None


class InputLines:
    """Lines without their ends, read in bursts, and the outcome of each.

    source    lines with their ends, and None where the next line is not ready
    size      bytes in all, None if unknown
    on_error  for a line that fails: "stop" raises its error; "skip" and "mark" keep the error in its InputLine
    refuse    (text) -> the reason to refuse a line, or None; may be set before the first burst
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

        Exhaust an iterator before the next. An invalid line is an empty text, or raises InputError.
        """
        while not self._ended:
            yield self._burst()

    def _burst(self) -> Iterator[str]:
        for raw in self._source:
            if raw is None:
                return
            self._read += 1
            line = InputLine(f"{self.name}, line {self._read}", "", len(raw))
            try:
                line.text = as_text(raw, self._read, self.name)
                if (reason := self.refuse(line.text)) is not None:
                    raise InputError(f"{line.location}: {reason}")
            except InputError as error:
                if self._stops:
                    raise
                line.text = "" if len(raw) > files.LONGEST_LINE else raw.decode("utf-8", "replace").rstrip("\r\n")
                line.error = error
            self._pending.append(line)
            yield "" if line.error else line.text
        self._ended = True

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
        """Raise LineError if lines failed; ``done`` names in the message what they are not, such as "translated"."""
        if self._failed:
            count = f"{self._failed:,} of {counted(self.finished, 'line')}"
            verb = "was" if self._failed == 1 else "were"
            raise LineError(f"{count} {verb} not {done}, the first: {self._first}")


def open_lines(texts: tuple[str, ...], path: str | None, on_error: str = "stop", from_file: str = "-i") -> InputLines:
    """The texts given as arguments, else the lines of ``path``, else (None or "-") those of standard input.

    from_file  the option that reads a file's lines, for a hint
    """
    if texts and path is not None:
        raise click.UsageError("give texts or --input, not both")
    if texts:
        if name := next(filter(os.path.isfile, texts), None):
            hint = f"{name} is the text, and not the file of that name; {from_file} {name} is for its lines"
            say(f"fastattn: {hint}", err=True)
        encoded = [line + b"\n" for text in texts for line in os.fsencode(text).split(b"\n")]
        return InputLines(encoded, "argument", sum(map(len, encoded)), on_error)
    if path is not None and path != "-":
        file = open_bytes(path)
        return InputLines(_closing(file, _read(file, path)), path, _size(file), on_error)
    stream = standard_input()
    if stream.isatty():
        click.echo("fastattn: type or paste lines; Ctrl-D (Windows: Ctrl-Z, Enter) ends", err=True)
    return InputLines(_read(stream, "standard input"), "standard input", _size(stream), on_error)


def open_prompts(texts: tuple[str, ...], path: str | None) -> InputLines:
    """The texts given as arguments, each whole; else all of ``path`` or (None or "-") standard input as one text."""
    if texts and path is not None:
        raise click.UsageError("give texts or --input, not both")
    if texts:
        return InputLines(map(os.fsencode, texts), "argument")
    name = "standard input" if path is None or path == "-" else path
    with contextlib.ExitStack() as opened:
        stream = standard_input() if name != path else opened.enter_context(open_bytes(name))
        if stream.isatty():
            click.echo("fastattn: type or paste the prompt; Ctrl-D (Windows: Ctrl-Z, Enter) ends it", err=True)
        try:
            return InputLines([stream.read(files.LONGEST_LINE + 1)], name)
        except OSError as error:
            raise FastattnError(f"cannot read {name}: {error.strerror or error}") from error


def _read(file: BinaryIO, name: str) -> Iterator[bytes | None]:
    """The lines of a file; for pipes and the like also None at pauses."""
    with contextlib.suppress(OSError, ValueError):  # no file of the system's
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return arriving_lines(Polled(file) if os.name == "posix" else Threaded(file), name)
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


def standard_input() -> BinaryIO:
    """The bytes of standard input; InputError where it is closed."""
    if sys.stdin is None:
        raise InputError("standard input is closed; give texts or --input FILE")
    return sys.stdin.buffer


# A sender may wait for each answer: where no more bytes are ready, the lines read so far must be answered at once. A
# sender that is faster than the work is read without a pause.
PART = 1 << 16  # bytes: what a pipe holds on Linux
PARTS_AHEAD = 16  # of a thread that reads


class Polled:
    """Bytes in parts, of a file descriptor that can be polled."""

    def __init__(self, file: BinaryIO):
        import selectors  # not for texts given as arguments

        self._raw: Any = getattr(file, "raw", file)
        self._selector = getattr(selectors, "PollSelector", selectors.SelectSelector)()
        self._selector.register(file, selectors.EVENT_READ)

    def is_ready(self) -> bool:
        """Whether ``read`` would return at once: bytes are ready, or the end."""
        return bool(self._selector.select(0))

    def read(self) -> bytes:
        """The bytes that are ready, or the next ones; b"" at the end."""
        part = None
        while part is None:  # from a descriptor in non-blocking mode
            self._selector.select()
            part = self._raw.read(PART)
        return part


class Threaded:
    """``Polled`` for Windows, where a pipe cannot be polled: a thread reads it."""

    def __init__(self, file: BinaryIO):
        import queue

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
        return not self._parts.empty()

    def read(self) -> bytes:
        part = self._parts.get()
        if isinstance(part, OSError):
            raise part
        return part


Source = Polled | Threaded


def arriving_lines(source: Source, name: str) -> Iterator[bytes | None]:
    """Yield lines with their ends, and None where the next line is not ready.

    A line over LONGEST_LINE is cut, and yielded as soon as it is over. Raises FastattnError where reading fails.
    """
    line = bytearray()  # the beginning of a line that has not ended
    dropping = new = False  # whether the rest of a long line is dropped; whether lines follow the last None
    while part := _next_part(source, name):
        *ended, tail = part.split(b"\n")
        for piece in ended:
            if not dropping:
                yield bytes(line) + piece + b"\n"
            line.clear()
            dropping, new = False, True
        if not dropping:
            line += tail
        if len(line) > files.LONGEST_LINE:
            yield bytes(line)
            line.clear()
            dropping = new = True
        if new and not source.is_ready():
            yield None
            new = False
    if line:
        yield bytes(line)


def _next_part(source: Source, name: str) -> bytes:
    try:
        return source.read()
    except OSError as error:
        raise FastattnError(f"cannot read {name}: {error.strerror or error}") from error


@contextlib.contextmanager
def open_output(path: str | None) -> Iterator[OutputFile]:
    """Standard output (None or "-"), or a sibling of ``path`` that takes its name when the block succeeds.

    Raises InputError or another FastattnError at once if the file cannot be written.
    """
    if path is None or path == "-":
        if sys.stdout is None:
            raise FastattnError("standard output is closed")
        output = OutputFile(sys.stdout.buffer, "standard output")
        yield output
        output.flush()
        return
    with open_file(path) as output:
        yield output


def rate(lines: InputLines, seconds: float) -> str:
    """``1,234 lines, 56.7 lines/s, 890 characters/s``, of finished lines."""
    seconds = max(seconds, 1e-9)
    done, characters = lines.finished, lines.finished_characters
    return f"{counted(done, 'line')}, {done / seconds:,.1f} lines/s, {characters / seconds:,.0f} characters/s"


def pace(lines: InputLines, seconds: float) -> str:
    """``rate``, and ``, 78%, 3 min left`` if the input's size is known."""
    text = rate(lines, seconds)
    if lines.size and lines.finished:
        done = min(1.0, lines.finished_bytes / lines.size)
        text += f", {math.floor(100 * done)}%"
        if done < 1:
            text += f", {duration(seconds / done - seconds)} left"
    return text


def report(lines: InputLines, start: float, loaded: float, compiling: Compiling) -> None:
    """Print on stderr the lines done since the model was loaded, and the time."""
    seconds = time.monotonic() - loaded
    done = f"{rate(lines, seconds)} in {seconds:.2f} s"
    click.echo(f"{done} (loaded in {loaded - start:.2f} s{compiling.remark()})", err=True)
