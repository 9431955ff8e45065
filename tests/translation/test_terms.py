"""Glossaries and memories around a translator whose words and alignment are known."""

from itertools import repeat
from typing import Any

import numpy as np
import pytest

from fastattn.errors import FastattnError, InputError
from fastattn.translation.calls import TokenTranslation, Translation
from fastattn.translation.glossary import GlossaryTranslator
from fastattn.translation.guarded import GuardedTranslator
from fastattn.translation.memory import CachedTranslator, MemoryTranslator
from fastattn.translation.streamed import StreamedTranslator

ASKED = list[tuple[str, Any]]


class InOrder(StreamedTranslator):
    """Writes "x" before each word, one after the other, behind what a translation begins with."""

    def __init__(self) -> None:
        self.asked: ASKED = []

    def translate_iter(self, texts, *, details=False, target_prefix=None, **options):
        prefixes = repeat(target_prefix) if isinstance(target_prefix, str | None) else target_prefix
        for text, prefix in zip(texts, prefixes):
            self.asked.append((text, prefix))
            if text == "refuse.":
                yield FastattnError("no")
                continue
            begun, words = (prefix or "").split(), text.split()
            made = begun + [f"x{word}" for word in words[len(begun) :]]
            attention = np.eye(max(len(made), len(words)), dtype=np.float32)[: len(made), : len(words)]
            source, target = ([f"▁{word}" for word in some] for some in (words, made))
            part = TokenTranslation(source, [target], [-1.0], [-1.0], [len(made)], [attention])
            yield Translation(" ".join(made), [" ".join(made)], [-1.0], [part]) if details else " ".join(made)

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("glossary", "keep", "text", "expected"),
    [
        ({"car": "auto"}, (), "the car stops", "xthe auto xstops"),
        # Of terms that begin alike the longest is found, whatever their order.
        ({"car": "auto", "car park": "garage"}, (), "the car park", "xthe garage xpark"),
        ({"car park": "garage", "car": "auto"}, (), "the car park", "xthe garage xpark"),
        ({"car": "auto", "dog": "hund"}, (), "a dog sees a car", "xa hund xsees xa auto"),
        ({"car": "auto"}, (), "a car sees a car", "xa auto xsees xa auto"),
        # In lower case a term is found in any case; one with capitals only as it is written.
        ({"car": "auto"}, (), "A CAR or Car", "xA auto xor auto"),
        ({"WHO": "oms"}, (), "who or WHO", "xwho xor oms"),
        ({"who": "wer", "WHO": "OMS"}, (), "WHO or who", "OMS xor wer"),
        ({"car": "auto"}, (), "a scar, cars", "xa xscar, xcars"),
        ({" car ": " auto "}, (), "a car", "xa auto"),
        # What is kept comes before terms.
        ({"car": "auto"}, [r"car-\d"], "a car-5 or car", "xa car-5 xor auto"),
        ({}, [r"a\d", r"b\d"], "see a1 and b2", "xsee a1 xand b2"),
    ],
)
def test_terms_are_where_their_words_were(glossary, keep, text, expected):
    assert GlossaryTranslator(InOrder(), glossary, keep).translate(text) == expected


def test_a_translation_that_has_its_terms_is_left():
    translator = InOrder()
    assert GlossaryTranslator(translator, {"car": "xcar", "dog": "hund"}).translate("a car") == "xa xcar"
    assert translator.asked == [("a car", None)]
    # An ending of two letters is no other word, one of three is.
    assert GlossaryTranslator(translator, {"car": "xc", "cars": "xc"}).translate("car or cars") == "xcar xor xc"
    # Twice in the text is twice in the translation; a term of two letters more is that term.
    glossed = GlossaryTranslator(translator, {"car": "xcar"})
    translator.asked.clear()
    assert glossed.translate("cars car car") == "xcars xcar xcar"
    assert [prefix for _, prefix in translator.asked] == [None]


def test_each_term_is_one_search_more_from_what_stands_before_it():
    translator = InOrder()
    GlossaryTranslator(translator, {"b": "B1", "d": "D1"}).translate("a b c d")
    assert [prefix for _, prefix in translator.asked] == [None, "xa B1", "xa B1 xc D1"]


def test_sentences_texts_and_errors_keep_their_places():
    glossed, many = GlossaryTranslator(InOrder(), {"car": "auto"}), "A car. The dog.\n\nA car."
    assert glossed.translate(["no", many, "car"]) == ["xno", "xA auto xThe xdog.\n\nxA auto", "auto"]
    (details,) = glossed.translate([many], details=True)
    assert details.scores == [-3.0] and len(details.parts) == 3
    found = list(glossed.translate_iter(["no", "refuse.", "a car"], return_exceptions=True))
    assert found[0] == "xno" and isinstance(found[1], FastattnError) and found[2] == "xa auto"
    with pytest.raises(FastattnError, match="^no$"):
        glossed.translate(["a car", "refuse."])


