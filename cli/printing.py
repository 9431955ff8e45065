"""The one way that names, paths, texts of checkpoints and reasons reach a terminal; results have ``output``."""

import traceback

import click

from fastattn.printable import printable


def say(text: str = "", err: bool = False) -> None:
    """A line on stdout, or on stderr; what a terminal would act on, line ends included, is made visible."""
    click.echo(printable(text), err=err)


def say_traceback(error: BaseException) -> None:
    """What Python would print of an error, and of those that led to it, on stderr."""
    for line in "".join(traceback.format_exception(error)).rstrip("\n").split("\n"):
        say(line, err=True)
