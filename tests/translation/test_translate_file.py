"""Files to files: lines in, lines out, prefixes from a file of their own, and all of them or no file."""

import os
from pathlib import Path

import pytest

from fastattn import ExecutionStats
from fastattn.errors import InputError
from fastattn.system import files
from fastattn.translation.translator import Translator
from tests.models.tiny_models import random_checkpoint, steady_ops, vocabulary

WORDS = vocabulary(19)
SHORT = {"max_decoding_length": 5}
LINES = [f"{WORDS[4]} {WORDS[5]}", "", WORDS[7], f"{WORDS[3]}\r{WORDS[8]}", WORDS[9]]


@pytest.fixture(scope="module")
def translator() -> Translator:
    return Translator.from_checkpoint(random_checkpoint(seed=21), ops=steady_ops, threads=1)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source.txt"
    path.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(LINES).encode())
    return path


def in_one_line(text: str) -> str:
    return text.replace("\r", " ")


def test_each_line_gives_a_line(
    translator: Translator, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "output.txt"
    clock = iter([1.0, 3.5])
    with monkeypatch.context() as patches:
        patches.setattr("fastattn.translation.translator.perf_counter", lambda: next(clock))
        stats = translator.translate_file(source, str(output), **SHORT)
    details = translator.translate(LINES, details=True, **SHORT)
    assert output.read_bytes().decode() == "".join(in_one_line(result.text) + "\n" for result in details)
    tokens = sum(len(part.tokens) for result in details for part in result.parts)
    assert isinstance(stats, ExecutionStats) and (stats.num_tokens, stats.num_examples) == (tokens, 5)
    assert stats.total_time_in_ms == 2500.0
    assert sorted(os.listdir(tmp_path)) == ["output.txt", "source.txt"]


def test_prefixes_hypotheses_and_scores(translator: Translator, source: Path, tmp_path: Path):
    prefixes, output = tmp_path / "prefixes.txt", tmp_path / "output.txt"
    wished = [WORDS[9], "", "", WORDS[6], f"{WORDS[3]} {WORDS[3]}"]
    prefixes.write_text("\n".join(wished) + "\n", encoding="utf-8")
    options = SHORT | {"beam_size": 3, "num_hypotheses": 2}
    translator.translate_file(source, output, prefixes, with_scores=True, **options)
    expected = [
        f"{score:g} ||| {in_one_line(text)}"
        for result in translator.translate(LINES, target_prefix=wished, details=True, **options)
        for text, score in zip(result.hypotheses, result.scores)
    ]
    assert output.read_text(encoding="utf-8").split("\n") == [*expected, ""] and len(expected) == 10


def test_a_greedy_search_needs_no_scores(translator: Translator, source: Path, tmp_path: Path):
    translator.translate_file(source, tmp_path / "output.txt", beam_size=1, **SHORT)
    translated = translator.translate(LINES, beam_size=1, **SHORT)
    assert (tmp_path / "output.txt").read_bytes().decode().split("\n") == [*map(in_one_line, translated), ""]


def test_an_empty_file_gives_an_empty_file(translator: Translator, tmp_path: Path):
    (tmp_path / "source.txt").touch()
    stats = translator.translate_file(tmp_path / "source.txt", tmp_path / "output.txt")
    assert (stats.num_tokens, stats.num_examples) == (0, 0) and (tmp_path / "output.txt").read_bytes() == b""


def test_a_fault_leaves_what_was_there(translator: Translator, tmp_path: Path):
    for content, prefixes, message in [
        (b"a\nb\xff\n", None, "source.txt, line 2: not UTF-8"),
        (b"a\nb\0\n", None, "source.txt, line 2: a NUL byte"),
        (b"a\nb\nc\n", b"a\nb\n", "2 values, but more texts"),
        (b"a\n", b"a\nb\n", "1 texts, but more values"),
        (b"a\n", b"\xfe\n", "prefixes.txt, line 1: not UTF-8"),
    ]:
        source, output = tmp_path / "source.txt", tmp_path / "output.txt"
        source.write_bytes(content)
        output.write_bytes(b"before")
        if prefixes is not None:
            (tmp_path / "prefixes.txt").write_bytes(prefixes)
        begun = None if prefixes is None else tmp_path / "prefixes.txt"
        with pytest.raises(InputError, match=message):
            translator.translate_file(source, output, begun, **SHORT)
        assert output.read_bytes() == b"before"
        assert not [name for name in os.listdir(tmp_path) if name.endswith(".part")]


def test_what_cannot_be_opened(translator: Translator, source: Path, tmp_path: Path):
    with pytest.raises(InputError, match="cannot read .*nowhere: No such file"):
        translator.translate_file(tmp_path / "nowhere", tmp_path / "output.txt")
    with pytest.raises(InputError, match="cannot write .*output.txt: the folder .*nowhere does not exist"):
        translator.translate_file(source, tmp_path / "nowhere" / "output.txt")
    with pytest.raises(InputError, match="cannot write .*: a NUL byte"):
        translator.translate_file(source, f"{tmp_path}/a\0b")
    with pytest.raises(InputError, match="a file's path should be a str or a path, got int"):
        translator.translate_file(0, tmp_path / "output.txt")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="unknown option 'beam'"):
        translator.translate_file(source, tmp_path / "output.txt", beam=2)
    with pytest.raises(InputError, match="a file's path should be a str or a path, got NoneType"):
        translator.translate_file(source, None)  # type: ignore[arg-type]
    assert os.listdir(tmp_path) == ["source.txt"]


