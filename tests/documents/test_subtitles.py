"""Subtitles: times as they were, sentences whole."""

import pytest

from fastattn.documents.texts import break_into_lines
from fastattn.documents.translating import translate_document
from fastattn.errors import InputError
from tests.documents.backwards import Backwards

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
TRANSLATED = """\ufeff1
00:00:01,000 --> 00:00:02,500
seven. six five
four

2
00:00:03,000 --> 00:00:04,000 X1:10
three two One

3
00:00:05,000 --> 00:00:06,000
<i>nine Eight</i>
{\\an8}ten

4
00:00:07,000 --> 00:00:08,000
- twelve Eleven
- fourteen thirteen

5
00:00:09,000 --> 00:00:10,000
12:34
"""


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_subrip(end):
    translator = Backwards()
    found = translate_document(translator, SRT.replace("\n", end).encode(), "srt").decode()
    assert translator.seen[0] == "One two three four five six seven."
    assert found == TRANSLATED.replace("\n", end)


def test_webvtt():
    vtt = (
        "WEBVTT\n\nNOTE one two\nthree\n\nSTYLE\n::cue { a b }\n\ncue-1\n00:01.000 --> 00:02.000 align:start\none two\n"
    )
    found = translate_document(Backwards(), vtt.encode(), "srt").decode()
    assert found == vtt[: vtt.rindex("one two")] + "two one\n"


def test_what_has_no_full_stop_is_no_endless_sentence():
    cues = "".join(f"00:{n:02}.000 --> 00:{n:02}.900\nword{n}\n\n" for n in range(30))
    translator = Backwards()
    found = translate_document(translator, cues.encode(), "srt").decode()
    assert [len(text.split()) for text in translator.seen] == [12, 12, 6]
    assert sorted(line for line in found.split("\n") if line.startswith("word")) == sorted(
        f"word{n}" for n in range(30)
    )


def test_a_line_with_tags_is_a_sentence():
    cues = "0:01.0 --> 0:02.0\none two\n\n0:02.0 --> 0:03.0\n<i>three four</i>\n\n0:03.0 --> 0:04.0\nfive six\n"
    translator = Backwards()
    found = translate_document(translator, cues.encode(), "srt").decode()
    assert sorted(translator.seen) == ["five six", "one two", "three four"]
    assert "\ntwo one\n" in found and "\n<i>four three</i>\n" in found and found.endswith("\nsix five\n")


def test_a_line_that_says_who_speaks_begins_a_sentence():
    cue = "1\n00:00:01,000 --> 00:00:02,000\n"
    for first, second in (("so then", "MARY: one two"), ("so then", "Mr. Big: one two"), ("so then", "(Mary) one two")):
        found = translate_document(Backwards(), f"{cue}{first}\n{second}\n".encode(), "srt").decode()
        assert found == f"{cue}then so\n{' '.join(second.split()[::-1])}\n"


def test_what_is_no_subtitle():
    with pytest.raises(InputError, match="^a.srt: expected subtitles, which have lines such as 00:00:01,000 -->"):
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
    assert break_into_lines(text, lengths) == expected


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("I saw a <i>black</i> cat.", "cat. <i>black</i> a saw I"),
        ("<v Bob>one <b>two <i>three</i></b>", "<v Bob><b><i>three</i> two</b> one"),
        ("One two.\nThree four.", "two. One\nfour. Three"),
        ("</i>one <c.red>two</c>", "</i><c.red>two</c> one"),
    ],
)
def test_tags_go_with_their_words(said, expected):
    page = f"WEBVTT\n\n0:01.0 --> 0:02.0\n{said}\n"
    assert translate_document(Backwards(), page.encode(), "srt").decode() == page.replace(said, expected)
