"""Formats of input, a module each: how a file is cut into parts, and how the rows of a part are read."""

from collections.abc import Iterable
from typing import Protocol

from fastattn.distributed.formats import csv, json_lines, parquet, text
from fastattn.distributed.formats.rows import BlockRows, CorpusBlock
from fastattn.distributed.storage import InputFile


class FileFormat(Protocol):
    """What the module of a format has."""

    def cut(self, file: InputFile, column: str, block_bytes: int) -> Iterable[tuple[int, int, int]]:
        """Start, stop and size of each part, as in a CorpusBlock; InputError for a column that is no text."""

    def read(self, block: CorpusBlock, column: str) -> BlockRows:
        """The rows of a part."""


FORMATS: dict[str, FileFormat] = {"text": text, "jsonl": json_lines, "csv": csv, "parquet": parquet}