def test_options_that_a_file_leaves_no_room_for(translator: Translator, source: Path, tmp_path: Path):
    for options, message in [
        ({"details": True}, "translate_file takes no details: "),
        ({"target_prefix": "a"}, "translate_file takes no target_prefix: .*target_path"),
        ({"return_exceptions": True}, "translate_file takes no return_exceptions: "),
        ({"with_scores": True, "return_scores": False}, "with_scores needs return_scores"),
    ]:
        with pytest.raises(InputError, match=message):
            translator.translate_file(source, tmp_path / "output.txt", **options)
        assert os.listdir(tmp_path) == ["source.txt"]


@pytest.mark.parametrize("with_scores", [False, True])
def test_each_line_has_as_many_lines_however_few_its_hypotheses(
    translator: Translator, source: Path, tmp_path: Path, with_scores
):
    """Few alternatives are as probable as this."""
    options = SHORT | {
        "beam_size": 1,
        "num_hypotheses": 4,
        "return_alternatives": True,
        "min_alternative_expansion_prob": 0.1,
    }
    found = [result.hypotheses for result in translator.translate(LINES, details=True, **options)]
    assert any(len(hypotheses) < 4 for hypotheses in found)
    translator.translate_file(source, tmp_path / "output.txt", with_scores=with_scores, **options)
    written = (tmp_path / "output.txt").read_bytes().decode().split("\n")[:-1]
    texts = [line.partition(" ||| ")[2] if with_scores and line else line for line in written]
    expected = [[*map(in_one_line, hypotheses), "", "", "", ""][:4] for hypotheses in found]
    assert [texts[first : first + 4] for first in range(0, len(texts), 4)] == expected


def test_lines_are_read_as_they_are_needed(translator: Translator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    source, output = tmp_path / "source.txt", tmp_path / "output.txt"
    source.write_text(f"{WORDS[4]}\n" * 1200, encoding="utf-8")
    read, seen, read_at_first = [], [], []
    original = files.as_text

    def watched(line: bytes, number: int, name: str) -> str:
        read.append(number)
        return original(line, number, name)

    def see(step):
        seen.append(step.sentence)
        read_at_first.append(len(read))

    monkeypatch.setattr(files, "as_text", watched)
    stats = translator.translate_file(source, output, beam_size=1, callback=see, max_decoding_length=1)
    assert stats.num_examples == len(read) == 1200 and sorted(seen) == list(range(1200))
    assert read_at_first[0] < 600
    assert output.read_text(encoding="utf-8").count("\n") == 1200
