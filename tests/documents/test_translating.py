"""Documents through translators of several kinds, and the forms that names tell."""

import json
import re

import polib
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from fastattn import Translator, translate_document
from fastattn.documents.forms import FORMS, WITH_FIELDS, form_of
from fastattn.documents.markdown import BLOCK
from fastattn.documents.texts import in_lines
from fastattn.errors import InputError
from tests.documents.backwards import Backwards, Unchanged, grows_as_its_length
from tests.messages import refused


def test_the_form_of_a_name():
    other = {
        "htm": "html", "xhtml": "html", "markdown": "md", "vtt": "srt", "pot": "po", "xlf": "xliff", "text": "txt",
        "ndjson": "jsonl",
    }  # fmt: skip
    for end, form in (dict(zip(FORMS, FORMS)) | other).items():
        assert form_of(f"b/a.tar.{end}") == form_of(f"a.{end.upper()}") == form
    assert {form_of(name) for name in ("html", "a.doc", ".md", "a", "", "a.html/b")} == {None}


def test_texts_are_translated_once():
    translator = Backwards()
    page = b"<p>one two</p><p> one two </p><p>3</p><p><b>x y</b> z</p>"
    assert translate_document(translator, page, "html") == b"<p>two one</p><p> two one </p><p>3</p><p>z <b>y x</b></p>"
    assert translator.seen == ["one two", "x y z"]


def test_options_arrive_with_every_text():
    """Those of marked texts, which need an alignment, have some of their own beside."""
    translator = Backwards()
    found = translate_document(translator, b"<p>one two</p><p>x <b>y</b></p>", "html", beam_size=3, source_lang="en")
    assert found == b"<p>two one</p><p><b>y</b> x</p>"
    given = {"beam_size": 3, "source_lang": "en"}
    assert translator.told == [("one two", given), ("x y", given | {"details": True, "return_attention": True})]


# Of each form a document, the texts that are read of it, in order, and what becomes of it.
KEPT = "see http://a.org/x now"
DOCUMENTS = {
    "txt": (KEPT, [KEPT], "now http://a.org/x see"),
    "html": (f"<p>{KEPT}<p>12", [KEPT], "<p>now http://a.org/x see<p>12"),
    "md": (f"# {KEPT}\n\n12\n", [KEPT], "# now http://a.org/x see\n\n12\n"),
    "srt": (
        f"1\n0:01,0 --> 0:02,0\n{KEPT}.\n\n2\n0:03,0 --> 0:04,0\n12\n",
        [f"{KEPT}."],
        "1\n0:01,0 --> 0:02,0\nnow. http://a.org/x see\n\n2\n0:03,0 --> 0:04,0\n12\n",
    ),
    "po": (
        f'msgid ""\nmsgstr ""\n\nmsgid "{KEPT}"\nmsgstr ""\n\nmsgid "12"\nmsgstr ""\n',
        [KEPT],
        f'msgid ""\nmsgstr ""\n\nmsgid "{KEPT}"\nmsgstr "now http://a.org/x see"\n\nmsgid "12"\nmsgstr "12"\n',
    ),
    "csv": (f"a,b\n{KEPT},x y\n12,x y\n", [KEPT], "a,b\nnow http://a.org/x see,x y\n12,x y\n"),
    "tsv": (f"a\tb\n{KEPT}\tx y\n12\tx y\n", [KEPT], "a\tb\nnow http://a.org/x see\tx y\n12\tx y\n"),
    "jsonl": (
        f'{{"a": "{KEPT}", "b": "x y"}}\n{{"a": "12"}}\n',
        [KEPT],
        '{"a": "now http://a.org/x see", "b": "x y"}\n{"a": "12"}\n',
    ),
}


def test_each_form_has_its_texts_translated_and_the_rest_kept():
    for form, (document, texts, expected) in DOCUMENTS.items():
        translator, fields = Backwards(), ("a",) if form in WITH_FIELDS else ()
        found = translate_document(translator, document.encode(), form, fields=fields).decode()
        assert (found, translator.seen) == (expected, texts), form
    assert {*FORMS} - {*DOCUMENTS} == {"xliff", "docx", "odt", "epub"}  # whose files these are not


