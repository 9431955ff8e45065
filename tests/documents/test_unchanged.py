"""Random documents through a translator that changes nothing come back: byte for byte, or XML by its canonical form."""

import io
import json
import re
import tempfile
import zipfile

import polib
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from fastattn.cli.documents import ARCHIVES
from fastattn.documents.forms import FIELD_FORMS
from fastattn.documents.forms import FORMS as KNOWN_FORMS
from fastattn.documents.translating import translate_document
from tests.documents.archives import docx, epub, odt, pptx, xlsx
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
RST = [
    "- ", "1. ", ".. note:: ", ".. code::\n\n   ", "   ", "=====\n", "``a b``", "`one <x>`_", "**two**", "*three*",
    "::\n\n", ":a: ", "| ", "+--+\n", ">>> one\n", "|x|", "one_", "\\*", ".. [1] ", ".. function:: f(a)\n\n   ",
]  # fmt: skip
LATEX = [
    "\\section{one two}", "\\emph{", "}", "{\\bf ", "$x^2$", "\\cite{a}", "\\footnote{one two}", "\\begin{quote}",
    "\\end{quote}", "\\begin{verbatim}", "\\end{verbatim}", "\\begin{document}", "\\end{document}", "\\item ", "\\\\",
    "\\'e", "\\title{one \\thanks{two}}", "\\verb|a b|", "\\LaTeX{}", "~", "---", "\\%", "$",
]  # fmt: skip
RTF = [
    "\\par ", "{\\b ", "\\b ", "\\b0 ", "}", "\\'e9", "\\u8217?", "\\u-10179?\\u-8704?", "{\\*\\x one}",
    "{\\footnote one}",
    "{\\pict\\bin2 }{}", "\\tab", "\\{", "\\~", "{\\field{\\*\\fldinst x}{\\fldrslt one}}", "\\uc0", "\\emdash ", "\n",
]  # fmt: skip
ASS = [
    "\nDialogue: 0,0:00:01.00,0:00:02.00,Default,,0,0,0,,",
    "{\\i1}",
    "{\\i0}",
    "\\N",
    "\\h",
    "{\\p1}",
    "Comment: one\n",
]
PROPERTIES = ["\na = ", "\nb: ", "\n# one", "\\\n  ", "\\u00e9", "\\n", "{0}", "''", "\\ "]
STRINGS = ['"a" = "', '";\n', "/* one */", "// one\n", '\\"', "\\n", "\\U00e9"]
DRAWN = [
    "<a:r><a:t>one</a:t></a:r>", "<a:r><a:rPr b='1'/><a:t> two </a:t></a:r>", "<a:br/>",
    "<a:fld id='x'><a:t>3</a:t></a:fld>", "<a:r><a:rPr lang='en'/><a:t>x</a:t></a:r>",
]  # fmt: skip
CELLS = [
    "<r><t>one</t></r>",
    "<r><rPr><b/></rPr><t xml:space='preserve'> two </t></r>",
    "<rPh sb='0' eb='1'><t>x</t></rPh>",
]
RESOURCES = [
    "one", " two", "&amp;", "%s", "\\'", "\\n", '"', "<b>x</b>", "<![CDATA[<y>]]>", "<!-- <b> -->",
    "<xliff:g id='1'>%1$s</xliff:g>", "  ",
]  # fmt: skip
PIECES = {
    "rst": TEXTS + ENDS + SIGNS + RST,
    "tex": TEXTS + ENDS + SIGNS + LATEX,
    "rtf": [text for text in TEXTS if text.isascii()] + RTF,
    "ass": TEXTS + ASS,
    "properties": TEXTS + ENDS + PROPERTIES,
    "strings": TEXTS + STRINGS,
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
        first = {"srt": TIMES[0], "rtf": "{\\rtf1 ", "ass": "[Events]", "strings": '"x" = "one";\n'}.get(form, "")
        return pages(PIECES[form]).map(lambda page: first + page)
    if form in FIELD_FORMS:
        cells = st.lists(st.sampled_from(TEXTS + SIGNS + ENDS), max_size=6).map("".join)
        rows = st.lists(st.lists(cells, min_size=1, max_size=4), max_size=5)
        return st.tuples(rows, st.sampled_from(["\n", "\r\n"])).map(lambda drawn: table(form, *drawn))
    if form == "odt":
        return pages(SPANS, 8).map(lambda text: odt(f"<office:text><text:p>{text}</text:p></office:text>"))
    if form == "epub":
        return pages(PIECES["html"]).map(lambda page: epub(one=page))
    if form == "pptx":
        return st.lists(st.sampled_from(DRAWN), max_size=8).map(lambda runs: pptx(f"<a:p>{''.join(runs)}</a:p>"))
    if form == "xlsx":
        return st.lists(st.sampled_from(CELLS), max_size=8).map(lambda runs: xlsx(f"<si>{''.join(runs)}</si>"))
    if form == "android":
        return pages(RESOURCES, 8).map(lambda text: f"<resources {G}><string name='a'>{text}</string></resources>")
    if form in ("json", "yaml"):
        texts = st.lists(st.sampled_from(TEXTS + SIGNS + ENDS), max_size=6).map("".join)
        keys = st.sampled_from(["en", "a", "@a", "b c"])
        trees = st.recursive(
            texts | st.booleans() | st.none() | st.integers(), lambda inner: st.dictionaries(keys, inner)
        )
        write = json.dumps if form == "json" else yaml.safe_dump
        return st.tuples(trees, st.booleans()).map(lambda drawn: write(drawn[0], **{WIDE[form]: drawn[1]}))
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


G = "xmlns:xliff='urn:oasis:names:tc:xliff:document:1.2'"
WIDE = {"json": "ensure_ascii", "yaml": "allow_unicode"}
# A string catalog has the translations beside the texts, and a PDF becomes a page.
FORMS = [form for form in KNOWN_FORMS if form not in ("xcstrings", "pdf")]


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
            assert contents(found) == contents(data) if form in ARCHIVES else found == data

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
