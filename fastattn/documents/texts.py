"""Decoding of documents, and division of text into lines."""

import codecs
import contextlib
import io
import re
from bisect import bisect_left, bisect_right
from collections.abc import Generator, Iterator, Sequence
from itertools import accumulate

from fastattn.documents.marks import Marked
from fastattn.errors import FastattnError, InputError
from fastattn.text.translation import is_spaceless

# The reading of a document: it yields texts, gets their translations, and returns the translated document.
Steps = Generator[list[Marked], list[Marked], bytes]
# Codecs of Python that are no charsets of documents.
NO_CHARSETS = frozenset("idna raw-unicode-escape undefined unicode-escape utf-7".split())


def decoded(data: bytes, name: str, charset: str = "utf-8") -> str:
    """The text of a document; InputError if it is not in its charset. A byte order mark of UTF-16 takes precedence."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        charset = "utf-16"
    try:
        if codecs.lookup(charset).name in NO_CHARSETS:
            raise LookupError
        text = data.decode(charset)
    except LookupError:
        raise InputError(f"{name}: says that it is in {charset!r}, which is not known") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{name}: not {charset.upper()} at byte {error.start}, {data[error.start]:#04x}") from None
    if "\0" in text:
        raise InputError(f"{name}: a NUL byte, so this is not text")
    return text


def lines_of(text: str) -> list[str]:
    """The lines with their ends: those of text files, not all separators of Unicode."""
    return list(io.StringIO(text, newline=""))


@contextlib.contextmanager
def needed(what: str) -> Iterator[None]:
    """Turn an ImportError of a library that a form needs into a FastattnError."""
    try:
        yield
    except ImportError as error:
        raise FastattnError(f"{what} needs {error.name}: pip install 'fastattn[documents]'") from None


def in_lines(text: str, lengths: Sequence[int], not_first: "re.Pattern[str]" = re.compile("(?!)")) -> list[str]:
    """The text in as many lines as there are lengths, in the same proportions as nearly as words allow.

    not_first  a pattern with which no line after the first may begin
    """
    total, lines, at = max(1, sum(lengths)), list[str](), 0
    places = [match.end() for match in re.finditer(r"\s+(?=\S)", text) if not not_first.match(text, match.end())]
    if any(map(is_spaceless, text)):
        places = sorted({*places, *range(1, len(text))})
    for share in list(accumulate(lengths))[:-1]:
        ideal = round(len(text) * share / total)
        nearest = bisect_left(places, ideal, bisect_right(places, at))
        candidates = [place for place in places[max(0, nearest - 1) : nearest + 1] if place > at]
        end = min(candidates, key=lambda place: abs(place - ideal), default=len(text))
        lines.append(text[at:end].rstrip())
        at = end
    return [*lines, text[at:]]


def replaced(page: str, edits: Sequence[tuple[int, int, str]]) -> str:
    """The page with [start, end) of each edit replaced by its text; edits do not overlap."""
    at, parts = 0, list[str]()
    for start, end, text in sorted(edits):
        parts += [page[at:start], text]
        at = end
    return "".join([*parts, page[at:]])
