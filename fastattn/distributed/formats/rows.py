"""A block of a file, and what it holds: the texts to compute, and all columns of its rows to carry through."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fastattn.distributed.extra import import_pyarrow
from fastattn.distributed.storage import public
from fastattn.errors import InputError
from fastattn.printable import json_line
from fastattn.system import files

if TYPE_CHECKING:
    import pyarrow


@dataclass(frozen=True)
class CorpusBlock:
    """A part of a file.

    number       from 0, over all files
    start, stop  bytes of text, JSON lines and CSV: the rows that begin there are the block's; rows of Parquet
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
        """Where its rows are, as a record has it."""
        return {"url": public(self.url), "start": self.start, "stop": self.stop}


@dataclass
class BlockRows(ABC):
    """The rows of a block, in order.

    texts   of the column, None where it is null or the row is faulty
    faults  row in the block -> what is wrong with it, and where in the file
    starts  where each begins: the byte of the file; of Parquet the number of the row
    digest  SHA-256 of what was read, hexadecimal
    """

    texts: list[str | None]
    faults: dict[int, str]
    starts: Sequence[int]
    digest: str

    @property
    def count(self) -> int:
        """How many rows there are."""
        return len(self.texts)

    @abstractmethod
    def table(self) -> "pyarrow.Table":
        """All input columns in order, with their types; of a faulty row what could be read, else null."""

    @abstractmethod
    def records(self) -> list[dict[str, Any]]:
        """The same as JSON's types, a dictionary a row."""

    def objects(self) -> list[str]:
        """The same as objects of JSON, each on one line."""
        return list(map(json_line, self.records()))


@dataclass
class StringRows(BlockRows):
    """Rows whose columns are all strings: of text and of CSV."""

    columns: dict[str, list[str | None]]

    def table(self) -> "pyarrow.Table":
        """As the base class says; every column is a string."""
        pa = import_pyarrow()
        return pa.table({name: pa.array(values, pa.string()) for name, values in self.columns.items()})

    def records(self) -> list[dict[str, Any]]:
        """As the base class says."""
        return [dict(zip(self.columns, values)) for values in zip(*self.columns.values())]


def checked(text: str, location: str) -> str:
    """A text from a field that is no line; InputError where it is none that a line could be."""
    if len(text) > files.LONGEST_LINE:
        raise InputError(f"{location}: longer than {files.LONGEST_LINE:,} characters, so this is not text")
    if "\0" in text:
        raise InputError(f"{location}: a NUL byte, so this is not text")
    return text
