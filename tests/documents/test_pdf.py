"""PDF: paragraphs made of lines by their places, and pictures of the pages."""

import base64
import io
import math
import re
import sys

import numpy as np
import pytest
from PIL import Image

from fastattn.documents import pdf as pdf_module
from fastattn.documents.translating import translate_document
from fastattn.errors import FastattnError, InputError
from fastattn.system.png import png_address
from tests.documents.archives import pdf
from tests.documents.backwards import Backwards, Unchanged


@pytest.fixture(autouse=True)
def library():
    return pytest.importorskip("pypdfium2", reason="PDF needs the extra fastattn[pdf]")


def below(*texts, left=50, top=700, step=12):
    """Lines below each other; a text that begins with ">" is indented."""
    return [(left + 20 * text.startswith(">"), top - step * n, 10, text.lstrip(">")) for n, text in enumerate(texts)]


FULL = "Words of a line that is as wide as the column is,"
WIDE = f"{FULL} really"
COLUMNS = [
    [f"{side} {word} with words enough" for word in ("one", "two", "three", "four")]
    for side in ("this", "that", "last")
]
# What a page has, and its paragraphs.
PARAGRAPHS = {
    "three lines": (below(FULL, FULL, "an end."), [f"{FULL} {FULL} an end."]),
    "hyphens": (
        below(f"{FULL} re-", "turned in 1990-", "2000 by Anglo-", "Saxons, de\\002", "parted."),
        [f"{FULL} returned in 1990-2000 by Anglo-Saxons, departed."],
    ),
    "an indent": (below(f">{FULL}", FULL, f">{FULL}", FULL), [f"{FULL} {FULL}"] * 2),
    "a verse": (below(FULL, ">goes on here", FULL), [f"{FULL} goes on here", FULL]),
    "a short line": (below(WIDE, "ends.", WIDE, "Ends."), [f"{WIDE} ends.", f"{WIDE} Ends."]),
    "a gap": (below(FULL, FULL) + below(FULL, FULL, top=660), [f"{FULL} {FULL}"] * 2),
    "double spacing": (below(FULL, FULL, FULL, step=24), [f"{FULL} {FULL} {FULL}"]),
    "a list": (below(f"- {FULL}", f">{FULL}", "- one", "- two"), [f"- {FULL} {FULL}", "- one", "- two"]),
    "a number in a sentence": (below(f"{FULL} am", "12. Mai", "- und mehr"), [f"{FULL} am 12. Mai", "- und mehr"]),
    "numbers beside their items": (
        [*below(FULL, top=730), (50, 700, 10, "1."), (80, 700, 10, "One"), (50, 688, 10, "2."), (80, 688, 10, "Two")],
        [FULL, "1. One", "2. Two"],
    ),
    "contents": (below("1 One . . . . . . . . 1", "2 Two . . . . . . . . 2"), ["1 One … 1", "2 Two … 2"]),
    "a heading": ([(50, 700, 20, "A title"), *below(FULL, top=670)], ["A title", FULL]),
    "a note's number": ([(50, 700, 10, "Words"), (80, 704, 6, "2"), (83.6, 700, 10, " go on.")], ["Words2 go on."]),
    "cells": (
        [(x, y, 10, f"Cell {x} {y}") for y in (700, 688) for x in (50, 300, 500)],
        [f"Cell {x} {y}" for y in (700, 688) for x in (50, 300, 500)],
    ),
    "three columns": (
        [line for n, column in enumerate(COLUMNS) for line in below(*column, left=20 + 190 * n)],
        [" ".join(column) for column in COLUMNS],
    ),
    "a right column before a left one": (
        [*below(*COLUMNS[1], left=320), *below(*COLUMNS[0]), (290, 50, 10, "7 of 9")],
        [" ".join(COLUMNS[1]), " ".join(COLUMNS[0]), "7 of 9"],
    ),
    "signs": (below("a <b> & c"), ["a &lt;b&gt; &amp; c"]),
    "unseen characters": (below(FULL, r"\001 \001", FULL), [f"{FULL} {FULL}"]),
    "a line without an end": (below("word" * 300), ["word" * 250 + "w", "ord" + "word" * 49]),
}


def paragraphs(page):
    return re.findall(r"<(?:p|h2)>(.*?)</", page.decode(), re.DOTALL)


@pytest.mark.parametrize("case", PARAGRAPHS)
def test_lines_become_paragraphs(case):
    lines, expected = PARAGRAPHS[case]
    data = pdf(lines).replace(b"/Courier", b"/Courier/Encoding<</Differences[2/uni2010]>>")
    assert paragraphs(translate_document(Unchanged(), data, "pdf")) == expected


def titled(title):
    """A page with a title in PDF's syntax."""
    data = pdf(below("one two"), below("three four"), trailer="/Info 9 0 R")
    return data.replace(b"trailer", f"9 0 obj<</Title{title}>>endobj trailer".encode())


