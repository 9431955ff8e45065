"""Presentations and workbooks."""

from fastattn import translate_document
from tests.documents.archives import X, archive, parts_of, pptx, xlsx
from tests.documents.backwards import Backwards


def slide(body):
    return parts_of(translate_document(Backwards(), pptx(body), "pptx"))["ppt/slides/slide1.xml"]


def test_slides():
    found = slide(
        "<a:p><a:r><a:rPr lang='en'/><a:t>one two </a:t></a:r><a:r><a:rPr lang='en' b='1'/><a:t>six</a:t></a:r>"
        "<a:r><a:rPr lang='de'/><a:t> ten</a:t></a:r><a:br/><a:r><a:t>a b</a:t></a:r><a:endParaRPr/></a:p>"
    )
    assert 'descr="two one"' in found
    assert '<a:t>ten </a:t></a:r><a:r><a:rPr lang="en" b="1"/><a:t>six</a:t></a:r>' in found
    assert "<a:t> two one</a:t></a:r><a:br/>" in found and found.index("<a:br/>") < found.index("<a:t>b a</a:t>")
    assert found.index("b a") < found.index("<a:endParaRPr/>")


def test_a_slide_number_stays():
    found = slide("<a:p><a:r><a:t>one two </a:t></a:r><a:fld id='x' type='slidenum'><a:t>3</a:t></a:fld></a:p>")
    assert '<a:fld id="x" type="slidenum"><a:t>3</a:t></a:fld>' in found and "<a:t>two one" in found


def test_cells():
    strings = "<si><t>one two</t></si><si><r><t>a </t></r><r><rPr><b/></rPr><t>b c</t></r></si><si><t>12</t></si>"
    cells = '<row><c t="inlineStr"><is><t>x y</t></is></c><c><f>SUM(A1 B2)</f><v>1</v></c></row>'
    found = parts_of(translate_document(Backwards(), xlsx(strings, cells), "xlsx"))
    shared, sheet = found["xl/sharedStrings.xml"], found["xl/worksheets/sheet1.xml"]
    assert "<si><t>two one</t></si>" in shared and "<si><t>12</t></si>" in shared
    assert '<r><rPr><b/></rPr><t xml:space="preserve">c b </t></r><r><t>a</t></r>' in shared
    assert "<is><t>y x</t></is>" in sheet and "<f>SUM(A1 B2)</f>" in sheet
    assert "one two" in found["xl/workbook.xml"]


def test_heads_of_tables_stay():
    strings = "<si><t>a b</t></si><si><r><t>c\n</t></r><r><t>d</t></r></si><si/><si><t>e f</t></si><si><t>g h</t></si>"
    parts: dict[str, str | bytes] = {**parts_of(xlsx(strings, '<row><c t="inlineStr"><is><t>a b</t></is></c></row>'))}
    columns = "<tableColumn name='a b'/><tableColumn name='c_x000a_d' totalsRowLabel='e f'/>"
    parts["xl/tables/table1.xml"] = f"<table {X} name='g h'><tableColumns>{columns}</tableColumns></table>"
    document = translate_document(Backwards(), archive(parts), "xlsx")
    found = parts_of(document)
    assert document.kept_characters == len("abcdefab")
    assert "<is><t>a b</t></is>" in found["xl/worksheets/sheet1.xml"]
    assert found["xl/tables/table1.xml"] == parts["xl/tables/table1.xml"] and list(found) == list(parts)
    assert found["xl/sharedStrings.xml"].endswith(f"{strings.replace('g h', 'h g')}</sst>")


def test_line_ends_in_heads_of_tables_and_escapes_stay():
    strings = "<si><t>one two</t></si><si><t>six\nten</t></si><si><t>a b _x000D_</t></si><si><t>a b %s c</t></si>"
    strings += "<si><t>a b_x000D_\nc d_x0009_e</t></si>"
    found = parts_of(translate_document(Backwards(), xlsx(strings, table1="one two", table2="six_x000a_ten"), "xlsx"))
    assert "<t>one two</t></si><si><t>six\nten</t>" in found["xl/sharedStrings.xml"]
    assert "<si><t>_x000D_ b a</t></si>" in found["xl/sharedStrings.xml"]
    assert '<si><t xml:space="preserve">c %s b a</t></si>' in found["xl/sharedStrings.xml"]
    assert "<si><t>b a\nd_x0009_e c</t></si>" in found["xl/sharedStrings.xml"]


def test_a_sheet_in_utf_16():
    parts: dict[str, str | bytes] = {**parts_of(xlsx("", '<row><c t="inlineStr"><is><t>a b</t></is></c></row>'))}
    head = "<?xml version='1.0' encoding='UTF-16'?>"
    parts["xl/worksheets/sheet1.xml"] = f"{head}{parts['xl/worksheets/sheet1.xml']}".encode("utf-16")
    found = parts_of(translate_document(Backwards(), archive(parts), "xlsx"))["xl/worksheets/sheet1.xml"]
    assert "<t>b a</t>" in found.encode("utf-8", "surrogateescape").decode("utf-16")
