"""Input formats, a module each; and blocks, the parts of the inputs that are computed and written one by one."""

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
        """(start, stop, size) of each part of a file, as in a CorpusBlock; InputError for a column without texts."""

    def read(self, block: CorpusBlock, column: str) -> BlockRows:
        """The rows of a block."""


FORMATS: dict[str, FileFormat] = {"text": text, "jsonl": json_lines, "csv": csv, "parquet": parquet}

# Up to 200 actors have work, unless the job is so small that their start would take longer than the work. What a lost
# machine was translating on two threads takes half a minute to some minutes to repeat.
_BLOCKS_OF_JOB = 200
_READER_THREADS = 16  # for files: an object store answers a request after some 20 ms
_LEAST_BYTES, _MOST_BYTES = 128 << 10, 4 << 20  # of a block
_MOST_BLOCKS = 1_000_000  # each block has two files, and takes memory of the driver


def block_bytes(files: Sequence[InputFile]) -> int:
    """The default size of a block, in bytes of text."""
    return min(max(sum(file.size for file in files) // _BLOCKS_OF_JOB, _LEAST_BYTES), _MOST_BYTES)


def cut(files: Sequence[InputFile], column: str, block_bytes: int) -> list[CorpusBlock]:
    """The blocks of all files; an empty file has none.

    A row that is longer than ``block_bytes`` is a block alone, or with a few short rows.
    Raises InputError if a file cannot be read or has no such column of texts, and for too many blocks.
    """
    check_count("block_bytes", block_bytes)
    nonempty = sum(file.size > 0 for file in files)
    if nonempty > _MOST_BLOCKS:
        raise InputError(
            f"{nonempty:,} files with texts are more than the {_MOST_BLOCKS:,} blocks of a job; put their texts into "
            "fewer files, or begin several jobs"
        )

    def parts_of(file: InputFile) -> list[tuple[int, int, int]]:
        return list(islice(FORMATS[file.form].cut(file, column, block_bytes), _MOST_BLOCKS + 1))

    blocks: list[CorpusBlock] = []
    for file, parts in zip(files, map_in_threads(parts_of, files, _READER_THREADS), strict=True):
        for start, stop, size in parts:
            if len(blocks) == _MOST_BLOCKS:
                raise InputError(f"more than {_MOST_BLOCKS:,} blocks of {block_bytes:,} bytes; make them larger")
            blocks.append(CorpusBlock(len(blocks), file.url, file.form, start, stop, size))
    return blocks


def read_block(block: CorpusBlock, column: str) -> BlockRows:
    """Read a block's rows; ``cut`` has checked the column. InputError or FastattnError if the rows cannot be read."""
    return FORMATS[block.form].read(block, column)