class Blind(Backwards):
    """Has no attention to return."""

    returns_attention = False

    def translate_iter(self, texts, *, details=False, **options):
        assert "return_attention" not in options
        return super().translate_iter(texts, details=details)


def test_without_attention_words_are_taken_to_stay_in_order():
    assert translate_document(Blind(), b"<p>one <b>two</b> six</p>", "html") == b"<p>six <b>two</b> one</p>"


def test_txt_keeps_blanks_and_line_ends():
    data = b"\xef\xbb\xbfone two\r\n\r\n  three four  \n\tfive\n\n 6 \nseven eight"
    expected = b"\xef\xbb\xbftwo one\r\n\r\n  four three  \n\tfive\n\n 6 \neight seven"
    assert translate_document(Backwards(), data, "txt") == expected


def test_a_real_model(pulled):
    """Tags go with the words, whatever their order becomes; the pieces of a text stay together."""
    with Translator(pulled("en-pt"), threads=2, processes=1) as translator:
        page = b"<ul><li>The <b>red</b> house.</li><li>My brother bought a <i>new <u>car</u></i>, see http://a.org/x.</li></ul>"
        found = translate_document(translator, page, "html").decode()
        assert "<li>A casa <b>vermelha</b>.</li>" in found
        assert "<i><u>carro</u> novo</i>" in found and "http://a.org/x" in found
        assert translate_document(translator, b"# The *red* house\n", "md").decode() == "# A casa *vermelha*\n"
        with pytest.raises(InputError, match="form of document"):
            translate_document(translator, b"", "pdf")


CSV = 'id,text,more\r\n1,"one, two",x y\r\n2,"three ""four""\nfive",x y\r\n3\r\n'


def translated(form, data, *fields):
    return translate_document(Backwards(), data.encode(), form, name="a", fields=fields).decode()


def test_csv():
    assert translated("csv", CSV, "text") == 'id,text,more\r\n1,"two one,",x y\r\n2,"""four"" three\nfive",x y\r\n3\r\n'
    assert translated("csv", CSV, "text", "more").count("y x") == 2
    assert translated("csv", CSV, "3") == CSV.replace("x y", "y x")
    assert translated("csv", "one two\n", "1") == "two one\n"
    assert translated("csv", "", "1") == ""
    assert translated("csv", "\ufefftext\none two\n", "text") == "\ufefftext\ntwo one\n"


def test_tsv():
    assert translated("tsv", "a\tb\none two\tc d\n", "a") == "a\tb\ntwo one\tc d\n"
    assert translated("tsv", "a\tb\none, two\tc d\n", "a") == "a\tb\ntwo one,\tc d\n"


def test_quotes_in_tsv():
    """Quotes around fields are a table's own; within a field they are text, and so they stay."""
    quoted = 'a\tb\n"one\ttwo three"\t"say ""c d"""\n'
    assert translated("tsv", quoted, "b") == 'a\tb\n"one\ttwo three"\t"d"" ""c say"\n'
    assert translated("tsv", 'a\tb\n5" one\t6" two\n', "a") == 'a\tb\none 5"\t6" two\n'
    with pytest.raises(InputError, match="not a table"):
        translated("tsv", 'a\tb\n"one two\tc\n', "a")


def test_json_lines():
    lines = [
        {"a": "one two", "b": {"c": "three four", "d": 1}},
        *({"a": None, "b": {"c": ["five six", 2]}}, {"b.c": "x y"}),
    ]
    data = "\n".join([json.dumps(lines[0]), "", *map(json.dumps, lines[1:])]) + "\r\n"
    found = translated("jsonl", data, "a", "b.c")
    first, empty, second, third, end = found.split("\n")
    assert json.loads(first) == {"a": "two one", "b": {"c": "four three", "d": 1}} and empty == "" and end == ""
    assert json.loads(second) == {"a": None, "b": {"c": ["six five", 2]}} and third == '{"b.c": "y x"}\r'


def test_tables_and_records_that_are_wrong():
    for form, data, *fields in (
        *(("csv", CSV, column) for column in ("nothing", "4", "0")),
        *(("csv", CSV), ("html", "<p>", "a"), ("doc", "")),
        *(("jsonl", data, "a", "c") for data in ("[]\n", '{"b": "x"}\n')),
    ):
        with refused(InputError):
            translated(form, data, *fields)
    for form, data, message in (
        ("csv", 'a,"b', "^a: not a table: "),
        ("jsonl", "{}\n{", "^a, line 2: not JSON: "),
        ("jsonl", "[" * 100_000, "^a, line 1: not JSON: "),
    ):
        with pytest.raises(InputError, match=message):
            translated(form, data, "1")


