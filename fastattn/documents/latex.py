"""LaTeX: paragraphs of the document; formulas, references, verbatim text, comments and the preamble stay."""

import re
import unicodedata
from collections.abc import Iterator, Sequence

from fastattn.documents.markup import Paragraph, Piece, edits_of
from fastattn.documents.texts import DocumentPlan, apply_edits, decode_text

# Commands whose argument belongs to the sentence around, is a paragraph of its own, or is a note in a paragraph.
_ENCLOSING = frozenset(
    "emph enquote textbf textit textmd textnormal textrm textsc textsf textsl textup underline uline".split()
)
_LINKS = frozenset("href hyperlink hyperref textcolor".split())  # whose last argument belongs to the sentence
_PARAGRAPHS = frozenset(
    "caption chapter frametitle framesubtitle paragraph part section subparagraph subsection subsubsection subtitle "
    "title".split()
)
_NOTES, _TITLES = ("footnote", "thanks"), ("title", "subtitle")
_OPAQUE = frozenset(
    "align alignat alltt array comment displaymath eqnarray equation filecontents flalign gather lstlisting math "
    "minted multline picture thebibliography tikzpicture verbatim Verbatim".split()
)
_DECLARATIONS = "bf bfseries em it itshape large Large large normalfont rm sc scshape sf sl small tiny tt ttfamily"
_GROUP = r"\{(?:[^{}\\]|\\.|\{(?:[^{}\\]|\\.|\{(?:[^{}\\]|\\.)*\})*\})*\}"
_ARGUMENTS = rf"(?:[ \t]*\[[^\[\]]*\]|[ \t]*{_GROUP})*"
_VERBATIM = r"\\(?:verb|lstinline)\*?(?P<quote>[^A-Za-z\s*{])[^\n]{0,500}?(?P=quote)"
_TOKEN = re.compile(
    r"(?P<comment>%[^\n]*)"
    r"|(?P<math>\$\$(?:[^$\\]|\\.)*\$\$|\$(?:[^$\\]|\\.)*\$|\\\((?:[^\\]|\\[^()])*\\\)|\\\[(?:[^\\]|\\[^\[\]])*\\\])"
    rf"|(?P<verbatim>{_VERBATIM})"
    rf"|\\begin[ \t]*\{{(?P<environment>[^{{}}]*)\}}{_ARGUMENTS}|(?P<end>\\end[ \t]*\{{[^{{}}]*\}})"
    r"|(?P<break>\\\\\*?(?:\[[^\]\n]*\])?|\\item\b(?:[ \t]*\[[^\]\n]*\])?|&|\r?\n[ \t]*\r?\n\s*)"
    r"|(?P<accent>\\[\'`^\"~=.](?:[A-Za-z](?![A-Za-z]*\{)|\{[A-Za-z]\}))"
    r"|\\(?P<command>[A-Za-z@]+)\*?"
    rf"|(?P<open>\{{(?:\\(?:{'|'.join(_DECLARATIONS.split())})\b\s*)*)|(?P<close>\}})"
    r"|(?P<escape>\\[^A-Za-z])",
    re.DOTALL,
)
_ENCODING = re.compile(r"(?m)^([^%\n]*\\usepackage[ \t]*\[)([\w-]+)(\][ \t]*\{inputenc\})")
# Names that Python does not know; next, which it has not at all, is nearly always ASCII.
_CODECS = {"ansinew": "cp1252", "applemac": "mac-roman", "utf8x": "utf-8", "macce": "mac-latin2", "cp437de": "cp437"}
_CODECS |= {"decmulti": "latin-1", "next": "utf-8"}
_ARGUMENT = re.compile(rf"(?:[ \t]*\[[^\[\]]*\])?[ \t]*(?P<text>{_GROUP})", re.DOTALL)  # behind an option
_LINK_START = re.compile(rf"\s*(?:\[[^\[\]]*\]\s*(?:{_GROUP}(?=\{{))?|{_GROUP}\s*)\{{", re.DOTALL)
_ACCENTS = {"'": "\u0301", "`": "\u0300", "^": "\u0302", '"': "\u0308", "~": "\u0303", "=": "\u0304", ".": "\u0307"}
_SIGNS = {r"\%": "%", r"\&": "&", r"\#": "#", r"\_": "_", r"\$": "$", r"\ ": " ", r"\-": "", r"\/": ""}
_SPELLINGS = {"---": "\u2014", "--": "\u2013", "``": "\u201c", "`": "\u2018", "''": "\u201d", "~": "\xa0"}
_SPELLING = re.compile("|".join(map(re.escape, _SPELLINGS)))
_SPECIAL = re.compile(r"[%&#_$]")
SHOWN_FORMULA = 16  # the most characters of a formula that the translator sees as a word


