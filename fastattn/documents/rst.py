"""reStructuredText: paragraphs, lists, headings and notes; literal text, targets, tables and most directives stay."""

import re
import unicodedata
from typing import NamedTuple

from fastattn.documents.marks import Marked, untranslated_text
from fastattn.documents.markup import Paragraph, Piece, text_piece, written
from fastattn.documents.texts import DocumentPlan, break_into_lines, decode_text, lines_of

# Directives whose content is translated, and those of them whose argument is a text too.
_TITLED = frozenset(
    "admonition attention caution danger error footer header hint important note rubric seealso sidebar tip topic "
    "warning".split()
)
_CONTENT = _TITLED.union(
    "compound container deprecated epigraph figure glossary highlights list-table only pull-quote versionadded "
    "versionchanged versionremoved".split()
)
# Directives whose argument is a signature, which stays, and whose content, behind a blank line, is translated.
_SIGNED = re.compile(
    r"(?:c|cpp|http|js|py|rst|std):.+|(?:auto)?(?:attribute|class|data|exception|function|method|module|property)"
    r"|classmethod|cmdoption|confval|decorator|decoratormethod|describe|envvar|object|option|staticmethod"
)
_DIRECTIVE = re.compile(r"\.\. +(?P<name>[\w:-]+?)::(?:[ \t]+|$)")
_EXPLICIT = re.compile(r"\.\.(?:[ \t\f\v]|$)|__[ \t]")
# What stands before the text of a paragraph's first line: signs of lists and notes, names of fields, options.
_PREFIX = re.compile(
    r"(?:[-*+\u2022|][ \t]+|\(?(?:\d+|#|[A-Za-z]|[ivxIVX]+)[.)][ \t]+|\.\. \[[^\]\n]+\][ \t]+"
    r"|:(?:[^:\\`\n]|\\.)+:(?:[ \t]+|(?=\n|$))|--?[A-Za-z][\w-]*[^\n]{0,100}?[ \t]{2,})(?!$)"
)
_ADORNMENT = re.compile(r"([!-/:-@\[-`{-~])\1+[ \t]*$")
_TABLE = re.compile(r"\+[-=+]+\+[ \t]*$|=+(?:[ \t]+=+)+[ \t]*$")
# Escaped blanks belong to the markup beside them, and are shown if a letter stands before; other escapes are signs.
_INLINE = re.compile(
    r"(?:\\[ ])?(?:(?P<open>\*\*(?=\S)|(?<![\w*])\*(?=[^\s*])|(?::[\w:.+-]{1,60}:)?`(?=[^`<]*[^`<\s][ \n]*<[^`>]+>`))"
    r"|(?P<shown>``.+?``(?!`)|\|[^\s|][^|\n]*\|_{0,2}|\[[^\[\]\s]+\]_|:[\w:.+-]{1,60}:`[^`]+`"
    r"|`[^`]+`(?:_{1,2}|:[\w:.+-]{1,60}:)?|(?<![\w.-])[\w.-]{0,200}\w__?(?!\w))(?:\\[ ])?)|\\.",
    re.DOTALL,
)
_CLOSERS = {
    "**": re.compile(r"(?<=\S)\*\*(?:\\ )?"),
    "*": re.compile(r"(?<=\S)\*(?!\*)(?:\\ )?"),
    "`": re.compile(r"[ \n]*<[^`>]+>`_{0,2}"),
}
_NO_START = re.compile(rf"{_PREFIX.pattern}|\.\.[ \t]|>>>|__[ \t]")
LONGEST = 2_000  # characters of marked-up text


class TextBlock(NamedTuple):
    """The lines [first, last) of a paragraph; the text begins at ``column`` of the first line, and has no ``::``."""

    first: int
    last: int
    column: int
    adornments: tuple[int, ...] = ()  # the lines above and below a heading


def translate_rst(data: bytes, name: str) -> DocumentPlan:
    """Translate what readers see, but for literal text and tables, which are counted as untranslated."""
    lines = lines_of(decode_text(data, name))
    bare = [line.rstrip("\r\n") for line in lines]
    paragraphs, untranslated = list[TextBlock](), list[str]()
    _read_blocks(bare, paragraphs, untranslated)
    texts = [_marked(_text_of(bare, paragraph)) for paragraph in paragraphs]
    answers = yield texts + [untranslated_text(text) for text in untranslated]
    for paragraph, text, answer in zip(paragraphs, texts, answers):
        if answer != text:
            _write(lines, bare, paragraph, written(answer, str))
    return "".join(lines).encode()


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _block_end(lines: list[str], number: int, indent: int) -> int:
    """The number of the first line from ``number`` on that is not blank and not indented by more than ``indent``."""
    while number < len(lines) and (not lines[number].strip() or _indent(lines[number]) > indent):
        number += 1
    return number


