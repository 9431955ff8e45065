"""LaTeX: paragraphs of the document; formulas, references, verbatim text, comments and the preamble stay."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator

from fastattn.documents.markup import Paragraph, Piece, edits_of, text_piece
from fastattn.documents.texts import DocumentPlan, apply_edits, decode_text

# Commands whose argument, or last argument, belongs to the sentence around; is a paragraph of its own; is a note.
_ENCLOSING = "emph|enquote|text(?:bf|it|md|normal|rm|sc|sf|sl|up)|underline|uline"
_LINKS = "href|hyperlink|hyperref|textcolor"
_HEADINGS = "caption|chapter|frame(?:sub)?title|part|(?:sub)?paragraph|(?:sub){0,2}section|(?:sub)?title"
_NOTES = "footnote|thanks"
_OPAQUE = (
    "align|alignat|alltt|array|comment|displaymath|eqnarray|equation|filecontents|flalign|gather|lstlisting|math"
    "|minted|multline|picture|thebibliography|tikzpicture|[vV]erbatim"
)
_DECLARATIONS = "bf|bfseries|em|it|itshape|large|Large|normalfont|rm|sc|scshape|sf|sl|small|tiny|tt|ttfamily"
_GROUP = r"\{(?:[^{}\\]|\\.|\{(?:[^{}\\]|\\.|\{(?:[^{}\\]|\\.)*\})*\})*\}"
_OPTION = r"[ \t]*\[[^\[\]]*\]"
_ARGUMENTS = rf"(?:{_OPTION}|[ \t]*{_GROUP})*"
_TOKENS = (
    r"(?P<formula>\$\$(?:[^$\\]|\\.)*\$\$|\$(?:[^$\\]|\\.)*\$|\\\((?:[^\\]|\\[^()])*\\\)|\\\[(?:[^\\]|\\[^\[\]])*\\\]"
    r"|\\(?:verb|lstinline)\*?(?P<quote>[^A-Za-z\s*{])[^\n]{0,500}?(?P=quote))"
    rf"|(?P<break>%[^\n]*|\\begin[ \t]*\{{(?P<opaque>(?:{_OPAQUE})\*?)\}}.*?(?=\\end\{{(?P=opaque)\}}|\Z)"
    rf"|\\begin[ \t]*\{{[^{{}}]*\}}{_ARGUMENTS}|\\end[ \t]*\{{[^{{}}]*\}}"
    r"|\\\\\*?(?:\[[^\]\n]*\])?|\\item\b(?:[ \t]*\[[^\]\n]*\])?|&|[ \t]*\r?\n[ \t]*\r?\n\s*)"
    r"|(?P<accent>\\[\'`^\"~=.](?:[A-Za-z](?![A-Za-z]*\{)|\{[A-Za-z]\}))"
    rf"|(?P<heading>\\(?:{_HEADINGS})\*?(?:{_OPTION})?[ \t]*\{{)"
    rf"|(?P<open>\{{(?:\\(?:{_DECLARATIONS})\b\s*)*|\\(?:{_ENCLOSING})\{{"
    rf"|\\(?:{_LINKS})\s*(?:\[[^\[\]]*\]\s*(?:{_GROUP}(?=\{{))?|{_GROUP}\s*)\{{)|(?P<close>\}})"
    rf"|(?P<command>(?<!\w)\\(?P<name>[A-Za-z]+)\{{\}}(?![\w{{\[])|\\[A-Za-z@]+\*?{_ARGUMENTS}|#\d)"
    r"|(?P<sign>\\[^A-Za-z]|---?|``|''|[`~])|(?P<blanks>[ \t\r\n]+)"
)
_TOKEN = re.compile(_TOKENS, re.DOTALL)
# Where notes are read, arguments of commands have none.
_NOTELESS_TOKENS = _TOKENS.replace(_GROUP, _GROUP.replace(r"\\.", rf"\\(?!{_NOTES})."))
_TOKEN_OR_NOTE = re.compile(rf"(?P<note>\\(?:{_NOTES})(?:{_OPTION})?[ \t]*\{{)|{_NOTELESS_TOKENS}", re.DOTALL)
_ENCODING = re.compile(r"(?m)^([^%\n]*\\usepackage[ \t]*\[)([\w-]+)(\][ \t]*\{inputenc\})")
# Names that Python does not know; next, which it has not at all, is nearly always ASCII.
_CODECS = {"ansinew": "cp1252", "applemac": "mac-roman", "utf8x": "utf-8", "macce": "mac-latin2", "cp437de": "cp437"}
_CODECS |= {"decmulti": "latin-1", "next": "utf-8"}
_ACCENTS = {"'": "\u0301", "`": "\u0300", "^": "\u0302", '"': "\u0308", "~": "\u0303", "=": "\u0304", ".": "\u0307"}
_SPELLINGS = {"---": "\u2014", "--": "\u2013", "``": "\u201c", "`": "\u2018", "''": "\u201d", "~": "\xa0"}
_SIGNS = {r"\%": "%", r"\&": "&", r"\#": "#", r"\_": "_", r"\$": "$", r"\ ": " ", r"\-": "", r"\/": ""} | _SPELLINGS
_SPECIAL = re.compile(r"[%&#_$]")
SHOWN_FORMULA = 16  # the most characters of a formula that the translator sees as a word


def translate_latex(data: bytes, name: str, charset: str = "") -> DocumentPlan:
    """Translate notes, then the title, paragraphs, headings and captions. ``charset`` replaces that of the preamble."""
    declared = _ENCODING.search(data.partition(b"\\begin{document}")[0].decode("latin-1"))
    charset = charset or (_CODECS.get(declared[2], declared[2]) if declared else "utf-8")
    page = decode_text(data, name, charset)
    for groups in ({"note"}, set[str]()):
        start, end = max(0, page.find(r"\begin{document}")), page.rfind(r"\end{document}")
        if page.count(r"\begin{verbatim}", 0, start) > page.count(r"\end{verbatim}", 0, start):  # of an example
            start, end = 0, -1
        titles = _paragraphs(page, 0, start, {"heading", *groups})
        paragraphs = [*titles, *_paragraphs(page, start, len(page) if end < 0 else end, groups)]
        page = apply_edits(page, (yield from edits_of(page, paragraphs, _spell)))
    try:
        return page.encode(charset)
    except UnicodeEncodeError:
        return _ENCODING.sub(r"\1utf8\3", page, count=1).encode()


def _paragraphs(page: str, position: int, end: int, within: set[str]) -> Iterator[Paragraph]:
    """The paragraphs of [position, end) of a page that are within groups of these kinds, of notes or headings."""
    pieces, first = list[Piece](), position
    groups, counts = list[str](), Counter[str]()  # the kinds of groups that are open, and how many are of each
    token = _TOKEN_OR_NOTE if "note" in within else _TOKEN
    for match in (*token.finditer(page, position, end), None):
        start, stop = match.span() if match else (end, end)
        pieces.append(text_piece(page[position:start]))
        kind = str(match.lastgroup) if match else "break"
        if kind in ("break", "heading", "note") or (kind == "close" and groups and groups[-1] != "open"):
            if all(counts[group] for group in within):
                yield from Paragraph(first, pieces).trimmed()
            pieces, first = [], stop
        elif match:
            pieces.append(_piece(match, kind))
        if kind in ("open", "heading", "note"):
            groups.append(kind)
            counts[kind] += 1
        elif kind == "close" and groups:
            counts[groups.pop()] -= 1
        position = stop


def _piece(match: "re.Match[str]", kind: str) -> Piece:
    source = match[0]
    if kind in ("open", "close"):
        return Piece(kind, source)
    if kind == "accent":
        letter = next(filter(str.isalpha, source[2:]))
        return Piece("text", source, unicodedata.normalize("NFC", letter + _ACCENTS[source[1]]))
    if kind == "blanks" or source in _SIGNS:
        return Piece("text", source, _SIGNS.get(source, " "))
    is_shown = kind == "formula" and len(source) <= SHOWN_FORMULA
    return Piece("alone", source, source if is_shown else match["name"] or "")


def _spell(text: str) -> str:
    for sign, shown in _SPELLINGS.items():
        text = text.replace(shown, sign)
    return _SPECIAL.sub(r"\\\g<0>", text)