def test_a_page_becomes_a_section():
    translator = Backwards()
    page = translate_document(translator, titled("(five six)"), "pdf", language="pt")
    assert page.startswith(b'<!DOCTYPE html>\n<html lang="pt">') and b"<title>six five</title>" in page
    assert paragraphs(page) == ["two one", "four three"] and page.count(b"<section>") == 2
    assert translator.seen == ["five six", "one two", "three four"]


# Attributes of a page, its picture's size and mode.
PICTURES = [
    ("/MediaBox[0 0 600 800]", (1000, 1334), "L"),
    ("/MediaBox[0 0 200 9000]", (45, 2000), "L"),
    ("/MediaBox[0 0 600 800]/Rotate 90", (1000, 750), "L"),
    ("/MediaBox[0 0 600 800]/Annots[<</Subtype/Square/Rect[1 1 99 99]/C[1 0 0]/IC[1 0 0]>>]", (1000, 1334), "RGB"),
]


def test_pictures_have_bounds():
    for attributes, size, mode in PICTURES:
        page = translate_document(Unchanged(), pdf(below("one"), attributes=attributes), "pdf")
        (address,) = re.findall(rb'src="data:image/png;base64,([^"]*)"', page)
        with Image.open(io.BytesIO(base64.b64decode(address))) as picture:
            assert (picture.size, picture.mode) == (size, mode), attributes
            assert picture.getchannel(0).getextrema()[0] < 200


@pytest.mark.parametrize("shape", [(3, 5), (3, 5, 3), (1, 1), (7, 4, 3)])
def test_pixels_of_pictures(shape):
    pixels = np.arange(math.prod(shape), dtype=np.uint8).reshape(shape)
    content = base64.b64decode(png_address(pixels).partition(",")[2])
    with Image.open(io.BytesIO(content)) as picture:
        assert np.array_equal(np.asarray(picture), pixels)


# /Rotate, what turns a text back, and where the lines begin.
TURNS = [
    (90, "0 1 -1 0", "100 50", "112 50"),
    (180, "-1 0 0 -1", "550 100", "550 112"),
    (270, "0 -1 1 0", "500 750", "488 750"),
]


@pytest.mark.parametrize(("degrees", "matrix", "first", "second"), TURNS)
def test_a_turned_page(degrees, matrix, first, second):
    turned = pdf(below(FULL, f"{FULL} am"), attributes=f"/MediaBox[0 0 600 800]/Rotate {degrees}")
    for old, new in (b"50 700 Td", first), (b"50 688 Td", second):
        turned = turned.replace(old, f"{matrix} {new} Tm".encode())
    assert paragraphs(translate_document(Unchanged(), turned, "pdf")) == [f"{FULL} {FULL} am"]


def test_a_title_of_signs_that_html_has_not():
    page = translate_document(Unchanged(), titled("<FEFF 003C 0001 D83D DE00 003E>"), "pdf")
    assert "<title>&lt;\U0001f600&gt;</title>" in page.decode()


def test_others_may_use_the_library_between_pages(monkeypatch):
    monkeypatch.setattr(pdf_module, "png_address", lambda pixels: pdf_module._PDFIUM.locked() or png_address(pixels))
    assert b"<section>" in translate_document(Unchanged(), pdf(below("one"), below("two")), "pdf")


PASSWORD = f"/Encrypt<</Filter/Standard/V 1/R 2/P -4/O<{'00' * 32}>/U<{'00' * 32}>>>/ID[<00><00>]"
REFUSED = {
    b"no PDF": "a.pdf: cannot be read as PDF: Failed to load document .PDFium: Data format error..",
    pdf(
        [], trailer=PASSWORD
    ): "a.pdf: cannot be read as PDF: Failed to load document .PDFium: Incorrect password error..",
    pdf([], []): "a.pdf: expected text, found pictures alone .a scan..: let a program recognize it first",
    pdf([], [], []): "a.pdf: expected at most 2 pages, it has 3",
    pdf(below("one", "two" * 20)): "a.pdf: expected at most 50 characters on a page, it has 65",
    pdf(
        [(9, 99, 200, "Wg"), (9, 499, 200, "&@")]
    ): "a.pdf: expected at most 15,000 bytes of pages' pictures, it has .*",
    titled("<FEFF D83D 003E>"): "a.pdf: cannot be read as PDF: .*illegal UTF-16 surrogate",
}


def test_what_is_refused(monkeypatch):
    for name, value in ("MOST_PAGES", 2), ("MOST_CHARACTERS", 50), ("MOST_BYTES", 15_000):
        monkeypatch.setattr(pdf_module, name, value)
    for data, told in REFUSED.items():
        with pytest.raises(InputError, match=f"^{told}$"):
            translate_document(Unchanged(), data, "pdf", name="a.pdf")
        assert not pdf_module._PDFIUM.locked()
    with pytest.warns(UserWarning, match=r"^a.pdf: pages without text \(a scan\?\), which stay pictures: 2$"):
        translate_document(Unchanged(), pdf(below("one"), []), "pdf", name="a.pdf")
    monkeypatch.setitem(sys.modules, "pypdfium2", None)
    with pytest.raises(FastattnError, match=r"^PDF needs pypdfium2: pip install 'fastattn\[pdf\]'$"):
        translate_document(Unchanged(), b"", "pdf")
