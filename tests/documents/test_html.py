"""Pages: tags around their words, what nobody reads as it is."""

import re
import sysconfig
from pathlib import Path

import html5lib
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from fastattn.documents.html import HtmlTokenizer
from fastattn.documents.translating import translate_document
from fastattn.errors import InputError
from tests.documents.backwards import Backwards, Unchanged, grows_as_its_length


def backwards(page: str) -> str:
    return translate_document(Backwards(), page.encode(), "html").decode()


# A page, and what becomes of it where the words of a sentence are turned round.
PAGES = {
    "<p>one <b>two</b> three</p>": "<p>three <b>two</b> one</p>",
    "<p>one <a href='x'><i>two</i> three</a> four</p>": "<p>four <a href='x'>three <i>two</i></a> one</p>",
    "<a><em><span>one two</span></em> <em><span>three</span></em></a>": (
        "<a><em><span>three</span></em> <em><span>two one</span></em></a>"
    ),
    "<h1>one two</h1>\n <p>  three\n four </p>": "<h1>two one</h1>\n <p>  four three </p>",
    "one two<br>three four": "two one<br>four three",
    "<li>one two<li>three four": "<li>two one<li>four three",
    "<p>a &lt; b &amp; c&nbsp;d &eacute;</p>": "<p>\u00e9 d c &amp; b &lt; a</p>",
    "<p>run <code>a <i>b</i></code> now</p>": "<p>now <code>a <i>b</i></code> run</p>",
    "<p>one <span translate=no>two <b>x</b></span> three": "<p>three <span translate=no>two <b>x</b></span> one",
    "<p>one <span class='a notranslate'>two</span></p>": "<p><span class='a notranslate'>two</span> one</p>",
    "<p>see http://a.org/x&amp;y=1 now</p>": "<p>now http://a.org/x&amp;y=1 see</p>",
    "<pre>one two</pre><textarea>one two</textarea>": "<pre>one two</pre><textarea>two one</textarea>",
    "<textarea>\none two\nthree</textarea>": "<textarea>\none two\nthree</textarea>",
    "<select><optgroup label='a b'><option label='c d'>one two</option></select>": (
        "<select><optgroup label='b a'><option label='d c'>two one</option></select>"
    ),
    "<button value='a b'>one two</button>": "<button value='a b'>two one</button>",
    "<p> <img src=a> one two <br></p>": "<p> <img src=a> two one <br></p>",
    "<p>one two <img src=a> </p>": "<p>two one <img src=a> </p>",
    "<p><input> <b>one</b> two</p>": "<p><input> two <b>one</b></p>",
    "<p>The <b>d</b><i>o</i><a>g</a> eats</p>": "<p>eats <b><i><a>dog</a></i></b> The</p>",
    "<script>one two</script><style>one two</style>": "<script>one two</script><style>one two</style>",
    "<p>one <svg><text>in it</text></svg> two</p>": "<p>two one <svg><text>in it</text></svg></p>",
    "<!-- one two --><!doctype html><?php one two ?>": "<!-- one two --><!doctype html><?php one two ?>",
    "<p>12 + 3 = 15</p>": "<p>12 + 3 = 15</p>",
    "<p>one </b> two <i>three</p>": "<p>three two <i>one </b></p>",
    "<p>one<p>": "<p>one<p>",
    "<title>one two</title>": "<title>two one</title>",
    '<img alt="one two" src="one two">': '<img alt="two one" src="one two">',
    "<img alt=one src=x title='one \"two\"'>": "<img alt=one src=x title='&quot;two&quot; one'>",
    '<a href="x?title=a&amp;b=c" onclick="this.title=\'a b\'" title="one two" TITLE="a b">one</a>': (
        '<a href="x?title=a&amp;b=c" onclick="this.title=\'a b\'" title="two one" TITLE="a b">one</a>'
    ),
    "<img src=a?alt=b alt='one two'>": "<img src=a?alt=b alt='two one'>",
    "<p> AT&T &copy; one\n <i></i></p>": "<p> one \u00a9 AT&amp;T <i></i></p>",
    "<p>one&nbsp;&nbsp; &#160;two three</p>": "<p>three two one&nbsp;&nbsp; &#160;</p>",
    '<p><i class="icon"></i> one two</p>': '<p><i class="icon"></i> two one</p>',
    '<p><a href=x><img alt="one two"></a> one two</p>': '<p><a href=x><img alt="two one"></a> two one</p>',
    "<p>one blue.<sup><a href='#1'>[1]</a></sup></p>": "<p>blue.<sup><a href='#1'>[1]</a></sup> one</p>",
    "<p>H<sub>2</sub>SO<sub>4</sub> of <b>km</b><sup>2</sup></p>": (
        "<p><b>km</b><sup>2</sup> of H<sub>2</sub>SO<sub>4</sub></p>"
    ),
    "<p>one x<sub>2</sub>y<sub>2</sub>z</p>": "<p>x<sub>2</sub>y<sub>2</sub>z one</p>",
    "<p>one Word<sup>\u00ae</sup>, <i>x</i><sup>*</sup></p>": "<p><i>x</i><sup>*</sup> Word<sup>\u00ae</sup>, one</p>",
    '<a title="one two">three four</a>': '<a title="two one">four three</a>',
    '<meta name="Description" content="one two">': '<meta name="Description" content="two one">',
    '<meta name="viewport" content="one two">': '<meta name="viewport" content="one two">',
    '<input type=submit value="one two">': '<input type=submit value="two one">',
    '<input value="one two">': '<input value="one two">',
    '<input data-title="one two" title="one two">': '<input data-title="one two" title="two one">',
    "": "",
    "one two": "two one",
    "<p>one\r\ntwo</p>\r\n": "<p>two one</p>\r\n",
    "<p>one <": "<p>&lt; one",
    # What looks like a reference and is none, or has no semicolon
    "<p>AT&T is here</p>": "<p>here is AT&amp;T</p>",
    "see AT&T": "AT&amp;T see",
    "one &eacute two &copy": "\u00a9 two \u00e9 one",
    "<p>a &# b <i>c</i>; &# d</p>": "<p>d &amp;# <i>c</i>; b &amp;# a</p>",
    # What is no markup that a browser knows, or has no end
    "<p>one two</> three": "<p>two one</> three",
    "<p>one two</p><![x]>three": "<p>two one</p><![x]>three",
    "<![if !a]>one two<![endif]>": "<![if !a]>two one<![endif]>",
    "one two</p": "two one</p",
    "<p>one two <a title='three four": "<p>two one <a title='three four",
    "one two<!-- three four": "two one<!-- three four",
}


