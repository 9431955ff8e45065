"""String resources of programs."""

import json

import pytest

from fastattn import translate_document
from fastattn.errors import InputError
from tests.documents.backwards import Backwards, grows_as_its_length

# (form, document, what becomes of it where the words of each text are turned round)
WRITTEN = [
    ("properties", "a = b \\\n    c\n", "a = c b\n"),
    ("properties", "a\\ b=c\\u00e9 d\n!x y\n", "a\\ b=d c\\u00e9\n!x y\n"),
    ("properties", "a: it''s {0}\n", "a: {0} it''s\n"),
    ("properties", "a=b c é\n", "a=é c b\n"),
    (
        "strings",
        '"k v" = "a \\"b\\"";\n// "x" = "y z";\nk = "c\\nd";',
        '"k v" = "\\"b\\" a";\n// "x" = "y z";\nk = "c\\nd";',
    ),
    (
        "json",
        '{"@@locale": "en", "@a": {"d": "x y"}, "a": "b\\u00e9 c"}',
        '{"@@locale": "pt", "@a": {"d": "x y"}, "a": "c bé"}',
    ),
    ("json", '{"a": "b c", "a": {"d": "e f", "d": "g h"}}', '{"a": "c b", "a": {"d": "f e", "d": "h g"}}'),
    ("json", '{"a": "x {{name}} y", "b": "<b>c d</b> e"}', '{"a": "y {{name}} x", "b": "e <b>d c</b>"}'),
    ("yaml", "en:\n  a: b c # d e\n  f: 'it''s g'\n", "pt:\n  a: c b # d e\n  f: 'g it''s'\n"),
    (
        "yaml",
        "a: |\n  b c\n    d e\nf: >\n  g h\n  i\n\n  j k\nl: &x y z\nm: *x\n",
        "a: |\n  c b\n    e d\nf: >\n  i h g\n\n  k j\nl: &x z y\nm: *x\n",
    ),
    ("yaml", 'a: "b c"\nd: e f:\n', None),
    ("yaml", "a: [b c, d]\nn: no\ni: 1\n", "a: [c b, d]\nn: no\ni: 1\n"),
    ("yaml", "a: b c:d\n", "a: c:d b\n"),
    ("properties", "a=it''s '{'{0}'}' b\n", "a=b '{'{0}'}' it''s\n"),
    ("yaml", "a: b c\n---\nd: e f\n", "a: c b\n---\nd: f e\n"),
    ("yaml", "a: >\n  b c\n    d e\n  f g\n  h\n", "a: >\n  c b\n    e d\n  h g f\n"),
]


@pytest.mark.parametrize(("form", "document", "expected"), WRITTEN)
def test_escapes_quotes_and_comments_stay(form, document, expected):
    if expected is None:
        with pytest.raises(InputError, match="^the document: not YAML: "):
            translate_document(Backwards(), document.encode(), form)
    else:
        extra = {"language": "pt"} if form in ("json", "yaml") else {}
        assert translate_document(Backwards(), document.encode(), form, **extra).decode() == expected


def test_properties_in_latin_1():
    assert translate_document(Backwards(), "a=b c\xe9\n".encode("latin-1"), "properties") == b"a=c\\u00e9 b\n"


ANDROID = [
    ("<string name='a'>It\\'s <b>one  two</b>\n  x</string>", "<string name='a'>x <b>two one</b> It\\'s</string>"),
    ("<string translatable='false'>a b</string><string>@string/a</string>", None),
    ("<string>a <x:g>%1$s <b>b c</b></x:g> d</string>", "<string>d <x:g>%1$s <b>b c</b></x:g> a</string>"),
    ("<plurals><item quantity='one'>a b</item></plurals>", "<plurals><item quantity='one'>b a</item></plurals>"),
    ('<string-array><item>"c d"</item></string-array>', "<string-array><item>d c</item></string-array>"),
    ('<color>a b</color><string/><string></string><string>"12"</string>', None),
    ("<string>a &lt; &#233;\xe9 b<!-- c --></string>", "<string>b \xe9\xe9 &lt; a<!-- c --></string>"),
    ("<string>a b <string>c d</string> e</string>", "<string>e <string>c d</string> b a</string>"),
    (
        r"""<string><![CDATA[<a href=\"x y\">It\'s b</a> d &lt;]]></string>""",
        r"""<string><![CDATA[&lt; d <a href=\"x y\">b It\'s</a>]]></string>""",
    ),
    ("<string>&lt;b>a b&lt;/b> c</string>", "<string>c &lt;b&gt;b a&lt;/b&gt;</string>"),
    ("<string >a<![CDATA[ < b]]></string\n>", "<string >b &lt; a</string\n>"),
]


