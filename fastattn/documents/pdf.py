"""PDF: becomes an HTML page with a picture of each page, and beside it the page's text in paragraphs."""

import html
import re
import threading
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median
from typing import Any, NamedTuple

from fastattn.documents.html import translate_html
from fastattn.documents.texts import DocumentPlan, reports_missing_library
from fastattn.errors import InputError, warn
from fastattn.printable import counted
from fastattn.system.png import png_address
from fastattn.text.translation import is_spaceless

MOST_PAGES, MOST_PIXELS_ACROSS, MOST_PIXELS_DOWN = 1000, 1000, 2000
_PDFIUM, _WRONG_PASSWORD = threading.Lock(), 4  # PDFium is for one thread at a time
_STYLE = (
    "section{display:grid;grid-template-columns:1fr 1fr;gap:2em;break-after:page;font:1em/1.4 sans-serif}"
    "img{width:100%;border:1px solid #ccc}h2{font-size:1.2em}@media(max-width:50em){section{display:block}}"
)
_HYPHENS, _CONTROLS = "\x02\xad\ufffe", re.compile("[\0-\x1f\x7f-\x9f\xad\ufffe\uffff]")
_LEADERS, _CONTENTS = re.compile(r"(?:\s*\.){4,}\s*"), re.compile(r" … \w*$")
_BULLET = re.compile(r"(?:[•‣▪●◦*–-]|\(?(?:\d{1,3}|[a-z])[.)])(?:\s|$)")
_SENTENCE_END = re.compile(r"[.!?:;…。！？][\"'»”’)\]]*$")


class TextLine(NamedTuple):
    """A line, or what stands between wide gaps; places in points, ``bottom`` from the page's lower edge."""

    text: str
    left: float
    right: float
    bottom: float
    size: float  # the height of its characters

    def goes_on(self, last: "TextLine") -> bool:
        """Whether the line goes on with the sentence of the last line."""
        return self.text[0].islower() and not _SENTENCE_END.search(last.text)


def translate_pdf(data: bytes, name: str, language: str | None = None) -> DocumentPlan:
    """Translate the text of a PDF, with a section of the page for each of its pages."""
    with reports_missing_library("PDF", "pdf"):
        import pypdfium2
    try:
        with _PDFIUM, pypdfium2.PdfDocument(data) as document:
            if len(document) > MOST_PAGES:
                raise InputError(f"{name}: expected at most {MOST_PAGES:,} pages, it has {len(document):,}")
            document.init_forms()
            title, pages = _clean(document.get_metadata_value("Title")), [_read_page(page) for page in document]
    except pypdfium2.PdfiumError as error:
        reason = "it has a password" if error.err_code == _WRONG_PASSWORD else error
        raise InputError(f"{name}: cannot be read as PDF: {reason}") from None
    if (empty_count := sum(not text for text, _ in pages)) == len(pages):
        raise InputError(f"{name}: expected text, its pages have none, as scans: let a program recognize it first")
    if empty_count:
        warn(f"{name}: {counted(empty_count, 'page')} of {len(pages):,} without text; what pictures say stays")
    sections = (f'<section>\n<img alt="" src="{n}">\n<div>\n{text}</div>\n</section>\n' for n, (text, _) in enumerate(pages))
    head = f'<meta charset="utf-8">\n<title>{html.escape(title)}</title>\n<style>{_STYLE}</style>'
    source = f'<!DOCTYPE html>\n<html lang="">\n<head>\n{head}\n</head>\n<body>\n{"".join(sections)}</body>\n</html>\n'
    page = yield from translate_html(source.encode(), name, language)
    return re.sub(rb'(?<=<img alt="" src=")\d+', lambda number: pages[int(number[0])][1].encode(), page)


def _read_page(page: Any) -> tuple[str, str]:
    """(the paragraphs of a page as HTML, the address of its picture)."""
    lines = _in_reading_order(list(_lines(page)))
    text, usual_size = "", median([line.size for line in lines for _ in line.text] or [0.0])
    for paragraph in _paragraphs(lines):
        tag = "h2" if paragraph[0].size > 1.2 * usual_size else "p"
        text += f"<{tag}>{html.escape(_join(paragraph), quote=False)}</{tag}>\n"
    width, height = page.get_size()
    scale = min(MOST_PIXELS_ACROSS / max(width, 1.0), MOST_PIXELS_DOWN / max(height, 1.0))
    pixels = page.render(scale=scale, rev_byteorder=True).to_numpy()
    page.close()
    pixels = pixels & 0xF8 | pixels >> 5  # fewer tones take a third less
    return text, png_address(pixels[:, :, 0] if (pixels == pixels[:, :, :1]).all() else pixels)


