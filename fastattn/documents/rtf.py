"""Rich Text Format: paragraphs, cells and footnotes; formats, pictures and instructions of fields stay."""

import re
from collections.abc import Iterator

from fastattn.documents.markup import Paragraph, Piece, edits_of
from fastattn.documents.texts import DocumentPlan, apply_edits, decode_text
from fastattn.errors import InputError

_BREAKS = r"(?:cell|column|line|nestcell|nestrow|page|par|row|sect|tab)\b"
_BLANK = r"(?: |\r?\n)?"  # which ends a command
_TOKEN = re.compile(
    r"(?P<unicode>\\u(?P<unit>-?\d{1,6}) ?)|(?P<text>(?:\\'[0-9A-Fa-f]{2}|[^\\{}])+)"
    # Groups whose text is no part of the document, or of the sentence.
    r"|(?P<opaque>\{[\r\n]*(?:\\\*|\\(?:(?P<note>footnote)|colortbl|datafield|fonttbl|info|listtable|listoverridetable"
    r"|listtext|mmathPr|nonshppict|objdata|pict|pntext|revtbl|rsidtbl|stylesheet|themedata|xe|tc|fldinst|bkmkstart"
    r"|bkmkend)\b ?))"
    rf"|(?P<open>\{{(?:[\r\n]*\\(?!u-?\d|bin\d|{_BREAKS})[A-Za-z]+-?\d*{_BLANK})*)|(?P<close>\}})"
    r"|(?P<binary>\\bin(?P<length>\d{1,10}) ?)"  # before this many bytes of any kind
    rf"|(?P<break>\\(?:{_BREAKS}{_BLANK}|\r\n?|\n))"
    r"|(?P<toggle>\\(?P<format>b|caps|i|outl|scaps|shad|strike|ul)(?:(?P<off>0|none)|-?\d*)(?![A-Za-z\d])"
    rf"{_BLANK})|\\[A-Za-z]{{1,32}}(?:-?\d{{1,10}})?{_BLANK}|\\[^A-Za-z]|.",
    re.DOTALL,
)
_GROUP_TOKEN = re.compile(r"\\bin(?P<length>\d{1,10}) ?|\\.|[{}]", re.DOTALL)
# Code pages whose codecs Python does not name by their numbers.
_CODE_PAGES = {f"{28590 + number}": f"iso8859-{number}" for number in range(1, 17)} | {
    "10000": "mac-roman", "10001": "shift-jis", "10006": "mac-greek", "10007": "mac-cyrillic", "10029": "mac-latin2",
    "10081": "mac-turkish", "10082": "mac-croatian", "20866": "koi8-r", "21866": "koi8-u",
}  # fmt: skip
_SHOWN = {
    r"\emdash": "\u2014", r"\endash": "\u2013", r"\lquote": "\u2018", r"\rquote": "\u2019", r"\ldblquote": "\u201c",
    r"\rdblquote": "\u201d", r"\bullet": "\u2022", r"\emspace": " ", r"\enspace": " ", r"\\": "\\", r"\{": "{",
    r"\}": "}", r"\~": "\xa0", r"\_": "\u2011",
}  # fmt: skip


def translate_rtf(data: bytes, name: str) -> DocumentPlan:
    """Translate a document of ASCII and escapes, as the format demands; other bytes are of its code page."""
    page = data.decode("latin-1")
    if not page.lstrip().startswith("{\\rtf"):
        raise InputError(f"{name}: expected RTF, which begins with {{\\rtf")
    code_page = re.search(r"\\ansicpg(\d{3,5})\b", page[:1000])
    encoding = _CODE_PAGES.get(code_page[1], f"cp{code_page[1]}") if code_page else "cp1252"
    decode_text(b"", name, encoding)  # InputError for an encoding that is not known
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
        stop, source, kind = match.end(), match[0], match.lastgroup or "alone"
        if kind == "open":
            fallback_lengths.append(fallback_lengths[-1])
        elif kind == "close" and len(fallback_lengths) > 1:
            fallback_lengths.pop()
        for length in re.findall(r"\\uc(\d+)", source):
            fallback_lengths[-1] = min(9, int(length))
        shown = _SHOWN.get(source.rstrip(), "")
        match kind:
            case "opaque":
                stop = _group_end(page, position)
                notes += [(match.end(), stop - 1)] if match["note"] else []
            case "binary":
                stop += int(match["length"])
            case "unicode":
                stop, shown = _unicode(page, match, fallback_lengths[-1])
            case "text":  # the second byte of a character may be a letter
                raw = re.sub(r"\\'(..)", lambda escape: chr(int(escape[1], 16)), re.sub(r"[\r\n]+", "", source))
                shown = raw.encode("latin-1").decode(encoding, "replace")
            case "toggle":
                kind = "close" if match["off"] else "open"
        kind = kind if kind in ("open", "close", "text") else "text" if shown else "alone"
        pieces.append(Piece(kind, page[position:stop], shown, match["format"] or ""))
        position = stop
        if match["break"]:
            yield from Paragraph(first, pieces).trimmed()
            pieces, first = [], position
    yield from Paragraph(first, pieces).trimmed()


def _unicode(page: str, match: "re.Match[str] | None", fallback_length: int) -> tuple[int, str]:
    """(where escapes end behind their fallbacks, their characters); the two halves of a character are two escapes."""
    fallback, units, position = re.compile(rf"(?:\\'[0-9A-Fa-f]{{2}}|[^\\{{}}]){{0,{fallback_length}}}"), b"", 0
    while match and match["unicode"]:
        units += (int(match["unit"]) & 0xFFFF).to_bytes(2, "little")
        position = fallback.match(page, match.end()).end()  # type: ignore[union-attr]
        match = _TOKEN.match(page, position)
    return position, units.decode("utf-16-le", "replace")


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
