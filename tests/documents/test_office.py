"""Archives: their paragraphs, formats with their words, every other part as it was."""

import io
import re
import tracemalloc
import zipfile

import pytest

from fastattn.documents import office, texts
from fastattn.documents.translating import translate_document
from fastattn.errors import InputError
from tests.documents.archives import W, archive, docx, epub, odt, parts_of, run
from tests.documents.backwards import Backwards


def body_of(data: bytes, form: str, part: str) -> str:
    return parts_of(translate_document(Backwards(), data, form))[part]


# A paragraph of a Word document, and what becomes of it.
PARAGRAPHS = [
    (run("one two"), run("two one")),
    (run("one ") + run("two", "b") + run(" three"), run("three ") + run("two", "b") + run(" one")),
    (run("one two", "i") + run(" x", "b"), run("x", "b") + run(" two one", "i")),
    (run("on", "b") + "<w:proofErr/>" + run("e", "b") + run(" two three"), run("three two ") + run("one", "b")),
    ("<w:pPr><w:b/></w:pPr>" + run("one two"), "<w:pPr><w:b/></w:pPr>" + run("two one")),
    (
        run("one ") + f'<w:hyperlink r="x">{run("two three", "u")}</w:hyperlink>' + run(" four, five"),
        run("five four, ") + f'<w:hyperlink r="x">{run("three two", "u")}</w:hyperlink>' + run(" one"),
    ),
    (run("one two") + "<w:r><w:drawing/></w:r>", run("two one") + "<w:r><w:drawing/></w:r>"),
    (run("12"), run("12")),
    ("<w:r><w:tab/></w:r>", "<w:r><w:tab/></w:r>"),
    ("", ""),
]


def test_docx():
    for paragraph, expected in PARAGRAPHS:
        found = body_of(docx(f"<w:p>{paragraph}</w:p>"), "docx", "word/document.xml")
        assert (f"<w:p>{expected}</w:p>" if expected else "<w:p/>") in found, paragraph


WRITTEN = ("header1", "footer2", "footnotes", "endnotes", "comments")


def test_every_part_of_a_docx():
    inner = f"<w:p>{run('o', 'b')}{run('ne two')}</w:p>"  # a word in two formats is a word
    box = f"<w:p>{run('three four')}<w:r><w:pict><w:txbxContent>{inner}</w:txbxContent></w:pict></w:r></w:p>"
    data = docx(
        f"<w:tbl><w:tr><w:tc>{inner}</w:tc></w:tr></w:tbl>{box}", settings=inner, **dict.fromkeys(WRITTEN, inner)
    )
    before, after = parts_of(data), parts_of(translate_document(Backwards(), data, "docx", extras=["comments"]))
    assert list(before) == list(after)
    for name in ("word/media/image1.png", "docProps/app.xml", "word/settings.xml", "[Content_Types].xml"):
        assert before[name] == after[name]
    turned = f"<w:p>{run('two ')}{run('one', 'b')}</w:p>"
    assert after["word/document.xml"].count(turned) == 2 and "four three" in after["word/document.xml"]
    assert all(turned in after[f"word/{name}.xml"] for name in WRITTEN)


def test_runs_of_a_docx_that_stand_in_others():
    for name in ("hyperlink", "ins", "smartTag", "fldSimple"):
        body = f"<w:p>{run('one ')}<w:{name}>{run('two', 'b')}</w:{name}>{run(' three')}</w:p>"
        expected = f"{run('three ')}<w:{name}>{run('two', 'b')}</w:{name}>{run(' one')}"
        assert expected in body_of(docx(body), "docx", "word/document.xml")
    deleted = f"<w:del>{run('two')}</w:del>"
    assert f"{run('three one')}{deleted}" in body_of(
        docx(f"<w:p>{run('one three')}{deleted}</w:p>"), "docx", "word/document.xml"
    )


def field(result: str, instruction: str = "<w:r><w:instrText>REF a</w:instrText></w:r>") -> str:
    begin, separate, end = (f'<w:r><w:fldChar w:fldCharType="{one}"/></w:r>' for one in ("begin", "separate", "end"))
    return f"{begin}{instruction}{separate}{result}{end}" if result else f"{begin}{instruction}{end}"


def test_fields_of_a_docx_enclose_their_results():
    for part in (field(run("12")), field(run("two")), field(run("2 two"), field(run("x"))), field(field(run("two")))):
        moved = part.replace("2 two", "two 2")
        found = body_of(docx(f"<w:p>{run('one ')}{part}{run(' three')}</w:p>"), "docx", "word/document.xml")
        assert f"<w:p>{run('three ')}{moved}{run(' one')}</w:p>" in found
    for part in (field(""), field("<w:r><w:tab/></w:r>"), field(run("one")).partition("<w:r><w:t")[0]):
        found = body_of(docx(f"<w:p>{part}{run('two three')}</w:p>"), "docx", "word/document.xml")
        assert f"<w:p>{part}{run('three two')}</w:p>" in found  # none that has a result to enclose


