"""Tables and records: CSV, TSV and JSON lines, of which chosen fields are translated."""

import csv
import io
import json
import re
from collections.abc import Sequence
from typing import Any

from fastattn.documents.marks import Marked
from fastattn.documents.texts import Steps, decoded
from fastattn.errors import InputError


def translate_table(data: bytes, name: str, fields: Sequence[str], delimiter: str) -> Steps:
    """A table; fields by their names in the first row, or by their numbers from 1, where that row is data too."""
    text = decoded(data, name)
    kept = dict[str, Any](delimiter=delimiter, lineterminator="\r\n" if "\r\n" in text else "\n")
    csv.field_size_limit(max(csv.field_size_limit(), len(text)))
    try:
        rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True))
    except csv.Error as error:
        raise InputError(f"{name}: not a table: {error}") from None
    head = rows[0] if rows else []
    numbered = bool(fields) and all(one.isdecimal() for one in fields)
    columns = [_column(one, head, numbered, name) for one in fields]
    places = [(row, column) for row in rows[not numbered :] for column in columns if column < len(row)]
    for (row, column), answer in zip(places, (yield [Marked(row[column]) for row, column in places])):
        row[column] = answer.text
    written = io.StringIO(newline="")
    if delimiter == "\t" and not re.search(r'(?:^|[\t\r\n])"', text):  # plain TSV: a quote within a field is text
        written.writelines(delimiter.join(row) + kept["lineterminator"] for row in rows)
    else:
        csv.writer(written, **kept).writerows(rows)
    return written.getvalue().encode()


def _column(field: str, head: list[str], numbered: bool, name: str) -> int:
    if numbered:
        number = int(field)
        if not 1 <= number <= max(1, len(head)):
            raise InputError(f"{name}: has {len(head)} columns, and no column {field}")
        return number - 1
    if field not in head:
        raise InputError(f"{name}: has no column {field!r}; it has {', '.join(head)[:200]}")
    return head.index(field)


def translate_json_lines(data: bytes, name: str, fields: Sequence[str]) -> Steps:
    """A JSON object a line; fields by their names, inner ones as outer.inner. A list's texts are translated each."""
    lines = decoded(data, name).splitlines(keepends=True)
    records, places = list[Any](), list[tuple[Any, Any]]()
    for number, line in enumerate(lines, 1):
        try:
            records.append(json.loads(line) if line.strip() else None)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{name}, line {number}: not JSON: {error}") from None
        if records[-1] is not None and not isinstance(records[-1], dict):
            raise InputError(f"{name}, line {number}: expected a JSON object")
        for field in fields:
            places += _texts_at(records[-1], field)
    if records and not places:
        raise InputError(f"{name}: no record has a text in {' or '.join(fields)}")
    for (holder, key), answer in zip(places, (yield [Marked(holder[key]) for holder, key in places])):
        holder[key] = answer.text
    ends = [line[len(line.rstrip("\r\n")) :] for line in lines]
    written = [
        line if one is None else json.dumps(one, ensure_ascii=False) + end
        for line, one, end in zip(lines, records, ends)
    ]
    return "".join(written).encode("utf-8", "surrogatepass")


def _texts_at(record: Any, field: str) -> list[tuple[Any, Any]]:
    """(what holds a text, its key there) of each."""
    first, _, rest = field.partition(".")
    if not isinstance(record, dict):
        return []
    if field in record or not rest:
        first, rest = field, ""
    value = record.get(first)
    if rest:
        return _texts_at(value, rest)
    if isinstance(value, list):
        return [(value, number) for number, one in enumerate(value) if isinstance(one, str)]
    return [(record, first)] if isinstance(value, str) else []
