"""PDF: becomes an HTML page with a picture of each page, and beside it the page's text in paragraphs."""

import html
import re
import threading
from collections import namedtuple
from collections.abc import Iterator
from itertools import chain, pairwise
from statistics import median
from typing import Any

from fastattn.documents.html import translate_html
from fastattn.documents.texts import DocumentPlan, check_most, reports_missing_library
from fastattn.errors import InputError, warn
from fastattn.system.png import png_address
from fastattn.text.translation import SPACELESS_SCRIPTS

MOST_PAGES, MOST_PIXELS_ACROSS, MOST_PIXELS_DOWN, LONGEST_LINE = 1000, 1000, 2000, 1000
MOST_CHARACTERS, MOST_BYTES = 100_000, 1 << 28  # of a page; of the texts and pictures of all pages
_PDFIUM = threading.Lock()  # PDFium is for one thread at a time
_STYLE = "<style>section{display:grid;grid:auto/repeat(auto-fit,minmax(20em,1fr));gap:2em}img{width:100%}</style>"
_HYPHENS, _CONTROLS = "\x02\xad\ufffe", re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\xad\ufffe\uffff]")
_BULLET = re.compile(r"(?:[•‣▪●◦\uf020-\uf0ff*–-]|\(?(?:\d{1,3}|[a-z])[.)])(?:\s|$)")
_LEADERS, _CONTENTS = re.compile(r"(?:\s*\.){4,}\s*"), re.compile(r" …(?: \w+)?$")
_SPACELESS = f"[{''.join(f'{first}-{last}' for first, last in SPACELESS_SCRIPTS)}]"
_JOINT = re.compile(rf"(?<=\w)[-‐]\n(?=[^\W\dA-ZÀ-ÞΑ-ΩЀ-Я])|(?<=\w-)\n(?=\w)|(?<={_SPACELESS})\n|\n(?={_SPACELESS})")
TextLine = namedtuple("TextLine", "text left right bottom size")  # or what stands between wide gaps; in points


