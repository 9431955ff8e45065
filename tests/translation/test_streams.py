"""translate_iter and encode_iter when the source or a text fails: what came before is given out first."""

import os

import numpy as np
import pytest

from fastattn import ExecutionStats, Translator
from fastattn.errors import FastattnError, InputError
from fastattn.system import files
from tests.encoders.test_encoder import _encoder
from tests.messages import refused
from tests.models.tiny_models import random_checkpoint, steady_ops, vocabulary

WORDS = vocabulary(19)[3:]
SHORT = {"max_decoding_length": 4}
SHORTEST = {"max_decoding_length": 1, "beam_size": 1}  # where it matters which texts are translated, and not how


@pytest.fixture(scope="module")
def translator():
    return Translator.from_checkpoint(random_checkpoint(seed=21), ops=steady_ops, threads=1)


class Broken(Exception):
    """Of the source's own making."""


def source(count, error):
    for number in range(count):
        yield f"{WORDS[number % 16]} {WORDS[number // 16 % 16]}"
    raise error


def drain(stream):
    """What comes, and the error that ends it; nothing comes after."""
    given = []
    with pytest.raises(Exception) as caught:
        for result in stream:
            given.append(result)
    assert list(stream) == []
    return given, caught.value


@pytest.mark.parametrize(
    ("count", "error"), [(0, Broken("wire")), (1, RuntimeError("odd")), (300, InputError("a fault of the file's"))]
)
def test_texts_before_a_failing_source_are_translated(translator, count, error):
    texts = [text for text, _ in zip(source(count + 1, error), range(count))]
    given, raised = drain(translator.translate_iter(source(count, error), **SHORTEST))
    assert given == translator.translate(texts, **SHORTEST) and raised is error
    given, raised = drain(translator.translate_iter(source(count, error), return_exceptions=True, **SHORTEST))
    assert len(given) == count and raised is error  # it is no text's


@pytest.mark.parametrize("count", [0, 20])
def test_texts_before_a_failing_source_are_encoded(count):
    encoder, error = _encoder(), Broken("wire")
    given, raised = drain(encoder.encode_iter(source(count, error)))
    assert len(given) == count and raised is error
    texts = [text for text, _ in zip(source(count + 1, error), range(count))]
    if texts:
        np.testing.assert_allclose(np.stack(given), encoder.encode(texts), atol=1e-6)
    given, raised = drain(encoder.encode_iter(["a", None, "b"]))
    assert len(given) == 1 and isinstance(raised, InputError)


def test_prefixes_that_fail_and_that_run_out(translator):
    error = Broken("wire")
    texts = [WORDS[number] for number in range(6)]
    given, raised = drain(translator.translate_iter(texts, target_prefix=source(3, error), **SHORT))
    assert len(given) == 3 and raised is error
    given, raised = drain(translator.translate_iter(texts, target_prefix=[None, "", WORDS[2]], **SHORT))
    assert len(given) == 3 and "3 values, but more texts" in str(raised)


def test_an_interrupt_of_the_source_waits_for_nothing(translator):
    def interrupted():
        yield WORDS[0]
        raise KeyboardInterrupt

    seen = []
    with pytest.raises(KeyboardInterrupt):
        list(translator.translate_iter(interrupted(), beam_size=1, callback=seen.append, **SHORT))
    assert seen == []


@pytest.fixture
def short_windows(monkeypatch):
    """The tokens of a window; texts below have two, and one that stands for themselves."""
    for name, size in (("FIRST_WINDOW", 6), ("LAST_WINDOW", 30), ("WINDOW_A_THREAD", 1)):
        monkeypatch.setattr(f"fastattn.decoding.windows.{name}", size)
    return 30


@pytest.mark.parametrize(("count", "threads"), [(0, 1), (1, 2), (2, 1), (3, 2), (4, 1), (40, 2)])
def test_windows_in_progress_together_give_what_one_call_does(short_windows, threads, count):
    translator = Translator.from_checkpoint(random_checkpoint(seed=21), ops=steady_ops, threads=threads)
    texts, read = [text for text, _ in zip(source(count + 1, Broken()), range(count))], 0

    def counted():
        nonlocal read
        for text in texts:
            read += 1
            yield text

    given = []
    for result in translator.translate_iter(counted(), **SHORT):
        assert read <= len(given) + 3 * short_windows // 3 and (given or read <= 2)
        given.append(result)
    assert given == translator.translate(texts, **SHORT) and read == count


