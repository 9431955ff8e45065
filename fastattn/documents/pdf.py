"""PDF: becomes an HTML page with a picture of each page, and beside it the page's text in paragraphs."""

import html
import math
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

MOST_PAGES, MOST_PIXELS_ACROSS, MOST_PIXELS_DOWN, LONGEST_LINE = 1000, 1000, 2000, 1000
_PDFIUM, _WRONG_PASSWORD = threading.Lock(), 4  # PDFium is for one thread at a time
_STYLE = (
    "section{display:grid;grid-template-columns:1fr 1fr;gap:2em;break-after:page;font:1em/1.4 sans-serif}"
    "img{width:100%;border:1px solid #ccc}h2{font-size:1.2em}@media(max-width:50em){section{display:block}}"
)
_HYPHENS, _CONTROLS = "\x02\xad\ufffe", re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\xad\ufffe\uffff]")
_LEADERS, _CONTENTS = re.compile(r"(?:\s*\.){4,}\s*"), re.compile(r" …(?: \w+)?$")
_BULLET = re.compile(r"(?:[•‣▪●◦*–-]|\(?(?:\d{1,3}|[a-z])[.)])(?:\s|$)")
_END_HYPHEN, _LINE_END = re.compile(r"(?<=\w)-\n(?=(\w))"), re.compile(r"(?<=(.))\n(?=(.))")
_SENTENCE_ENDS = ".!?:;…。！？\"'»”’)]"


class TextLine(NamedTuple):
    """A line, or what stands between wide gaps; places in points, ``bottom`` from the page's lower edge."""

    text: str
    left: float
    right: float
    bottom: float
    size: float  # the height of its characters
    column: int  # 0: left of the text's middle, 1: right of it, 2: across