def translate_pdf(data: bytes, name: str, language: str | None = None) -> DocumentPlan:
    """Translate the text of a PDF, with a section of the HTML page for each of its pages."""
    with reports_missing_library("PDF", "pdf"):
        import pypdfium2
    pages = list[tuple[str, bytes]]()
    try:
        with _PDFIUM, pypdfium2.PdfDocument(data) as document:
            check_most(name, len(document), MOST_PAGES, "pages")
            document.init_forms()
            source = f"<title>{html.escape(document.get_metadata_value('Title'))}</title>\n{_STYLE}\n<body>\n"
            for n, page in enumerate(document):
                pages.append(_read_page(page, name))
                source += f'<section>\n<img alt="" src="{n}">\n<div dir="auto">\n{pages[-1][0]}</div>\n</section>\n'
                check_most(name, sum(map(len, chain(*pages))), MOST_BYTES, "bytes of pages' pictures")
    except (pypdfium2.PdfiumError, UnicodeError) as error:
        raise InputError(f"{name}: cannot be read as PDF: {error}") from None
    if not any(text for text, _ in pages):
        raise InputError(f"{name}: expected text, found pictures alone (a scan?): let a program recognize it first")
    if pictures := [str(n) for n, (text, _) in enumerate(pages, 1) if not text]:
        warn(f"{name}: pages without text (a scan?), which stay pictures: {', '.join(pictures)}")
    source = _CONTROLS.sub("", source.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
    head = '<!DOCTYPE html>\n<html lang="">\n<meta charset="utf-8">\n'
    page = yield from translate_html((head + source).encode(), name, language)
    return re.sub(rb'(?<=<img alt="" src=")\d+', lambda number: pages[int(number[0])][1], page)


def _read_page(page: Any, name: str) -> tuple[str, bytes]:
    """(the paragraphs of a page as HTML, the address of its picture). Others may use PDFium while that is packed."""
    lines = list(_lines(page, name))
    scale = min(MOST_PIXELS_ACROSS / max(page.get_width(), 1.0), MOST_PIXELS_DOWN / max(page.get_height(), 1.0))
    pixels = page.render(scale=scale, rev_byteorder=True).to_numpy()
    _PDFIUM.release()  # to threads that wait for it
    try:
        pixels = pixels & 0xF8 | pixels >> 5  # fewer tones take a third less
        picture = png_address(pixels[:, :, 0] if (pixels == pixels[:, :, :1]).all() else pixels)
        return "".join(_paragraphs(lines)), picture.encode()
    finally:
        _PDFIUM.acquire()


def _lines(page: Any, name: str) -> Iterator[TextLine]:
    """The lines in the file's order; a gap as between columns ends a line too, a small step up or down does not."""
    from pypdfium2 import raw

    text_page, ends, text, boxes = page.get_textpage(), False, "", list[tuple[float, ...]]()  # boxes of what is seen
    check_most(name, count := text_page.count_chars(), MOST_CHARACTERS, "characters on a page")
    signs = [chr(min(raw.FPDFText_GetUnicode(text_page, n), 0x10FFFF)) for n in range(count)]
    places = [text_page.get_charbox(n, loose=True) for n in range(count)]  # left, bottom, right, top
    for _ in range(page.get_rotation() // 90):
        places = [(bottom, -right, top, -left) for left, bottom, right, top in places]
    for sign, box in zip([*signs, ""], [*places, (9e9,) * 4]):  # the last ends a line
        if sign.isspace() or (_CONTROLS.match(sign) and sign not in _HYPHENS):
            text, ends = text + sign, ends or sign in "\r\n"
            continue
        if boxes:
            size, gap, step = boxes[-1][3] - boxes[-1][1], box[0] - boxes[-1][2], abs(box[1] - boxes[-1][1])
            widest = 4 if _BULLET.fullmatch(text.rstrip()) else 0.25 if ends else 1.5
            if gap > widest * size or len(text) > LONGEST_LINE or (ends and (step > 0.6 * size or gap < -size / 4)):
                (left, *_), bottoms, (*_, right), tops = (sorted(side) for side in zip(*boxes))
                text = _LEADERS.sub(" … ", " ".join(_CONTROLS.sub("", text).split())).strip()
                yield TextLine(text, left, right, median(bottoms), max(median(tops) - median(bottoms), 0.1))
                text, boxes = "", []
            elif ends:
                text = text.rstrip() + " " * (gap > size / 4)
        ends = sign != "" and sign in _HYPHENS  # of a word that goes on in the next line
        text += "-" if ends else sign
        boxes.append(box)


def _paragraphs(lines: list[TextLine]) -> Iterator[str]:
    """As HTML: the lines of each have one size and the usual distance, and but for the last are as wide as others."""
    usual_size = median([line.size for line in lines for _ in line.text] or [0.0])
    distances = [(last.bottom - line.bottom) / line.size for last, line in pairwise(lines)]
    most_distance = 1.3 * median([distance for distance in distances if 0.5 < distance < 4] or [1.0])
    starts = [0] * bool(lines)
    for n, (last, line) in enumerate(pairwise(lines)):
        near = [other for other in lines[max(0, n - 9) : n + 9] if 0.8 < other.size / last.size < 1.25]
        near = [other for other in near if other.left < last.right and last.left < other.right]
        word = line.text[0] if re.match(_SPACELESS, line.text) else line.text.split()[0] + " "
        width, shift = (line.right - line.left) / len(line.text), (line.left - last.left) / line.size
        has_room = max([last.right, *(other.right for other in near)]) - last.right > len(word) * width + line.size / 2
        is_indented = (shift > 0.8 or (shift < -0.8 and starts[-1] < n)) and not _BULLET.match(last.text)
        is_item = _BULLET.match(line.text) and (has_room or _BULLET.match(lines[starts[-1]].text))
        goes_on = last.text[-1] in "-‐" or line.text[0].islower()
        is_below = line in near and 0.3 < distances[n] < most_distance
        if not is_below or is_item or _CONTENTS.search(last.text) or ((has_room or is_indented) and not goes_on):
            starts.append(n + 1)
    for start, end in pairwise([*starts, len(lines)]):
        tag = "h2" if lines[start].size > 1.2 * usual_size else "p"
        text = _JOINT.sub("", "\n".join(line.text for line in lines[start:end])).replace("\n", " ")
        yield f"<{tag}>{html.escape(text, quote=False)}</{tag}>\n"
