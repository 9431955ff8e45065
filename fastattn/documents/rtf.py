"""Rich Text Format: paragraphs, cells and footnotes; formats, pictures and instructions of fields stay."""

import re
from collections.abc import Iterator

from fastattn.documents.markup import Paragraph, Piece, edits_of
from fastattn.documents.texts import DocumentPlan, apply_edits
from fastattn.errors import InputError

_BREAKS = "cell column line nestcell nestrow page par row sect tab".split()
_TOKEN = re.compile(
    r"\\u(?P<unicode>-?\d{1,6}) ?|(?P<text>(?:\\'[0-9A-Fa-f]{2}|[^\\{}])+)"
    r"|(?P<line>\\(?:\r\n?|\n))|(?P<symbol>\\[^A-Za-z])"
    rf"|(?P<open>\{{(?:[\r\n]*\\(?!(?:u-?\d|bin\d|(?:{'|'.join(_BREAKS)})\b))[A-Za-z]+-?\d*(?: |\r?\n)?)*)"
    r"|(?P<close>\})|\\(?P<word>[A-Za-z]{1,32})(?P<number>(?:-?\d{1,10})?)(?: |\r?\n)?|(?P<other>.)",
    re.DOTALL,
)
# Groups whose text is no part of the document, or of the sentence.
_OPAQUE = re.compile(
    r"\{[\r\n]*(?:\\\*|\\(?:(?P<note>footnote)|colortbl|datafield|fonttbl|info|listtable|listoverridetable|listtext|"
    r"mmathPr|nonshppict|objdata|pict|pntext|revtbl|rsidtbl|stylesheet|themedata|xe|tc|fldinst|bkmkstart|bkmkend)\b ?)"
)
# What opens or closes a group, or stands before this many bytes of any kind; other escapes.
_GROUP_TOKEN = re.compile(r"\\bin(?P<length>\d{1,10}) ?|\\.|[{}]", re.DOTALL)
# Code pages whose codecs Python does not name by their numbers.
_CODE_PAGES = {f"{28590 + number}": f"iso8859-{number}" for number in range(1, 17)} | {
    "10000": "mac-roman", "10001": "shift-jis", "10006": "mac-greek", "10007": "mac-cyrillic", "10029": "mac-latin2",
    "10081": "mac-turkish", "10082": "mac-croatian", "20866": "koi8-r", "21866": "koi8-u",
}  # fmt: skip
_TOGGLES = frozenset("b caps i outl scaps shad strike ul".split())
_CHARACTERS = {
    "emdash": "\u2014", "endash": "\u2013", "lquote": "\u2018", "rquote": "\u2019", "ldblquote": "\u201c",
    "rdblquote": "\u201d", "bullet": "\u2022", "emspace": " ", "enspace": " ",
}  # fmt: skip
_SYMBOLS = {r"\\": "\\", r"\{": "{", r"\}": "}", r"\~": "\xa0", r"\_": "\u2011"}


def translate_rtf(data: bytes, name: str) -> DocumentPlan:
    """Translate a document of ASCII and escapes, as the format demands; other bytes are of its code page."""
    page = data.decode("latin-1")
    if not page.lstrip().startswith("{\\rtf"):
        raise InputError(f"{name}: expected RTF, which begins with {{\\rtf")
    code_page = re.search(r"\\ansicpg(\d{3,5})\b", page[:1000])
    encoding = _CODE_PAGES.get(code_page[1], f"cp{code_page[1]}") if code_page else "cp1252"
    try:
        "".encode(encoding)
    except LookupError:
        raise InputError(f"{name}: says that it is in {encoding!r}, which is not known") from None
    for reads_notes in (True, False):
        notes = list[tuple[int, int]]()
        paragraphs = list(_paragraphs(page, 0, len(page), encoding, notes))
        if reads_notes:
            paragraphs = [paragraph for note in notes for paragraph in _paragraphs(page, *note, encoding, [])]
        page = apply_edits(page, (yield from edits_of(page, paragraphs, _spell)))
    return page.encode("latin-1")


