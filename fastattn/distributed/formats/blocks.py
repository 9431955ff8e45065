"""Blocks of files; blocks' rows, with the texts to compute and all columns, which the output keeps; lines of files."""

import contextlib
import io
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fastattn.distributed.extra import import_pyarrow
from fastattn.distributed.storage import open_input, public_url
from fastattn.errors import FastattnError, InputError
from fastattn.printable import counted, first_of, json_line
from fastattn.system import files

if TYPE_CHECKING:
    import pyarrow


@dataclass(frozen=True)
class CorpusBlock:
    """A part of an input file.

    number       from 0, through all files
    start, stop  in Parquet, numbers of rows; else bytes of the file: the block has the rows that begin in [start, stop)
    size         bytes of text, estimated
    """

    number: int
    url: str
    form: str
    start: int
    stop: int
    size: int

    @property
    def location(self) -> dict[str, Any]:
        """Where the block's rows are, as fields of a record."""
        return {"url": public_url(self.url), "start": self.start, "stop": self.stop}


@dataclass
class BlockRows(ABC):
    """The rows of a block, in order.

    texts   of the column, None if the text is null or the row is faulty
    faults  number of a row in the block -> the fault, and its location in the file
    starts  the byte of the file at which each row begins; in Parquet, the number of each row
    digest  SHA-256 of the bytes or table that was read, hexadecimal
    """

    texts: list[str | None]
    faults: dict[int, str]
    starts: Sequence[int]
    digest: str

    @property
    def count(self) -> int:
        return len(self.texts)

    @abstractmethod
    def table(self) -> "pyarrow.Table":
        """All input columns in order, with their types; values that cannot be read, in a faulty row, are null."""

    @abstractmethod
    def records(self) -> list[dict[str, Any]]:
        """The rows as dictionaries of values of JSON's types."""

    def objects(self) -> list[str]:
        """The rows as JSON objects, a line each."""
        return list(map(json_line, self.records()))


@dataclass
class StringRows(BlockRows):
    """Rows of plain text or CSV, whose columns are all strings."""

    columns: dict[str, list[str | None]]

    def table(self) -> "pyarrow.Table":
        pa = import_pyarrow()
        return pa.table({name: pa.array(values, pa.string()) for name, values in self.columns.items()})

    def records(self) -> list[dict[str, Any]]:
        return [dict(zip(self.columns, values)) for values in zip(*self.columns.values())]


def check_text(text: str, location: str) -> str:
    """The text of a field; InputError if the text is longer than a line may be, or has a NUL byte."""
    if len(text) > files.LONGEST_LINE:
        raise InputError(f"{location}: longer than {files.LONGEST_LINE:,} characters, so this is not text")
    if "\0" in text:
        raise InputError(f"{location}: a NUL byte, so this is not text")
    return text


def missing_column(url: str, column: str, names: list[str]) -> InputError:
    return InputError(f"{public_url(url)} has no column {column!r}; found: {', '.join(first_of(names, 'columns'))}")


_MOST_COUNTED_BYTES = 1 << 30  # of a file, to count their lines, which takes a second
_BUFFER_BYTES = 1 << 18  # read at once: an object store answers a request after some 20 ms


class ByteLines:
    """Iterates over the lines, with their ends, that begin in [start, stop); a longer line is cut at LONGEST_LINE.

    position       the byte at which the last line begins
    next_position  the byte at which the next line begins, except after a line that was cut
    """

    def __init__(self, file: Any, url: str, start: int, stop: int, digest: Any = None):
        """``file`` is a NativeFile, which the caller closes; ``start`` may lie inside a line.

        digest  an object of hashlib, which each line updates
        """
        self._digest, self._name, self._stop = digest, public_url(url), stop
        self._file = io.BufferedReader(_UnclosedFile(file), _BUFFER_BYTES)
        self._is_cut = False
        size = file.size()
        if size < stop:
            fault = f"{self._name} has {counted(size, 'byte')}, and had at least {stop:,} when it was cut into blocks"
            raise FastattnError(fault)
        self.position = self.next_position = max(start - 1, 0)
        self._file.seek(self.next_position)
        if start > 0:
            self._skip_line()

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if self._is_cut:
            self._skip_line()
        if self.next_position >= self._stop:
            raise StopIteration
        line = self._file.readline(files.LONGEST_LINE + 1)
        if not line:
            raise StopIteration
        self.position, self.next_position = self.next_position, self.next_position + len(line)
        self._is_cut = len(line) > files.LONGEST_LINE and not line.endswith(b"\n")
        if self._digest is not None:
            self._digest.update(line)
        return line

    def is_blank(self, line: bytes) -> bool:
        """Whether the last line has only white space and, at the beginning of the file, a byte order mark."""
        return not (line if self.position else line.removeprefix(files.BYTE_ORDER_MARK)).strip()

    def location(self, position: int | None = None) -> str:
        """Where the line at a byte is, by default the last line, for messages."""
        return f"{self._name}, byte {self.position if position is None else position}"

    def _skip_line(self) -> None:
        while self.next_position < self._stop:
            part = self._file.readline(min(files.LONGEST_LINE, self._stop - self.next_position))
            self.next_position += len(part)
            if not part or part.endswith(b"\n"):
                break
        self._is_cut = False


@contextlib.contextmanager
def lines_of(block: CorpusBlock, digest: Any) -> Iterator[ByteLines]:
    """Open the lines of a block, each of which updates ``digest``."""
    with open_input(block.url) as file:
        yield ByteLines(file, block.url, block.start, block.stop, digest)


def line_number(url: str, position: int) -> int | None:
    """The number, from 1, of the line that begins at a byte; None if counting would take long."""
    if position > _MOST_COUNTED_BYTES:
        return None
    count = 1
    with open_input(url) as file:
        while position > 0 and (part := file.read(min(position, _BUFFER_BYTES))):
            count += part.count(b"\n")
            position -= len(part)
    return count


class _UnclosedFile(io.RawIOBase):
    """Passes reads of a buffered reader on to a NativeFile, but not the reader's ``close``."""

    def __init__(self, file: Any):
        self._file = file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return int(self._file.readinto(buffer))

    def seek(self, offset: int, whence: int = 0) -> int:
        return int(self._file.seek(offset, whence))


def even_parts(size: int, block_bytes: int) -> Iterator[tuple[int, int, int]]:
    """The fewest equal parts of a file with at most ``block_bytes`` each, as (start, stop, size)."""
    count = -(-size // block_bytes)
    for number in range(count):
        start, stop = number * size // count, (number + 1) * size // count
        yield start, stop, stop - start
