"""Functions of several forms: decoding, division of text into lines, edits in place."""

import codecs
import contextlib
import io
import re
from bisect import bisect_left, bisect_right
from collections.abc import Generator, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from fastattn.documents.marks import Marked
from fastattn.errors import FastattnError, InputError
from fastattn.text.translation import is_spaceless

# A document's translation in progress: it yields texts, is sent their translations, and returns the new document.
DocumentPlan = Generator[list[Marked], list[Marked], bytes]
# Python's codecs that no document may name as its charset.
REFUSED_CODECS = frozenset("idna raw-unicode-escape undefined unicode-escape utf-7".split())
NOTHING = re.compile("(?!)")
MOST_TAGS = 1_000_000  # of a page, or of a part of an archive: in memory each takes a kilobyte, an attribute half of it


class SourceText(NamedTuple):
    """A text of a page, such as a cell: [start, end) of its source, and the text that the source stands for."""

    start: int
    end: int
    text: str


def decode_text(data: bytes, name: str, charset: str = "utf-8") -> str:
    """The text of a document in a charset, or in UTF-16 if a byte order mark says so; InputError for other bytes."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        charset = "utf-16"
    try:
        if codecs.lookup(charset).name in REFUSED_CODECS:
            raise LookupError
        text = data.decode(charset)
    except LookupError:
        raise InputError(f"{name}: says that it is in {charset!r}, which is not known") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{name}: not {charset.upper()} at byte {error.start}, {data[error.start]:#04x}") from None
    if "\0" in text:
        raise InputError(f"{name}: a NUL byte, so this is not text")
    return text


def check_most(name: str, number: int, most: int, things: str) -> None:
    if number > most:
        raise InputError(f"{name}: expected at most {most:,} {things}, it has {number:,}")


def check_tags(data: bytes, name: str) -> None:
    """InputError for more tags and attributes than fit into memory."""
    check_most(name, data.count(b"<") + data.count(b"=") // 2, MOST_TAGS, "tags and pairs of attributes")


def lines_of(text: str) -> list[str]:
    """The lines of a text with their line ends: LF, CR and CR LF, not every separator of Unicode."""
    return list(io.StringIO(text, newline=""))


@contextlib.contextmanager
def reports_missing_library(form: str, extra: str = "documents") -> Iterator[None]:
    """Turn the ImportError of a library that a form needs into a FastattnError."""
    try:
        yield
    except ImportError as error:
        raise FastattnError(f"{form} needs {error.name}: pip install 'fastattn[{extra}]'") from None


def break_into_lines(text: str, lengths: Sequence[int], no_start: "re.Pattern[str]" = NOTHING) -> list[str]:
    """Break a text between words into lines of about these proportions; ``no_start`` begins none after the first."""
    total, lines, start = max(1, sum(lengths)), list[str](), 0
    breaks = [match.end() for match in re.finditer(r"\s+(?=\S)", text) if not no_start.match(text, match.end())]
    if any(map(is_spaceless, text)):
        breaks = sorted({*breaks, *range(1, len(text))})
    for cumulative in list(accumulate(lengths))[:-1]:
        ideal = round(len(text) * cumulative / total)
        nearest = bisect_left(breaks, ideal, bisect_right(breaks, start))
        candidates = [position for position in breaks[max(0, nearest - 1) : nearest + 1] if position > start]
        end = min(candidates, key=lambda position: abs(position - ideal), default=len(text))
        lines.append(text[start:end].rstrip())
        start = end
    return [*lines, text[start:]]


def apply_edits(page: str, edits: Sequence[tuple[int, int, str]]) -> str:
    """Replace [start, end) of a page by the text of each edit; edits do not overlap."""
    position, parts = 0, list[str]()
    for start, end, text in sorted(edits):
        parts += [page[position:start], text]
        position = end
    return "".join([*parts, page[position:]])