def test_a_page():
    assert {page: backwards(page) for page in PAGES} == PAGES


INLINE = (
    "a abbr acronym b bdi bdo big button cite data del dfn em font i ins label mark meter output progress q rb rp rt"
)
INLINE += " rtc ruby s small span strike strong sub sup time u"


def test_what_each_tag_is_to_a_sentence():
    for tag in INLINE.split():
        assert backwards(f"<p>one <{tag}>two</{tag}> x</p>") == f"<p>x <{tag}>two</{tag}> one</p>"
    for tag in ("div", "td", "li", "h1", "section", "option"):
        assert backwards(f"one two<{tag}>x y</{tag}>") == f"two one<{tag}>y x</{tag}>"
    for tag in ("code", "kbd", "samp", "tt", "var"):
        assert backwards(f"<p>one <{tag}>two x</{tag}> y</p>") == f"<p>y <{tag}>two x</{tag}> one</p>"
    for tag in ("iframe", "math", "noscript", "object", "script", "style", "svg", "template"):
        found = backwards(f"<p>one two <{tag}>x y</{tag}></p>")
        assert found.startswith("<p>two one") and f"<{tag}>x y</{tag}>" in found
    for tag in ("listing", "pre", "xmp"):
        assert backwards(f"one two<{tag}>x y</{tag}>z") == f"two one<{tag}>x y</{tag}>z"


def test_what_is_read_of_attributes():
    names = ("alt", "title", "placeholder", "aria-label", "aria-description")
    read = [("p", f"{name}=", "") for name in names]
    read += [("input", "value=", f" type={kind}") for kind in ("button", "reset", "SUBMIT")]
    told = "description keywords og:title og:description twitter:title twitter:description".split()
    read += [("meta", "content=", f" {key}={name}") for name in told for key in ("name", "property")]
    for tag, name, more in read:
        assert backwards(f'<{tag}{more} {name}"one two">') == f'<{tag}{more} {name}"two one">'
    for tag in ("iframe", "svg", "code", "pre", "object"):  # whose content stays
        assert backwards(f'x y <{tag} title="one two">a b</{tag}>').count(f'<{tag} title="two one">a b</{tag}>') == 1
    for tag, name, more in (
        ("p", "title=", " translate=no"),
        ("pre", "title=", ' class="notranslate"'),
        ("meta", "content=", " name=author"),
        ("p", "class=", ""),
        ("input", "value=", " type=text"),
    ):
        assert backwards(f'<{tag}{more} {name}"one two">') == f'<{tag}{more} {name}"one two">'


@pytest.mark.parametrize(
    ("page", "kept"),
    [
        ("<p>one two</p><!-- a b --><script>a b</script><style>a b</style>", 0),
        ("<p>one <code>two x</code> see http://a.org/x</p>", 4),
        ("<p>one <span translate=no>two</span></p><pre>a b</pre>", 5),
        ("<textarea>\none two\nthree</textarea><noscript>a</noscript><svg><text>b c</text></svg>", 14),
        ("<pre>12 + 3</pre><code>`</code>", 0),
        ("<p><code>foo bar</code></p><td translate=NO>a b</td>", 8),
    ],
)
def test_what_is_left_as_it_was_is_counted(page, kept):
    assert translate_document(Backwards(), page.encode(), "html").kept_characters == kept


