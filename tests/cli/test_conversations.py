"""Conversations with the command line: a line written, its answer read, another line; over pipes and what is like them.

Each is a process of its own; one that does not answer is killed, so that a stalled conversation fails.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from fastattn.translation.translator import Translator
from tests.encoders.test_encoder_checkpoints import _write_folder

pytestmark = pytest.mark.skipif(os.name != "posix", reason="POSIX pipes")

COMMAND = [sys.executable, "-m", "fastattn.cli"]
PATIENCE = 120  # seconds; a machine with no kernels compiles them first
LINES = ["▁w1 ▁w2", "", "▁w3 ▁w4 ▁w5"]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("encoder")
    _write_folder(path)
    return str(path)


@contextlib.contextmanager
def started(*arguments: str, **options):
    """A command whose output is read; it is killed where it takes too long to answer."""
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, start_new_session=True, **options) as process:
        killer = threading.Timer(PATIENCE, os.killpg, (process.pid, signal.SIGKILL))
        killer.start()
        try:
            yield process
            process.wait()
        finally:
            killer.cancel()
            process.kill()


def translating(model: str, *more: str) -> list[str]:
    return [*COMMAND, "translate", "-m", model, "--max-length", "5", *more]


@pytest.fixture(scope="module")
def answers(model: str) -> list[bytes]:
    return [line.encode() + b"\n" for line in Translator(model).translate(LINES, max_decoding_length=5)]


def converse(process: subprocess.Popen, write: Callable[[bytes], object], answers: list[bytes]) -> None:
    """Each line is answered before the next is written."""
    for line, answer in zip(LINES, answers):
        write(line.encode() + b"\n")
        assert process.stdout.readline() == answer


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


# As some parents leave a pipe, it does not block: that nothing is there is not the end.
@pytest.mark.parametrize("channel", [pipe, lambda: pipe(blocking=False), connection], ids=["pipe", "not", "socket"])
def test_a_line_is_answered_before_the_next_is_written(model: str, answers: list[bytes], channel: Callable):
    with channel() as (stdin, write, end), started(*translating(model), stdin=stdin) as process:
        converse(process, write, answers)
        write(LINES[0].encode())  # the last line need not end
        end()
        assert process.stdout.read() == answers[0]
    assert process.returncode == 0


def test_what_comes_together_is_answered_together_and_half_a_line_waits(model: str, answers: list[bytes]):
    whole = "\n".join(LINES).encode() + b"\n"
    with pipe() as (stdin, write, end), started(*translating(model), stdin=stdin) as process:
        write(whole + whole[:5])
        assert [process.stdout.readline() for _ in LINES] == answers
        write(whole[5:])
        end()
        assert process.stdout.read() == b"".join(answers)
    assert process.returncode == 0


def test_a_fifo_as_a_file(model: str, answers: list[bytes], tmp_path: Path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with started(*translating(model, "-i", str(fifo))) as process:
        with open(fifo, "wb", buffering=0) as writing:
            converse(process, writing.write, answers)
        assert process.stdout.read() == b""
    assert process.returncode == 0


def test_a_terminal(model: str, answers: list[bytes]):
    """Lines that are pasted at once too."""
    controller, terminal = os.openpty()
    with started(*translating(model), stdin=terminal, stderr=subprocess.DEVNULL) as process:
        os.close(terminal)
        converse(process, partial(os.write, controller), answers)
        os.write(controller, "\n".join([*LINES, ""]).encode())
        assert [process.stdout.readline() for _ in LINES] == answers
        os.write(controller, b"\x04")
        assert process.stdout.read() == b""
    os.close(controller)
    assert process.returncode == 0


def test_tail_that_follows_a_file(model: str, answers: list[bytes], tmp_path: Path):
    log = tmp_path / "log"
    log.write_text(LINES[0] + "\n", encoding="utf-8")
    with subprocess.Popen(["tail", "-f", str(log)], stdout=subprocess.PIPE) as tail:
        with started(*translating(model), stdin=tail.stdout) as process, open(log, "ab", buffering=0) as growing:
            for number, answer in enumerate(answers):
                assert process.stdout.readline() == answer
                if number + 1 < len(LINES):
                    growing.write(LINES[number + 1].encode() + b"\n")
            tail.kill()
            assert process.stdout.read() == b""
        assert process.returncode == 0


@pytest.mark.skipif(not os.path.exists("/bin/bash"), reason="no bash here")
def test_a_coprocess_of_bash(model: str, answers: list[bytes]):
    script = """
coproc TRANSLATE { "$@"; }
for line in "▁w1 ▁w2" "▁w3 ▁w4 ▁w5"; do
  echo "$line" >&"${TRANSLATE[1]}"
  IFS= read -r answer <&"${TRANSLATE[0]}" && printf '%s\\n' "$answer"
done
"""
    with started("/bin/bash", "-c", script.encode(), "bash", *translating(model)) as process:
        assert process.stdout.read() == answers[0] + answers[2]


def test_vectors_come_line_by_line_too(encoder: str):
    with started(*COMMAND, "encode", "-m", encoder, stdin=subprocess.PIPE) as process:
        for text in ("the cat sat", "", "a dog"):
            process.stdin.write(text.encode() + b"\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["text"] == text
        process.stdin.close()
        assert process.stdout.read() == b""
    assert process.returncode == 0


@pytest.mark.parametrize("command", ["translate", "encode"])
def test_the_lines_before_a_bad_one_come_out(model: str, encoder: str, command: str):
    chosen = translating(model, "-b", "1") if command == "translate" else [*COMMAND, "encode", "-m", encoder]
    data = "".join(f"▁w{number % 16}\n" for number in range(300)).encode()
    with started(*chosen, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        stdout, stderr = process.communicate(data + b"\xff\n" + data)
    assert process.returncode == 2
    assert stderr.decode().splitlines()[-1].startswith("fastattn: standard input, line 301: not UTF-8")
    assert stdout.count(b"\n") == 300
