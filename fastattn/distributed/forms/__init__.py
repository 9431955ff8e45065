"""Forms of input, a module each: how a file is cut into parts, and how the rows of a part are read."""

from collections.abc import Iterable
from typing import Protocol

from fastattn.distributed.blocks import Block
from fastattn.distributed.forms import csv, json_lines, parquet, text
from fastattn.distributed.rows import Rows
from fastattn.distributed.storage import InputFile
from fastattn.errors import check_known


class Form(Protocol):
    """What a module of a form has."""

    def cut(self, file: InputFile, column: str, block_bytes: int) -> Iterable[tuple[int, int, int]]:
        """Start, stop and size, as a Block has them, of each part in order; InputError for a column that is no text."""

    def read(self, block: Block, column: str) -> Rows:
        """The rows of a part."""


FORMS: dict[str, Form] = {"text": text, "jsonl": json_lines, "csv": csv, "parquet": parquet}


def form_named(name: str) -> Form:
    """The form of that name; InputError that lists them for another."""
    check_known("form", name, list(FORMS))
    return FORMS[name]