def test_formats_within_a_word_of_a_docx():
    """A word has one; namespaces of what is around a run are none of its format."""
    around = f"<w:document {W} xmlns:x='urn:y'><w:body><w:p>{{}}</w:p></w:body></w:document>"
    for body, expected in (
        (run("one ", "i") + run("tw", "i") + run("o", "i", "b") + run(" three", "i"), [" three", "two", "one "]),
        (run("un", "b") + run("happy", "i"), ["unhappy"]),
    ):
        data = archive({"word/document.xml": around.format(body)})
        found = body_of(data, "docx", "word/document.xml")
        assert not re.search(r"<w:r>(?:(?!</w:r>).)*<w:r>", found)
        assert "".join(re.findall(r"<w:t[^>]*>([^<]*)", found)).split() == " ".join(expected).split(), found
    empty = "<w:sdt><w:sdtPr/></w:sdt>"
    assert f"{empty}{run('two one')}" in body_of(
        docx(f"<w:p>{empty}{run('one two')}</w:p>"), "docx", "word/document.xml"
    )


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("one two<text:line-break/>three four", "two one<text:line-break/>four three"),
        ("one two<text:tab/>12", "two one<text:tab/>12"),
        ("<text:span>one<text:tab/>two</text:span>", "<text:span>two one<text:tab/></text:span>"),
        ("one<text:s text:c='3'/>two", 'two one<text:s text:c="3"/>'),
    ],
)
def test_breaks_of_an_odt_end_sentences_and_part_words(body, expected):
    found = body_of(odt(f"<office:text><text:p>{body}</text:p></office:text>"), "odt", "content.xml")
    assert f"<text:p>{expected}</text:p>" in found


def test_odt():
    body = (
        '<office:text><text:h>one two</text:h><text:p>one <text:span text:style-name="a">two</text:span> three'
        "<text:note><text:note-body><text:p>five six</text:p></text:note-body></text:note></text:p>"
        "<text:p>a<text:tab/>b</text:p><text:p/></office:text>"
    )
    data = odt(body)
    found = body_of(data, "odt", "content.xml")
    assert "<text:h>two one</text:h>" in found and "<text:p>six five</text:p>" in found
    assert '>three <text:span text:style-name="a">two</text:span> one' in found and found.count("<text:note>") == 1
    assert found.count("<text:tab/>") == 1 and "<text:p/>" in found
    written = translate_document(Backwards(), data, "odt")
    with zipfile.ZipFile(io.BytesIO(written)) as made:
        first = made.infolist()[0]
        assert (first.filename, first.compress_type) == ("mimetype", zipfile.ZIP_STORED)
    assert "<a>one two</a>" in parts_of(written)["meta.xml"]
    parts = {name: part for name, part in parts_of(data).items() if name != "mimetype"}
    parts["styles.xml"] = parts["content.xml"]  # where headers and footers are
    assert "<text:h>two one</text:h>" in body_of(archive(parts), "odt", "styles.xml")
    for name in ("span", "a", "meta", "ruby"):
        body = f"<office:text><text:p>one <text:{name}>two</text:{name}> x</text:p></office:text>"
        assert f"x <text:{name}>two</text:{name}> one" in body_of(odt(body), "odt", "content.xml")


DUBLIN = 'xmlns:dc="http://purl.org/dc/elements/1.1/"'


def test_what_is_read_beside_paragraphs_of_an_odt():
    drawing = 'xmlns:svg="urn:oasis:names:tc:opendocument:xmlns:svg-compatible:1.0"'
    frame = f"<svg:title {drawing}>one two</svg:title><svg:desc {drawing}>three four</svg:desc>"
    comment = f"<office:annotation><dc:creator {DUBLIN}>A B</dc:creator><text:p>x yz</text:p></office:annotation>"
    body = f"<office:text><text:p>five six{frame}{comment}<text:ruby-text>kept</text:ruby-text></text:p></office:text>"
    parts = dict(parts_of(odt(body)))
    title = f"<m {DUBLIN}><dc:title>one two</dc:title><dc:description>x y</dc:description><dc:creator>A B</dc:creator>"
    parts["meta.xml"] = f"{title}<keyword>u v</keyword></m>"
    parts["Object 1/content.xml"] = "<c><title><p>one two</p></title></c>"
    for extras, said, kept in ((), "x yz", 7), (("comments",), "yz x", 4):
        document = translate_document(Backwards(), archive(dict(parts), "mimetype"), "odt", extras=extras)
        found = parts_of(document)
        assert ">two one</svg:title>" in found["content.xml"] and ">four three</svg:desc>" in found["content.xml"]
        assert f"<text:p>{said}</text:p>" in found["content.xml"] and document.kept_characters == kept
        assert "<dc:title>two one</dc:title><dc:description>y x</dc:description><dc:creator>A B<" in found["meta.xml"]
        assert "<keyword>v u</keyword>" in found["meta.xml"] and "<p>two one</p>" in found["Object 1/content.xml"]


