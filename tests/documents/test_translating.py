"""Documents through translators of several kinds, and the forms that names tell."""

import pytest

from fastattn import Translator, translate_document
from fastattn.documents.forms import FIELD_FORMS, FORMS, form_of
from fastattn.errors import InputError
from tests.documents.backwards import Backwards, Unchanged


def test_the_form_of_a_name():
    other = {
        "htm": "html", "xhtml": "html", "markdown": "md", "vtt": "srt", "pot": "po", "xlf": "xliff", "text": "txt",
        "ndjson": "jsonl", "rest": "rst", "ssa": "ass", "arb": "json", "yml": "yaml",
    }  # fmt: skip
    for end, form in (dict(zip(FORMS, FORMS)) | other).items():
        if form != "android":
            assert form_of(f"b/a.tar.{end}") == form_of(f"a.{end.upper()}") == form
    assert form_of("res/values-pt/strings.xml") == form_of("Strings.XML") == "android"
    names = ("html", "a.doc", ".md", "a", "", "a.html/b", "a.android", "colors.xml")
    assert {form_of(name) for name in names} == {None}


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


HEADER = 'msgid ""\nmsgstr "Content-Type: text/plain; charset={}\\n"\n\n'
MESSAGE = 'msgid "{}"\nmsgstr "{}"\n'
# A form, a document, its encoding, and what becomes of it where the words of each text are turned round.
WRITTEN = [
    ("po", HEADER.format("ISO-8859-1") + MESSAGE.format("a \xe9", ""), "latin-1", MESSAGE.format("a \xe9", "\xe9 a")),
    ("po", HEADER.format("ISO-8859-1") + MESSAGE.format("a \u20ac", ""), "utf-8", HEADER.format("UTF-8")),
    ("po", HEADER.format("CHARSET") + MESSAGE.format("a b", ""), "utf-8", HEADER.format("CHARSET")),
    ("po", HEADER.format("CHARSET") + MESSAGE.format("a \u20ac", ""), "utf-8", HEADER.format("UTF-8")),
    ("po", 'msgid "a b"\r\nmsgstr ""\r\n', "utf-8", 'msgid "a b"\r\nmsgstr "b a"\r\n'),
    ("po", MESSAGE.format(r"\x41 \101b \"c\" \\d", ""), "utf-8", MESSAGE.format(r"A Ab \"c\" \\d", r"\\d \"c\" Ab A")),
    ("po", MESSAGE.format("a <b>b c</b>", ""), "utf-8", MESSAGE.format("a <b>b c</b>", "<b>c b</b> a")),
    (
        "po",
        'msgid "a b"\nmsgid_plural "c d"\nmsgstr[0] "x"\nmsgstr[1] ""\n',
        "utf-8",
        'msgid "a b"\nmsgid_plural "c d"\nmsgstr[0] "x"\nmsgstr[1] "d c"\n',
    ),
    ("csv", 'a,b\n"a\rb",x\n', "utf-8", 'a,b\n"b a",x\n'),
    ("csv", 'a,"b"\r\na b, "x" \nc "d",x', "utf-8", 'a,"b"\r\nb a, "x" \n"""d"" c",x'),
    ("tsv", 'a\tb\n"a b\tx\n"c d"\t"x\n"\n', "utf-8", 'a\tb\nb "a\tx\n"d c"\t"x\n"\n'),
    ("jsonl", '{"a": "b \u2028c\x85d", "n": 0.10, "e": 1E400, "a": "x"}\n', "utf-8", None),
    ("jsonl", '{"a": "\\ud800"}\n', "utf-8", None),
    ("srt", "WEBVTT\n\nNOTE a\n0:0.1 --> 0:0.2 b c\n\n0:0.1 --> 0:0.2\na b\n", "utf-8", " b c\n\n0:0.1 --> 0:0.2\nb a"),
    ("txt", "\ufeffa b\r\nc", "utf-16-be", "\ufeffb a\r\nc"),
    ("html", "\ufeff<meta charset=latin1><p>a \u20ac", "utf-16-be", "\ufeff<meta charset=latin1><p>\u20ac a"),
    ("html", "\ufeff<meta charset=latin1><p>a \u20ac", "utf-16-le", "\ufeff<meta charset=latin1><p>\u20ac a"),
    ("html", "\ufeff<meta charset=latin1><p>a \u20ac", "utf-8", "\ufeff<meta charset=latin1><p>\u20ac a"),
]  # fmt: skip