def _paragraphs(page: str, position: int, end: int, encoding: str, notes: list[tuple[int, int]]) -> Iterator[Paragraph]:
    """The paragraphs of [position, end) of a page; adds [start, end) of their footnotes to ``notes``."""
    pieces, first, fallback_lengths = list[Piece](), position, [1]  # of each group that is open
    while match := _TOKEN.match(page, position, end):
        stop, source = match.end(), match[0]
        match match.lastgroup:
            case "open" if opaque := _OPAQUE.match(page, position):
                stop = _group_end(page, position)
                notes += [(opaque.end(), stop - 1)] if opaque["note"] else []
                piece = Piece("alone", page[position:stop])
            case "open":
                lengths = re.findall(r"\\uc(\d+)", source)
                fallback_lengths.append(min(9, int(lengths[-1])) if lengths else fallback_lengths[-1])
                piece = Piece("open", source)
            case "close":
                if len(fallback_lengths) > 1:
                    fallback_lengths.pop()
                piece = Piece("close", source)
            case "unicode":
                stop, text = _unicode(page, match, fallback_lengths[-1])
                piece = Piece("text", page[position:stop], text)
            case "text":  # the second byte of a character may be a letter
                raw = re.sub(r"\\'(..)", lambda escape: chr(int(escape[1], 16)), re.sub(r"[\r\n]+", "", source))
                piece = Piece("text", source, raw.encode("latin-1").decode(encoding, "replace"))
            case "number":
                if match["word"] == "uc":
                    fallback_lengths[-1] = min(9, int(match["number"] or 1))
                if match["word"] == "bin":
                    stop += max(0, int(match["number"] or 0))
                piece = _word_piece(page[position:stop], match["word"], match["number"])
            case _:
                piece = Piece("text" if source in _SYMBOLS else "alone", source, _SYMBOLS.get(source, ""))
        pieces.append(piece)
        position = stop
        if match["word"] in _BREAKS or match["line"]:
            yield from Paragraph(first, pieces).trimmed()
            pieces, first = [], position
    yield from Paragraph(first, pieces).trimmed()


def _word_piece(source: str, word: str, number: str) -> Piece:
    if word in _CHARACTERS:
        return Piece("text", source, _CHARACTERS[word])
    if word == "ulnone" or (word in _TOGGLES and number == "0"):
        return Piece("close", source, "", word.removesuffix("none"))
    return Piece("open", source, "", word) if word in _TOGGLES else Piece("alone", source)


def _unicode(page: str, match: "re.Match[str]", fallback_length: int) -> tuple[int, str]:
    """(where an escape ends behind its fallback, its character); the two halves of a character are one."""
    fallback = re.compile(rf"(?:\\'[0-9A-Fa-f]{{2}}|[^\\{{}}]){{0,{fallback_length}}}")
    unit, position = int(match["unicode"]) & 0xFFFF, fallback.match(page, match.end()).end()  # type: ignore[union-attr]
    text, half = chr(unit), _TOKEN.match(page, position) if 0xD800 <= unit < 0xDC00 else None
    if half and half["unicode"] and 0xDC00 <= int(half["unicode"]) & 0xFFFF < 0xE000:
        position, text = _unicode(page, half, fallback_length)[0], text + chr(int(half["unicode"]) & 0xFFFF)
    return position, text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _group_end(page: str, start: int) -> int:
    depth, position = 0, start
    while match := _GROUP_TOKEN.search(page, position):
        position = match.end() + int(match["length"] or 0)
        depth += {"{": 1, "}": -1}.get(match[0], 0)
        if depth == 0:
            return position
    return len(page)


def _spell(text: str) -> str:
    source = re.sub(r"[\\{}]", r"\\\g<0>", text).replace("\xa0", "\\~")
    return "".join(character if character.isascii() else _escape(character) for character in source)


def _escape(character: str) -> str:
    units = character.encode("utf-16-le", "surrogatepass")
    numbers = (int.from_bytes(units[start : start + 2], "little", signed=True) for start in range(0, len(units), 2))
    return "{\\uc1" + "".join(f"\\u{number}?" for number in numbers) + "}"
