"""CSV and TSV with a header. Every column is text, unchanged: 007 stays 007.

Quoted fields may hold line ends, so no byte in the middle of a file shows where a record begins. So ``cut`` reads the
whole file, with the parser of ``read``, so that both agree about every stray quote. Both read bytes as Latin-1, in
which each byte is a character: quotes and separators are ASCII, and a record that is not UTF-8 damages no other.
"""

import csv
import hashlib
import re
from collections.abc import Iterator
from typing import Any

from fastattn.distributed.formats.blocks import BlockRows, ByteLines, CorpusBlock, StringRows, missing_column
from fastattn.distributed.storage import InputFile, open_input, public_url
from fastattn.errors import InputError
from fastattn.printable import printable
from fastattn.system import files

_CHUNK = 1 << 20  # bytes that are searched for a quote at once


def cut(file: InputFile, column: str, block_bytes: int) -> Iterator[tuple[int, int, int]]:
    """Parts that begin with a record; each but the last has at least ``block_bytes``."""
    with open_input(file.url) as stream:
        names, start = _header(stream, file.url, file.size)
        if not names:
            return
        if column not in names:
            raise missing_column(file.url, column, names)
        for next_start in _part_starts(stream, file, start, block_bytes):
            yield start, next_start, next_start - start
            start = next_start
        if start < file.size:
            yield start, file.size, file.size - start


def _part_starts(stream: Any, file: InputFile, start: int, block_bytes: int) -> Iterator[int]:
    position = start  # at which a record begins
    while position < file.size:
        if position - start >= block_bytes:
            yield (start := position)
        chunk = stream.read_at(min(_CHUNK, file.size - position), position)
        last_line_end = chunk.rfind(b"\n")
        if last_line_end >= 0 and b'"' not in chunk:  # each line is a record
            while (end := chunk.find(b"\n", start + block_bytes - 1 - position, last_line_end)) >= 0:
                yield (start := position + end + 1)
            position += last_line_end + 1
            continue
        stop, position = position + len(chunk), file.size
        for record_start, _, _ in _records(ByteLines(stream, file.url, stop - len(chunk), file.size), file.url):
            if record_start >= stop:
                position = record_start
                break
            if record_start - start >= block_bytes:
                yield (start := record_start)


def read(block: CorpusBlock, column: str) -> BlockRows:
    """The records of the block; blank lines are no rows."""
    digest = hashlib.sha256()
    faults: dict[int, str] = {}
    starts: list[int] = []
    with open_input(block.url) as stream:
        names, _ = _header(stream, block.url, block.stop)
        digest.update("\0".join(names).encode("utf-8"))
        lines = ByteLines(stream, block.url, block.start, block.stop, digest)
        rows: list[list[str | None]] = []
        for record_start, fields, fault in _records(lines, block.url):
            if not fields and not fault:
                continue
            starts.append(record_start)
            values, reason = _decode_fields(fields)
            if len(fields) != len(names):
                reason = f"{len(fields)} field{'s'[: len(fields) != 1]}, where the header has {len(names)}"
            reason = fault or reason
            if reason:
                faults[len(rows)] = printable(f"{lines.location(record_start)}: {reason}")
            rows.append((values + [None] * len(names))[: len(names)])
    columns = dict(zip(names, map(list, zip(*rows)) if rows else ([] for _ in names)))
    texts = [None if row in faults else text for row, text in enumerate(columns.get(column, []))]
    return StringRows(texts, faults, starts, digest.hexdigest(), columns)


def _decode_fields(fields: list[str]) -> tuple[list[str | None], str]:
    """(the fields as text, None for a field that is not UTF-8; what is wrong with the last faulty field, or "")."""
    values: list[str | None] = []
    reason = ""
    for field in fields:
        try:
            values.append(field if field.isascii() else field.encode("latin-1").decode("utf-8"))
        except UnicodeDecodeError as error:
            values.append(None)
            byte = error.object[error.start]
            reason = f"not UTF-8 (byte 0x{byte:02x}); convert the file first, for example with iconv"
        if "\0" in field:
            reason = "a NUL byte, so this is not text"
    return values, reason


def _header(stream: Any, url: str, size: int) -> tuple[list[str], int]:
    """(names of the columns, the byte behind the header); no names for a file of blank lines.

    Raises InputError if the first record cannot be a header.
    """
    lines = ByteLines(stream, url, 0, size)
    for _, fields, fault in _records(lines, url):
        if not fields and not fault:
            continue
        names, reason = _decode_fields(fields)
        duplicate = next((name for name in names if names.count(name) > 1), None)
        reason = fault or reason or (f"two columns have the name {duplicate!r}" if duplicate is not None else "")
        if reason:
            raise InputError(f"{public_url(url)}: the first line should be the columns' names: {reason}")
        return [name or "" for name in names], lines.next_position
    return [], size


class _RecordTooLong(Exception):
    """A record has more bytes than a line may have. Raised through the parser, which then begins a new record."""


class _RecordLines:
    """Gives the lines to the parser, as characters, record by record.

    start          the byte at which the present record begins
    length         the record's bytes so far; 0: the next line is the record's first
    is_unfinished  whether the lines end inside a quoted field
    """

    def __init__(self, lines: ByteLines):
        self._lines = lines
        self.length = self.start = 0
        self.is_unfinished = False

    def __iter__(self) -> "_RecordLines":
        return self

    def __next__(self) -> str:
        line = next(self._lines, None)
        if line is None:
            self.is_unfinished = self.length > 0  # the parser takes another line of a record only inside quotes
            raise StopIteration
        self.start = self.start if self.length else self._lines.position
        self.length += len(line)
        if self.length > files.LONGEST_LINE:
            raise _RecordTooLong
        if self._lines.position == 0:
            line = line.removeprefix(files.BYTE_ORDER_MARK)
        return line.decode("latin-1")


def _records(lines: ByteLines, url: str) -> Iterator[tuple[int, list[str], str]]:
    """Yield (first byte, fields in Latin-1, fault or "") of each record; a blank line is a record without fields."""
    # The limit of the whole process is raised, and stays, since a lower limit would cut the fields of other threads.
    if csv.field_size_limit() < 2 * files.LONGEST_LINE:
        csv.field_size_limit(2 * files.LONGEST_LINE)
    record_lines = _RecordLines(lines)
    parser = csv.reader(record_lines, delimiter="\t" if re.search(r"\.tsv(\?|$)", url.lower()) else ",")
    while True:
        record_lines.length = 0
        fields: list[str] = []
        fault = ""
        try:
            fields = next(parser)
        except StopIteration:
            return
        except csv.Error as error:  # a carriage return in the middle of a line
            fault = f"not CSV ({str(error).partition(' - ')[0]})"
        except _RecordTooLong:
            fault = f"longer than {files.LONGEST_LINE:,} bytes, so a quote may not be closed"
        fault = "a quoted field that does not end" if record_lines.is_unfinished else fault
        yield record_lines.start, fields, fault
