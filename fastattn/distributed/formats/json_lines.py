"""JSON lines: one object a line, whose text the output keeps unchanged."""

import base64
import datetime
import decimal
import hashlib
import itertools
import json
import math
import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fastattn.distributed.extra import import_pyarrow
from fastattn.distributed.formats.blocks import BlockRows, ByteLines, CorpusBlock, check_text, even_parts, lines_of
from fastattn.distributed.storage import InputFile, open_input, public_url
from fastattn.errors import InputError, described
from fastattn.printable import first_of, json_escaped
from fastattn.system.files import text_of

if TYPE_CHECKING:
    import pyarrow

OBJECT_COLUMN = "json"  # the column of whole objects in a table
_SAMPLED_LINES = 100  # at the beginning of a file, which are searched for the column
_STRING_OR_WORD = re.compile(r'"(?:[^"\\]+|\\.)*"|-?Infinity|NaN')


def cut(file: InputFile, column: str, block_bytes: int) -> Iterator[tuple[int, int, int]]:
    """Parts of equal size. Only the first lines are read; InputError, with their fields, if none has the column."""
    fields: dict[str, None] = {}
    first_fault = ""
    with open_input(file.url) as stream:
        lines = ByteLines(stream, file.url, 0, file.size)
        rows = 0
        for line in itertools.islice(lines, _SAMPLED_LINES):
            if lines.is_blank(line):
                continue
            rows += 1
            try:
                fields |= dict.fromkeys(_object(_line_text(line, lines), lines))
            except InputError as error:
                first_fault = first_fault or f" ({error})"
    if rows and column not in fields:
        names = ", ".join(first_of(list(fields), "fields")) or f"none{first_fault}"
        fault = f"no field {column!r} in the first {_SAMPLED_LINES} lines; found: {names}"
        raise InputError(f"{public_url(file.url)}: {fault}")
    return even_parts(file.size, block_bytes)


def read(block: CorpusBlock, column: str) -> BlockRows:
    """The objects whose lines begin in the block; blank lines are no rows."""
    records: list[dict[str, Any]] = []
    sources: list[str | None] = []
    texts: list[str | None] = []
    faults: dict[int, str] = {}
    starts: list[int] = []
    digest = hashlib.sha256()
    with lines_of(block, digest) as lines:
        for line in lines:
            if lines.is_blank(line):
                continue
            record: dict[str, Any] = {}
            object_source = text = None
            try:
                source = _line_text(line, lines)
                record, object_source = _object(source, lines), source
                text = _column_text(record.get(column), column, lines)
            except InputError as error:
                faults[len(texts)] = str(error)
            records.append(record)
            sources.append(object_source)
            texts.append(text)
            starts.append(lines.position)
    return JsonRows(texts, faults, starts, digest.hexdigest(), records, sources, column)


def _line_text(line: bytes, lines: ByteLines) -> str:
    """The last line as text, without its end; InputError if it is not text."""
    return text_of(line, lines.location(), is_first=lines.position == 0)


def _object(text: str, lines: ByteLines) -> dict[str, Any]:
    """The object of the last line; InputError if the line is no JSON object."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{lines.location()}: not JSON ({error.msg} at column {error.colno})") from None
    except (ValueError, RecursionError) as error:  # a number with thousands of digits, or thousands of brackets
        reason = "brackets too deep" if isinstance(error, RecursionError) else "a number with too many digits"
        raise InputError(f"{lines.location()}: JSON with {reason}") from None
    if not isinstance(value, dict):
        raise InputError(f"{lines.location()}: no JSON object but {described(value)}")
    return value


def _column_text(value: Any, column: str, lines: ByteLines) -> str | None:
    """The column's value; InputError if the value is neither text nor null."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise InputError(f"{lines.location()}: the field {column!r} should be a string, and is {described(value)}")
    if not _is_unicode(value):
        raise InputError(f"{lines.location()}: half of a surrogate pair, so this is not text")
    return check_text(value, lines.location())