def _read_blocks(lines: list[str], paragraphs: list[TextBlock], untranslated: list[str]) -> None:
    number = 0
    while number < len(lines):
        line = lines[number]
        text, indent = line.strip(), _indent(line)
        directive = _DIRECTIVE.match(text)
        directive_name = directive["name"].lower() if directive else ""
        if not text:
            number += 1
        elif heading := _heading(lines, number):
            paragraphs.append(heading)
            number = max(heading.last, *heading.adornments) + (heading.adornments[-1] >= heading.last)
        elif re.fullmatch(r":(?:[^:\\`]|\\.)+:", text):  # a field's name
            number += 1
        elif directive and (directive_name in _CONTENT or _SIGNED.fullmatch(directive["name"])):
            if directive_name in _TITLED and text[directive.end() :]:
                paragraphs.append(_paragraph(lines, number, indent + directive.end(), indent))
                number = paragraphs[-1].last
            else:
                number += 1
            kept = r"\s+:[\w-]+:(?:\s|$)" if directive_name in _CONTENT else rf"\s{{{indent + 1},}}\S"
            while number < len(lines) and re.match(kept, lines[number]):
                number += 1
        elif _EXPLICIT.match(text) and not _PREFIX.match(text):
            end = _block_end(lines, number + 1, indent)
            # A target, or a comment without a text, ends at a blank line, and not with what is indented.
            is_short = text.startswith(("__", ".. _")) or (text == ".." and not "".join(lines[number + 1 : number + 2]))
            number = next((n for n in range(number, end) if is_short and not lines[n].strip()), end)
        elif _TABLE.match(text) or text.startswith(">>>"):
            end = next((n for n in range(number, len(lines)) if not lines[n].strip()), len(lines))
            untranslated.append("\n".join(lines[number:end]))
            number = end
        else:
            prefixes, column = _PREFIX.match(text), indent
            while prefixes:
                column += prefixes.end()
                prefixes = _PREFIX.match(line, column)
            paragraphs.append(_paragraph(lines, number, column, column))
            number = paragraphs[-1].last
            if lines[number - 1].rstrip().endswith("::"):
                first = next((_indent(lines[n]) for n in range(number, len(lines)) if lines[n].strip()), 0)
                end = _block_end(lines, number, max(indent, min(column, first - 1)))
                untranslated.append("\n".join(lines[number:end]))
                number = end


def _heading(lines: list[str], number: int) -> TextBlock | None:
    """The heading whose first line this is: an adornment above and below, or below alone."""
    following = [*lines[number + 1 : number + 3], "", ""]
    if _ADORNMENT.match(lines[number]):
        is_framed = following[0].strip() and following[1].rstrip() == lines[number].rstrip()
        return TextBlock(number + 1, number + 2, _indent(following[0]), (number, number + 2)) if is_framed else None
    is_long = len(following[0].rstrip()) >= min(4, _width(lines[number].rstrip()))
    is_underlined = _ADORNMENT.match(following[0]) and is_long and not _indent(lines[number])
    return TextBlock(number, number + 1, 0, (number + 1,)) if is_underlined else None


def _paragraph(lines: list[str], first: int, column: int, indent: int) -> TextBlock:
    """The paragraph from a line's column on, with the lines below it that have the indent."""
    last = first + 1
    while last < len(lines) and lines[last].strip() and _indent(lines[last]) == indent:
        if any(begin.match(lines[last], indent) for begin in (_PREFIX, _EXPLICIT)) or _heading(lines, last):
            break
        last += 1
    return TextBlock(first, last, column)


def _text_of(lines: list[str], paragraph: TextBlock) -> str:
    texts = [lines[paragraph.first][paragraph.column :], *lines[paragraph.first + 1 : paragraph.last]]
    return re.sub(r"\s*::$", "", " ".join(text.strip() for text in texts))


def _write(lines: list[str], bare: list[str], paragraph: TextBlock, text: str) -> None:
    """Put a translation into the lines of its paragraph, in the proportions of the original."""
    numbers = range(paragraph.first, paragraph.last)
    lengths = [len(bare[number].strip()) for number in numbers]
    colons = re.search(r"\s*::$", bare[paragraph.last - 1])
    pieces = break_into_lines(text + (colons[0] if colons else ""), lengths, _NO_START)
    for number, piece in zip(numbers, pieces):
        start = paragraph.column if number == paragraph.first else _indent(bare[number])
        lines[number] = bare[number][:start] + piece.strip() + lines[number][len(bare[number]) :]
    for number in paragraph.adornments:
        adornment = bare[number].rstrip()
        width = len(adornment) + _width(text) - _width(bare[paragraph.first].strip())
        lines[number] = adornment[0] * max(width, _width(text), 2) + lines[number][len(bare[number]) :]


def _width(text: str) -> int:
    """The columns that a text takes in a terminal."""
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def _marked(text: str) -> Marked:
    """A paragraph's text with marks for inline markup; names, literals and references stay."""
    pieces, position = list[Piece](), 0
    for match in _INLINE.finditer(text):
        opening = match["open"]
        closing = _CLOSERS[opening.rpartition(":")[2]] if opening else None
        closer = closing.search(text, match.end(), match.end() + LONGEST) if closing else None
        if match.start() < position or (opening and closer is None):
            continue
        pieces.append(text_piece(text[position : match.start()]))
        position = closer.end() if closer else match.end()
        if closer:
            inner = text_piece(text[match.end() : closer.start()])
            pieces += [Piece("open", match[0]), inner, Piece("close", closer[0])]
        else:
            blank = " " * match[0].startswith("\\ ")
            shown = f"{blank}{match['shown']}{blank * match[0].endswith(' ')}" if match["shown"] else match[0][1:]
            pieces.append(Piece("alone", match[0], shown))
    return Paragraph(0, [*pieces, text_piece(text[position:])]).marked()