def test_a_stream_that_is_left_ends_its_work(translator, short_windows):
    stream = translator.translate_iter(source(10_000, Broken()), **SHORT)
    for _ in range(20):
        next(stream)
    stream.close()
    assert not translator._service.scheduler()._state.requests
    assert translator.translate(WORDS[0], **SHORT) == next(translator.translate_iter([WORDS[0]], **SHORT))


@pytest.mark.parametrize("number", [1, 5, 30])
def test_a_failing_text_far_into_a_stream_comes_in_its_turn(translator, short_windows, number):
    texts = [text for text, _ in zip(source(41, Broken()), range(40))]
    expected = translator.translate(texts, **SHORT)
    texts[number] = None
    given, raised = drain(translator.translate_iter(texts, **SHORT))
    assert given == expected[:number] and isinstance(raised, InputError)
    results = list(translator.translate_iter(texts, return_exceptions=True, **SHORT))
    assert isinstance(results[number], InputError)
    assert results[:number] + results[number + 1 :] == expected[:number] + expected[number + 1 :]


@pytest.mark.parametrize("wrong", [" ".join(WORDS * 4), "\ud800", None])
def test_a_text_that_cannot_be_read(translator, wrong):
    """Its error comes in its turn, or takes its place."""
    limited = Translator.from_checkpoint(
        random_checkpoint(seed=21, positions="table", max_positions=20), ops=steady_ops, threads=1
    )
    texts = [WORDS[0], "", wrong, WORDS[3]]
    options = SHORT | {"split": "never"}
    expected = limited.translate([WORDS[0], "", WORDS[3]], **options)
    given, raised = drain(limited.translate_iter(texts, **options))
    assert given == expected[:2] and isinstance(raised, InputError)
    seen = []
    options |= {"beam_size": 1, "callback": lambda step: seen.append(step.sentence)}
    results = list(limited.translate_iter(texts, return_exceptions=True, **options))
    assert [isinstance(result, FastattnError) for result in results] == [False, False, True, False]
    assert str(results[2]) == str(raised) and {*seen} == {0, 3}, "texts keep their numbers"


LINES = [f"{WORDS[4]} {WORDS[5]}", "", WORDS[7], f"{WORDS[3]}\r{WORDS[8]}", WORDS[9]]


@pytest.fixture
def source_file(tmp_path):
    path = tmp_path / "source.txt"
    path.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(LINES).encode())
    return path


def in_one_line(text):
    return text.replace("\r", " ")


def test_each_line_gives_a_line(translator, source_file, tmp_path, monkeypatch):
    output = tmp_path / "output.txt"
    clock = iter([1.0, 3.5])
    with monkeypatch.context() as patches:
        patches.setattr("fastattn.translation.translator.perf_counter", lambda: next(clock))
        stats = translator.translate_file(source_file, str(output), **SHORT)
    details = translator.translate(LINES, details=True, **SHORT)
    assert output.read_bytes().decode() == "".join(in_one_line(result.text) + "\n" for result in details)
    tokens = sum(len(part.tokens) for result in details for part in result.parts)
    assert isinstance(stats, ExecutionStats) and (stats.num_tokens, stats.num_examples) == (tokens, 5)
    assert stats.total_time_in_ms == 2500.0
    assert sorted(os.listdir(tmp_path)) == ["output.txt", "source.txt"]
    translator.translate_file(source_file, output, beam_size=1, **SHORT)  # which needs no scores
    greedy = translator.translate(LINES, beam_size=1, **SHORT)
    assert output.read_bytes().decode().split("\n") == [*map(in_one_line, greedy), ""]
    source_file.write_bytes(b"")
    stats = translator.translate_file(source_file, output)
    assert (stats.num_tokens, stats.num_examples) == (0, 0) and output.read_bytes() == b""


