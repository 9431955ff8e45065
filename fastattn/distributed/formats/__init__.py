"""Input formats, a module each, and blocks: the parts of the inputs that are computed and written as one."""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Protocol

from fastattn.distributed.formats import csv, json_lines, parquet, text
from fastattn.distributed.formats.blocks import BlockRows, CorpusBlock
from fastattn.distributed.storage import InputFile
from fastattn.errors import InputError, check_count
from fastattn.system.worker_threads import map_in_threads


class FileFormat(Protocol):
    """The functions of a format's module."""

    def cut(self, file: InputFile, column: str, block_bytes: int) -> Iterable[tuple[int, int, int]]:
        """Start, stop and size of each part, as in a CorpusBlock; InputError for a column without texts."""

    def read(self, block: CorpusBlock, column: str) -> BlockRows:
        """The rows of a part."""


FORMATS: dict[str, FileFormat] = {"text": text, "jsonl": json_lines, "csv": csv, "parquet": parquet}

# Some 200 actors have work, unless the job is small: then its start would take longer than the work. A lost machine
# costs half a minute to some minutes of translation on two threads at most.
_PARTS = 200
_READERS = 16  # files read at a time: an object store answers each after some 20 ms
_LEAST, _MOST = 128 << 10, 4 << 20  # bytes
_MOST_BLOCKS = 1_000_000  # each has two files, and a place in the driver's memory


def block_bytes(files: Sequence[InputFile]) -> int:
    """The default size of a block, in bytes of text."""
    return min(max(sum(file.size for file in files) // _PARTS, _LEAST), _MOST)


def cut(files: Sequence[InputFile], column: str, block_bytes: int) -> list[CorpusBlock]:
    """The blocks of all files; an empty file has none.

    A row that is longer than ``block_bytes`` is a block, or the greater part of one.
    Raises InputError where a file cannot be read or has no such column of texts, and for too many blocks.
    """
    check_count("block_bytes", block_bytes)
    with_texts = sum(file.size > 0 for file in files)
    if with_texts > _MOST_BLOCKS:
        raise InputError(
            f"{with_texts:,} files with texts are more than the {_MOST_BLOCKS:,} blocks of a job; put their texts into "
            "fewer files, or begin several jobs"
        )

    def parts_of(file: InputFile) -> list[tuple[int, int, int]]:
        return list(islice(FORMATS[file.form].cut(file, column, block_bytes), _MOST_BLOCKS + 1))

    blocks: list[CorpusBlock] = []
    for file, parts in zip(files, map_in_threads(parts_of, files, _READERS), strict=True):
        for start, stop, size in parts:
            if len(blocks) == _MOST_BLOCKS:
                raise InputError(f"more than {_MOST_BLOCKS:,} blocks of {block_bytes:,} bytes; make them larger")
            blocks.append(CorpusBlock(len(blocks), file.url, file.form, start, stop, size))
    return blocks


def read_block(block: CorpusBlock, column: str) -> BlockRows:
    """Read a block's rows; ``cut`` has checked the column. InputError or FastattnError where they cannot be read."""
    return FORMATS[block.form].read(block, column)
