"""Prints names, paths, texts from checkpoints and reasons to the terminal; results go through ``output``."""

import click

from fastattn.printable import printable


def say(text: str = "", err: bool = False) -> None:
    """Print a line on stdout or stderr, with control characters, line ends included, escaped."""
    click.echo(printable(text), err=err)


def quoted(text: str) -> str:
    """A text as JSON."""
    import json  # where it is asked for: 1 ms

    return json.dumps(text, ensure_ascii=False)


def say_traceback(error: BaseException) -> None:
    """Print an error's traceback, and those of its causes, on stderr."""
    import traceback  # slow to import, and rarely needed

    for line in "".join(traceback.format_exception(error)).rstrip("\n").split("\n"):
        say(line, err=True)
