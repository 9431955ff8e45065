"""Runs commands of the command line in this process."""

import os

from click.testing import CliRunner

from fastattn.cli.entry import commands


def run(*arguments, stdin=b""):
    """Arguments come as a terminal's bytes do, whatever the locale makes of them."""
    return CliRunner().invoke(commands, [os.fsdecode(str(argument).encode()) for argument in arguments], input=stdin)


def succeed(*arguments, stdin=b""):
    result = run(*arguments, stdin=stdin)
    assert result.exit_code == 0, (result.stderr, result.exception)
    return result.stdout_bytes.decode()


def fail(code, *arguments, stdin=b""):
    """The one line on stderr of a command that fails with this exit code."""
    result = run(*arguments, stdin=stdin)
    assert (result.exit_code, type(result.exception)) == (code, SystemExit)
    assert "Traceback" not in result.stderr
    lines = [line for line in result.stderr.splitlines() if not line.startswith("fastattn: compiling kernels")]
    assert len(lines) == 1 and lines[0].startswith("fastattn: "), result.stderr
    return lines[0].removeprefix("fastattn: ")


SHORT = ("--max-length", "5")
