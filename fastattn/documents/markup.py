"""Paragraphs of markup as pieces of its source, which LaTeX, RTF, XML and others have in common."""

import re
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import NamedTuple

from fastattn.documents.html import match_tags
from fastattn.documents.marks import Marked, marked_from_tags
from fastattn.documents.texts import NOTHING, break_into_lines

Span = tuple[int, int]  # [start, end) in a page
LONGEST_COMMAND = 40  # characters that are looked at
# A command that a letter or digit behind it would lengthen.
_COMMAND = re.compile(r"(?<!\\)(?:\\\\)*\\[A-Za-z]+-?\d*\Z")


class Piece(NamedTuple):
    """A piece of a paragraph: "text", "open" and "close" around a text, or "alone", which stays as it is.

    text  what the source of a text stands for, or what a translator sees of a piece that stays
    name  which closing piece an opening one takes
    """

    kind: str
    source: str
    text: str = ""
    name: str = ""


def text_piece(text: str) -> Piece:
    return Piece("text", text, text)


class Paragraph(NamedTuple):
    """Pieces whose sources, one after the other, begin at ``start`` of the page."""

    start: int
    pieces: list[Piece]

    @property
    def end(self) -> int:
        return self.start + sum(len(piece.source) for piece in self.pieces)

    def trimmed(self) -> Iterator["Paragraph"]:
        """The paragraph without blanks and pieces that stay at its two ends, if it has letters."""
        closers = _closers(self.pieces)
        paired = closers.keys() | {*closers.values()}
        inner = [number for number, piece in enumerate(self.pieces) if number in paired or piece.text.strip()]
        first, end = (inner[0], inner[-1] + 1) if inner else (0, 0)
        pieces = self.pieces[first:end]
        if any(piece.kind == "text" and any(map(str.isalpha, piece.text)) for piece in pieces):
            yield Paragraph(self.start + sum(len(piece.source) for piece in self.pieces[:first]), pieces)

    def marked(self, overlaps: bool = False) -> Marked:
        """The text with a mark for each piece that is none; tags are (source of the opening, of the closing piece).

        overlaps  whether a closing piece also closes what is open within, as in HTML
        """
        closers = match_tags([(piece.kind, piece.name) for piece in self.pieces]) if overlaps else _closers(self.pieces)

        def tag_of(number: int, closer: int | None) -> tuple[str, str]:
            return self.pieces[number].source, "" if closer is None else self.pieces[closer].source

        kinds, texts = [piece.kind for piece in self.pieces], [piece.text for piece in self.pieces]
        return marked_from_tags(kinds, closers, lambda number, *_: texts[number], tag_of)


def _closers(pieces: Sequence[Piece]) -> dict[int, int]:
    """Index of an opening piece -> index of its closing piece; what has no partner stays at its position."""
    closers, open_numbers = dict[int, int](), list[int]()
    for number, piece in enumerate(pieces):
        if piece.kind == "open":
            open_numbers.append(number)
        elif piece.kind == "close" and open_numbers and pieces[open_numbers[-1]].name == piece.name:
            closers[open_numbers.pop()] = number
    return closers


def written(answer: Marked, spell: Callable[[str], str], before: str | None = None) -> str:
    """The source of a translation. A blank ends a command that stands right before a text.

    spell   text -> its source
    before  the source before the translation; None: of a form without commands
    """
    parts = list[str]()
    for kind, text, tags in answer.pieces():
        part = tags[kind == "close"] if tags else spell(text)
        if part and before is not None:
            parts += [" "] if not tags and re.match(r"[\w -]", part) and _COMMAND.search(before) else []
            before = part if tags else ""
        parts.append(part)
    return "".join(parts)


def edits_of(
    page: str, paragraphs: Sequence[Paragraph], spell: Callable[[str], str], overlaps: bool = False
) -> Generator[list[Marked], list[Marked], list[tuple[int, int, str]]]:
    """The changes of a page, [start, end) and new source, where its paragraphs are translated."""
    texts = [paragraph.marked(overlaps) for paragraph in paragraphs]
    answers = zip(paragraphs, texts, (yield texts))
    return [
        (part.start, part.end, written(answer, spell, page[max(0, part.start - LONGEST_COMMAND) : part.start]))
        for part, text, answer in answers
        if answer != text
    ]


def line_edits_of(
    page: str,
    paragraphs: Sequence[Sequence[Span]],
    marked: Callable[[str], Marked],
    no_start: "re.Pattern[str]" = NOTHING,
) -> Generator[list[Marked], list[Marked], list[tuple[int, int, str]]]:
    """The changes of a page where paragraphs of several lines are translated, in the proportions of their lines.

    marked    the source of a paragraph -> its text
    no_start  what begins no further line of a paragraph
    """
    texts = [marked(" ".join(page[start:end].strip() for start, end in spans)) for spans in paragraphs]
    edits = list[tuple[int, int, str]]()
    for spans, text, answer in zip(paragraphs, texts, (yield texts)):
        if answer != text:  # if not, the lines stay byte for byte
            lines = break_into_lines(written(answer, str), [end - start for start, end in spans], no_start)
            edits += [(*span, line) for span, line in zip(spans, lines)]
    return edits
