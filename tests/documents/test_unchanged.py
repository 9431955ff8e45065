"""Random documents through a translator that changes nothing come back: byte for byte, or XML by its canonical form."""

import io
import json
import re
import tempfile
import zipfile

import polib
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from fastattn.documents.forms import FIELD_FORMS
from fastattn.documents.translating import translate_document
from tests.documents.archives import docx, epub, odt
from tests.documents.backwards import Unchanged

TEXTS = [
    "one", " two", "H2O", "100%", "%s", "{x}", "a@b.org", "http://a.org/x?y=z&w", "\u00e9", "\u597d", "\U0001f600",
    "  ", ".",
]  # fmt: skip
ENDS = ["\n", "\r\n", "\n\n", "\t"]
SIGNS = [*"&<>\"'\\#*_-[]()|`;,:\u2028\x85\xa0"]
TAGS = [
    "<p>", "</p>", "<b>", "</b>", "<i class=x>", "</i>", "<a href='x?title=a' title='one two'>", "</a>", "<br>",
    "<img alt=one src=x>", "<!-- one -->", "<pre>", "</pre>", "<code>", "</code>", "<script>", "</script>", "&amp;",
    "&nbsp;", "&nbsp;&nbsp;", "&lt", "&copy", "&#39;", "<sub>2</sub>", "<p translate=no>", "<td>", "<!doctype html>",
    "<html lang=en>", "<br/>",
]  # fmt: skip
MARKDOWN = [
    "# ", "- ", "1. ", "> ", "**", "[a](b)", "[^1]", "[^1]: ", "![one](x.png 'two')", "```\n", "    ", "| a |\n|-|\n",
    "---\n", "<b>",
]  # fmt: skip
TIMES = ["1\n00:00:01,000 --> 00:00:02,000\n", "\n", "NOTE one\n", "<i>", "</i>", "- "]
FIELD = ["<w:r><w:fldChar w:fldCharType='begin'/></w:r><w:r><w:instrText>REF a</w:instrText></w:r>"]
FIELD += [f"<w:r><w:fldChar w:fldCharType='{end}'/></w:r>" for end in ("separate", "end")]
RUNS = [
    "<w:r><w:t>one</w:t></w:r>", "<w:r><w:rPr><w:b/></w:rPr><w:t xml:space='preserve'> two </w:t></w:r>",
    "<w:r><w:t>a</w:t><w:br/><w:t>b</w:t></w:r>", "<w:r><w:tab/></w:r>",
    "<w:hyperlink><w:r><w:t>link</w:t></w:r></w:hyperlink>", *FIELD,
]  # fmt: skip
SPANS = [
    "one", " two ", "<text:span>x</text:span>", "<text:s/>", "<text:tab/>", "<text:line-break/>", "http://a.org",
    "<text:a>y <text:span>z</text:span></text:a>", "<office:annotation><text:p>one</text:p></office:annotation>",
    "<text:note><text:note-body><text:p>n</text:p></text:note-body></text:note>", "</text:p><text:p>",
]  # fmt: skip
SOURCES = [
    "one", " two ", "&amp;", "%s", "<g id='1'>x</g>", "<x id='2'/>", "<mrk mtype='protected'>y</mrk>",
    "<ph id='3'>&lt;b></ph>",
]  # fmt: skip
PIECES = {
    "txt": TEXTS + ENDS + SIGNS,
    "html": TEXTS + ENDS + SIGNS + TAGS,
    "md": TEXTS + ENDS + SIGNS + MARKDOWN,
    "srt": TEXTS + ENDS + SIGNS + TIMES,
}


def pages(pieces, most=30):
    return st.lists(st.sampled_from(pieces), max_size=most).map("".join)


def documents(form):
    """Random documents of a form."""
    if form in PIECES:
        return pages(PIECES[form]).map(lambda page: TIMES[0] * (form == "srt") + page)
    if form in FIELD_FORMS:
        cells = st.lists(st.sampled_from(TEXTS + SIGNS + ENDS), max_size=6).map("".join)
        rows = st.lists(st.lists(cells, min_size=1, max_size=4), max_size=5)
        return st.tuples(rows, st.sampled_from(["\n", "\r\n"])).map(lambda drawn: table(form, *drawn))
    if form == "odt":
        return pages(SPANS, 8).map(lambda text: odt(f"<office:text><text:p>{text}</text:p></office:text>"))
    if form == "epub":
        return pages(PIECES["html"]).map(lambda page: epub(one=page))
    if form == "xliff":
        return st.lists(pages(SOURCES, 6), max_size=4).map(units)
    if form == "po":
        return st.lists(pages(TEXTS + SIGNS + ENDS, 6), max_size=4).map(messages)
    return st.lists(st.sampled_from(RUNS), max_size=8).map(lambda runs: docx(f"<w:p>{''.join(runs)}</w:p>"))


def table(form, rows, end):
    if form == "jsonl":
        return end.join(json.dumps({"a": row[0], "b": row}, ensure_ascii=len(row) > 2) for row in [["x"], *rows])
    between = {"csv": ",", "tsv": "\t"}[form]
    return end.join(between.join('"' + cell.replace('"', '""') + '"' for cell in row) for row in [["a", "b"], *rows])


def units(texts):
    """XLIFF with these sources."""
    made = [f"<trans-unit id='{number}'><source>{text}</source></trans-unit>" for number, text in enumerate(texts)]
    return f"<xliff version='1.2'><file><body>{''.join(made)}</body></file></xliff>"


def messages(texts):
    """A catalog with these messages, numbered."""
    made = [polib.POEntry(msgid=f"{number} {text}", comment="a note") for number, text in enumerate(texts)]
    return "\n".join(f"{entry}" for entry in made) + '\nmsgid "other"\nmsgstr "x"\n'


FORMS = [*PIECES, *FIELD_FORMS, "docx", "odt", "epub", "xliff", "po"]


@pytest.mark.parametrize("form", FORMS)
def test_a_translation_that_changes_nothing_gives_the_document_back(form):
    @given(documents(form))
    def check(document):
        data = document if isinstance(document, bytes) else document.encode()
        found = translate_document(Unchanged(), data, form, fields=["a"] if form in FIELD_FORMS else [])
        if form == "xliff":
            data = re.sub(rb"(<source>(.*?)</source>)", rb"\1<target>\2</target>", data, flags=re.DOTALL)
            assert etree.tostring(etree.fromstring(found), method="c14n") == etree.tostring(
                etree.fromstring(data), method="c14n"
            )
        elif form == "po":
            assert entries(found) == [(text, note, told or text) for text, note, told in entries(data)]
        else:
            assert contents(found) == contents(data) if form in ("docx", "odt", "epub") else found == data

    check()


def entries(catalog):
    with tempfile.NamedTemporaryFile(suffix=".po") as file:
        file.write(catalog)
        file.flush()
        return [(one.msgid, one.comment, one.msgstr) for one in polib.pofile(file.name)]


XML = (".xml", ".rels", ".ncx", ".opf")


def contents(data):
    """The parts of an archive, XML by its canonical form."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    return {
        name: etree.tostring(etree.fromstring(part), method="c14n") if name.endswith(XML) else part
        for name, part in parts.items()
    }
