"""Plain text, whose rows are the lines that ``fastattn translate`` reads from the same file."""

import hashlib
from collections.abc import Iterator

from fastattn.distributed.formats.blocks import BlockRows, CorpusBlock, StringRows, even_parts, lines_of
from fastattn.distributed.storage import InputFile, public_url
from fastattn.errors import InputError
from fastattn.system.files import text_of

COLUMN = "text"


def cut(file: InputFile, column: str, block_bytes: int) -> Iterator[tuple[int, int, int]]:
    if column != COLUMN:
        raise InputError(f"{public_url(file.url)} is plain text, which has the one column {COLUMN!r}, not {column!r}")
    return even_parts(file.size, block_bytes)


def read(block: CorpusBlock, column: str) -> BlockRows:
    texts: list[str | None] = []
    starts: list[int] = []
    faults: dict[int, str] = {}
    digest = hashlib.sha256()
    with lines_of(block, digest) as lines:
        for line in lines:
            starts.append(lines.position)
            try:
                texts.append(text_of(line, lines.location(), is_first=lines.position == 0))
            except InputError as error:
                faults[len(texts)] = str(error)
                texts.append(None)
    return StringRows(texts, faults, starts, digest.hexdigest(), {column: texts})