def backwards(page: str) -> str:
    return translate_document(Backwards(), page.encode(), "md").decode()


# A page, and what becomes of it where the words of a sentence are turned round.
PAGES = {
    "# one two\n": "# two one\n",
    "one two\n=======\n": "two one\n=======\n",
    "one *two* __three__\n": "__three__ *two* one\n",
    "one **two *three***\n": "***three* two** one\n",
    "see [one two](http://a.org/b_(c) 'one \"two\"') now": "now [two one](http://a.org/b_(c) 'one \"two\"') see",
    "a [one two][ref]\n\n[ref]: http://a.org 'one two'\n": "[two one][ref] a\n\n[ref]: http://a.org 'one two'\n",
    "see [ref] now\n\n[ref]: x\n": "now [ref] see\n\n[ref]: x\n",
    "run `a b` or ``c ` d`` now": "now ``c ` d`` or `a b` run",
    "go to <https://a.org/x> now": "now <https://a.org/x> to go",
    "one ![two three](x.png) four": "four one ![two three](x.png)",
    "one <kbd>two</kbd> three<br/>": "three <kbd>two</kbd> one<br/>",
    "one two three four\nfive six\n": "six five four three\ntwo one\n",
    "> one two three\n> four\n": "> four three two\n> one\n",
    "- one two\n  three four\n- five six\n": "- four\n  three two one\n- six five\n",
    "1. one two\n\n   three four\n": "1. two one\n\n   four three\n",
    "one two\\\nthree four  \nfive six\n": "two one\\\nfour three  \nsix five\n",
    "| one two | b |\n|---|:-:|\n| c d | e `f g` h |\n": "| two one | b |\n|---|:-:|\n| d c | h `f g` e |\n",
    "```\none two\n```\n\n    one two\n": "```\none two\n```\n\n    one two\n",
    "<div>\none two\n</div>\n": "<div>\none two\n</div>\n",
    "---\ntitle: one two\n---\none two\n": "---\ntitle: one two\n---\ntwo one\n",
    "+++\ntitle = 'one two'\n+++\none two\n": "+++\ntitle = 'one two'\n+++\ntwo one\n",
    "2 \\* 3 one\n": "one 3 \\* 2\n",
    "one &amp; two\n": "two & one\n",
    "~~one two~~ three\n": "three ~~two one~~\n",
    "one\n\n\n\ntwo three\n\n": "one\n\n\n\nthree two\n\n",
    "one two\r\nthree four\r\n": "four\r\nthree two one\r\n",
    "": "",
}


def test_a_page():
    assert {page: backwards(page) for page in PAGES} == PAGES


def test_no_line_begins_like_a_list():
    assert in_lines("aa - bb", [3, 3]) == ["aa", "- bb"]
    assert in_lines("aa - bb", [3, 3], BLOCK) == ["aa -", "bb"]
    assert in_lines("aa 1. bb", [3, 3], BLOCK) == ["aa 1.", "bb"]


TABLE = "| a | b |\n|-|-|\n"
PIECES = [
    "one",
    " two",
    "\n",
    "\n\n",
    "  \n",
    "    ",
    "```\n",
    "<http://a.b>",
    "[r]: x\n",
    "1. ",
    "\t",
    "](x)",
    "![",
    "<b>",
]
PIECES += [*"*_`[", "**", "> ", "- ", "# ", TABLE, "\\*", "&lt;"]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=20).map("".join))
def test_any_page_keeps_its_blocks_and_lines(page):
    found = translate_document(Unchanged(), page.encode(), "md").decode()
    assert found.count("\n") <= page.count("\n")  # where words are too few for the lines
    assert _blocks(found) == _blocks(page)


def _blocks(page: str) -> list[str]:
    return [one.type for one in MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(page)]


def test_a_paragraph_of_many_lines_does_not_take_long():
    grows_as_its_length("md", lambda n: "one two three\n" * n)
    page = "one two three\n" * 300
    assert translate_document(Unchanged(), page.encode(), "md").decode() == page