def test_properties_of_an_epub():
    parts = dict(parts_of(epub(one='<html lang="en"><p>one two</p><pre>a b</pre></html>')))
    told = "<dc:description>&lt;p&gt;one &lt;b&gt;two&lt;/b&gt;&lt;/p&gt;</dc:description>"
    parts["book.opf"] = f"<p {DUBLIN}><dc:title>one two</dc:title><dc:language>en</dc:language>{told}</p>"
    document = translate_document(Backwards(), archive(dict(parts), "mimetype"), "epub", language="por")
    found = parts_of(document)
    told = "<dc:description>&lt;p&gt;&lt;b&gt;two&lt;/b&gt; one&lt;/p&gt;</dc:description>"
    assert f"<dc:title>two one</dc:title><dc:language>pt</dc:language>{told}" in found["book.opf"]
    assert found["one.xhtml"] == '<html lang="pt"><p>two one</p><pre>a b</pre></html>'
    assert document.kept_characters == 2


def test_epub():
    body = "<body><p>one <b>two</b><br/>three four</p></body>"
    page = f'<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml">{body}</html>'
    after = parts_of(translate_document(Backwards(), epub(one=page, two=page), "epub"))
    assert (
        after["one.xhtml"]
        == after["two.xhtml"]
        == page.replace("one <b>two</b>", "<b>two</b> one").replace("three four", "four three")
    )
    assert "<text>two one</text>" in after["toc.ncx"] and "<package>one two</package>" in after["book.opf"]
    assert list(after)[0] == "mimetype"


def test_what_is_damaged(monkeypatch):
    torn = bytearray(docx(f"<w:p>{run('one two three four five six seven')}</w:p>"))
    at = torn.index(b"word/document.xml") + 40
    torn[at : at + 20] = bytes(20)
    with_lzma = archive({"word/document.xml": bytes(range(256))}, packed=zipfile.ZIP_LZMA)
    monkeypatch.setattr(office, "LARGEST_ARCHIVE", 1 << 20)
    monkeypatch.setattr(texts, "MOST_TAGS", 7)
    tags = "expected at most 7 tags and pairs of attributes"
    large = archive({"word/document.xml": b" " * (2 << 20)})
    assert len(large) < 5000
    for form, data, message in (
        ("docx", b"PK\x03\x04", "^a: cannot be unpacked: "),
        ("odt", docx("<w:p/>"), "^a: expected a part content.xml, which it does not have$"),
        ("docx", archive({"word/document.xml": "<w:p>"}), "^a, word/document.xml: not XML: "),
        ("epub", b"", "^a: cannot be unpacked: "),
        ("docx", bytes(torn), "^a: cannot be unpacked: "),
        ("docx", with_lzma, "^a: has a part 'word/document.xml' that is neither stored nor deflated$"),
        (
            "docx",
            archive({"word/document.xml": "<w:p/>", "../x": ""}),
            "^a: has a part '../x', which is outside",
        ),
        (
            "docx",
            archive({"word/document.xml": "<w:p/>", "/x": ""}),
            "^a: has a part '/x', which is outside its",
        ),
        ("epub", archive({"META-INF/container.xml": "", "a\\..\\x": ""}), "which is outside its folder$"),
        ("epub", archive({"META-INF/container.xml": "", "c:x": ""}), "which is outside its folder$"),
        ("docx", large, "^a: expected at most 1,048,576 bytes when it is unpacked, it has 2,097,152$"),
        ("docx", archive({"word/document.xml": "<a/>" * 8}), f"^a, word/document.xml: {tags}, it has 8$"),
        ("docx", archive({"word/document.xml": f"<a{' b=1' * 20}/>"}), f"^a, word/document.xml: {tags}, it has 11$"),
        ("epub", epub(one="<p>" * 8), f"^a, one.xhtml: {tags}, it has 8$"),
    ):
        with pytest.raises(InputError, match=message):
            translate_document(Backwards(), data, form, name="a")


def test_a_part_that_is_longer_than_it_says():
    """No more is unpacked than it says, 64 bytes."""
    data = archive({"word/document.xml": b" " * (64 << 20)})
    data = data.replace((64 << 20).to_bytes(4, "little"), (64).to_bytes(4, "little"))
    tracemalloc.start()
    with pytest.raises(InputError, match="^a: cannot be unpacked: Bad CRC-32"):
        translate_document(Backwards(), data, "docx", name="a")
    assert tracemalloc.get_traced_memory()[1] < 8 << 20
    tracemalloc.stop()