def _is_unicode(text: str) -> bool:
    r"""Whether a text has no half of a surrogate pair, which JSON can contain as an escape, ``\ud83d``."""
    return text.isascii() or re.search("[\ud800-\udfff]", text) is None


@dataclass
class JsonRows(BlockRows):
    """The JSON objects of lines; for a line that is no object, an empty one.

    sources  the line of each object, without its end; None for a line that is no object
    """

    dictionaries: list[dict[str, Any]]
    sources: list[str | None]
    column: str

    def table(self) -> "pyarrow.Table":
        """The column as strings, null for other values, and a column "json" of the objects' lines.

        Other fields have no columns, since their types may differ from block to block. Raises InputError if the column
        is itself named "json".
        """
        if self.column == OBJECT_COLUMN:
            raise InputError(f"the column {OBJECT_COLUMN!r} of Parquet has the whole lines of JSON; use --format jsonl")
        pa = import_pyarrow()
        values = [record.get(self.column) for record in self.dictionaries]
        texts = [value if isinstance(value, str) and _is_unicode(value) else None for value in values]
        return pa.table({self.column: pa.array(texts, pa.string()), OBJECT_COLUMN: pa.array(self.sources, pa.string())})

    def records(self) -> list[dict[str, Any]]:
        """The objects; for a line that is no object, an empty one."""
        return self.dictionaries

    def objects(self) -> list[str]:
        """The lines unchanged, with numbers of any size, repeated names, and escapes of halves of surrogate pairs."""
        objects = []
        for source in self.sources:
            if source is not None and ("NaN" in source or "Infinity" in source):  # JSON has neither
                source = _STRING_OR_WORD.sub(lambda word: word[0] if word[0].startswith('"') else "null", source)
            objects.append(json_escaped((source or "{}").strip().replace("\t", " ").replace("\r", " ")))
        return objects


def json_values(column: "pyarrow.ChunkedArray", name: str, url: str) -> list[Any]:
    """The values of a column: dates and times as ISO 8601, decimal numbers as strings, bytes as base64.

    Infinity and NaN are null. Raises InputError if a type has no form in JSON.
    """
    pa = import_pyarrow()
    data_type, types = column.type, pa.types
    try:
        if is_text(data_type):
            return text_values(column)
        if types.is_timestamp(data_type) or types.is_time(data_type):  # Python's own types have no nanoseconds
            return [value and value.replace(" ", "T") for value in column.cast(pa.string()).to_pylist()]
        return [_json_value(value) for value in column.to_pylist()]
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(
            f"{url}: the column {name!r} of type {data_type} has no form in JSON ({reason}); use --format parquet"
        ) from None


def is_text(data_type: "pyarrow.DataType") -> bool:
    """Whether a column's type is strings, a dictionary of strings, or nulls only."""
    types = import_pyarrow().types
    value_type = data_type.value_type if types.is_dictionary(data_type) else data_type
    checks = (types.is_string, types.is_large_string, types.is_string_view, types.is_null)
    return any(check(value_type) for check in checks)


def text_values(column: "pyarrow.ChunkedArray") -> list[str | None]:
    """The values of a column of text, None for null and for bytes that are not UTF-8."""
    try:
        return column.to_pylist()  # type: ignore[no-any-return]
    except UnicodeDecodeError:
        pa = import_pyarrow()
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type, safe=False)
        texts: list[str | None] = []
        for value in column.cast(pa.large_binary()).to_pylist():
            try:
                texts.append(None if value is None else value.decode("utf-8"))
            except UnicodeDecodeError:
                texts.append(None)
        return texts


def _json_value(value: Any) -> Any:
    """A value as a type of JSON; TypeError for a value that has no form in JSON."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, dict):
        return {name: _json_value(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):  # a tuple is a key and its value in a map
        return [_json_value(inner) for inner in value]
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, decimal.Decimal | uuid.UUID):
        return str(value)
    raise TypeError(f"{type(value).__name__}s have none")