def translate_pdf(data: bytes, name: str, language: str | None = None) -> DocumentPlan:
    """Translate the text of a PDF, with a section of the HTML page for each of its pages."""
    with reports_missing_library("PDF", "pdf"):
        import pypdfium2
    try:
        with _PDFIUM, pypdfium2.PdfDocument(data) as document:
            if len(document) > MOST_PAGES:
                raise InputError(f"{name}: expected at most {MOST_PAGES:,} pages, it has {len(document):,}")
            document.init_forms()
            title, pages = document.get_metadata_value("Title"), [_read_page(page) for page in document]
    except pypdfium2.PdfiumError as error:
        reason = "it has a password" if error.err_code == _WRONG_PASSWORD else error
        raise InputError(f"{name}: cannot be read as PDF: {reason}") from None
    if (empty_count := sum(not text for text, _ in pages)) == len(pages):
        raise InputError(f"{name}: expected text, found pictures alone (a scan?): let a program recognize it first")
    if empty_count:
        warn(f"{name}: {counted(empty_count, 'page')} of {len(pages):,} without text (a scan?): they stay pictures")
    rows = (
        f'<section>\n<img alt="" src="{n}">\n<div dir="auto">\n{text}</div>\n</section>'
        for n, (text, _) in enumerate(pages)
    )
    head = f'<meta charset="utf-8">\n<title>{html.escape(title)}</title>\n<style>{_STYLE}</style>'
    parts = '<!DOCTYPE html>\n<html lang="">\n<head>', head, "</head>\n<body>", *rows, "</body>\n</html>\n"
    source = _CONTROLS.sub("", "\n".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
    page = yield from translate_html(source.encode(), name, language)
    return re.sub(rb'(?<=<img alt="" src=")\d+', lambda number: pages[int(number[0])][1].encode(), page)


def _read_page(page: Any) -> tuple[str, str]:
    """(the paragraphs of a page as HTML, the address of its picture)."""
    lines, text = _in_reading_order([line for line in _lines(page) if line.text]), ""
    usual_size = median([line.size for line in lines for _ in line.text] or [0.0])
    for paragraph in _paragraphs(lines):
        tag = "h2" if paragraph[0].size > 1.2 * usual_size else "p"
        joined = "\n".join(line.text for line in paragraph)
        joined = _END_HYPHEN.sub(lambda match: "-" * (not match[1].islower()), joined)
        joined = _LINE_END.sub(lambda match: " " * (not any(map(is_spaceless, match.groups()))), joined)
        text += f"<{tag}>{html.escape(joined, quote=False)}</{tag}>\n"
    width, height = page.get_size()
    scale = min(MOST_PIXELS_ACROSS / max(width, 1.0), MOST_PIXELS_DOWN / max(height, 1.0))
    pixels = page.render(scale=scale, rev_byteorder=True).to_numpy()
    page.close()
    pixels = pixels & 0xF8 | pixels >> 5  # fewer tones take a third less
    return text, png_address(pixels[:, :, 0] if (pixels == pixels[:, :, :1]).all() else pixels)


def _lines(page: Any) -> Iterator[TextLine]:
    """The lines in the file's order; a gap as between columns ends a line too, a small step up or down does not."""
    from pypdfium2 import raw

    text_page, ends, text = page.get_textpage(), False, ""
    characters = [chr(min(raw.FPDFText_GetUnicode(text_page, n), 0x10FFFF)) for n in range(text_page.count_chars())]
    places = [text_page.get_charbox(n, loose=True) for n in range(len(characters))]  # left, bottom, right, top
    for _ in range(page.get_rotation() // 90):
        places = [(bottom, -right, top, -left) for left, bottom, right, top in places]
    middle = (min((place[0] for place in places), default=0) + max((place[2] for place in places), default=0)) / 2
    boxes = list[tuple[float, ...]]()  # places of the characters of ``text`` that are seen
    for character, box in zip((*characters, "\0"), (*places, (math.inf, 0, math.inf, 0))):
        ends = ends or (bool(boxes) and character in "\r\n")
        if boxes and not character.isspace():
            before, size = text.rstrip(), max(box[3] - box[1], boxes[-1][3] - boxes[-1][1])
            gap, step = box[0] - boxes[-1][2], abs(box[1] - boxes[-1][1])
            goes_on = _BULLET.fullmatch(before) or (character.islower() and before[-1] not in _SENTENCE_ENDS)
            widest = 4 if goes_on and not boxes[-1][2] < middle < box[0] else 0.25 if ends else 1.5
            is_off = gap > widest * size or (ends and (step > 0.6 * size or gap < -0.25 * size))
            if is_off or before[-1] in _HYPHENS or len(text) > LONGEST_LINE:
                yield _text_line(before, boxes, middle)
                text, boxes = "", []
            elif ends:
                text = before + " " * (gap > 0.25 * size)
            ends = False
        text += character
        boxes += [] if character.isspace() else [box]


def _text_line(text: str, boxes: Sequence[tuple[float, ...]], middle: float) -> TextLine:
    text = _CONTROLS.sub("", "".join("-" if character in _HYPHENS else character for character in text))
    text = _LEADERS.sub(" … ", " ".join(text.split())).strip()
    (left, *_), bottoms, (*_, right), tops = (sorted(side) for side in zip(*boxes))
    bottom, column = median(bottoms), 2 if left < middle < right else int(left >= middle)
    return TextLine(text, left, right, bottom, max(median(tops) - bottom, 0.1), column)


def _in_reading_order(lines: list[TextLine]) -> list[TextLine]:
    """The lines, those of a left column before those of a right one; lines across both divide the page."""
    lengths = [[len(line.text) for line in lines if line.column == side] for side in (0, 1)]
    if any(len(column) < 4 or median(column) < 20 for column in lengths):  # such as those of a table
        return lines
    across = sorted(-line.bottom for line in lines if line.column == 2)
    return sorted(lines, key=lambda line: (bisect_left(across, -line.bottom), line.column))


def _paragraphs(lines: Sequence[TextLine]) -> Iterator[list[TextLine]]:
    """The lines of each paragraph, which have one size and the usual distance."""
    distances = [(last.bottom - line.bottom) / line.size for last, line in pairwise(lines)]
    most_distance = 1.3 * median([distance for distance in distances if 0.5 < distance < 4] or [1.0])
    paragraph = list(lines[:1])
    for n, (last, line) in enumerate(pairwise(lines)):
        near = (other for other in lines[max(0, n - 9) : n + 9] if other.left < last.right and last.left < other.right)
        right = max((other.right for other in near if 0.8 < other.size / last.size < 1.25), default=last.right)
        is_below = 0.3 < distances[n] < most_distance and line.left < last.right and last.left < line.right
        if not is_below or not 0.8 < line.size / last.size < 1.25 or _begins_paragraph(paragraph, line, right):
            yield paragraph
            paragraph = []
        paragraph.append(line)
    yield from [paragraph] * bool(lines)


def _begins_paragraph(paragraph: Sequence[TextLine], line: TextLine, right: float) -> bool:
    """Whether a line begins a paragraph by its indent, or since the last line has room for its first word."""
    last, shift = paragraph[-1], line.left - paragraph[-1].left
    if _BULLET.match(line.text) or _CONTENTS.search(last.text):
        return True
    if last.text[-1] == "-" or (line.text[0].islower() and last.text[-1] not in _SENTENCE_ENDS):
        return False
    if abs(shift) > 0.8 * line.size:
        is_centred = abs(shift + line.right - last.right) < line.size
        if is_centred or len(paragraph) > 1 or (shift > 0 and not _BULLET.match(last.text)):
            return not is_centred
    word = line.text[:1] if is_spaceless(line.text[0]) else line.text.split()[0] + " "
    return right - last.right > len(word) * (line.right - line.left) / len(line.text) + line.size / 2
