"""Markdown: sentences where they stand, everything else as it was."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from fastattn.documents.markdown import NO_LINE_START
from fastattn.documents.texts import break_into_lines
from fastattn.documents.translating import translate_document
from fastattn.translation.calls import Translation
from tests.documents.backwards import Backwards, Unchanged, grows_as_its_length


def backwards(page: str) -> str:
    return translate_document(Backwards(), page.encode(), "md").decode()


# A page, and what becomes of it where the words of a sentence are turned round.
class Longer:
    """Translations are longer than their texts."""

    def translate_iter(self, texts, **options):
        return (f"{text} and more" for text in texts)


def test_alternative_text_and_title_of_other_lengths_stand_in_their_places():
    page = translate_document(Longer(), b"![one](x.png 'two')\n", "md").decode()
    assert page == "![one and more](x.png 'two and more')\n"


PAGES = {
    "# one two\n": "# two one\n",
    "one two\n=======\n": "two one\n=======\n",
    "one *two* __three__\n": "__three__ *two* one\n",
    "one **two *three***\n": "***three* two** one\n",
    "see [one two](http://a.org/b_(c) 'one \"two\"') now": "now [two one](http://a.org/b_(c) '\"two\" one') see",
    "a [one two][ref]\n\n[ref]: http://a.org 'one two'\n": "[two one][ref] a\n\n[ref]: http://a.org 'one two'\n",
    "see [ref] now\n\n[ref]: x\n": "now [ref] see\n\n[ref]: x\n",
    "run `a b` or ``c ` d`` now": "now ``c ` d`` or `a b` run",
    "`a` one `b`": "`b` one `a`",
    "`a`, `b`": "`b` `a`,",
    "go to <https://a.org/x> now": "now <https://a.org/x> to go",
    "one ![two three](x.png) four": "four one ![three two](x.png)",
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
    "one &amp;lt; two\n": "two &amp;lt; one\n",
    "one 1986\\.\n": "1986\\. one\n",
    "two # one # \\#\n": "\\# # one # two\n",
    "| a | one \\| two |\n|---|---|\n": "| a | two \\| one |\n|---|---|\n",
    "[^1]: one two\n    three.\n\n    one two\n\n        three four\n": (
        "[^1]: three.\n    two one\n\n    two one\n\n        three four\n"
    ),
    "~~one two~~ three\n": "three ~~two one~~\n",
    "one\n\n\n\ntwo three\n\n": "one\n\n\n\nthree two\n\n",
    "one two\r\nthree four\r\n": "four\r\nthree two one\r\n",
    "![a b](b.png) one two [c d](d) e": "![b a](b.png) e [d c](d) two one",
    "[![b c](x)](y) one two": "[![c b](x)](y) two one",
    '![a b](x.png "c \'d") [e](y (f g))': '![b a](x.png "\'d c") [e](y (g f))',
    '[a](x "b)c d")': '[a](x "d b)c")',
    "![a *b*](x.png) ![12](y)": "![a *b*](x.png) ![12](y)",
    "see [one two] now\n\n[one two]: x\n": "now [two one][one two] see\n\n[one two]: x\n",
    "see [one two][] now\n\n[one two]: x\n": "now [two one][one two] see\n\n[one two]: x\n",
    "![a b] ![c d][] ![e f][a b]\n\n[a b]: x\n\n[c d]: y\n": (
        "![b a][a b] ![d c][c d] ![f e][a b]\n\n[a b]: x\n\n[c d]: y\n"
    ),
    "one[^1] two.\n\n[^1]: one two\n\n[^long-one]: *one* two\nthree\n": (
        "two. one[^1]\n\n[^1]: two one\n\n[^long-one]: three\ntwo *one*\n"
    ),
    "[^one]: one two\n\n    three four\n    five\n\n        a b\n\n[^b]: x y\n[^c]: u v\n\ng h\n": (
        "[^one]: two one\n\n    five four\n    three\n\n        a b\n\n[^b]: y x\n[^c]: v u\n\nh g\n"
    ),
    "---\r\ntitle: one two\r\n---\r\none two\r\n": "---\r\ntitle: one two\r\n---\r\ntwo one\r\n",
    "# one two {#id}\n\none two {.a}\n\n## one two ## {: .b}\n": (
        "# two one {#id}\n\ntwo one {.a}\n\n## two one ## {: .b}\n"
    ),
    ":::note One two\nthree four\n\nfive six\n:::\n": ":::note One two\nfour three\n\nsix five\n:::\n",
    ":::: {.a}\n::: b\none two\n:::\n::::\n": ":::: {.a}\n::: b\ntwo one\n:::\n::::\n",
    "": "",
}


def test_a_page():
    assert {page: backwards(page) for page in PAGES} == PAGES


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("> [!NOTE]\n> one two\n", "> [!NOTE]\n> two one\n"),
        ("!!! warning\n\none two\n", "!!! warning\n\ntwo one\n"),
        ("one two\n:   three four\n:   x y\n", "two one\n:   four three\n:   y x\n"),
        ("one $a_1 \\pi$ two", "two $a_1 \\pi$ one"),
        ("costs $5 or $6", "$6 or $5 costs"),
        ("one \\pi two", "two \\pi one"),
    ],
)
def test_what_is_written_in_markdown_and_is_no_markdown(page, expected):
    assert translate_document(Backwards(), page.encode(), "md").decode() == expected


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("one two", "two one"),
        ("one two # why", "two one # why"),
        ('"one \\"two\\""', '"\\"two\\" one"'),
        ("'it''s one'", "'one it''s'"),
        ("one - two", "two - one"),
        ("two -", '"- two"'),  # else a list
    ],
)
def test_front_matter_where_it_is_asked_for(value, expected, end):
    def page(value):
        return end.join(["---", f"title: {value}", "layout: a b", f"description: {value}", "---", "one two", ""])

    def translated(**told):
        return translate_document(Backwards(), page(value).encode(), "md", **told).decode()

    assert translated(extras=["front-matter"]) == page(expected).replace(f"{end}one two{end}", f"{end}two one{end}")
    assert translated() == page(value).replace(f"{end}one two{end}", f"{end}two one{end}")


def test_what_is_left_as_it_was_is_counted():
    page = "---\ntitle: a b\n---\none `x y`\n\n```\na b\n```\n\n    c d\n\n"
    page += "<div>\n<b>e f</b>\n</div>\n\n[r]: x 'g h'\n"
    assert translate_document(Backwards(), page.encode(), "md").kept_characters == 6 * len("ab")


def test_no_line_begins_like_a_list():
    assert break_into_lines("aa - bb", [3, 3]) == ["aa", "- bb"]
    assert break_into_lines("aa - bb", [3, 3], NO_LINE_START) == ["aa -", "bb"]
    assert break_into_lines("aa 1. bb", [3, 3], NO_LINE_START) == ["aa 1.", "bb"]


TABLE = "| a | b |\n|-|-|\n"
PIECES = [
    "one",
    " two",
    "*",
    "**",
    "_",
    "`",
    "[",
    "](x)",
    "![",
    "<b>",
    "\n",
    "\n\n",
    "> ",
    "- ",
    "# ",
    TABLE,
    "\\*",
    "&lt;",
]
PIECES += ["  \n", "    ", "```\n", "<http://a.b>", "[r]: x\n", "1. ", "\t"]


class Louder(Unchanged):
    def translate_iter(self, texts, *, details=False, **options):
        for text in texts:
            said = text.upper()
            yield Translation(said, [said], [0.0], []) if details else said


def test_code_is_found_in_other_cases_and_within_longer_code():
    page = "`name` in ``a ` `` or `${name}` and `<!-- x -->`, `'one'` or `'`"
    found = translate_document(Louder(), page.encode(), "md").decode()
    assert found == page.replace(" in ", " IN ").replace(" or ", " OR ").replace(" and ", " AND ")


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=20).map("".join))
@example("<b> two\n<http://a.b>")
def test_any_page_keeps_its_blocks_and_lines(page):
    assert translate_document(Unchanged(), page.encode(), "md").decode() == page
    found = translate_document(Louder(), page.encode(), "md").decode()
    assert found.count("\n") <= page.count("\n")  # where words are too few for the lines
    if "|" not in page:  # of a table's lines in a quotation other breaks may make another table
        assert _blocks(found) == _blocks(page)


def _blocks(page: str) -> list[str]:
    return [one.type for one in MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(page)]


def test_a_paragraph_of_many_lines_does_not_take_long():
    grows_as_its_length("md", lambda n: "one two three\n" * n)
    page = "one two three\n" * 300
    assert translate_document(Unchanged(), page.encode(), "md").decode() == page