def test_the_language_of_the_root():
    page = "<!doctype html><html xml:lang='en' class=a lang=en-US data-lang=en><p lang=en>one two</p></html>"
    expected = page.replace("'en'", '"pt"').replace("en-US", '"pt"').replace("one two", "two one")
    for told in ({"language": "pt"}, {"language": "Portuguese"}, {"target_lang": "por_Latn"}):
        assert translate_document(Backwards(), page.encode(), "html", **told).decode() == expected
    assert backwards(page) == page.replace("one two", "two one")
    for page in (b"<html><p>a", b"<html data-x='y lang=en'><p>a"):
        assert translate_document(Backwards(), page, "html", language="pt") == page


def test_the_charset_that_it_names():
    page = "<meta charset=iso-8859-1><p>caf\u00e9 one</p>"
    assert translate_document(Backwards(), page.encode("latin-1"), "html") == page.replace(
        "caf\u00e9 one", "one caf\u00e9"
    ).encode("latin-1")
    japanese = '<meta http-equiv="Content-Type" content="text/html; charset=Shift_JIS"><p>\u65e5\u672c \u8a9e</p>'
    found = translate_document(Backwards(), japanese.encode("shift_jis"), "html").decode("shift_jis")
    assert "\u8a9e \u65e5\u672c" in found
    for misnamed in ("utf-16", "UTF-32", "cp037"):  # as the name itself shows
        told = f"<meta charset={misnamed}><p>caf\u00e9 one</p>"
        assert backwards(told) == told.replace("caf\u00e9 one", "one caf\u00e9")
    wide = translate_document(Backwards(), "<p>one two</p>".encode("utf-16"), "html")
    assert wide.decode("utf-16") == "<p>two one</p>" and wide.startswith((b"\xff\xfe", b"\xfe\xff"))


def test_what_is_no_page():
    for data, message in (
        (b"<p>\xff", r"^page: not UTF-8 at byte 3, 0xff$"),
        (b"<meta charset=klingon>", "klingon"),
        *(
            (f"<meta charset={name}><p>a".encode(), f"^page: says that it is in '{name}', which is not known$")
            for name in ("utf-7", "idna", "undefined", "unicode_escape", "raw_unicode_escape")
        ),
        (b"<p>a\0b", "NUL byte"),
    ):
        with pytest.raises(InputError, match=message):
            translate_document(Backwards(), data, "html", name="page")


TAGS = ["<p>", "</p>", "<b>", "</b>", "<i x='>'>", "</i>", "<br/>", "<img alt='a b'>", "<td>", "<code>", "</code>"]
TAGS += ["<script>", "</script>"]
TEXT = ["one ", " two", "&amp;", "&#65;", "&nosuch;", "\n", ">"]
BROKEN = ["<!--", "-->", "<", "</", "&"]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(TAGS + TEXT + BROKEN), max_size=25).map("".join))
def test_the_pieces_of_any_page_are_the_page(page):
    assert "".join(token.source for token in HtmlTokenizer(page).tokens) == page


# Without a letter in a text or in what is read of a tag.
MARKUP = [
    "<p",
    " class='a>b'",
    " x=",
    ">",
    "/>",
    "</p>",
    "</",
    "</>",
    "<>",
    "<",
    "<!",
    "<!--",
    "-->",
    "--!>",
    "<?",
    "?>",
]
MARKUP += [
    "<![CDATA[",
    "]]>",
    "<![if",
    "<![endif]>",
    "<![",
    "<!doctype",
    "&",
    "&#",
    "&#49;",
    "&nbsp;",
    "&lt",
    ";",
    "\n",
    "\r\n",
]
MARKUP += [
    "<script>",
    "</script",
    "<style>",
    "</style>",
    "<pre>",
    "<svg>",
    "</svg>",
    "1 ",
    "'",
    '"',
    "\u2014",
    "\ufeff",
]


@settings(max_examples=400, deadline=None)
@given(st.lists(st.sampled_from(MARKUP), max_size=8).map("".join))
@example("</>")
@example("<![")
@example("<p x='")
def test_a_page_without_a_text_comes_back_byte_for_byte(page):
    """Whatever is open at its end, or is none of HTML's."""
    translator = Backwards()
    found = translate_document(translator, page.encode(), "html")
    assume(not translator.seen)  # an attribute's letters without their tag
    assert found == page.encode()


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(TAGS + TEXT), max_size=25).map("".join))
def test_no_tag_is_lost(page):
    found = translate_document(Backwards(), page.encode(), "html").decode()
    assert sorted(re.findall("</?\\w+", found)) == sorted(re.findall("</?\\w+", page))


def test_real_pages_keep_their_tree():
    """Pages that come with what is installed, but for templates."""
    found = [path.read_bytes() for path in sorted(Path(sysconfig.get_path("stdlib")).rglob("*.html"))[:4]]
    for data in (one for one in found if not one.startswith(b"$")):
        assert _tree(translate_document(Unchanged(), data, "html")) == _tree(data)


def _tree(data: bytes) -> list[str]:
    return sorted(str(one.tag) for one in html5lib.parse(data, namespaceHTMLElements=False).iter())


def test_pages_made_to_take_long_do_not():
    grows_as_its_length("html", lambda n: "<code>" * n)
    grows_as_its_length("html", lambda n: "<b>" * n + "</i>" * n + "one two")
    grows_as_its_length("html", lambda n: "<p><i>" * (n // 2) + "a")
