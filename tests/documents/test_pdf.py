"""PDF: paragraphs made of lines by their places, and pictures of the pages."""

import base64
import io
import re
import sys

import pytest
from PIL import Image

from fastattn.documents import pdf as pdf_module
from fastattn.documents.translating import translate_document
from fastattn.errors import FastattnError, InputError
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
LEFT = [f"left {word} with words enough" for word in ("one", "two", "three", "four")]
RIGHT = [text.replace("left", "right") for text in LEFT]
# What a page has, and its paragraphs.
PARAGRAPHS = {
    "three lines": (below(FULL, FULL, "an end."), [f"{FULL} {FULL} an end."]),
    "hyphens": (
        below(f"{FULL} re-", "turned in 1990-", "2000 by Anglo-", "Saxons."),
        [
            f"{FULL} returned in 1990-2000 by Anglo-Saxons.",
        ],
    ),
    "an indent": (below(f">{FULL}", FULL, f">{FULL}", FULL), [f"{FULL} {FULL}"] * 2),
    "a verse": (below(FULL, ">goes on here", FULL), [f"{FULL} goes on here", FULL]),
    "a short line": (below(WIDE, "ends.", WIDE, "Ends."), [f"{WIDE} ends.", f"{WIDE} Ends."]),
    "a gap": (below(FULL, FULL) + below(FULL, FULL, top=660), [f"{FULL} {FULL}"] * 2),
    "double spacing": (below(FULL, FULL, FULL, step=24), [f"{FULL} {FULL} {FULL}"]),
    "a list": (below(f"- {FULL}", f">{FULL}", "- one", "- two"), [f"- {FULL} {FULL}", "- one", "- two"]),
    "numbers beside their items": (
        [*below(FULL, top=730), (50, 700, 10, "1."), (80, 700, 10, "One"), (50, 688, 10, "2."), (80, 688, 10, "Two")],
        [FULL, "1. One", "2. Two"],
    ),
    "contents": (below("1 One . . . . . . . . 1", "2 Two . . . . . . . . 2"), ["1 One … 1", "2 Two … 2"]),
    "a heading": ([(50, 700, 20, "A title"), *below(FULL, top=670)], ["A title", FULL]),
    "a centred heading": (
        [(50, 700, 20, "A title that is wide"), (110, 676, 20, "And centred"), *below(FULL, FULL, top=640)],
        ["A title that is wide And centred", f"{FULL} {FULL}"],
    ),
    "a note's number": ([(50, 700, 10, "Words"), (80, 704, 6, "2"), (83.6, 700, 10, " go on.")], ["Words2 go on."]),
    "wide blanks": ([(50, 700, 10, FULL), (375, 700, 10, "go on")], [f"{FULL} go on"]),
    "cells": (
        [(x, y, 10, f"Cell {x} {y}") for y in (700, 688) for x in (50, 300, 500)],
        [f"Cell {x} {y}" for y in (700, 688) for x in (50, 300, 500)],
    ),
    "columns line by line": (
        [line for pair in zip(below(*LEFT), below(*RIGHT, left=320)) for line in pair],
        [" ".join(LEFT), " ".join(RIGHT)],
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
    assert paragraphs(translate_document(Unchanged(), pdf(lines), "pdf")) == expected


def test_a_page_becomes_a_section():
    translator = Backwards()
    data = pdf(below("one two"), below("three four"), trailer="/Info 9 0 R")
    data = data.replace(b"trailer", b"9 0 obj<</Title(five six)>>endobj trailer")
    page = translate_document(translator, data, "pdf", language="pt")
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


def test_a_turned_page():
    """Its lines lie side by side in the file."""
    content = below(FULL, FULL)
    turned = pdf(content, attributes="/MediaBox[0 0 600 800]/Rotate 90").replace(
        b" Tf 50 700 Td", b" Tf 0 1 -1 0 100 50 Tm"
    )
    turned = turned.replace(b" Tf 50 688 Td", b" Tf 0 1 -1 0 112 50 Tm")
    assert paragraphs(translate_document(Unchanged(), turned, "pdf")) == [f"{FULL} {FULL}"]


PASSWORD = f"/Encrypt<</Filter/Standard/V 1/R 2/P -4/O<{'00' * 32}>/U<{'00' * 32}>>>/ID[<00><00>]"
REFUSED = {
    b"no PDF": "a.pdf: cannot be read as PDF: Failed to load document .PDFium: Data format error..",
    pdf([], trailer=PASSWORD): "a.pdf: cannot be read as PDF: it has a password",
    pdf([], []): "a.pdf: expected text, found pictures alone .a scan..: let a program recognize it first",
    pdf([], [], []): "a.pdf: expected at most 2 pages, it has 3",
}


def test_what_is_refused(monkeypatch):
    monkeypatch.setattr(pdf_module, "MOST_PAGES", 2)
    for data, told in REFUSED.items():
        with pytest.raises(InputError, match=f"^{told}$"):
            translate_document(Unchanged(), data, "pdf", name="a.pdf")
    with pytest.warns(UserWarning, match=r"^a.pdf: 1 page of 2 without text \(a scan\?\): they stay pictures$"):
        translate_document(Unchanged(), pdf(below("one"), []), "pdf", name="a.pdf")
    monkeypatch.setitem(sys.modules, "pypdfium2", None)
    with pytest.raises(FastattnError, match=r"^PDF needs pypdfium2: pip install 'fastattn\[pdf\]'$"):
        translate_document(Unchanged(), b"", "pdf")