@pytest.mark.parametrize(("form", "document", "encoding", "expected"), WRITTEN)
def test_what_is_not_translated_stays_as_it_is_written(form, document, encoding, expected):
    fields = ["a"] if form in FIELD_FORMS else []
    found = translate_document(Backwards(), document.encode(encoding), form, fields=fields).decode(encoding)
    assert (document if expected is None else expected) in found
    if form != "po":
        same = translate_document(Unchanged(), document.encode(encoding), form, fields=fields)
        assert same == document.encode(encoding)


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
    "rst": (f"{KEPT}\n{'=' * len(KEPT)}\n\n12\n", [KEPT], f"now http://a.org/x see\n{'=' * len(KEPT)}\n\n12\n"),
    "tex": (
        f"\\author{{x}}\n\\begin{{document}}\n{KEPT}\n\n12 $a$\n\\end{{document}}\n",
        [KEPT],
        "\\author{x}\n\\begin{document}\nnow http://a.org/x see\n\n12 $a$\n\\end{document}\n",
    ),
    "rtf": (f"{{\\rtf1 {KEPT}\\par 12}}", [KEPT], "{\\rtf1 now http://a.org/x see\\par 12}"),
    "ass": (
        f"[Events]\nDialogue: 0,0:00:01,0:00:02,A B,,0,0,0,,{KEPT}\nDialogue: 0,0:00:01,0:00:02,A B,,0,0,0,,12\n",
        [KEPT],
        "[Events]\nDialogue: 0,0:00:01,0:00:02,A B,,0,0,0,,now http://a.org/x see\n"
        "Dialogue: 0,0:00:01,0:00:02,A B,,0,0,0,,12\n",
    ),
    "json": (f'{{"a b": "{KEPT}", "b": ["12"]}}', [KEPT], '{"a b": "now http://a.org/x see", "b": ["12"]}'),
    "yaml": (f"a b: {KEPT}\nb: [12, '12']\n", [KEPT], "a b: now http://a.org/x see\nb: [12, '12']\n"),
    "properties": (f"# x y\na = {KEPT}\nb=12\n", [KEPT], "# x y\na = now http://a.org/x see\nb=12\n"),
    "strings": (f'/* x y */\n"a b" = "{KEPT}";\n', [KEPT], '/* x y */\n"a b" = "now http://a.org/x see";\n'),
    "android": (
        f"<resources><string name='a'>{KEPT}</string></resources>",
        [KEPT],
        "<resources><string name='a'>now http://a.org/x see</string></resources>",
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
        translator, fields = Backwards(), ("a",) if form in FIELD_FORMS else ()
        found = translate_document(translator, document.encode(), form, fields=fields).decode()
        assert (found, translator.seen) == (expected, texts), form
    # whose files these are not
    assert {*FORMS} - {*DOCUMENTS} == {"xliff", "docx", "odt", "epub", "pdf", "pptx", "xlsx", "xcstrings"}


class Blind(Backwards):
    """Has no attention to return."""

    returns_attention = False

    def translate_iter(self, texts, *, details=False, **options):
        assert "return_attention" not in options
        return super().translate_iter(texts, details=details)


def test_messages_of_several_branches():
    nested = "{n, plural, =0 {no item} other {{g, select, a {one two} other {x {y} z}}}}"
    rows = ["{count, plural, one {# item x} other {# items}}", "see {n, plural, other {# it}} now", nested, "one two"]
    expected = ["{count, plural, one {# x item} other {# items}}", "now {n, plural, other {# it}} see"]
    expected += ["{n, plural, =0 {item no} other {{g, select, a {two one} other {z {y} x}}}}", "two one"]
    table = "".join(f'{{"a": "{row}"}}\n' for row in rows)
    found = translate_document(Backwards(), table.encode(), "jsonl", fields=["a"]).decode()
    assert found == "".join(f'{{"a": "{row}"}}\n' for row in expected)


def test_an_extra_that_is_none():
    with pytest.raises(InputError, match="^unknown extra 'notes'; known: comments, front-matter$"):
        translate_document(Backwards(), b"", "md", extras=["notes"])


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
            translate_document(translator, b"", "doc")
