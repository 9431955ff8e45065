"""``--on-error`` and ``--timeout``: lines that fail beside others that do not, in every format, counted at the end."""

import json
import os
from pathlib import Path
from typing import BinaryIO
from unittest.mock import Mock

import numpy as np
import pytest

from fastattn.cli.lines import READ_BYTES, InputSource, PolledInput, ThreadedInput, arriving_lines, open_lines
from fastattn.errors import FastattnError
from fastattn.translation.translator import Translator
from tests.cli.commands import SHORT, run
from tests.messages import refused

DATA = "▁w1 ▁w2\n".encode() + b"\xff\n" + "▁w3\n".encode() + b"w\0\n" + b"x" * 200 + b"\n\n" + "▁w5\n".encode()
BAD = {1: "not UTF-8 (byte 0xff at column 1)", 3: "a NUL byte", 4: "longer than 100 bytes"}


@pytest.fixture(autouse=True)
def _short_lines(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("fastattn.system.files.LONGEST_LINE", 100)


def run_out(*arguments, stdin=DATA):
    """stdout's lines and the last line on stderr, of a run whose lines fail in part."""
    result = run(*arguments, stdin=stdin)
    assert result.exit_code == 5, (result.stderr, result.exception)
    return result.stdout_bytes.decode().split("\n")[:-1], result.stderr.splitlines()[-1]


TOLD = "fastattn: 3 of 7 lines were not {}, the first: standard input, line 2: not UTF-8 (byte 0xff at column 1); "


def test_translations_keep_their_places(model, tmp_path):
    texts = ["▁w1 ▁w2", "", "▁w3", "", "", "", "▁w5"]
    expected = Translator(model).translate(texts, max_decoding_length=5)
    common = ("translate", "-m", model, *SHORT, "--on-error")
    for choice in ("skip", "mark"):
        lines, told = run_out(*common, choice)
        assert told.startswith(TOLD.format("translated"))
        records = [json.loads(line) for line in run_out(*common, choice, "--json")[0]]
        assert [record["translation"] for record in records] == expected
        assert [record["source"] for record in records] == [*texts[:1], "\ufffd", *texts[2:3], "w\0", *texts[4:]]
        assert [bool(record["hypotheses"]) for record in records] == [number not in BAD for number in range(7)]
        for number, (line, record) in enumerate(zip(lines, records, strict=True)):
            marked = choice == "mark" and number in BAD
            reason = f"standard input, line {number + 1}: {BAD.get(number)}"
            assert line.startswith(f"[not translated: {reason}") if marked else line == expected[number]
            assert record["error"].startswith(reason) if marked else "error" not in record
    (tmp_path / "in.txt").write_bytes(DATA)
    run_out(*common, "skip", "-i", tmp_path / "in.txt", "-o", tmp_path / "out.txt")
    assert (tmp_path / "out.txt").read_text("utf-8").split("\n") == [*expected, ""], "what was asked for is there"
    many, _ = run_out(*common, "skip", "-n", 2, "--scores")
    assert [line.split("\t")[0] for line in many] == [*"112334566", "7", "7"]
    assert many[2] == "2\tnan\t"


def test_vectors_keep_their_places(encoder, tmp_path):
    texts = ["▁w1 ▁w2", "▁w3", "", "▁w5"]
    vectors, good = encoder.encode(texts), [number for number in range(7) if number not in BAD]
    for choice in ("skip", "mark"):
        for form, read in (("npy", np.load), ("csv", lambda path: np.loadtxt(path, np.float32, delimiter=","))):
            path = tmp_path / f"{choice}.{form}"
            told = run_out("encode", "-m", "any", "--on-error", choice, "-o", path)[1]
            assert told.startswith(TOLD.format("encoded"))
            rows = read(path)
            assert rows.shape == (7, encoder.dimension) and np.isnan(rows[[*BAD]]).all()
            np.testing.assert_allclose(rows[good], vectors, atol=1e-6)
        lines, _ = run_out("encode", "-m", "any", "--on-error", choice)
        records = [json.loads(line) for line in lines]
        assert [record["embedding"] is None for record in records] == [number in BAD for number in range(7)]
        told = [number in BAD and choice == "mark" for number in range(7)]
        assert [("error" in record) for record in records] == told


def test_a_line_over_its_time(model, monkeypatch):
    """Each step takes a second of the clock's here; with a beam, since greedy ones may run several at once."""
    ticks = iter(range(1_000_000))
    monkeypatch.setattr("fastattn.decoding.worker.monotonic", lambda: float(next(ticks)))
    common = ("translate", "-m", model, "-b", 2, "--min-length", 9, "--max-length", 9, "--timeout", 2)
    lines, told = run_out(*common, "--on-error", "mark", "▁w1", "")
    message = "argument, line 1: the search took longer than the timeout of 2 s"
    assert lines == [f"[not translated: {message}]", ""]
    assert told == f"fastattn: 1 of 2 lines was not translated, the first: {message}"
    result = run(*common, "", "▁w1", "▁w2")
    assert (result.exit_code, result.stdout) == (5, "\n")
    assert result.stderr.splitlines()[-1] == "fastattn: " + message.replace("line 1", "line 2")
    assert run(*common, "--timeout", 100, "▁w1").exit_code == 0


# What arrives --------------------------------------------------------------------------------------------------


@pytest.fixture(params=[PolledInput, ThreadedInput])
def piped(request):
    """A pipe's end to write to, and a Source that reads the other."""
    if request.param is PolledInput and os.name != "posix":
        pytest.skip("descriptors cannot be asked")
    reading, writing = os.pipe()
    with open(writing, "wb", buffering=0) as ours, open(reading, "rb") as theirs:
        yield ours, request.param(theirs)


def test_pauses_are_where_nothing_is_there(piped: tuple[BinaryIO, InputSource]):
    pipe, source = piped
    lines = arriving_lines(source, "here")
    pipe.write(b"one\ntwo\nthr")
    assert [next(lines) for _ in range(3)] == [b"one\n", b"two\n", None]
    pipe.write(b"ee\n\n")
    assert [next(lines) for _ in range(3)] == [b"three\n", b"\n", None]
    pipe.write(b"x" * 70)
    pipe.write(b"y" * 70)
    assert next(lines) == b"x" * 70 + b"y" * 70
    pipe.write(b"z" * 500)
    pipe.write(b"\nfour\nfive")
    pipe.close()
    assert [line for line in lines if line is not None] == [b"four\n", b"five"]


def test_a_line_without_an_end_is_known_to_be_too_long_at_once(piped: tuple[BinaryIO, InputSource]):
    pipe, source = piped
    lines = arriving_lines(source, "here")
    pipe.write(b"x" * 101)
    assert next(lines) == b"x" * 101, "its end has not come"
    assert next(lines) is None
    pipe.write(b"x" * 300 + b"\na\n")
    assert next(lines) == b"a\n"
    pipe.close()
    assert [line for line in lines if line is not None] == []


@pytest.mark.parametrize("piped", [PolledInput], indirect=True)  # a thread may be late
def test_whoever_sends_fast_is_read_without_a_pause(piped: tuple[BinaryIO, InputSource]):
    """There is always more: the pipe is filled again whenever a part of it has been worked on."""
    pipe, source = piped
    os.set_blocking(pipe.fileno(), False)
    line = b"a line of 16 B.\n"
    pipe.write(line * READ_BYTES)
    bursts = []
    lines = arriving_lines(source, "here")
    for number, arrived in zip(range(40_000), lines):
        bursts.append(arrived is None)
        if number % 100 == 0:
            pipe.write(line * 100)
    assert sum(bursts) == 0
    pipe.close()
    assert {*lines} <= {line, None}


def test_a_fault_is_named():
    torn = Mock(read=Mock(side_effect=OSError(5, "Input/output error")))
    with refused(FastattnError):
        next(arriving_lines(torn, "here"))


def test_a_file_is_never_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("fastattn.cli.lines.arriving_lines", pytest.fail)
    (tmp_path / "in.txt").write_bytes(b"a\nb\n")
    bursts = [list(burst) for burst in open_lines((), str(tmp_path / "in.txt")).bursts()]
    assert bursts == [["a", "b"]]