SRT = """\ufeff1
00:00:01,000 --> 00:00:02,500
One two three
four five

2
00:00:03,000 --> 00:00:04,000 X1:10
six seven.

3
00:00:05,000 --> 00:00:06,000
<i>Eight nine</i>
{\\an8}ten

4
00:00:07,000 --> 00:00:08,000
- Eleven twelve
- thirteen fourteen

5
00:00:09,000 --> 00:00:10,000
12:34
"""
TURNED = {
    "One two three\nfour five": "seven. six five\nfour",
    "six seven.": "three two One",
    "Eight nine": "nine Eight",
    "Eleven twelve": "twelve Eleven",
    "thirteen fourteen": "fourteen thirteen",
}


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_subrip(end):
    translator = Backwards()
    found = translate_document(translator, SRT.replace("\n", end).encode(), "srt").decode()
    assert translator.seen[0] == "One two three four five six seven."
    expected = re.sub("|".join(map(re.escape, TURNED)), lambda one: TURNED[one[0]], SRT)
    assert found == expected.replace("\n", end)


def test_webvtt():
    style = "NOTE one two\nthree\n\nSTYLE\n::cue { a b }"
    vtt = f"WEBVTT\n\n{style}\n\ncue-1\n00:01.000 --> 00:02.000 align:start\none two\n"
    found = translate_document(Backwards(), vtt.encode(), "srt").decode()
    assert found == vtt[: vtt.rindex("one two")] + "two one\n"


def test_what_has_no_full_stop_is_no_endless_sentence():
    cues = "".join(f"00:{n:02}.000 --> 00:{n:02}.900\nword{n}\n\n" for n in range(30))
    translator = Backwards()
    found = translate_document(translator, cues.encode(), "srt").decode()
    assert [len(text.split()) for text in translator.seen] == [12, 12, 6]
    assert {line for line in found.split("\n") if line.startswith("word")} == {f"word{n}" for n in range(30)}
    assert found.count("word") == 30


def test_a_line_with_tags_is_a_sentence():
    cues = "0:01.0 --> 0:02.0\none two\n\n0:02.0 --> 0:03.0\n<i>three four</i>\n\n0:03.0 --> 0:04.0\nfive six\n"
    translator = Backwards()
    found = translate_document(translator, cues.encode(), "srt").decode()
    assert sorted(translator.seen) == ["five six", "one two", "three four"]
    assert "\ntwo one\n" in found and "\n<i>four three</i>\n" in found and found.endswith("\nsix five\n")


def test_what_is_no_subtitle():
    with refused(InputError, "a.srt"):
        translate_document(Backwards(), b"1\none two\n", "srt", name="a.srt")


@pytest.mark.parametrize(
    "text, lengths, expected",
    [
        ("one two three", [3, 9], ["one", "two three"]),
        ("one two three", [9, 3], ["one two", "three"]),
        ("one", [1, 1, 1], ["one", "", ""]),
        ("", [1, 1], ["", ""]),
        ("one two", [5], ["one two"]),
        ("aaaaaaaa bbb ccc", [1, 1, 9], ["aaaaaaaa", "bbb", "ccc"]),
        ("\u4e00\u4e8c\u4e09\u56db", [2, 2], ["\u4e00\u4e8c", "\u4e09\u56db"]),
    ],
)
def test_lines_of_about_the_same_shares(text, lengths, expected):
    assert in_lines(text, lengths) == expected


PO = r"""# A header.
msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\n"
"Plural-Forms: nplurals=3; plural=n;\n"

#. for translators
#: a.c:1
#, c-format
msgctxt "menu"
msgid "open file %s now\n"
msgstr ""

msgid "done one"
msgstr "already"

#, fuzzy
msgid "one two"
msgstr "wrong"

msgid "one file"
msgid_plural "%d files"
msgstr[0] ""
msgstr[1] ""
msgstr[2] ""

#~ msgid "gone away"
#~ msgstr ""
"""


