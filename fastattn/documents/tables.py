"""Tables and records: CSV, TSV and JSON lines, of which chosen fields are translated."""

import csv
import io
import json
import re
from collections.abc import Sequence
from typing import Any

from fastattn.documents.marks import Marked
from fastattn.documents.texts import Steps, decoded, replaced
from fastattn.errors import InputError

Path = tuple[str | int, ...]


def translate_table(data: bytes, name: str, fields: Sequence[str], delimiter: str) -> Steps:
    """A table; fields by their names in the first row, or by their numbers from 1, where that row is data too."""
    text = decoded(data, name)
    csv.field_size_limit(max(csv.field_size_limit(), len(text)))
    numbered = bool(fields) and all(one.isdecimal() for one in fields)
    try:
        delimiter, rows = _rows(text, delimiter, () if numbered else fields)
    except csv.Error as error:
        raise InputError(f"{name}: not a table: {error}") from None
    kept = dict[str, Any](delimiter=delimiter, lineterminator="\r\n" if "\r\n" in text else "\n")
    head = rows[0] if rows else []
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


def _rows(text: str, delimiter: str, names: Sequence[str]) -> tuple[str, list[list[str]]]:
    """(the delimiter, the rows): a comma may be a semicolon in fact, as spreadsheets write where commas are decimal.

    names  of columns, by which it is told; without them by rows that all have one cell, or all have as many
    """
    read = {
        one: list(csv.reader(io.StringIO(text, newline=""), delimiter=one, strict=True))
        for one in (delimiter, *(";" * (delimiter == ",")))
    }
    for one, rows in read.items():
        lengths = {len(row) for row in rows if row}
        if rows and ({*names} <= {*rows[0]} if names else len(lengths) == 1 and lengths != {1}):
            return one, rows
    return delimiter, read[delimiter]


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
    """A JSON object a line; fields by their names, inner ones as outer.inner. A list's texts are translated each.

    All else stays as it is written.
    """
    page, at = decoded(data, name), 0
    places = dict[tuple[int, int], str]()  # where a text stands -> the text
    for number, line in enumerate(page.splitlines(keepends=True), 1):
        try:
            record = json.loads(line) if line.strip() else {}
        except (ValueError, RecursionError) as error:
            raise InputError(f"{name}, line {number}: not JSON: {error}") from None
        if not isinstance(record, dict):
            raise InputError(f"{name}, line {number}: expected a JSON object")
        paths = dict(path for field in fields for path in _texts_at(record, field))
        spans = _string_spans(line) if paths else {}
        places |= {(at + spans[path][0], at + spans[path][1]): text for path, text in paths.items()}
        at += len(line)
    if page.strip() and not places:
        raise InputError(f"{name}: no record has a text in {' or '.join(fields)}")
    answers = yield [Marked(text) for text in places.values()]
    edits = [(*span, json.dumps(answer.text, ensure_ascii=False)) for span, answer in zip(places, answers)]
    return replaced(page, edits).encode("utf-8", "surrogatepass")


def _texts_at(record: Any, field: str, *path: str) -> list[tuple[Path, str]]:
    """(the names and numbers that lead to a text, the text) of each."""
    first, _, rest = field.partition(".")
    if not isinstance(record, dict):
        return []
    if field in record or not rest:
        first, rest = field, ""
    value = record.get(first)
    if rest:
        return _texts_at(value, rest, *path, first)
    if isinstance(value, list):
        return [((*path, first, number), one) for number, one in enumerate(value) if isinstance(one, str)]
    return [((*path, first), value)] if isinstance(value, str) else []


def _string_spans(line: str) -> dict[Path, tuple[int, int]]:
    """Where each value that is a string stands in a line of JSON, by what leads to it; of one name twice the last."""
    spans, path, is_key = dict[Path, tuple[int, int]](), list[Any](), False
    for token in re.finditer(r'"(?:[^"\\]|\\.)*"|[{}\[\],]', line):
        match token[0]:
            case "{" | "[" as opened:
                path.append(None if opened == "{" else 0)
                is_key = opened == "{"
            case "}" | "]":
                path.pop()
            case ",":
                is_key = not isinstance(path[-1], int)
                path[-1] = None if is_key else path[-1] + 1
            case _ if is_key:
                path[-1], is_key = json.loads(token[0]), False
            case _:
                spans[tuple(path)] = token.span()
    return spans
