"""Translations that are known: a memory's are taken, a cache's too, by connections side by side."""

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from types import SimpleNamespace

import pytest

from fastattn import Translator
from fastattn.errors import FastattnError, InputError
from fastattn.translation.memory import CachedTranslator, MemoryTranslator
from fastattn.translation.streamed import StreamedTranslator
from tests.cli.commands import run
from tests.documents.backwards import Backwards


class Counting(Backwards, StreamedTranslator):
    """Refuses texts that say so."""

    def translate_iter(self, texts, *, details=False, **options):
        for text, one in zip(texts, super().translate_iter(texts, details=details, **options)):
            yield FastattnError("no") if text == "refuse" else one

    def close(self):
        self.seen.append("closed")


def test_a_memory():
    translator = Counting()
    memory = MemoryTranslator(translator, {"one two three": "known", "one two four five": "x"})
    assert memory.translate(["one two three", " one two three\n", "six seven"]) == ["known", " known\n", "seven six"]
    assert translator.seen == ["six seven"]
    exact, near, other = memory.translate(["one two three", "one two threes", "six"], details=True)
    assert exact.exact and exact.text == "known" and exact.near == () and not near.exact
    assert [one.source for one in near.near] == ["one two three"] and 0.9 < near.near[0].similarity < 1
    assert near.near[0].translation == "known" and near.text == "threes two one" and other.near == ()


def test_a_memory_of_a_file(pulled, tmp_path):
    (tmp_path / "m.tsv").write_text("Good morning.\tOl\u00e1.\n", encoding="utf-8")
    with Translator(pulled("en-pt"), threads=1, processes=1) as translator:
        assert translator.with_memory(tmp_path / "m.tsv").translate(["Good morning.", "Good night."]) == [
            "Ol\u00e1.",
            "Boa noite.",
        ]


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "cache.db")


def test_a_cache(path):
    translator = Counting()
    with CachedTranslator(translator, path, "a") as cached:
        assert cached.translate(["one two", "three four", "one two"]) == ["two one", "four three", "two one"]
        assert cached.translate("one two") == "two one" and cached.translate("one two", details=True).scores == [0.0]
        assert translator.seen == ["one two", "three four", "one two"]
        cached.translate("one two", beam_size=4)
        assert len(translator.seen) == 4  # other options
    with CachedTranslator(translator, path, "b") as other:
        other.translate("one two")
    assert translator.seen.count("one two") == 4  # another model
    with CachedTranslator(Counting(), path, "a") as again:
        assert again.translate("three four") == "four three" and again._translator.seen == []


def test_what_is_drawn_or_needs_more_goes_past(path):
    translator = Counting()
    with CachedTranslator(translator, path, "a") as cached:
        for _ in range(2):
            cached.translate("one two", sampling_topk=5)
            assert cached.translate("one two", details=True, return_attention=True).parts
    assert translator.seen[:4] == ["one two"] * 4


def test_errors_are_not_kept(path):
    with CachedTranslator(Counting(), path, "a") as cached:
        for _ in range(2):
            found = list(cached.translate_iter(["a b", "refuse", "c d"], return_exceptions=True))
            assert found[0] == "b a" and isinstance(found[1], FastattnError) and found[2] == "d c"
            with pytest.raises(FastattnError, match="^no$"):
                cached.translate(["refuse"])


def test_it_is_bounded(path, monkeypatch):
    """What was used longest ago goes, on a clock that goes on when it is looked at."""
    monkeypatch.setattr("fastattn.translation.memory.time", SimpleNamespace(time=count().__next__))
    used, new = [f"a{n} b" for n in range(5)], [f"c{n} d" for n in range(5)]
    with CachedTranslator(Counting(), path, "a", most=10) as cached:
        cached.translate([*used, *(f"b{n} c" for n in range(5))])
        cached.translate(used[:2])
        cached.translate([*used[2:], *new])
    with sqlite3.connect(path) as database:
        assert database.execute("select count(*) from translations").fetchone() == (10,)
    with CachedTranslator(Counting(), path, "a", most=10) as again:
        again.translate([*used, *new])
        assert again._translator.seen == []


@pytest.mark.parametrize("content", [b"no database at all, but long enough to be looked at" * 30, None])
def test_what_is_no_cache(tmp_path, content):
    path = tmp_path / "x" / "cache.db" if content is None else tmp_path / "cache.db"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match="cannot be a cache of translations: "):
        CachedTranslator(Counting(), str(path), "a")


def test_connections_side_by_side(path):
    """Which share a file as processes do."""

    def translate_much(first):
        with CachedTranslator(Counting(), path, "a", most=300) as cached:
            for n in range(first, first + 200, 10):
                assert cached.translate([f"a{m} b" for m in range(n, n + 10)]) == [f"b a{m}" for m in range(n, n + 10)]
        return True

    with ThreadPoolExecutor(3) as threads:
        assert list(threads.map(translate_much, (0, 50, 100))) == [True] * 3


def test_the_command_line(pulled, path, tmp_path):
    arguments = ("translate", "-m", str(pulled("en-pt")), "--cache", path)
    first = run(*arguments, "Good morning.", "Good night.")
    assert first.exit_code == 0 and first.stdout == "Bom dia.\nBoa noite.\n"
    with sqlite3.connect(path) as database:
        database.execute("update translations set result = replace(result, 'Bom dia', 'Cached')")
    assert run(*arguments, "Good morning.", "Good night.").stdout == "Cached.\nBoa noite.\n"
    (tmp_path / "m.tsv").write_text("Good morning.\tM.\n")
    (tmp_path / "g.tsv").write_text("nothing\tnada\n")
    for more in (
        ["-b", "3"],
        ["--precision", "float32"],
        ["--keep", "nothing"],
        ["--guard"],
        ["--glossary", str(tmp_path / "g.tsv")],
    ):
        assert run(*arguments, *more, "Good morning.").stdout == "Bom dia.\n", more
    other = run("translate", "-m", str(pulled("zh-en")), "--cache", path, "Good morning.")
    assert other.exit_code == 0 and other.stdout != "Cached.\n"
    done = run(*arguments[:3], "--memory", str(tmp_path / "m.tsv"), "--json", "Good morning.", "Good morning!")
    assert (
        '"memory": "exact"' in done.stdout
        and '"translation": "M."' in done.stdout
        and '"source": "Good morning."' in done.stdout
    )