def test_po():
    found = polib.pofile(translate_document(Backwards(), PO.encode(), "po").decode() + "\n")
    entry, done, fuzzy, plural, gone = found
    assert (entry.msgid, entry.msgstr, entry.msgctxt) == ("open file %s now\n", "now %s file open\n", "menu")
    assert entry.comment == "for translators" and entry.occurrences == [("a.c", "1")] and entry.flags == ["c-format"]
    assert done.msgstr == "already" and (fuzzy.msgstr, fuzzy.flags) == ("two one", [])
    assert plural.msgstr_plural == {0: "file one", 1: "files %d", 2: "files %d"}
    assert gone.obsolete and gone.msgstr == "" and found.header == "A header."
    again = translate_document(Backwards(), f"{found}".encode(), "po").decode()
    assert again.strip() == f"{found}".strip()


XLIFF = """<?xml version="1.0" encoding="UTF-8"?>
<!-- kept -->
<xliff xmlns="urn:oasis:names:tc:xliff:document:1.2" version="1.2"><file><body>
<trans-unit id="1"><source>one <g id="1">two <x id="2"/>three</g> four</source></trans-unit>
<trans-unit id="2"><source>one two</source><target state="final">there</target></trans-unit>
<trans-unit id="3" translate="no"><source>one two</source></trans-unit>
<trans-unit id="4"><source>one two</source><target state="new" x="y">one two</target><note>n</note></trans-unit>
</body></file></xliff>"""


def test_xliff():
    found = translate_document(Backwards(), XLIFF.encode(), "xliff").decode()
    assert '<target>four <g id="1">three two <x id="2"/></g> one</target>' in found
    assert '<source>one <g id="1">two <x id="2"/>three</g> four</source>' in found and "<!-- kept -->" in found
    assert '<target state="final">there</target>' in found and "<source>one two</source></trans-unit>" in found
    assert '<target x="y">two one</target><note>n</note>' in found


def test_what_of_xliff_is_to_be_translated():
    """What is nearest says so; a target that only waits for its translation gets it."""
    unit = '<trans-unit id="{}"{}><source>one two</source>{}</trans-unit>'
    for around, of_unit, target, is_translated in (
        ("", "", "", True),
        (' translate="no"', "", "", False),
        (' translate="no"', ' translate="yes"', "", True),
        (' translate="yes"', ' translate="no"', "", False),
        ("", "", "<target/>", True),
        ("", "", "<target>there</target>", False),
        ("", "", '<target state="translated">there</target>', False),
        ("", "", '<target state="new">there</target>', True),
        ("", "", '<target state="needs-translation">there</target>', True),
        ("", "", '<target state="initial">there</target>', True),
        ("", ' state="initial"', "<target>there</target>", True),
    ):
        group = f"<group{around}>{unit.format(1, of_unit, target)}</group>"
        page = f'<xliff version="1.2"><file><body>{group}</body></file></xliff>'
        found = translate_document(Backwards(), page.encode(), "xliff").decode()
        assert ("<target>two one</target>" in found) == is_translated, page
        assert is_translated or page in found


def test_xliff_2():
    page = (
        '<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0" srcLang="en" trgLang="pt"><file id="f">'
        '<unit id="u"><segment><source>one <pc id="1">two</pc> <ph id="2"/>three</source></segment>'
        '<ignorable><source> a b </source></ignorable></unit></file></xliff>'
    )  # fmt: skip
    found = translate_document(Backwards(), page.encode(), "xliff").decode()
    assert '<target>three <pc id="1">two</pc> <ph id="2"/>one</target>' in found and found.count("<target") == 1


def test_catalogs_that_are_damaged():
    for form, data in (
        ("po", b"hello"),
        ("xliff", b"<html/>"),
        ("xliff", b'<!DOCTYPE x [<!ENTITY e "e">]><xliff>&e;</xliff>'),
    ):
        with refused(InputError):
            translate_document(Backwards(), data, form, name="a")
    for form, data, kind in (
        ("po", b'msgid "a"\nfoo bar\n', "a PO file"),
        ("xliff", b"<xliff><file>", "XML"),
        ("xliff", b"", "XML"),
    ):
        with pytest.raises(InputError, match=f"^a: not {kind}: "):
            translate_document(Backwards(), data, form, name="a")


def test_entities_are_not_read(tmp_path):
    (tmp_path / "secret").write_text("secret words")
    page = f'<!DOCTYPE x [<!ENTITY e SYSTEM "file://{tmp_path}/secret">]><xliff><source>a &e;</source></xliff>'
    with refused(InputError):
        translate_document(Backwards(), page.encode(), "xliff")
