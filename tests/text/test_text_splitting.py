"""Sentences and parts: what must be cut, what must not, and that no character is ever lost."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastattn.errors import InputError
from fastattn.text.splitting import split_sentences, split_to_fit
from tests.messages import refused

# The expected sentences, joined by nothing; "en" and so on choose the abbreviations.
SENTENCES = [
    ("en", ["Mr. Smith went to the U.S. in 1999. ", "He paid $3.50, e.g. for tea."]),
    ("en", ['"Why?" she asked. ', '"No." ', "Then J. R. R. Tolkien left... ", "And so did I. ", "The end!"]),
    ("en", ["See https://a.example/b.html?x=1.5 or mail a.b@c.example. ", "It works."]),
    ("en", ["Wait... what? ", "Really?! ", "(Yes.) ", "Dr. No came at 5 p.m. sharp. ", "No. 5 is alive."]),
    ("en", ["Apple Inc. said nothing. ", "It was sold by Apple Inc. ", "The price rose 3.5% vs. May."]),
    ("en", ["1. Mix the flour. ", "2. Bake."]),
    ("en", ["  Leading space. ", "Trailing space.  \n "]),
    ("en", ["A title\n", "A paragraph. ", "Its end.\n\n\n", "Another"]),
    ("pt", ["O Sr. Silva e a Dra. Ana moram na Av. Paulista. ", "Chegaram às 3.30. ", "Por quê? ", "Ninguém sabe..."]),
    ("pt", ["O art. 5 e a pág. 12 dizem isso. ", "Não é, p.ex. aqui, claro? ", "É!"]),
    ("zh", ["“你好。”", "他说。", "我很好！”，她说：“真的？”。", "他来了；", "我走了。", "今天3.5元。"]),
    ("zh", ['"好。"', '"走吧。"', "他说。"]),
    ("zh", ["A好!", "我走了。"]),
    ("zh", ['"好。"', "他说。\n", '"走吧。"', "他说。"]),
    ("zh", ['他说："好。"', '"走。\n', '"来。"', "他说。"]),  # a quote that is open at a line's end ends there
    ("zh", ["他来了!", "我走了?", "好……再见。", "Hello World. ", "Bye"]),
    ("", ["नमस्ते दुनिया। ", "यह ठीक है।"]),
    ("", ["هل هذا صحيح؟ ", "نعم."]),
    ("de", ["Am 3. Oktober kam z.B. Herr Dr. Klein. ", "Er ging."]),
]


def test_sentences():
    for language, sentences in SENTENCES:
        assert split_sentences("".join(sentences), language) == sentences


def count_words(text):
    """A stand-in for a tokenizer: a token for each started four characters of a word, and two more a text."""
    return 2 + sum(-(-len(word) // 4) for word in text.split())


def test_parts():
    """What fits; sentences; clauses; words in equal shares; characters, but not within a cluster."""
    for limit, parts in (
        (9, ["One. Two. Three."]),
        (5, ["One. ", "Two. ", "Three."]),
        (10, ["when it rains, they stay home, ", "when it shines, they go out"]),
        (7, ["aa bb cc dd ", "ee ff gg"]),
    ):
        assert split_to_fit("".join(parts), count_words, limit) == parts
    assert all(part == "e\u0301" * (len(part) // 2) for part in split_to_fit("e\u0301" * 30, len, 7))
    assert len(split_to_fit("x" * 100, len, 30)) == 4
    text = "An apto. We go, and they go. To the sea."  # an abbreviation of Portuguese, not of English
    assert split_to_fit(text, len, 30, "en") == ["An apto. ", "We go, and they go. ", "To the sea."]
    assert split_to_fit(text, len, 30, "pt") == ["An apto. We go, and they go. ", "To the sea."]


def test_nothing_gives_nothing_and_what_is_refused():
    assert (split_sentences(""), split_sentences(" \n "), split_to_fit("", len, 1)) == ([], [" \n "], [])
    for split, arguments in (
        (split_sentences, ("a. \ud800 B",)),
        (split_to_fit, ("a. \ud800 B", len, 3)),
        (split_to_fit, ("abc", lambda text: 3, 2)),
    ):
        with refused(InputError):
            split(*arguments)


TEXT = st.text(
    st.one_of(
        st.characters(exclude_categories=["Cs"]),
        st.sampled_from(" .,!?。，；：\"'”…\n\u0301\u200dabAB1是好 Mr. U.S. e.g. "),
    ),
    max_size=120,
)


@settings(deadline=None, max_examples=100)
@given(text=TEXT, language=st.sampled_from(["", "en", "pt", "zh", "xx"]))
def test_joined_sentences_are_the_text(text, language):
    sentences = split_sentences(text, language)
    assert "".join(sentences) == text
    assert all(sentences)


@settings(deadline=None, max_examples=100)
@given(text=TEXT, limit=st.integers(3, 20))
def test_joined_parts_are_the_text_and_fit(text, limit):
    for length_of in (count_words, len, lambda part: len(part.encode()) // 2 + 1):
        parts = split_to_fit(text, length_of, limit)
        assert "".join(parts) == text
        assert all(parts)
        assert all(length_of(part) <= limit for part in parts)


CASES = [
    line.split("\t") for line in Path(__file__).with_name("sentences.txt").read_text(encoding="utf-8").splitlines()[1:]
]


def places(parts):
    """Where sentences end, blanks left out."""
    found, at = set(), 0
    for part in parts[:-1]:
        at += len("".join(part.split()))
        found.add(at)
    return found


@pytest.mark.parametrize(
    ("language", "least"), [("", 0.98), *((language, 0.95) for language in sorted({language for language, _ in CASES}))]
)
def test_places_between_sentences(language, least):
    """F1 of all languages, and of each."""
    common = total = 0
    wrong = []
    for code, text in (case for case in CASES if language in ("", case[0])):
        wanted, parts = places(text.split("|")), split_sentences(text.replace("|", ""), code)
        assert "".join(parts) == text.replace("|", "")
        found = places(parts)
        common, total = common + len(wanted & found), total + len(wanted) + len(found)
        wrong += [f"{text}  ->  {'|'.join(parts)}"] * (wanted != found)
    assert 2 * common / total >= least, wrong