class Apart(StreamedTranslator):
    """Of "a b", the first word and the last two look at "b"."""

    def translate_iter(self, texts, *, target_prefix=None, **options):
        for _, prefix in zip(texts, target_prefix or [None]):
            tokens, looks = ["▁x", "▁y", "▁z", "▁w"], np.array([[0, 1], [1, 0], [0, 1], [0, 1]], np.float32)
            part = TokenTranslation(["▁a", "▁b"], [tokens], [0.0], [0.0], [4], [looks])
            written = prefix or "x y z w"
            yield Translation(written, [written], [0.0], [part])


def test_a_term_stands_where_most_words_look_at_it():
    assert GlossaryTranslator(Apart(), {"b": "B1"}).translate("a b") == "x y B1"


class Looping(InOrder):
    """Says a thing five times where it may."""

    def translate_iter(self, texts, *, details=False, no_repeat_ngram_size=0, **options):
        for found in super().translate_iter(texts, details=details, **options):
            said = found.text if no_repeat_ngram_size or "loop" not in found.text else "la la la la la"
            yield Translation(said, [said], found.scores, found.parts) if details else said


def test_what_each_text_has_goes_with_it(tmp_path):
    """Also beside texts that are known, in every window, and where a loop is decoded again."""
    texts = [f"{word} {n}" for n in range(300) for word in ("known", "new")]
    prefixes = [None if n % 3 else f"P{n}" for n in range(600)]
    memory = dict.fromkeys(texts[::2], "known")
    expected = [f"{prefix or 'xnew'} x{n // 2}" for n, prefix in enumerate(prefixes)][1::2]
    remembering = MemoryTranslator(InOrder(), memory)
    assert remembering.translate(texts, target_prefix=iter(prefixes))[1::2] == expected
    translator = InOrder()
    with CachedTranslator(translator, str(tmp_path / "cache.db"), "m") as cached:
        for _ in range(2):
            assert cached.translate(texts[1::2], target_prefix=prefixes[1::2]) == expected
        assert len(translator.asked) == 300
        assert cached.translate(texts[1], target_prefix="Q") == "Q x0" and cached.translate(texts[1]) == "xnew x0"
        assert cached.translate([texts[1]], target_prefix=["Z"]) == ["Z x0"]
    guarded = GuardedTranslator(Looping())
    assert guarded.translate(["loop a", "b", "loop c"], target_prefix=[None, "P", "loop!"]) == [
        "xloop xa",
        "P",
        "loop! xc",
    ]
    for made in (remembering, CachedTranslator(InOrder(), str(tmp_path / "other.db"), "m")):
        for prefixes, fewer in ((["a"], "values"), (["a", "b", "c"], "texts")):
            with pytest.raises(InputError, match=f"target_prefix should be one str, or .*: there are fewer {fewer}"):
                made.translate(["x", "y"], target_prefix=prefixes)


MEMORY = {
    "one two three four": "a",
    "one two three five": "b",
    "one two three four!": "c",
    "one two three": "d",
    "zero two three four": "e",
    "quite other words": "f",
}


def test_near_texts_are_the_three_most_alike_and_the_likest_first():
    memory = MemoryTranslator(InOrder(), MEMORY)
    found = memory.near("one two three fours")
    assert [one.source for one in found] == ["one two three four", "one two three four!", "zero two three four"]
    assert [one.translation for one in found] == ["a", "c", "e"]
    assert found[0].similarity > found[1].similarity > found[2].similarity >= 0.75
    assert memory.near("nothing of it") == ()
    assert MemoryTranslator(InOrder(), {"abcd": "x"}).near("abcz")[0].similarity == 0.75  # NEAR itself is near
    assert MemoryTranslator(InOrder(), {"abcd": "x"}).near("abyz") == ()


def test_what_a_memory_has_is_not_translated():
    translator = InOrder()
    memory = MemoryTranslator(translator, {" one ": " a ", "two": "b"})
    assert memory.translate(["zero", "\tone\n", "two", "One"]) == ["xzero", "\ta\n", "b", "xOne"]
    assert [text for text, _ in translator.asked] == ["zero", "One"]
    details = memory.translate(["two", "three"], details=True)
    assert [one.exact for one in details] == [True, False]
    with pytest.raises(InputError, match="details=True"):
        memory.translate("two", num_hypotheses=2)
