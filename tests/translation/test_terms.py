"""Glossaries and memories around a translator whose words and alignment are known."""

import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import count, repeat
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest

from fastattn import TokenTranslation, Translation, Translator, translate_document
from fastattn.errors import FastattnError, InputError
from fastattn.translation.glossary import GlossaryTranslator
from fastattn.translation.guarded import GuardedTranslator, fault_of, most_repeats
from fastattn.translation.memory import CachedTranslator, MemoryTranslator
from fastattn.translation.streamed import StreamedTranslator
from fastattn.translation.term_files import read_glossary, read_memory
from tests.cli.commands import run
from tests.documents.backwards import Backwards
from tests.messages import refused


class InOrder(StreamedTranslator):
    """Writes "x" before each word, one after the other, behind what a translation begins with."""

    def __init__(self):
        self.asked, self.closed = [], 0

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

    def close(self):
        self.closed += 1

    @property
    def texts(self):
        return [text for text, _ in self.asked]


@pytest.mark.parametrize(
    ("glossary", "keep", "text", "expected"),
    [
        ({"car": "auto"}, (), "the car stops", "xthe auto xstops"),
        # Of terms that begin alike the longest is found, whatever their order.
        ({"car": "auto", "car park": "garage"}, (), "the car park", "xthe garage xpark"),
        ({"car park": "garage", "car": "auto"}, (), "the car park", "xthe garage xpark"),
        ({"car": "auto", "dog": "hund"}, (), "a dog sees a car", "xa hund xsees xa auto"),
        ({"car": "auto"}, (), "a car sees a car", "xa auto xsees xa auto"),
        # One letter has no ending.
        ({"je": "x"}, (), "je stops", "x xstops"),
        # What has one letter in two cases for a pattern alone
        ({"istanbul": "city"}, (), "the \u0130stanbul", "xthe city"),
        ({"istanbul": "city", "\u0130stanbul": "town"}, (), "istanbul \u0130stanbul", "city town"),
        ({"mis": "n"}, (), "mi\u017f", "n"),
        ({"\u03bcm": "n", "km": "k"}, (), "\u00b5m", "n"),
        # In lower case a term is found in any case; one with capitals only as it is written.
        ({"car": "auto"}, (), "A CAR or Car", "xA auto xor auto"),
        ({"WHO": "oms"}, (), "who or WHO", "xwho xor oms"),
        ({"who": "wer", "WHO": "OMS"}, (), "WHO or who", "OMS xor wer"),
        ({"car": "auto"}, (), "a scar, cars", "xa xscar, xcars"),
        ({" car ": " auto "}, (), "a car", "xa auto"),
        # What is kept comes before terms.
        ({"car": "auto"}, [r"car-\d"], "a car-5 or car", "xa car-5 xor auto"),
        ({}, [r"a\d", r"b\d"], "see a1 and b2", "xsee a1 xand b2"),
        ({"car": "auto"}, [r"(?i)acme", r"(?P<x>b)(?P=x)", r"(c)\1"], "Acme bb cc car", "Acme bb cc auto"),
        # An address has no term; a term beside Chinese signs is a word.
        ({"car": "auto"}, (), "car http://car.com/x", "auto xhttp://car.com/x"),
        ({"A": "b"}, (), "\u7ef4A\u5f88 A", "b b"),
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
    glossed, many = GlossaryTranslator(InOrder(), {"car": "auto"}), " A car. The dog.\n\n  A car.\n"
    expected = " xA auto xThe xdog.\n\n  xA auto\n"
    assert glossed.translate(["no", many, "car"]) == ["xno", expected, "auto"]
    (details,) = glossed.translate([many], details=True)
    assert (details.text, details.scores, len(details.parts)) == (expected, [-3.0], 3)
    assert details.hypotheses == [expected]
    numbered = [f"the {'car' if n % 3 else 'dog'} has {n} doors" for n in range(700)]
    words = [["xdog", "auto"][n % 3 > 0] for n in range(700)]
    assert glossed.translate(numbered) == [f"xthe {word} xhas x{n} xdoors" for n, word in enumerate(words)]
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
    assert GlossaryTranslator(Apart(None), {"b": "B1"}).translate("a b") == "x y B1"


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
    found = guarded.translate(["loop a", "b", "loop c"], target_prefix=[None, "P", "loop!"])
    assert found == ["xloop xa", "P", "loop! xc"]
    for made in (remembering, CachedTranslator(InOrder(), str(tmp_path / "other.db"), "m")):
        for prefixes, fewer in ((["a"], "values"), (["a", "b", "c"], "texts")):
            with pytest.raises(InputError, match=f"target_prefix should be one str, or .*: there are fewer {fewer}"):
                made.translate(["x", "y"], target_prefix=prefixes)


def test_each_text_of_a_glossary_has_its_languages():
    asked = []

    class Languages(InOrder):
        def translate_iter(self, texts, *, source_lang=None, **options):
            texts = list(texts)
            asked.extend(zip(texts, source_lang, strict=True))
            return super().translate_iter(texts, **options)

    texts = [f"car {n}. dog {n}." if n % 2 else f"cat {n}" for n in range(100)]
    glossed = GlossaryTranslator(Languages(), {"car": "auto"})
    found = glossed.translate(texts, source_lang=[f"l{n}" for n in range(100)])
    assert found[:2] == ["xcat x0", "auto x1. xdog x1."] and len(found) == 100
    assert {*asked} >= {(texts[0], "l0"), (texts[2], "l2")} and len({code for _, code in asked}) == 100
    assert all(code == f"l{text.rstrip('.').split()[-1]}" for text, code in asked)


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
    assert MemoryTranslator(InOrder(), {"abcd": "x"}).near("abcz")[0].similarity == 0.75  # the least similarity
    assert MemoryTranslator(InOrder(), {"abcd": "x"}).near("abyz") == ()


def test_what_a_memory_has_is_not_translated():
    translator = InOrder()
    memory = MemoryTranslator(translator, {" one ": " a ", "two": "b", "one two three": "c", "one two four five": "d"})
    assert memory.translate(["zero", "\tone\n", "two", "One"]) == ["xzero", "\ta\n", "b", "xOne"]
    assert [text for text, _ in translator.asked] == ["zero", "One"]
    known, near, other = memory.translate(["two", "one two threes", "six"], details=True)
    assert [one.exact for one in (known, near, other)] == [True, False, False]
    assert (known.near, other.near, near.text) == ((), (), "xone xtwo xthrees")
    assert [(one.source, one.translation) for one in near.near] == [("one two three", "c")]
    assert 0.9 < near.near[0].similarity < 1
    with refused(InputError, "details=True"):
        memory.translate("two", num_hypotheses=2)


TMX = """<?xml version="1.0"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header srclang="en"/><body>
<tu><tuv xml:lang="en-US"><seg>Good <bpt i="1">x</bpt>morning<ept i="1">y</ept>.</seg></tuv>
<tuv xml:lang="pt-BR"><seg>Bom dia.</seg></tuv><tuv xml:lang="de"><seg>Guten Morgen.</seg></tuv></tu>
<tu><tuv lang="EN"><seg>Y<hi>e</hi>s</seg></tuv><tuv lang="de"><seg>Ja</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>No</seg></tuv></tu>
<tu><tuv lang="en"><seg>A</seg></tuv><tuv lang="ja"><seg/></tuv><tuv lang="ja"><seg>B</seg></tuv></tu>
</body></tmx>"""
TBX = """<martif><text><body><termEntry><langSet xml:lang="en"><tig><term>car</term></tig></langSet>
<langSet xml:lang="pt"><ntig><termGrp><term>viatura</term></termGrp></ntig></langSet></termEntry></body></text>
</martif>"""


def write(folder, name, text, encoding="utf-8"):
    (folder / name).write_bytes(text.encode(encoding))
    return folder / name


def test_two_columns(tmp_path):
    path = write(tmp_path, "a.tsv", "\ufeffcar\tviatura\r\n# no\n\n one two \t um dois \n")
    assert read_glossary(path) == {"car": "viatura", "one two": "um dois"} == read_memory(path)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_tmx(tmp_path, encoding):
    path = write(tmp_path, "a.tmx", TMX.replace('"1.0"?', f'"1.0" encoding="{encoding}"?'), encoding)
    assert read_memory(path, "en", "pt") == {"Good morning.": "Bom dia."}
    assert read_memory(path, "en", "de") == {"Good morning.": "Guten Morgen.", "Yes": "Ja"}
    assert read_memory(path, "en", "ja") == {"A": "B"}
    assert read_memory(path, "fr", "pt") == {}
    with pytest.raises(InputError, match="has en, pt, de: name the two languages"):
        read_memory(path)


def test_regions_and_scripts_of_a_memory(tmp_path):
    said = (("en", "A"), ("zh-CN", "simplified"), ("zh-TW", "traditional"), ("pt-BR", "brazil"))
    texts = "".join(f'<tuv xml:lang="{code}"><seg>{text}</seg></tuv>' for code, text in said)
    path = write(tmp_path, "a.tmx", f"<tmx><body><tu>{texts}</tu></body></tmx>")
    for target, found in (("zh-TW", "traditional"), ("zh", "simplified"), ("pt-PT", "brazil"), ("pt", "brazil")):
        assert read_memory(path, "en", target) == {"A": found}, target


def test_tbx(tmp_path):
    path = write(tmp_path, "a.TBX", TBX)
    assert read_glossary(path) == {"car": "viatura"} == read_glossary(path, "en", "pt")
    for languages in ({"source": "en"}, {"target": "pt"}):
        assert read_glossary(path, **languages) == {"car": "viatura"}, languages
    assert read_glossary(path, "pt", "en") == {"viatura": "car"}


BOMB = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;">]><tmx><tu>&b;</tu></tmx>'


def test_what_is_none(tmp_path):
    for name, text, encoding in (
        *(("a.tsv", text, "utf-8") for text in ("car viatura\n", "a\tb\n\tx\n", "a\tb\tc\n")),
        ("a.tsv", "caf\u00e9\tb\n", "latin-1"),
        *(("a.tmx", "<tmx/>", "utf-8"), ("a.tmx", BOMB, "utf-8"), ("a.tmx", BOMB, "utf-16")),
    ):
        with refused(InputError):
            read_memory(write(tmp_path, name, text, encoding))
    for text in ("<tmx>", ""):
        with pytest.raises(InputError, match="not XML: "):
            read_memory(write(tmp_path, "a.tmx", text))
    for name in ("none.tsv", "none.tmx"):
        with refused(InputError):
            Translator.with_memory(InOrder(), tmp_path / name)


TEXTS = [
    "The government bought a new car.",
    "Good morning.",
    "The car is red. My friend saw the car in the city, near the river.",
    "",
    "Cars are not a car's friends.",
]


@pytest.fixture(scope="module")
def translator(pulled):
    with Translator(pulled("en-pt"), threads=2, processes=1) as made:
        yield made


def test_terms_come_out(translator, pulled):
    found = translator.with_glossary({"car": "viatura", "government": "estado"}).translate(TEXTS)
    plain = translator.translate(TEXTS)
    assert "viatura" in found[0] and "estado" in found[0].lower()
    assert found[2].lower().count("viatura") == 2 and "rio" in found[2] and "amigo" in found[2]
    assert found[1] == plain[1] and found[3] == "" and "viatura" in found[4]
    assert all("viatura" not in text for text in plain)
    keeping = translator.with_glossary(keep=[r"Acme \w+", r"\d+-\d+", "\U0001f600"])
    found = keeping.translate(["We buy Acme Turbo for 10-12 people \U0001f600.", "Good morning."])
    assert "Acme Turbo" in found[0] and "10-12" in found[0] and "\U0001f600" in found[0] and found[1] == plain[1]
    with Translator(pulled("pt-en"), threads=2, processes=1) as first:
        glossed = GlossaryTranslator(Translator.chain(first, translator), {"carro": "viatura"})
        assert "viatura" in glossed.translate("O carro \u00e9 novo.").lower()
    texts = ["BCD " * 9 + "x", "Good morning."]
    plain, found = translator.translate(texts), translator.guarded().translate(texts, details=True)
    assert fault_of(texts[0], plain[0]) and fault_of(texts[0], found[0].text) != "loop"
    assert found[1].text == plain[1] and not hasattr(found[1], "remarks")


def test_what_is_no_glossary_and_what_cannot_be_combined():
    for glossary, keep in (*(({term: made}, ()) for term, made in (("", "a"), ("a", " "), ("a", 1))), ({}, ["("])):
        with refused(InputError):
            GlossaryTranslator(InOrder(), glossary, keep)
    glossed = GlossaryTranslator(InOrder(), {"car": "auto"})
    for option in ({"target_prefix": "O"}, {"num_hypotheses": 2}):
        with refused(InputError, *option):
            glossed.translate("The car.", details=True, **option)
    with pytest.raises(FastattnError):
        glossed.translate(["The car.", 3])


def test_how_often():
    none = ("", "no no no no", "a b a b a b a b", "a b c d e " * 9, "\u597d\u597d", "........ -------- 1111111111")
    for often, texts in {
        0: (*none, "one two three four five six seven eight"),
        5: ("No no no no no", "x a b a b a b a b a b y", "ab, ab, ab, ab, ab, c"),
        6: ("a b c d " * 6, "hahahahahaha"),
        7: ("\u5f88\u597d" * 7,),
    }.items():
        assert [most_repeats(text) for text in texts] == [often] * len(texts)


def test_what_is_wrong():
    assert fault_of("hello", "no no no no no") == "loop"
    assert fault_of("no no no no no", "n\u00e3o n\u00e3o n\u00e3o n\u00e3o n\u00e3o") == ""
    assert fault_of("hello", "a1 a2 " * 4 + " ".join(map(str, range(50)))) == "length"
    assert fault_of("hello", "ol\u00e1") == ""
    apart = "".join(map(chr, range(0x4E00, 0x4E00 + 101)))
    assert (fault_of("hello", apart[:100]), fault_of("hello", apart)) == ("", "length")


class Repeating(Backwards, StreamedTranslator):
    """Says one thing five times, unless it may not repeat as few tokens as the text has words."""

    def __init__(self):
        super().__init__()
        self.sizes = []

    def translate_iter(self, texts, *, details=False, no_repeat_ngram_size=0, **options):
        for text in texts:
            if text == "refuse":
                yield FastattnError("no")
                continue
            self.sizes.append(no_repeat_ngram_size)
            if text == "once" and no_repeat_ngram_size:
                raise FastattnError("no more")
            heavy = not 0 < no_repeat_ngram_size <= len(text.split())
            (found,) = super().translate_iter(["la la la la la" if heavy else text], details=details, **options)
            yield found

    def close(self):
        pass


def test_it_is_decoded_again_until_it_is_none():
    translator = Repeating()
    guarded = GuardedTranslator(translator)
    assert guarded.translate("one two") == "two one" and translator.sizes == [0, 3, 2]
    found = guarded.translate("one two", details=True)
    assert found.remarks == ("loop",) and found.text == "two one"
    assert guarded.translate("", details=True).text == "la la la la la"  # the best there is
    translator.sizes.clear()
    assert guarded.translate("one", no_repeat_ngram_size=5) == "la la la la la" and translator.sizes == [5]
    mixed = list(guarded.translate_iter(["one", "refuse", "two"], return_exceptions=True))
    assert mixed[0] == "one" and isinstance(mixed[1], FastattnError) and mixed[2] == "two"
    mixed = list(guarded.translate_iter(["once", "two"], return_exceptions=True))
    assert str(mixed[0]) == "no more" and mixed[1] == "two"
    with pytest.raises(FastattnError, match="^no more$"):
        guarded.translate("once")


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "cache.db")


def test_a_cache(path):
    translator = InOrder()
    with CachedTranslator(translator, path, "a") as cached:
        assert cached.translate(["one two", "three four", "one two"]) == ["xone xtwo", "xthree xfour", "xone xtwo"]
        assert cached.translate("one two") == "xone xtwo" and cached.translate("one two", details=True).scores == [-1.0]
        assert translator.texts == ["one two", "three four", "one two"]
    with CachedTranslator(translator, path, "b") as other:
        other.translate("one two")
    assert translator.texts.count("one two") == 3 and translator.closed == 2  # another model
    with CachedTranslator(InOrder(), path, "a") as again:
        assert again.translate("three four") == "xthree xfour" and again._translator.texts == []


def test_errors_are_not_kept(path):
    with CachedTranslator(InOrder(), path, "a") as cached:
        for _ in range(2):
            found = list(cached.translate_iter(["a b", "refuse.", "c d"], return_exceptions=True))
            assert found[0] == "xa xb" and isinstance(found[1], FastattnError) and found[2] == "xc xd"
            with pytest.raises(FastattnError, match="^no$"):
                cached.translate(["refuse."])


def test_what_was_translated_before_a_caller_stopped_or_a_write_failed_is_kept(path):
    translator = InOrder()
    with CachedTranslator(translator, path, "a") as cached, sqlite3.connect(path) as database:
        database.execute("create trigger full before insert on translations begin select raise(abort, 'full'); end")
        database.commit()
        with pytest.raises(FastattnError, match="cannot be written: full"):
            cached.translate(["a b"])
        database.execute("drop trigger full")
        database.commit()
        results = cached.translate_iter(["a b", "c d"])
        assert next(results) == "xa xb"
        results.close()
        assert cached.translate(["a b"]) == ["xa xb"] and translator.texts.count("a b") == 2


def test_a_damaged_row_of_a_cache_is_not_known(path):
    with CachedTranslator(InOrder(), path, "a") as cached, sqlite3.connect(path) as database:
        assert cached.translate(["a b"]) == ["xa xb"]
        for row in ("not JSON", "[1, 2]", '["a", 1, 2]', "[" * 100_000, None):
            database.execute("update translations set result = ?", [row])
            database.commit()
            assert cached.translate(["a b"]) == ["xa xb"]


def test_it_is_bounded(path, monkeypatch):
    """What was used longest ago goes, on a clock that goes on when it is looked at."""
    monkeypatch.setattr("fastattn.translation.memory.time", SimpleNamespace(time=count().__next__))
    used, new = [f"a{n} b" for n in range(5)], [f"c{n} d" for n in range(5)]
    with CachedTranslator(InOrder(), path, "a", most=10) as cached:
        cached.translate([*used, *(f"b{n} c" for n in range(5))])
        cached.translate(used[:2])
        cached.translate([*used[2:], *new])
    with sqlite3.connect(path) as database:
        assert database.execute("select count(*) from translations").fetchone() == (10,)
    with CachedTranslator(InOrder(), path, "a", most=10) as again:
        again.translate([*used, *new])
        assert again._translator.texts == []


def test_what_is_no_cache(tmp_path):
    (tmp_path / "cache.db").write_bytes(b"no database at all, but long enough to be looked at" * 30)
    for name in ("cache.db", "x/cache.db"):
        with pytest.raises(InputError, match="cannot be a cache of translations: "):
            CachedTranslator(InOrder(), str(tmp_path / name), "a")


def test_connections_side_by_side(path):
    """Which share a file as processes do."""

    def translate_much(first):
        with CachedTranslator(InOrder(), path, "a", most=300) as cached:
            for n in range(first, first + 200, 10):
                expected = [f"xa{m} xb" for m in range(n, n + 10)]
                assert cached.translate([f"a{m} b" for m in range(n, n + 10)]) == expected
        return True

    with ThreadPoolExecutor(3) as threads:
        assert list(threads.map(translate_much, (0, 50, 100))) == [True] * 3


def test_a_file_that_another_process_writes_at_is_waited_for(path):
    """SQLite does not wait by itself where the file is to have a log for the first time."""
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("create table another (a)")
        other.execute("begin immediate")
        end = threading.Timer(0.2, other.execute, ["commit"])
        end.start()
        with CachedTranslator(InOrder(), path, "a") as cached:
            assert cached.translate("a b") == "xa xb"
        end.join()


def test_the_command_line(pulled, path, tmp_path):
    """A cache is of the model, of the options, and of what stands around the model."""
    arguments, memory = ("translate", "-m", str(pulled("en-pt")), "--cache", path), str(tmp_path / "m.tsv")
    assert run(*arguments, "Good morning.", "Good night.").stdout == "Bom dia.\nBoa noite.\n"
    with sqlite3.connect(path) as database:
        database.execute("update translations set result = replace(result, 'Bom dia', 'Cached')")
    assert run(*arguments, "Good morning.", "Good night.").stdout == "Cached.\nBoa noite.\n"
    (tmp_path / "m.tsv").write_text("Good morning.\tM.\n")
    (tmp_path / "g.tsv").write_text("nothing\tnada\n")
    for more in ("-b 3", "--precision float32", "--keep nothing", "--guard", f"--glossary {tmp_path}/g.tsv"):
        assert run(*arguments, *more.split(" ", 1), "Good morning.").stdout == "Bom dia.\n", more
    assert run(*arguments, "--memory", memory, "Good morning.").stdout == "M.\n"
    assert run(*arguments, "--glossary", memory, "Good morning.").stdout != "M.\n"
    assert "Cached" not in run("translate", "-m", str(pulled("zh-en")), "--cache", path, "Good morning.").stdout
    done = run(*arguments[:3], "--memory", memory, "--json", "Good morning.", "Good morning!")
    for said in ('"memory": "exact"', '"translation": "M."', '"source": "Good morning."'):
        assert said in done.stdout


def test_marks_go_through_a_glossary_around_a_chain(pulled):
    with Translator(pulled("en-pt")) as there, Translator(pulled("pt-en")) as back:
        known = GlossaryTranslator(Translator.chain(there, back), {"car": "vehicle"})
        page = translate_document(known, b"<p>The big <b>car</b> of the old man is <u>red</u>.</p>", "html").decode()
        assert "<b>vehicle</b>" in page and "<u>red</u>" in page
        assert known.translate("My car is red.", details=True).through == [there.translate("My car is red.")]


def test_what_is_near_is_looked_for_where_it_is_read():
    remembered = MemoryTranslator(Backwards(), {"one two three four": "x"})
    with mock.patch.object(remembered, "near", side_effect=remembered.near) as near:
        (result,) = remembered.translate_iter(["one two three five"], details=True)
        assert near.call_count == 0
        assert [one.source for one in result.near] == ["one two three four"] and result.near is result.near
        assert near.call_count == 1