def translate_latex(data: bytes, name: str, charset: str = "") -> DocumentPlan:
    """Translate notes, then the title, paragraphs, headings and captions. ``charset`` replaces that of the preamble."""
    declared = _ENCODING.search(data.partition(b"\\begin{document}")[0].decode("latin-1"))
    charset = charset or (_CODECS.get(declared[2], declared[2]) if declared else "utf-8")
    page = decode_text(data, name, charset)
    for reads_notes in (True, False):
        start, end = max(0, page.find(r"\begin{document}")), page.rfind(r"\end{document}")
        if page.count(r"\begin{verbatim}", 0, start) > page.count(r"\end{verbatim}", 0, start):  # of an example
            start, end = 0, -1
        spans = [*_arguments(page, _TITLES, 0, start), (start, len(page) if end < 0 else end)]
        if reads_notes:
            spans = [note for span in spans for note in _arguments(page, _NOTES, *span)]
        paragraphs = [paragraph for span in spans for paragraph in _paragraphs(page, *span)]
        page = apply_edits(page, (yield from edits_of(page, paragraphs, _spell)))
    try:
        return page.encode(charset)
    except UnicodeEncodeError:
        return _ENCODING.sub(r"\1utf8\3", page, count=1).encode()


def _arguments(page: str, commands: Sequence[str], first: int, last: int) -> list[tuple[int, int]]:
    """[start, end) of the arguments of commands in [first, last), besides those in comments, addresses and macros."""
    kept = rf"\\[^A-Za-z]|%[^\n]*|{_VERBATIM}|\\(?:url|href|path)[ \t]*{_GROUP}"
    pattern = re.compile(rf"{kept}|\\(?:{'|'.join(commands)}){_ARGUMENT.pattern}", re.DOTALL)
    matches = pattern.finditer(page, first, last)
    spans = [(match.start("text") + 1, match.end() - 1) for match in matches if match["text"]]
    return [span for span in spans if not re.search(r"(?<!\\)#", page[slice(*span)])]


def _paragraphs(page: str, position: int, end: int) -> Iterator[Paragraph]:
    """The paragraphs of [position, end) of a page."""
    pieces, first = list[Piece](), position
    while position < end:
        match = _TOKEN.search(page, position, end)
        start, stop = match.span() if match else (end, end)
        if start > position:
            pieces += _text_pieces(page[position:start])
        group = match.lastgroup if match else "break"
        source, inner = page[start:stop], (stop, stop)
        ends_paragraph = group in ("comment", "break", "environment", "end")
        if match and (name := match["environment"]) and name.rstrip("*") in _OPAQUE:
            closing = page.find(f"\\end{{{name}}}", match.end("environment"), end)
            stop = end if closing < 0 else closing
        elif match and group == "command":
            stop, ends_paragraph, inner, piece = _command(page, match, end)
            pieces += [] if piece is None else [piece]
        elif group in ("open", "close"):
            pieces.append(Piece(group, source))
        elif group in ("math", "verbatim"):
            pieces.append(Piece("alone", source, source if len(source) <= SHOWN_FORMULA else ""))
        elif group == "accent":
            letter = next(filter(str.isalpha, source[2:]))
            pieces.append(Piece("text", source, unicodedata.normalize("NFC", letter + _ACCENTS[source[1]])))
        elif group == "escape":
            pieces.append(Piece("text", source, _SIGNS[source]) if source in _SIGNS else Piece("alone", source))
        if ends_paragraph:
            yield from Paragraph(first, pieces).trimmed()
            yield from _paragraphs(page, *inner)
            pieces, first = [], stop
        position = stop
    yield from Paragraph(first, pieces).trimmed()


def _text_pieces(source: str) -> list[Piece]:
    """A text, and the blanks around it as pieces of their own, which stay if they are at a paragraph's ends."""
    parts = re.findall(r"(?s)\s+|\S(?:.*\S)?", source)
    texts = [_SPELLING.sub(lambda match: _SPELLINGS[match[0]], part) for part in parts]
    return [Piece("text", part, re.sub(r"[ \t\r\n]+", " ", text)) for part, text in zip(parts, texts)]


def _command(page: str, match: "re.Match[str]", end: int) -> tuple[int, bool, tuple[int, int], Piece | None]:
    """(where a command ends, whether it ends the paragraph, [start, end) of its own paragraph, its piece)."""
    stop, command = match.end(), match["command"]
    if command in _ENCLOSING and page.startswith("{", stop):
        return stop + 1, False, (stop, stop), Piece("open", page[match.start() : stop + 1])
    if command in _LINKS and (start := _LINK_START.match(page, stop, end)):
        return start.end(), False, (stop, stop), Piece("open", page[match.start() : start.end()])
    if command in _PARAGRAPHS and (argument := _ARGUMENT.match(page, stop, end)):
        return argument.end(), True, (argument.start("text") + 1, argument.end() - 1), None
    stop = re.compile(_ARGUMENTS, re.DOTALL).match(page, stop, end).end()  # type: ignore[union-attr]
    source = page[match.start() : stop]
    in_word = page[max(0, match.start() - 1) : match.start()].isalnum() or page[stop : stop + 1].isalnum()
    is_shown = source == f"\\{command}{{}}" and not in_word
    return stop, False, (stop, stop), Piece("alone", source, command if is_shown else "")


def _spell(text: str) -> str:
    for sign, shown in _SPELLINGS.items():
        text = text.replace(shown, sign)
    return _SPECIAL.sub(r"\\\g<0>", text)
