"""reStructuredText: paragraphs, lists, headings and notes; literal text, targets, tables and most directives stay."""

import re

from fastattn.documents.marks import Marked, untranslated_text
from fastattn.documents.markup import Paragraph, Piece, Span, line_edits_of, text_piece
from fastattn.documents.texts import DocumentPlan, apply_edits, decode_text
from fastattn.plot.labels import display_width

# Directives whose argument is translated, and others whose content, the lines indented below, is.
_TITLED = (
    "admonition|attention|caution|danger|error|footer|header|hint|important|note|rubric|seealso|sidebar|tip|topic"
    "|warning"
)
_CONTENT = (
    "compound|container|deprecated|epigraph|figure|glossary|highlights|list-table|only|pull-quote"
    "|version(?:added|changed|removed)"
)
# Directives whose argument is a signature, which stays, and whose content, behind a blank line, is translated.
_SIGNED = (
    r"(?:c|cpp|http|js|py|rst|std):[\w:-]+|(?:auto)?(?:attribute|class|data|exception|function|method|module|property)"
    r"|classmethod|cmdoption|confval|decorator|decoratormethod|describe|envvar|object|option|staticmethod"
)
_FIELD = r":(?:[^:\\`\n]|\\.)+:"
# What stands before the text of a paragraph's first line: signs of lists, notes, names of fields, options.
_PREFIX = (
    rf"(?:[-*+\u2022|]|\(?(?:\d+|#|[A-Za-z]|[ivxIVX]+)[.)]|\.\. \[[^\]\n]+\]|\.\. +(?i:{_TITLED})::|{_FIELD}"
    r"|--?[A-Za-z][\w-]*[^\n]{0,100}?[ \t])[ \t]+(?=\S)"
)
_BEGIN = re.compile(rf"(?P<indent>[ \t]*)(?:(?P<directive>\.\. +(?i:{_TITLED})::[ \t]+(?=\S))|{_PREFIX})*(?P<text>.*)")
_LINE = re.compile(r"\S(?:.*\S)?")
_NO_START = re.compile(rf"{_PREFIX}|\.\.(?!\S)|>>>|__[ \t]")
_NEXT_LINE = re.compile(rf"\n(?P<indent>[ \t]*)(?=\S)(?!{_PREFIX}|\.\.(?!\S)|__[ \t]).*")
_OPTIONS = re.compile(r"(?:\n[ \t]+:[\w-]+:(?:[ \t].*)?$)*", re.MULTILINE)
# Lines without a text of a paragraph. A target and a signature end at a blank line, other explicit markup with the
# lines that are indented below, and a comment without a text before them.
_STAYING = re.compile(
    rf"(?P<indent>[ \t]*)(?!{_PREFIX})(?:$|{_FIELD}[ \t]*$|\.\.[ \t]*\n[ \t]*$"
    r"|(?P<untranslated>(?:>>>|\+[-=+]+\+[ \t]*$|=+(?:[ \t]+=+)+[ \t]*$).*(?:\n.*\S.*)*)"
    rf"|\.\. +(?i:{_TITLED}|{_CONTENT})::(?:[ \t].*)?${_OPTIONS.pattern}"
    rf"|(?:\.\. +(?:{_SIGNED})::(?!\S)|\.\. _|__[ \t]).*(?:\n(?P=indent)[ \t]+\S.*)*"
    r"|\.\.(?!\S).*(?:\n(?:[ \t]*$|(?P=indent)[ \t]+\S.*))*)",
    re.MULTILINE,
)
_SIGN = r"[!-/:-@\[-`{-~]"
# A title with an adornment above, which is the same as below, or below alone.
_HEADING = re.compile(
    rf"(?:(?P<over>({_SIGN})\2+)[ \t]*\n[ \t]*)?(?P<title>\S(?:.*\S)?)[^\S\n]*\n"
    rf"(?P<under>(?(over)(?P=over)|({_SIGN})\5+))[ \t]*$",
    re.MULTILINE,
)
# Escaped blanks belong to the markup beside them, and are shown if a letter stands before; other escapes are signs.
_INLINE = re.compile(
    r"(?P<open>(?:\\ )?(?:(?<![\w*])(?P<star>\*\*?)(?=[^\s*])|(?::[\w:.+-]{1,60}:)?`))"
    r"(?P<inner>(?:(?(star).|[^`<])){1,2000}?)"
    r"(?P<close>(?<=\S)(?(star)(?P=star)(?!\*)|[ \n]*<[^`>]+>`_{0,2})(?:\\ )?)"
    r"|(?P<shown>(?:\\ )?(?:``.+?``(?!`)|\|[^\s|][^|\n]*\|_{0,2}|\[[^\[\]\s]+\]_|:[\w:.+-]{1,60}:`[^`]+`"
    r"|`[^`]+`(?:_{1,2}|:[\w:.+-]{1,60}:)?|(?<![\w.-])[\w.-]{0,200}\w__?(?!\w))(?:\\ )?)|\\(?P<sign>.)|\s*::\Z",
    re.DOTALL,
)


