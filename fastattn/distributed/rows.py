"""What a block holds: the texts to compute, and all columns of its rows to carry through."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fastattn.distributed.extra import import_pyarrow
from fastattn.errors import InputError
from fastattn.printable import json_line
from fastattn.system import files

if TYPE_CHECKING:
    import pyarrow

    from fastattn.distributed.blocks import CorpusBlock


class BlockRows(ABC):
    """The rows of a block, in order.

    texts   of the column, None where it is null or the row is faulty
    faults  row in the block -> what is wrong with it, with its place in the file
    places  where each begins: the byte of the file; of Parquet the number of the row
    digest  SHA-256 of what was read, hexadecimal
    """

    def __init__(self, texts: list[str | None], faults: dict[int, str], places: Sequence[int], digest: str):
        self.texts, self.faults, self.places, self.digest = texts, faults, places, digest

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


class StringRows(BlockRows):
    """Rows whose columns are all strings: of text and of CSV."""

    def __init__(
        self,
        columns: dict[str, list[str | None]],
        texts: list[str | None],
        faults: dict[int, str],
        places: Sequence[int],
        digest: str,
    ):
        super().__init__(texts, faults, places, digest)
        self._columns = columns

    def table(self) -> "pyarrow.Table":
        """As the base class says; every column is a string."""
        pa = import_pyarrow()
        return pa.table({name: pa.array(values, pa.string()) for name, values in self._columns.items()})

    def records(self) -> list[dict[str, Any]]:
        """As the base class says."""
        return [dict(zip(self._columns, values)) for values in zip(*self._columns.values())]


def read_block(block: "CorpusBlock", column: str) -> BlockRows:
    """Read a block's rows, as ``cut`` has checked the column; InputError or FastattnError where it cannot be read."""
    from fastattn.distributed.formats import form_named  # which needs the classes above

    return form_named(block.form).read(block, column)


def checked(text: str, place: str) -> str:
    """A text from a field that is no line; InputError where it is none that a line could be."""
    if len(text) > files.LONGEST_LINE:
        raise InputError(f"{place}: longer than {files.LONGEST_LINE:,} characters, so this is not text")
    if "\0" in text:
        raise InputError(f"{place}: a NUL byte, so this is not text")
    return text