def _lines(page: Any) -> Iterator[TextLine]:
    """The lines in the order of the file; a gap as wide as those between columns or cells ends a line too."""
    from pypdfium2 import raw

    text_page, turns = page.get_textpage(), page.get_rotation() // 90
    parts: list[tuple[list[str], list[tuple[float, ...]]]] = [([], [])]  # characters, and boxes of those that are seen
    for number in range(text_page.count_chars()):
        character, box = chr(raw.FPDFText_GetUnicode(text_page, number)), text_page.get_charbox(number, loose=True)
        for _ in range(turns):
            box = box[1], -box[2], box[3], -box[0]
        text, boxes = parts[-1]
        has_gap = boxes and not character.isspace() and box[0] - boxes[-1][2] > 1.5 * (box[3] - box[1])
        if character in "\r\n" or has_gap or (text and text[-1] in _HYPHENS):
            parts.append(([], []))
        parts[-1][0].append(character)
        parts[-1][1].extend([] if character.isspace() else [box])
    for characters, boxes in parts:
        text = "".join("-" if character in _HYPHENS else character for character in characters)
        if boxes and (text := _LEADERS.sub(" … ", " ".join(_clean(text).split()))):
            lefts, bottoms, rights, tops = zip(*boxes)
            yield TextLine(text, min(lefts), max(rights), median(bottoms), max(median(tops) - median(bottoms), 0.1))


def _clean(text: str) -> str:
    return _CONTROLS.sub("", text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))


def _in_reading_order(lines: list[TextLine]) -> list[TextLine]:
    """The lines, those of a left column before those of a right one; lines across both divide the page."""
    first, last = min((line.left for line in lines), default=0.0), max((line.right for line in lines), default=0.0)
    middles = (first + (last - first) * share / 100 for share in range(40, 62, 2))
    middle = min(middles, key=lambda x: sum(line.left < x < line.right for line in lines))
    columns = [2 if line.left < middle < line.right else int(line.left >= middle) for line in lines]
    widths = [[line.right - line.left for line, column in zip(lines, columns) if column == side] for side in (0, 1)]
    if any(len(column) < 4 or median(column) < 0.3 * (last - first) for column in widths):  # such as those of a table
        return lines
    across = sorted(-line.bottom for line, column in zip(lines, columns) if column == 2)
    places = sorted((bisect_left(across, -line.bottom), columns[n], n) for n, line in enumerate(lines))
    return [lines[n] for _, _, n in places]


def _paragraphs(lines: Sequence[TextLine]) -> Iterator[list[TextLine]]:
    """The paragraphs by the distances of lines and the sizes of their characters, then by ``_begins_paragraph``."""
    distances = [(first.bottom - second.bottom) / second.size for first, second in pairwise(lines)]
    most_distance = 1.3 * median([distance for distance in distances if 0.5 < distance < 4] or [1.0])
    blocks = [list(lines[:1])]
    for line in lines[1:]:
        last, goes_on = blocks[-1][-1], line.goes_on(blocks[-1][-1])
        drop, gap, size = last.bottom - line.bottom, line.left - last.right, max(last.size, line.size)
        is_script = abs(gap) < 0.25 * size
        if abs(drop) < 0.6 * size and (is_script or (0 < gap < 4 * size and (goes_on or _BULLET.fullmatch(last.text)))):
            longer, text = max(last, line, key=lambda part: len(part.text)), f"{last.text}{' ' * (not is_script)}{line.text}"
            blocks[-1][-1] = longer._replace(text=text, left=last.left, right=line.right)
        elif 0.3 < drop / line.size < most_distance and 0.8 < line.size / last.size < 1.25 and gap < 0 < line.right - last.left:
            blocks[-1].append(line)
        else:
            blocks.append([line])
    for block in blocks:
        right, starts = max((line.right for line in block), default=0.0), [0]
        for n in range(1, len(block)):
            starts += [n] * _begins_paragraph(block[starts[-1] : n], block[n], right)
        yield from (block[start:end] for start, end in pairwise([*starts, len(block)]) if end)


def _begins_paragraph(paragraph: Sequence[TextLine], line: TextLine, right: float) -> bool:
    """Whether a line begins a paragraph by its indent, or since the line before has room for its first word."""
    last = paragraph[-1]
    if _BULLET.match(line.text) or _CONTENTS.search(last.text):
        return True
    if abs(line.left - last.left) > 0.8 * line.size:
        is_centred = abs(line.left - last.left + line.right - last.right) < line.size
        hangs = len(paragraph) == 1 and (line.left < last.left or _BULLET.match(last.text))
        if is_centred or not hangs:
            return not is_centred
    word = line.text[:1] if is_spaceless(line.text[0]) else line.text.split()[0] + " "
    width = len(word) * (line.right - line.left) / len(line.text)
    return not line.goes_on(last) and right - last.right > width + line.size / 2


def _join(paragraph: Sequence[TextLine]) -> str:
    """The text of a paragraph; a hyphen at the end of a line stays before a capital or a digit."""
    text = paragraph[0].text
    for line in paragraph[1:]:
        if re.search(r"[^\W_]-$", text):
            text = text[:-1] if text[-2].isalpha() and line.text[0].islower() else text
        elif not (is_spaceless(text[-1]) or is_spaceless(line.text[0])):
            text += " "
        text += line.text
    return text
