"""Marks go with the words that they enclose, each once, nested as they were."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastattn.documents.marks import INVARIANT, Mark, Marked, keep_matches, project_marks
from fastattn.documents.translating import translate_document
from fastattn.translation.alignment import WordLink
from fastattn.translation.calls import Translation
from tests.documents.backwards import Backwards, Unchanged, grows_as_its_length

TEXT = "one two three four"


def link(source: str, target: str, text: str, translation: str) -> WordLink:
    begin, there = text.index(source), translation.index(target)
    return WordLink((begin, begin + len(source)), (there, there + len(target)))


def backwards(text: str) -> tuple[str, list[WordLink]]:
    """The words in the reverse order, and the links."""
    words = [(match, text.index(match)) for match in dict.fromkeys(text.split())]
    translation = " ".join(word for word, _ in words[::-1])
    return translation, [link(word, word, text, translation) for word, _ in words]


def shown(marked: Marked) -> list[tuple[str, object, int]]:
    return [(marked.text[mark.start : mark.end], mark.tag, mark.depth) for mark in marked.marks]


def test_with_words():
    marks = Mark(0, 7, "b"), Mark(4, 7, "i", depth=1), Mark(14, 18, "a")
    found = project_marks(Marked(TEXT, marks), *backwards(TEXT))
    assert found.text == "four three two one"
    assert shown(found) == [("four", "a", 0), ("two one", "b", 0), ("two", "i", 1)]


def test_around_everything():
    found = project_marks(Marked(TEXT, (Mark(0, 18, "b"),)), "quatro dois", [])
    assert shown(found) == [("quatro dois", "b", 0)]


def test_the_longest_run_where_words_part():
    text, translation = "a b", "bbb x aaaa y a"
    links = [
        WordLink((0, 1), (6, 10)),
        WordLink((0, 1), (13, 14)),
        WordLink((2, 3), (0, 3)),
        WordLink((2, 3), (11, 12)),
    ]
    assert shown(project_marks(Marked(text, (Mark(0, 1, "m"),)), translation, links)) == [("aaaa", "m", 0)]


def test_a_place_is_behind_the_word_before_it_and_in_no_other_mark():
    marks = Mark(3, 3, "br"), Mark(4, 13, "b"), Mark(18, 18, "end")
    found = project_marks(Marked(TEXT, marks), *backwards(TEXT))
    assert found.text == "four three two one"
    assert [(mark.start, mark.end, mark.tag) for mark in found.marks] == [
        (5, 14, "b"),
        (18, 18, "br"),
        (18, 18, "end"),
    ]


@pytest.mark.parametrize(
    "text, translation, expected",
    [
        ("see https://a.org/b now", "ver https://a.org/b agora", "ver https://a.org/b agora"),  # it is there
        ("see https://a.org/b now", "ver http-a.org/b agora", "ver https://a.org/b agora"),  # written otherwise
        ("see me@a.org, now", "ver me-a.org, agora", "ver me@a.org, agora"),  # the comma stays
        ("fine \U0001f600 day", "belo dia dia", "belo \U0001f600 dia dia"),  # left out: no word goes for it
        ("use %(name)s here", "usar o nome aqui", "usar %(name)s nome aqui"),
        ("run `x y` now", "rodar x y agora", "rodar `x y` agora"),
    ],
)
def test_what_is_kept(text, translation, expected):
    words = list(zip(text.split(), range(100)))
    spans = [(at, at + len(word)) for word, at in zip(translation.split(), _starts(translation))]
    sources = [(at, at + len(word)) for word, at in zip((word for word, _ in words), _starts(text))]
    links = [WordLink(sources[min(n, len(sources) - 1)], span) for n, span in enumerate(spans)]
    assert project_marks(keep_matches(Marked(text)), translation, links).text == expected


def _starts(text: str) -> list[int]:
    return [0, *itertools.accumulate(len(word) + 1 for word in text.split())]


@pytest.mark.parametrize(
    "text, kept",
    [
        ("Go to https://example.com/a?b=c#d. Then", ["https://example.com/a?b=c#d"]),
        ("(www.example.com/x)", ["www.example.com/x"]),
        ("write to a.b+c@d-e.co.uk!", ["a.b+c@d-e.co.uk"]),
        ("%s of %d, %(count)d and %1$s, 100% sure", ["%s", "%d", "%(count)d", "%1$s"]),
        ("{name} has {{count}} and ${HOME}", ["{name}", "{{count}}", "${HOME}"]),
        (
            "well \U0001f469\u200d\U0001f52c\U0001f3fd done \u2764\ufe0f",
            ["\U0001f469\u200d\U0001f52c\U0001f3fd", "\u2764\ufe0f"],
        ),
        ("50% of a@ b and co", []),
        (
            "at {{ person.name }} in {{person.city}}, {user-name}",
            ["{{ person.name }}", "{{person.city}}", "{user-name}"],
        ),
        ("%(name)r of %{user}, #{count}, {0[key]}", ["%(name)r", "%{user}", "#{count}", "{0[key]}"]),
        ("{{ a | b }} {{#if x}} {% include y %} {#x .y}", ["{{ a | b }}", "{{#if x}}", "{% include y %}", "{#x .y}"]),
        ("``a``, ``b`` and ``:c:`d```, ` or `e f`", ["``a``", "``b``", "``:c:`d```", "`e f`"]),
        ("a &lt; b &#8217; c &nbsp;& d; e_x000D_ _x000D_", ["&lt;", "&#8217;", "&nbsp;", "_x000D_", "_x000D_"]),
        ("%#@count@ of %2$#@all.of@, %arg, a_x000D_", ["%#@count@", "%2$#@all.of@", "%arg", "_x000D_"]),
        ("%d%% of {0:,.2f} for %NAME% at __count__", ["%d", "%%", "{0:,.2f}", "%NAME%", "__count__"]),
    ],
)
def test_what_stands_for_itself(text, kept):
    assert [match[0] for match in INVARIANT.finditer(text)] == kept


def test_what_a_mark_keeps_is_kept_once():
    marks = (Mark(4, 16, "code", True),)
    assert keep_matches(Marked("see http://a.org now", marks)).marks == marks


def test_marks_that_cut_what_is_kept_leave_it_alone():
    text = "see http://a.org/b now"
    assert keep_matches(Marked(text, (Mark(4, 10, "b"),))).marks == (Mark(4, 10, "b"),)
    inside = keep_matches(Marked(text, (Mark(0, 22, "b"), Mark(19, 22, "i", depth=1))))
    assert inside.marks == (Mark(0, 22, "b"), Mark(4, 18, None, True, 1), Mark(19, 22, "i", False, 1))


def trees(draw, start, end, depth):
    """Random marks within [start, end)."""
    marks, at = [], start
    for _ in range(draw(st.integers(0, 3))):
        begin = draw(st.integers(at, end))
        stop = draw(st.integers(begin, end))
        marks.append(Mark(begin, stop, depth=depth))
        if depth < 2:
            marks += trees(draw, begin, stop, depth + 1)
        at = stop
    return marks


@st.composite
def marked_texts(draw):
    text = " ".join(f"w{n}" for n in range(draw(st.integers(1, 8))))
    return Marked(text, tuple(mark._replace(tag=n) for n, mark in enumerate(trees(draw, 0, len(text), 0))))


def test_marks_that_cut_a_word_double_no_character():
    spans = [(0, 17, 0), (2, 16, 1), (2, 4, 2), (16, 17, 1)]
    marked = Marked("w0 w1 w2 w3 w4 w5", tuple(Mark(a, b, n, False, d) for n, (a, b, d) in enumerate(spans)))
    translation, links = backwards(marked.text)
    assert all(project_marks(marked, translation, [link]).text.split() == translation.split() for link in links)


@settings(max_examples=150, deadline=None)
@given(marked_texts(), st.booleans(), st.randoms(use_true_random=False))
def test_each_mark_is_there_once_and_nested_as_it_was(marked, with_links, random):
    translation, links = backwards(marked.text)
    links = random.sample(links, random.randint(1, len(links))) if with_links else []
    found = project_marks(marked, translation, links)
    assert found.text.split() == translation.split()  # blanks may be added around a place
    assert sorted(mark.tag for mark in found.marks) == sorted(mark.tag for mark in marked.marks)
    ends = {place for mark in marked.marks for place in (mark.start, mark.end)}
    if not any(place < len(marked.text) and marked.text[place].isdigit() for place in ends):  # none cuts a word
        depths = {mark.tag: mark.depth for mark in marked.marks}
        assert depths == {mark.tag: mark.depth for mark in found.marks}
    pieces = list(found.pieces())
    assert "".join(text for kind, text, _ in pieces) == found.text
    around: list[object] = []
    for kind, _, what in pieces:
        if kind == "open":
            around.append(what)
        elif kind == "close":
            assert around.pop() == what
    path = list[Mark]()
    for mark in found.marks:
        del path[mark.depth :]
        assert len(path) == mark.depth and all(one.start <= mark.start <= mark.end <= one.end for one in path)
        path.append(mark)


@pytest.mark.parametrize(
    "form, unit",
    [
        ("html", "<b>x</b> y "),
        ("html", "%s y "),
        ("html", "<code>x</code> y "),
        ("html", "<img> y "),
        ("md", "*x* y "),
        ("md", "{ {a} "),
    ],
)
def test_many_marks_take_time_by_their_number(form, unit):
    grows_as_its_length(form, lambda n: unit * n, Backwards)


def test_marks_that_no_sentence_has_stay_where_they_are():
    """Nested by the thousand, or many in a word: what stands between them is translated for itself."""
    deep = "<b>" * 3000 + "x y" + "</b>" * 3000
    for form, page, expected in (
        ("html", deep, deep.replace("x y", "y x")),
        ("md", deep, deep.replace("x y", "y x")),
        ("html", "<b>one</b>" * 9 + "<i>two three</i>", "<b>one</b>" * 9 + "<i>three two</i>"),
    ):
        assert translate_document(Backwards(), page.encode(), form) == expected.encode()


@pytest.mark.parametrize(
    ("form", "page", "expected"),
    [
        ("html", "<a href=x>home</a><a href=y>about us</a>", "<a href=x>home</a><a href=y>us about</a>"),
        ("md", "[home](x)[about us](y)", "[home](x)[us about](y)"),
        ("html", "<h1>one two<a href=x>\u00b6</a></h1>", "<h1>two<a href=x>\u00b6</a> one</h1>"),
        ("md", "one **{{ b }}** two", "one **{{ b }}** two"),
        ("html", "mime-type of <code>mime</code>", "<code>mime</code> of mime-type"),
        ("html", "a so or <code>a</code>", "<code>a</code> or so a"),
    ],
)
def test_marks_stay_whole(form, page, expected):
    assert translate_document(Backwards(), page.encode(), form).decode() == expected


def test_a_mark_whose_words_are_lost_takes_the_next():
    """Else Markdown would show its signs, and a link could not be followed."""
    marked = Marked("The red house", (Mark(4, 7, "b"),))
    links = [WordLink((0, 3), (0, 1)), WordLink((8, 13), (2, 6))]
    assert list(project_marks(marked, "A casa", links).pieces()) == [
        ("text", "A ", None), ("open", "", "b"), ("text", "casa", None), ("close", "", "b"), ("text", "", None)
    ]  # fmt: skip


class Careless(Unchanged):
    """Says each directive twice where a text has other words."""

    def translate_iter(self, texts, *, details=False, **options):
        for text in texts:
            said = text.upper().replace("%S", "%s") + " %s" * (text != "%s" and ("%s" in text or text == "worst"))
            yield Translation(said, [said], [0.0], []) if details else said


@pytest.mark.filterwarnings("error")
def test_what_a_translation_repeats_is_translated_piece_by_piece_or_left():
    def translated(page):
        return translate_document(Careless(), page.encode(), "html").decode()

    assert translated("<p>the %s <b>one is %s</b> now</p>") == "<p>THE %s <b>ONE IS %s</b> NOW</p>"
    with pytest.warns(UserWarning, match="^the document: 1 text left untranslated: "):
        assert translated("<p>the %s <b>worst</b></p><p>a</p>") == "<p>the %s <b>worst</b></p><p>A</p>"


def test_what_no_file_of_text_holds_is_not_written():
    class Broken(Unchanged):
        def translate_iter(self, texts, *, details=False, **options):
            for text in texts:
                yield Translation(text + "\x01\ud800", [text], [0.0], []) if details else text + "\x01\ud800"

    assert (
        translate_document(Broken(), b"<p>one <b>two</b></p>", "html") == "<p>one <b>two</b>\ufffd\ufffd</p>".encode()
    )
    assert translate_document(Broken(), b"one", "txt") == "one\ufffd\ufffd".encode()


class Wordy(Unchanged):
    """Writes a blank line into each text."""

    def translate_iter(self, texts, *, details=False, **options):
        for text in texts:
            said = text.replace(" ", "\n\n", 1)
            yield Translation(said, [said], [0.0], []) if details else said


@pytest.mark.parametrize(
    ("form", "page"),
    [
        ("txt", "one two\n"),
        ("md", "# one two\n"),
        ("md", "- one **two** x\n"),
        ("srt", "1\n00:00:01,000 --> 00:00:02,000\none two\n"),
    ],
)
def test_new_lines_of_an_answer_are_blanks(form, page):
    assert translate_document(Wordy(), page.encode(), form).decode() == page
