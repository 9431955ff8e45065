"""Tables and records: CSV, TSV and JSON lines, of which some fields are translated."""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from fastattn.documents.catalogs import translate_values
from fastattn.documents.texts import DocumentPlan, SourceText, decode_text, lines_of
from fastattn.errors import InputError

Path = tuple[str | int, ...]
quoted = partial(json.dumps, ensure_ascii=False)


def translate_table(data: bytes, name: str, fields: Sequence[str], delimiter: str) -> DocumentPlan:
    """Translate columns of a table. ``fields``: names in the first row, or numbers from 1 if there is no such row."""
    page = decode_text(data, name)
    by_number = bool(fields) and all(field.isdecimal() for field in fields)
    delimiter, rows = _rows(page, delimiter, () if by_number else fields, name)
    header = [cell.text for cell in rows[0]] if rows else []
    columns = dict.fromkeys(_column(field, header, by_number, name) for field in fields)
    cells = [row[column] for row in rows[not by_number :] for column in columns if column < len(row)]
    page = yield from translate_values(page, cells, lambda cell, text: _cell_source(page, cell, text, delimiter))
    return page.encode("utf-8", "surrogatepass")


def _cell_source(page: str, cell: SourceText, text: str, delimiter: str) -> str:
    """The source of a cell's new text, in quotes if the cell has them or CSV needs them; TSV's tabs become blanks."""
    is_quoted = page.startswith('"', cell.start) and cell.end > cell.start + 1 and page[cell.end - 1] == '"'
    if not is_quoted and delimiter == "\t":
        return re.sub(r"[\t\r\n]+", " ", text)
    is_quoted = is_quoted or bool(re.search(rf'[{delimiter}"\r\n]|\A\s|\s\Z', text))
    return '"' + text.replace('"', '""') + '"' if is_quoted else text


def _rows(page: str, delimiter: str, names: Sequence[str], name: str) -> tuple[str, list[list[SourceText]]]:
    """(delimiter, rows). For a comma also tries a semicolon, a tab and a bar, which programs write in its place.

    names  columns that the first row must have for a delimiter to be right; without names, all rows must have the same
           number of cells, more than one
    """
    for candidate in (delimiter, *(";\t|" * (delimiter == ","))):
        with suppress(InputError):
            rows = list(_cells(page, candidate, name))
            lengths = {len(row) for row in rows}  # in cells
            has_names = rows and {*names} <= {cell.text for cell in rows[0]}
            if has_names if names else len(lengths) == 1 and lengths != {1}:
                return candidate, rows
    return delimiter, list(_cells(page, delimiter, name))


def _cells(page: str, delimiter: str, name: str) -> Iterator[list[SourceText]]:
    """The rows of a table by RFC 4180, without empty ones; in TSV, a quote that does not end a cell is text."""
    quoted_cell = re.compile(rf'"((?:[^"]|"")*)"(?=[{delimiter}\r\n]|\Z)')
    plain_cell, line_end = re.compile(rf"[^{delimiter}\r\n]*"), re.compile(r"\r\n|\r|\n|\Z")
    position, row = 0, list[SourceText]()
    while position < len(page) or row:
        match = quoted_cell.match(page, position)
        if match is None and delimiter != "\t" and page.startswith('"', position):
            line = page.count("\n", 0, position) + 1
            raise InputError(f"{name}: not a table: the quote in line {line} does not end a cell")
        cell = match or plain_cell.match(page, position)
        assert cell is not None
        row.append(SourceText(*cell.span(), match[1].replace('""', '"') if match else cell[0]))
        position = cell.end()
        if page.startswith(delimiter, position):
            position += 1
            continue
        if len(row) > 1 or row[0].end > row[0].start:
            yield row
        line_end_match, row = line_end.match(page, position), []
        position = line_end_match.end() if line_end_match and line_end_match.end() > position else len(page)


def _column(field: str, header: list[str], by_number: bool, name: str) -> int:
    if by_number:
        number = int(field)
        if not 1 <= number <= max(1, len(header)):
            raise InputError(f"{name}: has {len(header)} columns, and no column {field}")
        return number - 1
    if field not in header:
        raise InputError(f"{name}: has no column {field!r}; it has {', '.join(header)[:200]}")
    return header.index(field)


def translate_json_lines(data: bytes, name: str, fields: Sequence[str]) -> DocumentPlan:
    """Translate fields of JSON objects, an object a line: texts or lists of texts; outer.inner is an inner field."""
    page, position = decode_text(data, name), 0
    texts = dict[tuple[int, int], str]()  # [start, end) of a text -> the text
    for number, line in enumerate(lines_of(page), 1):
        try:
            record = json.loads(line) if line.strip() else {}
        except (ValueError, RecursionError) as error:
            raise InputError(f"{name}, line {number}: not JSON: {error}") from None
        if not isinstance(record, dict):
            raise InputError(f"{name}, line {number}: expected a JSON object")
        paths = dict(path for field in fields for path in _texts_at(record, field))
        spans = dict(string_spans(line)) if paths else {}
        texts |= {(position + spans[path][0], position + spans[path][1]): text for path, text in paths.items()}
        position += len(line)
    if page.strip() and not texts:
        raise InputError(f"{name}: no record has a text in {' or '.join(fields)}")
    values = [SourceText(*span, text) for span, text in texts.items()]
    page = yield from translate_values(page, values, lambda _, text: quoted(text))
    return page.encode("utf-8", "surrogatepass")


def _texts_at(record: Any, field: str, *path: str) -> list[tuple[Path, str]]:
    """(path of names and indices, text) of each text that a record has in a field; ``path`` of the record itself."""
    outer, _, inner = field.partition(".")
    if not isinstance(record, dict):
        return []
    if field in record or not inner:
        outer, inner = field, ""
    value = record.get(outer)
    if inner:
        return _texts_at(value, inner, *path, outer)
    if isinstance(value, list):
        return [((*path, outer, number), item) for number, item in enumerate(value) if isinstance(item, str)]
    return [((*path, outer), value)] if isinstance(value, str) else []


def string_spans(text: str) -> Iterator[tuple[Path, tuple[int, int]]]:
    """(path, [start, end)) of each string value in a JSON text; values of a repeated name have the same path."""
    path, is_key = list[Any](), False
    for token in re.finditer(r'"(?:[^"\\]|\\.)*"|[{}\[\],]', text):
        match token[0]:
            case "{" | "[" as bracket:
                path.append(None if bracket == "{" else 0)
                is_key = bracket == "{"
            case "}" | "]":
                path.pop()
            case ",":
                is_key = not isinstance(path[-1], int)
                path[-1] = None if is_key else path[-1] + 1
            case _ if is_key:
                path[-1], is_key = json.loads(token[0]), False
            case _:
                yield tuple(path), token.span()
