"""JSON lines: an object a line, whose values are carried through as they came."""

import hashlib
import itertools
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from fastattn.distributed.forms.lines import Lines, even_parts
from fastattn.distributed.rows import Rows, checked
from fastattn.distributed.storage import InputFile, arrow, open_input
from fastattn.errors import FastattnError, InputError, described
from fastattn.files import text_of

if TYPE_CHECKING:
    import pyarrow

    from fastattn.distributed.blocks import Block

_LOOKED_AT = 100  # lines, for the column


def cut(file: InputFile, column: str, block_bytes: int) -> Iterator[tuple[int, int, int]]:
    """Parts of equal size; of a file only the first lines are read, one of which must have the column."""
    _check_column(file, column)
    return even_parts(file.size, block_bytes)


def _check_column(file: InputFile, column: str) -> None:
    """Raise InputError that names the fields there are, where none of the first lines has the column."""
    fields: dict[str, None] = {}
    seen, reason = 0, ""
    with open_input(file.url) as stream:
        lines = Lines(stream, file.url, 0, file.size)
        for line in itertools.islice(lines, _LOOKED_AT):
            try:
                fields |= dict.fromkeys(_object(line, lines.place(), lines.position == 0) or {})
                seen += 1
            except InputError as error:
                reason = reason or f" ({error})"
    if column not in fields and (fields or reason or seen):
        found = ", ".join(fields) or f"none{reason}"
        raise InputError(f"{file.url} has no field {column!r} in its first {_LOOKED_AT} lines; found: {found}")
