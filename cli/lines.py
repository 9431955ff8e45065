"""Lines of text from arguments, a file, standard input or a pipe, in UTF-8; outputs; reports of progress and speed."""

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

from fastattn.cli.printing import Compilation, duration, say
from fastattn.errors import FastattnError, InputError, LineError
from fastattn.printable import counted
from fastattn.system import files
from fastattn.system.files import OutputFile, as_text, open_bytes, open_file, raw_lines
from fastattn.system.records import dataclass


@dataclass
class InputLine:
    """A line of the input. The text of an invalid line is what can be decoded."""

    location: str
    text: str
    size: int  # bytes
    error: FastattnError | None = None


class InputLines:
    """Lines without their ends, read in bursts, and the outcome of each.

    source    lines with their ends, and None where the next line is not ready
    size      bytes of all lines, None if unknown
    on_error  what happens when a line fails: "stop": the error is raised; "skip" and "mark": the InputLine has it
    refuse    (text) -> the reason to refuse a line, or None; may be set before the first burst
    finished, finished_bytes, finished_characters   numbers of lines, bytes and characters that ``finish`` returned
    """

    def __init__(self, source: Iterable[bytes | None], name: str, size: int | None = None, on_error: str = "stop"):
        self._source, self.name, self.size = iter(source), name, size
        self.finished = self.finished_bytes = self.finished_characters = 0
        self.refuse: Callable[[str], str | None] = lambda text: None
        self._raises, self._lines_read, self._is_exhausted = on_error == "stop", 0, False
        self._pending: deque[InputLine] = deque()  # lines of bursts that are not finished
        self._failure_count, self._first_failure = 0, ""

    def bursts(self) -> Iterator[Iterator[str]]:
        """Yield iterators over the lines' texts; each iterator ends where the next line is not ready.

        Exhaust an iterator before the next. An invalid line is an empty text or, by ``on_error``, an InputError.
        """
        while not self._is_exhausted:
            yield self._burst()

    def _burst(self) -> Iterator[str]:
        for raw in self._source:
            if raw is None:
                return
            self._lines_read += 1
            line = InputLine(f"{self.name}, line {self._lines_read}", "", len(raw))
            try:
                line.text = as_text(raw, self._lines_read, self.name)
                if (reason := self.refuse(line.text)) is not None:
                    raise InputError(f"{line.location}: {reason}")
            except InputError as error:
                if self._raises:
                    raise
                line.text = "" if len(raw) > files.LONGEST_LINE else raw.decode("utf-8", "replace").rstrip("\r\n")
                line.error = error
            self._pending.append(line)
            yield "" if line.error else line.text
        self._is_exhausted = True

    def finish(self, error: FastattnError | None = None) -> InputLine:
        """Count the next line of the bursts as finished, or as failed with ``error``, and return the line."""
        line = self._pending.popleft()
        if error is not None:
            line.error = type(error)(f"{line.location}: {error}")
            if self._raises:
                raise line.error
        if line.error is not None:
            self._failure_count += 1
            self._first_failure = self._first_failure or str(line.error)
        self.finished += 1
        self.finished_bytes += line.size
        self.finished_characters += len(line.text)
        return line

    def check(self, participle: str) -> None:
        """Raise LineError if lines failed; its message says that they were not "translated", or another participle."""
        if self._failure_count:
            count = f"{self._failure_count:,} of {counted(self.finished, 'line')}"
            verb = "was" if self._failure_count == 1 else "were"
            raise LineError(f"{count} {verb} not {participle}, the first: {self._first_failure}")


