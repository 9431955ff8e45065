"""Each place of a Word document where text can stand."""

import pytest

from fastattn.documents.translating import translate_document
from tests.documents.archives import HEAD, W, archive, docx, parts_of, run
from tests.documents.backwards import Backwards

TWO, BACK = run("one two"), run("two one")


def piece(content: str, *formats: str) -> str:
    properties = f"<w:rPr>{''.join(f'<w:{one}/>' for one in formats)}</w:rPr>" if formats else ""
    return f"<w:r>{properties}{content}</w:r>"


def text(said: str) -> str:
    return f'<w:t xml:space="preserve">{said}</w:t>'


# The content of a paragraph, and what becomes of it.
PARAGRAPHS = {
    "a line break between texts": (
        piece(f"{text('one two')}<w:br/>{text('three four')}", "b"),
        run("two one", "b") + piece("<w:br/>", "b") + run("four three", "b"),
    ),
    "tabs": (piece(f"{text('one two')}<w:tab/><w:tab/>{text('x')}"), BACK + piece("<w:tab/>") * 2 + run("x")),
    "a carriage return, a page": (
        piece(f"{text('one two')}<w:cr/><w:br w:type='page'/>").replace("'", '"') + TWO,
        BACK + piece("<w:cr/>") + piece('<w:br w:type="page"/>') + BACK,
    ),
    "a break of its own run": (TWO + piece("<w:br/>") + TWO, BACK + piece("<w:br/>") + BACK),
    "hyphens": (
        piece(f"{text('one')}<w:noBreakHyphen/>{text('a two')}"),
        run("two one\u2011a"),
    ),
    "a page that Word remembers": (
        piece(f"<w:lastRenderedPageBreak/>{text('one two')}"),
        piece(f"<w:lastRenderedPageBreak/>{text('two one')}"),
    ),
    "a note within a run": (
        piece(f"{text('one two')}<w:footnoteReference w:id='1'/>".replace("'", '"')),
        BACK + piece('<w:footnoteReference w:id="1"/>'),
    ),
    "a content control": (
        f"<w:sdt><w:sdtPr/><w:sdtContent>{TWO}</w:sdtContent></w:sdt>",
        f"<w:sdt><w:sdtPr/><w:sdtContent>{BACK}</w:sdtContent></w:sdt>",
    ),
    "a link with a break": (
        f"<w:hyperlink>{run('one')}{piece('<w:br/>')}{run('two')}</w:hyperlink>",
        f"<w:hyperlink>{run('two one')}{piece('<w:br/>')}</w:hyperlink>",
    ),
    "moved text": (f"<w:moveTo>{TWO}</w:moveTo>", f"<w:moveTo>{BACK}</w:moveTo>"),
    "deleted text": (f"<w:del>{piece('<w:delText>one two</w:delText>')}</w:del>",) * 2,
}


@pytest.mark.parametrize("name", PARAGRAPHS)
def test_texts_of_a_paragraph(name):
    before, after = PARAGRAPHS[name]
    written = parts_of(translate_document(Backwards(), docx(f"<w:p>{before}</w:p>"), "docx"))["word/document.xml"]
    assert f"<w:p>{after}</w:p>" in written


def test_charts_properties_and_alternative_texts():
    drawing, core = "http://schemas.openxmlformats.org/drawingml/2006/main", "http://purl.org/dc/elements/1.1/"
    shown = "http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing"
    picture = (
        f'<w:r><w:drawing><p:docPr xmlns:p="{shown}" id="1" name="a b" descr="one two" title="x y"/></w:drawing></w:r>'
    )
    table = '<w:tblPr><w:tblCaption w:val="one two"/><w:tblDescription w:val="x y"/></w:tblPr>'
    art = '<w:pict><v:textpath xmlns:v="urn:schemas-microsoft-com:vml" string="one two"/></w:pict>'
    table += '<w:listItem w:displayText="one two" w:value="one two"/>'
    link = f'<w:hyperlink w:tooltip="one two">{TWO}</w:hyperlink><w:r>{art}</w:r>'
    parts = {
        "word/document.xml": f"{HEAD}<w:document {W}><w:body>{table}<w:p>{picture}{link}</w:p></w:body></w:document>",
        "word/charts/chart1.xml": f'<c xmlns:a="{drawing}"><a:t>one two</a:t><v>one two</v></c>',
        "word/charts/style1.xml": f'<c xmlns:a="{drawing}"><a:t>one two</a:t></c>',
        "word/diagrams/data1.xml": f'<c xmlns:a="{drawing}"><a:t>one two</a:t></c>',
        "docProps/core.xml": f'<c xmlns:d="{core}"><d:title>one two</d:title><d:creator>one two</d:creator></c>',
    }
    found = parts_of(translate_document(Backwards(), archive(dict(parts)), "docx"))
    assert 'name="a b" descr="two one" title="y x"' in found["word/document.xml"]
    assert '<w:tblCaption w:val="two one"/><w:tblDescription w:val="y x"/>' in found["word/document.xml"]
    assert '<w:hyperlink w:tooltip="two one">' in found["word/document.xml"]
    assert '<w:listItem w:displayText="two one" w:value="one two"/>' in found["word/document.xml"]
    assert 'string="two one"' in found["word/document.xml"]
    assert "<a:t>two one</a:t><v>one two</v>" in found["word/charts/chart1.xml"]
    assert found["word/charts/style1.xml"] == parts["word/charts/style1.xml"]
    assert "<a:t>two one</a:t>" in found["word/diagrams/data1.xml"]
    assert "<d:title>two one</d:title><d:creator>one two</d:creator>" in found["docProps/core.xml"]


def test_comments_are_translated_where_they_are_asked_for():
    """What is left as it was is counted, as what stands in ruby is."""
    ruby = piece(f"<w:ruby><w:rt>{run('a bc')}</w:rt></w:ruby>")
    data = docx(f"<w:p>{TWO}{ruby}</w:p>", comments=f"<w:p>{TWO}</w:p>")
    for extras, said, kept in ((), TWO, 9), (("comments",), BACK, 3):
        document = translate_document(Backwards(), data, "docx", extras=extras)
        assert f"<w:p>{said}</w:p>" in parts_of(document)["word/comments.xml"] and document.kept_characters == kept