@pytest.mark.parametrize(("source", "expected"), ANDROID)
@pytest.mark.parametrize(
    ("encoding", "head"),
    [
        ("utf-8", ""),
        ("utf-8", "\ufeff"),
        ("latin-1", "<?xml version='1.0'  encoding='ISO-8859-1' ?>\r\n<!-- a <b> -->"),
        ("utf-16", "<?xml version='1.0' encoding='UTF-16'?>\n"),
    ],
)
def test_android(source, expected, encoding, head):
    page = head + "<resources\txmlns:x='urn:oasis:names:tc:xliff:document:1.2'>\r\n%s</resources>\r\n<!-- a b -->\n"
    found = translate_document(Backwards(), (page % source).encode(encoding), "android")
    assert found.decode(encoding) == page % (expected or source)


def test_blanks_of_android():
    translator = Backwards()
    translate_document(translator, b"<resources><string>5&#160;km\n  far</string></resources>", "android")
    assert translator.seen == ["5\xa0km far"]


CATALOG = {
    "sourceLanguage": "en",
    "strings": {
        "a b": {},
        "c d": {"localizations": {"pt": {"stringUnit": {"state": "translated", "value": "x y"}}}},
        "e f": {"shouldTranslate": False},
        "n": {
            "localizations": {
                "en": {"variations": {"plural": {"other": {"stringUnit": {"state": "new", "value": "%d it ems"}}}}}
            }
        },
    },
    "version": "1.0",
}


@pytest.mark.parametrize("fuzzy", [False, True])
def test_a_string_catalog(fuzzy):
    data = json.dumps(CATALOG).encode()
    found = json.loads(translate_document(Backwards(), data, "xcstrings", language="pt", mark_fuzzy=fuzzy))["strings"]
    state = "needs_review" if fuzzy else "translated"
    assert found["a b"]["localizations"]["pt"] == {"stringUnit": {"state": state, "value": "b a"}}
    plural = found["n"]["localizations"]["pt"]["variations"]["plural"]
    assert plural == {"other": {"stringUnit": {"state": state, "value": "ems it %d"}}}
    assert found["c d"] == CATALOG["strings"]["c d"] and found["e f"] == CATALOG["strings"]["e f"]
    with pytest.raises(
        InputError, match="^the document: a string catalog takes the language of its translations: --to$"
    ):
        translate_document(Backwards(), data, "xcstrings")


@pytest.mark.parametrize(
    ("form", "document", "message"),
    [
        ("json", "{", "^the document: not JSON: "),
        ("strings", "a b", '^the document: expected lines such as "key" = "text";$'),
        ("android", "<a/>", "^the document: expected string resources, whose first element is resources, found a$"),
        ("xcstrings", "[]", "^the document: not a string catalog: it has no strings$"),
        ("yaml", "a: [", "^the document: not YAML: "),
        ("properties", "a\0=\0", "^the document: a NUL byte, so this is not text$"),
    ],
)
def test_what_is_not_of_the_form(form, document, message):
    with pytest.raises(InputError, match=message):
        translate_document(Backwards(), document.encode(), form)


def test_yaml_whose_anchors_hold_each_other():
    page = "a: &a [b c, *a]\nd: &d [*a, *a]\ne: [*d, *d]\n"
    assert translate_document(Backwards(), page.encode(), "yaml").decode() == page.replace("b c", "c b")


class Number(Backwards):
    def translate_iter(self, texts, **options):
        yield from ("2001-99-99" for _ in texts)


def test_a_translation_that_looks_like_a_date_of_yaml():
    assert translate_document(Number(), b"a: b c\n", "yaml") == b'a: "2001-99-99"\n'


def test_a_string_catalog_is_written_as_xcode_writes_it():
    page = b'{\n  "sourceLanguage" : [],\n  "strings" : {\n    "1" : {\n\n    }\n  }\n}\n'
    page = page.replace(b'"1" : {', b'"1" : {\n      "shouldTranslate" : false\n    },\n    "x : {}" : {')
    page = page.replace(
        b'"x : {}" : {\n\n    }',
        b'"x : {}" : {\n      "extractionState" : {\n\n      },\n      "shouldTranslate" : false\n    }',
    )
    assert translate_document(Backwards(), page, "xcstrings", language="pt") == page


@pytest.mark.parametrize("piece", ["a" * 20, "/*" * 10, "a " * 10])
def test_time_grows_as_the_length_of_strings(piece):
    grows_as_its_length("strings", lambda n: '"a" = "b c";\n' + piece * n)
