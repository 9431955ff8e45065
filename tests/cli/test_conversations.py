"""Conversations with the command line: a line written, its answer read, another line; over pipes and what is like them.

A command that does not answer fails its test after a while.
"""

import contextlib
import json
import os
import socket
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from fastattn.translation.translator import Translator
from tests.cli.commands import running
from tests.encoders.test_encoder import _write_folder

pytestmark = pytest.mark.skipif(os.name != "posix", reason="POSIX pipes")

PATIENCE = 120  # seconds; a machine with no kernels compiles them first
LINES = ["▁w1 ▁w2", "", "▁w3 ▁w4 ▁w5"]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("encoder")
    _write_folder(path)
    return str(path)


def translating(model: str, *more: str) -> list[str]:
    return ["translate", "-m", model, "--max-length", "5", *more]


@pytest.fixture(scope="module")
def answers(model: str) -> list[bytes]:
    return [line.encode() + b"\n" for line in Translator(model).translate(LINES, max_decoding_length=5)]


def read(stdout: BinaryIO, lines: int = 1) -> list[bytes]:
    """So many lines, which come before long; 0: all that is left."""
    found = list[bytes]()
    reading = threading.Thread(
        target=lambda: found.extend([stdout.readline() for _ in range(lines)] or stdout.readlines()), daemon=True
    )
    reading.start()
    reading.join(PATIENCE)
    assert not reading.is_alive(), "no answer"
    return found


def converse(stdout: BinaryIO, write: Callable[[bytes], object], answers: list[bytes]) -> None:
    """Each line is answered before the next is written."""
    for line, answer in zip(LINES, answers):
        write(line.encode() + b"\n")
        assert read(stdout) == [answer]


@contextlib.contextmanager
def pipe(blocking: bool = True):
    """(what is the command's standard input, what writes to it, what ends it)."""
    reading, writing = os.pipe()
    os.set_blocking(reading, blocking)
    with open(writing, "wb", buffering=0) as stream:
        yield reading, stream.write, stream.close
    os.close(reading)


@contextlib.contextmanager
def connection():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield theirs.fileno(), ours.sendall, lambda: ours.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def terminal():
    controller, terminal = os.openpty()
    yield terminal, partial(os.write, controller), lambda: os.write(controller, b"\n\x04")
    os.close(terminal)
    os.close(controller)


# As some parents leave a pipe, it does not block: that nothing is there is not the end.
@pytest.mark.parametrize("channel", [pipe, partial(pipe, blocking=False), connection, terminal])
def test_a_line_is_answered_before_the_next_is_written(model: str, answers: list[bytes], channel: Any):
    whole = "\n".join(LINES).encode() + b"\n"
    with channel() as (stdin, write, end), running(*translating(model), stdin=stdin) as command:
        converse(command.stdout, write, answers)
        write(whole + whole[:5])  # what comes together is answered together, and half a line waits
        assert read(command.stdout, 3) == answers
        write(whole[5:] + LINES[0].encode())  # the last line need not end
        end()
        assert read(command.stdout, 0) == [*answers, answers[0]]
    assert command.code == 0


def test_a_fifo_as_a_file(model: str, answers: list[bytes], tmp_path: Path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with pipe() as (nothing, _, _), running(*translating(model, "-i", str(fifo)), stdin=nothing) as command:
        with open(fifo, "wb", buffering=0) as writing:
            converse(command.stdout, writing.write, answers)
        assert read(command.stdout, 0) == []
    assert command.code == 0


def test_vectors_come_line_by_line_too(encoder: str):
    with pipe() as (stdin, write, end), running("encode", "-m", encoder, stdin=stdin) as command:
        for text in ("the cat sat", "", "a dog"):
            write(text.encode() + b"\n")
            assert json.loads(read(command.stdout)[0])["text"] == text
        end()
        assert read(command.stdout, 0) == []
    assert command.code == 0


def test_the_lines_before_a_bad_one_come_out(model: str, encoder: str, tmp_path: Path):
    data = "".join(f"▁w{number % 16}\n" for number in range(300)).encode()
    for chosen in (translating(model, "-b", "1"), ["encode", "-m", encoder]):
        with open(tmp_path / "said", "w+b") as said, pipe() as (stdin, write, end):
            with running(*chosen, stdin=stdin, stderr=said.fileno()) as command:
                write(data + b"\xff\n" + data)
                end()
                assert len(read(command.stdout, 0)) == 300
            assert command.code == 2
            said.seek(0)
            assert b"fastattn: standard input, line 301: not UTF-8" in said.read().splitlines()[-1]