def test_prefixes_hypotheses_and_scores(translator, source_file, tmp_path):
    prefixes, output = tmp_path / "prefixes.txt", tmp_path / "output.txt"
    wished = [WORDS[9], "", "", WORDS[6], f"{WORDS[3]} {WORDS[3]}"]
    prefixes.write_text("\n".join(wished) + "\n", encoding="utf-8")
    options = SHORT | {"beam_size": 3, "num_hypotheses": 2}
    translator.translate_file(source_file, output, prefixes, with_scores=True, **options)
    expected = [
        f"{score:g} ||| {in_one_line(text)}"
        for result in translator.translate(LINES, target_prefix=wished, details=True, **options)
        for text, score in zip(result.hypotheses, result.scores)
    ]
    assert output.read_text(encoding="utf-8").split("\n") == [*expected, ""] and len(expected) == 10


def test_a_fault_leaves_what_was_there(translator, tmp_path):
    lines, output, begun = tmp_path / "source.txt", tmp_path / "output.txt", tmp_path / "prefixes.txt"
    for content, prefixes in [
        *((content, None) for content in (b"a\nb\xff\n", b"a\nb\0\n")),
        *((b"a\nb\nc\n", b"a\nb\n"), (b"a\n", b"a\nb\n"), (b"a\n", b"\xfe\n")),
    ]:
        lines.write_bytes(content)
        output.write_bytes(b"before")
        begun.write_bytes(prefixes or b"")
        with refused(InputError):
            translator.translate_file(lines, output, begun if prefixes else None, **SHORT)
        assert output.read_bytes() == b"before" and sorted(os.listdir(tmp_path)) == [
            output.name,
            begun.name,
            lines.name,
        ]


def test_what_cannot_be_opened_and_options_that_a_file_leaves_no_room_for(translator, source_file, tmp_path):
    output = tmp_path / "output.txt"
    paths = [(tmp_path / "nowhere", output), (source_file, tmp_path / "nowhere" / "output.txt")]
    paths += [(source_file, f"{tmp_path}/a\0b"), (0, output), (source_file, None)]
    wrong = [{"beam": 2}, {"details": True}, {"target_prefix": "a"}, {"return_exceptions": True}]
    wrong += [{"with_scores": True, "return_scores": False}]
    for (source_path, target), options in [
        *((pair, {}) for pair in paths),
        *(((source_file, output), one) for one in wrong),
    ]:
        with refused(InputError, *options):
            translator.translate_file(source_path, target, **options)
        assert os.listdir(tmp_path) == ["source.txt"]


@pytest.mark.parametrize("with_scores", [False, True])
def test_each_line_has_as_many_lines_however_few_its_hypotheses(translator, source_file, tmp_path, with_scores):
    """Few alternatives are as probable as this."""
    options = SHORT | {
        "beam_size": 1,
        "num_hypotheses": 4,
        "return_alternatives": True,
        "min_alternative_expansion_prob": 0.1,
    }
    found = [result.hypotheses for result in translator.translate(LINES, details=True, **options)]
    assert any(len(hypotheses) < 4 for hypotheses in found)
    translator.translate_file(source_file, tmp_path / "output.txt", with_scores=with_scores, **options)
    written = (tmp_path / "output.txt").read_bytes().decode().split("\n")[:-1]
    texts = [line.partition(" ||| ")[2] if with_scores and line else line for line in written]
    expected = [[*map(in_one_line, hypotheses), "", "", "", ""][:4] for hypotheses in found]
    assert [texts[first : first + 4] for first in range(0, len(texts), 4)] == expected


def test_lines_are_read_as_they_are_needed(translator, tmp_path, monkeypatch):
    source_file, output = tmp_path / "source.txt", tmp_path / "output.txt"
    source_file.write_text(f"{WORDS[4]}\n" * 1200, encoding="utf-8")
    read, seen, read_at_first = [], [], []
    original = files.as_text

    def watched(line, number, name):
        read.append(number)
        return original(line, number, name)

    def see(step):
        seen.append(step.sentence)
        read_at_first.append(len(read))

    monkeypatch.setattr(files, "as_text", watched)
    stats = translator.translate_file(source_file, output, beam_size=1, callback=see, max_decoding_length=1)
    assert stats.num_examples == len(read) == 1200 and sorted(seen) == list(range(1200))
    assert read_at_first[0] < 600
    assert output.read_text(encoding="utf-8").count("\n") == 1200