def translate_rst(data: bytes, name: str) -> DocumentPlan:
    """Translate what readers see, but for literal text and tables, which are counted as untranslated."""
    page = decode_text(data, name)
    paragraphs, adornments, untranslated = list[list[Span]](), dict[int, list[Span]](), list[str]()
    _read_blocks(page.replace("\r", " "), paragraphs, adornments, untranslated)
    edits = yield from line_edits_of(page, paragraphs, _marked, _NO_START)
    yield [untranslated_text(text) for text in untranslated]
    for start, end, text in list(edits):
        for first, last in adornments.get(start, ()):
            width = last - first + display_width(text) - display_width(page[start:end])
            edits.append((first, last, page[first] * max(width, display_width(text), 2)))
    return apply_edits(page, edits).encode()


def _read_blocks(
    page: str, paragraphs: list[list[Span]], adornments: dict[int, list[Span]], untranslated: list[str]
) -> None:
    """Add the lines of each paragraph; the adornments of each title, by its start; and texts that stay."""
    position = 0
    while position < len(page):
        heading, staying = _HEADING.match(page, position), _STAYING.match(page, position)
        if heading and len(heading["under"]) >= min(4, display_width(heading["title"])):
            paragraphs.append([heading.span("title")])
            adornments[heading.start("title")] = [heading.span(part) for part in ("over", "under") if heading[part]]
            end = heading.end()
        elif staying:
            untranslated += filter(None, [staying["untranslated"]])
            end = staying.end()
        elif begin := _BEGIN.match(page, position):  # which matches everywhere
            (start, end), column = begin.span("text"), begin.start("text") - position
            while (line := _NEXT_LINE.match(page, end)) and len(line["indent"]) == column:
                end = line.end()
            paragraphs.append([line.span() for line in _LINE.finditer(page, start, end)])
            if begin["directive"] and (options := _OPTIONS.match(page, end)):
                end = options.end()
            first = re.compile(rf"\s*\n({begin['indent']}[ \t]+)\S").match(page, end)
            if first and page[start:end].rstrip().endswith("::"):
                depth = min(column + 1, len(first[1]))
                if literal := re.compile(rf"(?:\s*\n[ \t]{{{depth},}}\S.*)+").match(page, end):
                    untranslated.append(literal[0])
                    end = literal.end()
        position = end + 1


def _marked(text: str) -> Marked:
    """A paragraph's text with marks for inline markup; names, literals and references stay."""
    pieces, position = list[Piece](), 0
    for match in _INLINE.finditer(text):
        pieces.append(text_piece(text[position : match.start()]))
        position = match.end()
        if match["open"]:
            pieces += [Piece("open", match["open"]), text_piece(match["inner"]), Piece("close", match["close"])]
        else:
            blank = " " * match[0].startswith("\\ ")
            shown = match["sign"] or match["shown"] or ""
            pieces.append(Piece("alone", match[0], shown.replace("\\ ", blank)))
    return Paragraph(0, [*pieces, text_piece(text[position:])]).marked()
