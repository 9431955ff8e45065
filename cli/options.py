"""Options and checks that several commands share, and how ``--help`` lays them out.

Options stand under headings of their own, commands in the order of use, nothing is cut short.
"""

import contextlib
import gc
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fastattn.cli.printing import Compiling, Progress, say
from fastattn.system.option_names import what_was_meant

if TYPE_CHECKING:
    from fastattn.weights.download.catalog import CatalogEntry
    from fastattn.weights.download.firefox import FirefoxModel

_Command = TypeVar("_Command", bound=Callable[..., Any])


def with_options(*options: Callable[..., Any]) -> Callable[[_Command], _Command]:
    """A decorator that gives a command options of ``click.option``, or arguments, in the order of its help."""

    def decorate(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


class Option(click.Option):
    """An option that ``--help`` lists under a ``heading``."""

    def __init__(self, *arguments: Any, heading: str, **attributes: Any):
        super().__init__(*arguments, **attributes)
        self.heading = heading


class Command(click.Command):
    """A command whose options may have headings; those without one come first, as click's own."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """One section a heading, in the order in which each first comes."""
        sections: dict[str, list[tuple[str, str]]] = {"Options": []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and isinstance(parameter, click.Option):
                sections.setdefault(getattr(parameter, "heading", "Options"), []).append(record)
        for heading, records in sections.items():
            with formatter.section(heading):
                formatter.write_dl(records)


class Group(click.Group):
    """A group of commands, listed in the order in which they were added, each with the whole of its first sentence."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands' names."""
        return list(self.commands)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """As click's, but for a name that is misspelt."""
        name, known = args[0], self.list_commands(ctx)
        if name not in known and not name.startswith("-"):
            raise click.UsageError(f"no command {name!r}{what_was_meant(name, known)}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Each command's summary, which click itself would end in "..." where it is longer than a line."""
        commands = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        rows = [(name, command.get_short_help_str(limit=1000)) for name, command in commands.items() if command]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


class _Text(click.ParamType):
    """Text, UTF-8 whatever the locale, like the arguments to translate."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> str:
        try:
            return os.fsencode(value).decode()
        except UnicodeDecodeError:
            self.fail("expected UTF-8", param, context)


TEXT = _Text()
model_option = click.option(
    "-m",
    "--model",
    metavar="MODEL",
    help="A name that `fastattn pull` lists, a folder, or OWNER/NAME on the Hugging Face hub.",
)
quality_option = click.option(
    "--quality",
    type=click.Choice(["tiny", "base-memory", "base"]),
    help="Which of Firefox's models of two languages is preferred, from the fastest to the best (default: base).",
)
input_option = click.option(
    "-i",
    "--input",
    "input_path",
    metavar="FILE",
    help="Read lines from FILE; '-' is standard input, the default without TEXT.",
)
output_option = click.option(
    "-o",
    "--output",
    "output_path",
    metavar="FILE",
    help="Write to FILE, which appears once it is complete (default: standard output).",
)
threads_option = click.option(
    "-t", "--threads", type=click.IntRange(min=1), help="Use at most this many threads (default: all usable CPUs)."
)
device_option = click.option(
    "--device",
    type=click.Choice(["cpu", "cuda", "auto"]),
    help="Compute on the CPU, on an NVIDIA card (cuda; needs `pip install 'fastattn[cuda]'`), or on a card where there "
    "is one, else on the CPU (default: cpu).",
)
processes_option = click.option(
    "--processes",
    type=click.IntRange(min=1),
    help="Share the work among this many processes, with --threads each (default: 1 below 8 threads, else as many as "
    "the model needs).",
)
on_error_option = click.option(
    "--on-error",
    type=click.Choice(["stop", "skip", "mark"]),
    default="stop",
    help="For a line that is not UTF-8, too long or over a timeout: stop the run, leave its place in the output "
    "empty, or write the reason there (default: stop).",
)


def precision_option(*precisions: str) -> Callable[[_Command], _Command]:
    """``--precision`` with these choices."""
    return click.option(
        "--precision",
        type=click.Choice(precisions),
        help="Precision of the model's matrix products (default: auto, which is int8 where the checkpoint holds int8, "
        "else float32).",
    )


cache_precision_option = click.option(
    "--cache-precision",
    type=click.Choice(["float32", "bfloat16", "int8", "auto"]),
    help="Precision of the keys and values that a language model keeps of each token (default: auto, which is float32 "
    "where --precision is, else bfloat16).",
)
verbose_option = click.option("-v", "--verbose", is_flag=True, help="Print times and speed to stderr at the end.")


def given(**options: Any) -> dict[str, Any]:
    """The options that were given; the others keep the API's defaults."""
    return {name: value for name, value in options.items() if value is not None}


def located(model: str, progress: Progress) -> str:
    """``model`` itself if it is a path, else the folder of the model of that name, downloaded if need be."""
    if os.path.exists(model):
        return model
    from fastattn.weights.download import named

    if (entry := named(model)) is not None:
        return located_entry(entry, progress)
    from fastattn.weights.download import hub

    return str(hub.fetch(model, bars=progress.enabled)) if hub.is_hub_name(model) else model


def announce_default(name: str, remark: str) -> None:
    """Say on a terminal which default checkpoint is used, and how to choose another."""
    from fastattn.weights.download.catalog import CATALOG

    if sys.stderr is not None and sys.stderr.isatty():
        title = CATALOG[name].title.partition(" (")[0]
        say(f"fastattn: {name}, {title} ({remark})", err=True)


def located_encoder(model: str | None, progress: Progress) -> Path:
    """The folder of an encoder's model, or of the default one."""
    from fastattn.weights import download
    from fastattn.weights.download import catalog

    if model is None:
        announce_default(catalog.DEFAULT_ENCODER, "-m chooses another")
    progress.show(f"loading {model or catalog.DEFAULT_ENCODER}")
    if model is not None:
        return download.resolve(located(model, progress))
    return download.resolve(located_name(catalog.DEFAULT_ENCODER, progress))  # not a folder of that name


def open_model(kind: str, model: str | None, progress: Progress, **options: Any) -> tuple[Any, Compiling]:
    """(an object of the public class ``kind``, what was compiled for it); None: the default encoder's.

    options  of the class; None for each that is not given
    """
    with loading():
        path = located_encoder(model, progress)
        compiling = Compiling(progress)
        return _imported(kind)(path, **given(**options)), compiling


def _imported(kind: str) -> Any:
    """A public class, which is imported only after its model is found: Numba comes with it."""
    if kind == "CrossEncoder":
        from fastattn.encoders.cross_encoder import CrossEncoder

        return CrossEncoder
    if kind == "TextClassifier":
        from fastattn.encoders.text_classifier import TextClassifier

        return TextClassifier
    if kind == "Captioner":
        from fastattn.vision.captioner import Captioner

        return Captioner
    if kind == "Generator":
        from fastattn.generation.generator import Generator

        return Generator
    from fastattn.encoders.encoder import Encoder

    return Encoder


def located_name(name: str, progress: Progress) -> str:
    """The folder of the catalog's checkpoint ``name``; a download is announced."""
    from fastattn.weights.download.catalog import CATALOG

    return located_entry(CATALOG[name], progress)


def located_entry(entry: "CatalogEntry | FirefoxModel", progress: Progress) -> str:
    """The folder of a model of the catalog or of Firefox; a download is announced."""
    if entry.folder.is_dir():
        return str(entry.folder)
    from fastattn.weights.download.pull import is_offline

    if not is_offline():
        size = f"{entry.file_size / 1e6:.0f} MB"
        progress.clear()
        say(f"fastattn: fetching {entry.name}, {entry.title}; {size}, licence {entry.licence}", err=True)
    return str(fetched(entry, progress))


def fetched(entry: "CatalogEntry | FirefoxModel", progress: Progress) -> Path:
    """The folder of a model of the catalog or of Firefox; a download shows its progress."""
    from fastattn.weights.download import fetch

    def received(done: int, total: int) -> None:
        progress.show(f"{entry.name}: {done / 1e6:,.1f} of {total / 1e6:,.1f} MB")

    folder = fetch(entry, received)
    progress.clear()
    return folder


@contextlib.contextmanager
def loading() -> Iterator[None]:
    """Keep the garbage collector out of starting and ending: it would take a sixth of a short command's time.

    Imports and a model's construction belong inside: half a million objects, hardly one of which is dropped.

    The collector rests meanwhile and never looks at them again, neither later nor when Python ends; what is made
    afterwards it looks after as ever.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()
