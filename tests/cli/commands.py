"""Runs commands of the command line in this process."""

import contextlib
import os
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from click.testing import CliRunner

from fastattn.cli.entry import commands
from tests.messages import check


def run(*arguments, stdin=b""):
    """Arguments come as a terminal's bytes do, whatever the locale makes of them."""
    return CliRunner().invoke(commands, [os.fsdecode(str(argument).encode()) for argument in arguments], input=stdin)


def succeed(*arguments, stdin=b""):
    result = run(*arguments, stdin=stdin)
    assert result.exit_code == 0, (result.stderr, result.exception)
    return result.stdout_bytes.decode()


def told(stderr):
    """The lines on stderr, but for what the first run on a machine begins with."""
    return [line for line in stderr.splitlines() if not line.startswith("fastattn: compiling kernels")]


def fail(code, *arguments, stdin=b""):
    """The one line on stderr of a command that fails with this exit code."""
    result = run(*arguments, stdin=stdin)
    assert (result.exit_code, type(result.exception)) == (code, SystemExit)
    assert "Traceback" not in result.stderr
    lines = told(result.stderr)
    assert len(lines) == 1 and lines[0].startswith("fastattn: "), result.stderr
    return lines[0].removeprefix("fastattn: ")


def refuse(code, *arguments, stdin=b""):
    """A command fails with this exit code, and its line is the one that the golden file has."""
    check(fail(code, *arguments, stdin=stdin))


@contextlib.contextmanager
def running(*arguments: Any, stdin: int, stderr: int | None = None) -> Iterator[SimpleNamespace]:
    """A command in a thread, with real files: ``stdout`` to read what it writes; at the end its ``code``.

    stdin, stderr  descriptors, which stay the caller's; None: nothing reads it
    """
    reading, writing = os.pipe()
    command = SimpleNamespace(stdout=open(reading, "rb"), code=None)

    def run_it() -> None:
        try:
            commands.main([str(argument) for argument in arguments], "fastattn")
        except SystemExit as end:
            command.code = end.code
        finally:
            given["stdout"].close()

    given = {
        "stdin": open(stdin, encoding="utf-8", closefd=False),
        "stdout": open(writing, "w", encoding="utf-8"),
        "stderr": open(os.open(os.devnull, os.O_WRONLY), "w") if stderr is None else open(stderr, "w", closefd=False),
    }
    thread = threading.Thread(target=run_it, daemon=True)
    with mock.patch.multiple(sys, **given):
        thread.start()
        command.is_running = thread.is_alive
        yield command
        thread.join(60)
        assert not thread.is_alive(), "the command did not end"
    for stream in (command.stdout, given["stdin"], given["stderr"]):
        stream.close()


def words(line: str) -> list[str]:
    """A command's words; operators of the shell are words of their own, comments are left out."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|<>&;")
    lexer.whitespace_split = True
    return list(lexer)


def run_line(line: str) -> str:
    """What a line of a shell's writes to stdout: run in this process, or by a shell where it has pipes and the like."""
    split = words(line)
    if split[0] != "fastattn" or any(re.fullmatch(r"[|<>&;]+", word) for word in split):
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        command, environment = ["bash", "-c", line], os.environ | {"PATH": path}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, (line, done.stderr)
        return done.stdout
    result = CliRunner().invoke(commands, split[1:])
    assert result.exit_code == 0, (line, result.stderr, result.exception)
    return result.stdout


SHORT = ("--max-length", "5")