def open_lines(texts: tuple[str, ...], path: str | None, on_error: str = "stop", from_file: str = "-i") -> InputLines:
    """The lines of the arguments ``texts``, else of the file ``path``, else (path None or "-") of standard input.

    from_file  the option that reads a file's lines, which a hint names
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
        return InputLines(_lines_then_close(file, _lines_of(file, path)), path, _size(file), on_error)
    stream = standard_input()
    if stream.isatty():
        click.echo("fastattn: type or paste lines; Ctrl-D (Windows: Ctrl-Z, Enter) ends", err=True)
    return InputLines(_lines_of(stream, "standard input"), "standard input", _size(stream), on_error)


def open_prompts(texts: tuple[str, ...], path: str | None) -> InputLines:
    """The arguments ``texts``, each whole; else the whole file ``path`` or (None or "-") standard input as one text."""
    if texts and path is not None:
        raise click.UsageError("give texts or --input, not both")
    if texts:
        return InputLines(map(os.fsencode, texts), "argument")
    name = "standard input" if path is None or path == "-" else path
    with contextlib.ExitStack() as stack:
        stream = standard_input() if name != path else stack.enter_context(open_bytes(name))
        if stream.isatty():
            click.echo("fastattn: type or paste the prompt; Ctrl-D (Windows: Ctrl-Z, Enter) ends it", err=True)
        try:
            return InputLines([stream.read(files.LONGEST_LINE + 1)], name)
        except OSError as error:
            raise FastattnError(f"cannot read {name}: {error.strerror or error}") from error


def _lines_of(file: BinaryIO, name: str) -> Iterator[bytes | None]:
    """The lines of a file; from a pipe and the like, None stands where the next line is not ready."""
    with contextlib.suppress(OSError, ValueError):  # a file object may have no descriptor
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return arriving_lines(PolledInput(file) if os.name == "posix" else ThreadedInput(file), name)
    return raw_lines(file, name)


def _size(file: BinaryIO) -> int | None:
    """The bytes that a file still holds; None for a pipe, a terminal or a device."""
    with contextlib.suppress(OSError, ValueError):
        status = os.fstat(file.fileno())
        if stat.S_ISREG(status.st_mode):
            return status.st_size - file.tell()
    return None


def _lines_then_close(file: BinaryIO, lines: Iterator[bytes | None]) -> Iterator[bytes | None]:
    with file:
        yield from lines


def standard_input() -> BinaryIO:
    """The bytes of standard input; InputError where it is closed."""
    if sys.stdin is None:
        raise InputError("standard input is closed; give texts or --input FILE")
    return sys.stdin.buffer


# The sender of a pipe may wait for each answer, so when no more bytes are ready, all lines read so far must be answered
# at once. A sender that is faster than the work is read without a pause.
READ_BYTES = 1 << 16  # what a pipe holds on Linux
PARTS_AHEAD = 16  # the most parts that a thread has read ahead


class PolledInput:
    """Reads a file descriptor that can be polled, in parts."""

    def __init__(self, file: BinaryIO):
        import selectors  # imported only where a pipe is read

        self._raw: Any = getattr(file, "raw", file)
        self._selector = getattr(selectors, "PollSelector", selectors.SelectSelector)()
        self._selector.register(file, selectors.EVENT_READ)

    def is_ready(self) -> bool:
        """Whether ``read`` would return at once: with bytes, or at the end of the input."""
        return bool(self._selector.select(0))

    def read(self) -> bytes:
        """The bytes that are ready, else the next that arrive; b"" at the end."""
        part = None
        while part is None:  # a descriptor in non-blocking mode may give None
            self._selector.select()
            part = self._raw.read(READ_BYTES)
        return part


class ThreadedInput:
    """Reads a pipe on Windows, where pipes cannot be polled, by a thread."""

    def __init__(self, file: BinaryIO):
        import queue

        self._raw: Any = getattr(file, "raw", file)  # the buffer has a lock, which would hold up the end of the process
        self._parts: queue.Queue[bytes | OSError] = queue.Queue(PARTS_AHEAD)
        threading.Thread(target=self._fetch, name="input", daemon=True).start()

    def _fetch(self) -> None:
        part = b"not the end"
        while part:
            try:
                part = self._raw.read(READ_BYTES)
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


InputSource = PolledInput | ThreadedInput


def arriving_lines(source: InputSource, name: str) -> Iterator[bytes | None]:
    """Yield lines with their ends, and None where the next line is not ready.

    A line longer than LONGEST_LINE is cut, and yielded once it is too long. Raises FastattnError if reading fails.
    """
    line = bytearray()  # the beginning of a line that has not ended
    is_dropping = has_new = False  # whether a long line's remainder is dropped; whether lines followed the last None
    while part := _read_part(source, name):
        *complete, tail = part.split(b"\n")
        for piece in complete:
            if not is_dropping:
                yield bytes(line) + piece + b"\n"
            line.clear()
            is_dropping, has_new = False, True
        if not is_dropping:
            line += tail
        if len(line) > files.LONGEST_LINE:
            yield bytes(line)
            line.clear()
            is_dropping = has_new = True
        if has_new and not source.is_ready():
            yield None
            has_new = False
    if line:
        yield bytes(line)


def _read_part(source: InputSource, name: str) -> bytes:
    try:
        return source.read()
    except OSError as error:
        raise FastattnError(f"cannot read {name}: {error.strerror or error}") from error


@contextlib.contextmanager
def open_output(path: str | None) -> Iterator[OutputFile]:
    """Standard output (path None or "-"), or a new file that takes the name ``path`` when the block succeeds.

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


def rate_text(lines: InputLines, seconds: float) -> str:
    """``1,234 lines, 56.7 lines/s, 890 characters/s``: the number and the speed of finished lines."""
    seconds = max(seconds, 1e-9)
    count, characters = lines.finished, lines.finished_characters
    return f"{counted(count, 'line')}, {count / seconds:,.1f} lines/s, {characters / seconds:,.0f} characters/s"


def progress_text(lines: InputLines, seconds: float) -> str:
    """``rate_text``, and ``, 78%, 3 min left`` if the input's size is known."""
    text = rate_text(lines, seconds)
    if lines.size and lines.finished:
        share = min(1.0, lines.finished_bytes / lines.size)
        text += f", {math.floor(100 * share)}%"
        if share < 1:
            text += f", {duration(seconds / share - seconds)} left"
    return text


def print_report(lines: InputLines, start: float, load_end: float, compilation: Compilation) -> None:
    """Print on stderr how many lines were finished since the model was loaded, how fast, and how long loading took."""
    seconds = time.monotonic() - load_end
    speed = f"{rate_text(lines, seconds)} in {seconds:.2f} s"
    click.echo(f"{speed} (loaded in {load_end - start:.2f} s{compilation.remark()})", err=True)
