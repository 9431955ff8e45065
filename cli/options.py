"""Options and checks that several commands share, and the layout of ``--help``.

Help lists options under headings, commands in the order of use, and every text whole.
"""

import contextlib
import gc
import os
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fastattn.cli.printing import Compilation, Progress, say
from fastattn.system.option_names import suggest_name

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from fastattn.weights.download.catalog import CatalogEntry
    from fastattn.weights.download.firefox import FirefoxModel

_Command = TypeVar("_Command", bound=Callable[..., Any])


class Option(click.Option):
    """An option that ``--help`` lists under a ``heading``."""

    def __init__(self, *arguments: Any, heading: str, **attributes: Any):
        super().__init__(*arguments, **attributes)
        self.heading = heading


class Command(click.Command):
    """A command whose options may have headings; options without a heading come first, as click's own do."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a section for each heading, in the order of each heading's first option."""
        sections: dict[str, list[tuple[str, str]]] = {DEFAULT_HEADING: []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and isinstance(parameter, click.Option):
                sections.setdefault(getattr(parameter, "heading", DEFAULT_HEADING), []).append(record)
        for heading, records in sections.items():
            with formatter.section(heading):
                formatter.write_dl(records)


class Group(click.Group):
    """A group of commands, listed in the order in which they were added, each with its whole first sentence."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Do as click does, with a hint for a misspelt name."""
        name, names = args[0], self.list_commands(ctx)
        if name not in names and not name.startswith("-"):
            raise click.UsageError(f"no command {name!r}{suggest_name(name, names)}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each command's whole summary, which click would cut to one line."""
        commands = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        rows = [(name, command.get_short_help_str(limit=1000)) for name, command in commands.items() if command]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


class _Text(click.ParamType):
    """Text in UTF-8 whatever the locale."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> str:
        try:
            return os.fsencode(value).decode()
        except UnicodeDecodeError:
            self.fail("expected UTF-8", param, context)


class _Model(click.ParamType):
    """A model's name or folder. The shell's completion offers names of the catalog, and folders."""

    name = "model"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
        from click.shell_completion import CompletionItem

        from fastattn.weights.download.catalog import CATALOG

        names = [CompletionItem(name) for name in CATALOG if name.startswith(incomplete)]
        return [CompletionItem(incomplete, type="dir"), *names]


TEXT = _Text()
DEFAULT_HEADING = "Options"  # the heading of options that have no other heading


def _option_lines(text: str) -> list[str]:
    return text.strip().replace("\n    ", " ").split("\n")


TYPES = {"TEXT": TEXT, "MODEL": _Model(), "INTEGER": click.INT, "FLOAT": click.FLOAT}
_SHARED_OPTIONS = {
    name: line
    for line in _option_lines("""
-m, --model MODEL: A name that `fastattn pull` lists, a folder, or OWNER/NAME on the Hugging Face hub.
--quality [tiny|base-memory|base]: Which of Firefox's models of two languages is preferred, from the fastest to the best
    (default: base).
-i, --input FILE -> input_path: Read lines from FILE; '-' is standard input, the default without TEXT.
-o, --output FILE -> output_path: Write to FILE, which appears once it is complete (default: standard output).
--split [long|sentences|never]: Which lines are split at sentences and joined again: those over the model's length, all,
    or none (default: sentences for a Marian checkpoint, else long).
-t, --threads INTEGER>=1: Use at most this many threads (default: all usable CPUs).
--device [cpu|cuda|auto]: Compute on the CPU, on an NVIDIA card (cuda; needs `pip install 'fastattn[cuda]'`), or on a
    card where there is one, else on the CPU (default: cpu).
--processes INTEGER>=1: Share the work among this many processes, with --threads each (default: 1 below 8 threads, else
    as many as the model needs).
--on-error [stop|skip|mark]: For a line that is not UTF-8, too long or over a timeout: stop the run, leave its place in
    the output empty, or write the reason there (default: stop).
--precision PRECISION: Precision of the model's matrix products (default: auto, which is int8 where the checkpoint holds
    int8, else float32).
--cache-precision [float32|bfloat16|int8|auto]: Precision of the keys and values that a language model keeps of each
    token (default: auto, which is float32 where --precision is, else bfloat16).
-v, --verbose: Print times and speed to stderr at the end.
""")
    for name in line.partition(":")[0].split()
}


def declare(text: str, **attributes: dict[str, Any]) -> Callable[[_Command], _Command]:
    """A decorator that gives a command the options in ``text``, one a line; indented lines continue an option.

        -t, --threads INTEGER>=1 -> parameter: Description. [default: 1]

    The word behind an option's names is one of TYPES, perhaps with a minimum, choices such as [a|b], or the metavar of
    a string; "..." behind the word: the option may be repeated. Without a word the option is a flag: its values are
    True and False, with ``--name/--no-name`` also None, with ``-> parameter=VALUE`` VALUE and None. A description may
    end in "[required]". ``--threads`` alone is the shared option of that name, ``--precision [a|b]`` a shared option
    with other choices. A line without "--" is the heading of the options that follow.

    attributes  parameter -> further arguments of click.option
    """
    options, heading = [], DEFAULT_HEADING
    for line in _option_lines(text):
        if "--" in line:
            options.append(_option(line, heading, attributes))
        else:
            heading = line

    def decorate(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def _option(line: str, heading: str, attributes: dict[str, dict[str, Any]]) -> Callable[[_Command], _Command]:
    """The decorator for an option's line, as ``declare`` describes it."""
    declaration, _, description = line.partition(": ")
    choices = ""
    if not description:  # a shared option
        declaration, _, choices = declaration.partition(" ")
        declaration, _, description = _SHARED_OPTIONS[declaration].partition(": ")
    declaration, _, parameter = declaration.partition(" -> ")
    names = [word.rstrip(",") for word in declaration.split() if word.startswith("-")]
    type_name, *ellipsis = choices.split() or [word for word in declaration.split() if not word.startswith("-")] or [""]
    parameter, _, value = parameter.partition("=")
    parameter = parameter or names[-1].lstrip("-").replace("-", "_")
    settings: dict[str, Any] = {"heading": heading, "multiple": bool(ellipsis)}
    if description.endswith(" [required]"):
        settings["required"], description = True, description.removesuffix(" [required]")
    elif description.endswith("]") and " [default: " in description:
        description, _, settings["default"] = description[:-1].rpartition(" [default: ")
        settings["show_default"] = True
    number_type, _, minimum = type_name.partition(">=")
    if value:
        settings |= {"is_flag": True, "default": None, "flag_value": {"True": True, "False": False}.get(value, value)}
    elif not type_name:
        settings |= {"default": None} if "/" in names[0] else {"is_flag": True}
    elif minimum:
        settings["type"] = {"INTEGER": click.IntRange, "FLOAT": click.FloatRange}[number_type](min=int(minimum))
    elif type_name.startswith("["):
        settings["type"] = click.Choice(type_name[1:-1].split("|"))
    else:
        settings |= {"type": TYPES[type_name]} if type_name in TYPES else {"metavar": type_name}
    settings |= attributes.get(parameter, {})
    return click.option(*names, *([] if "/" in names[0] else [parameter]), cls=Option, help=description, **settings)


def without_none(**options: Any) -> dict[str, Any]:
    """The options that are not None; for all others the API has defaults."""
    return {name: value for name, value in options.items() if value is not None}


def find_model(model: str, progress: Progress) -> str:
    """``model`` if it is a path, else the folder of the model with that name, which is downloaded if it is missing."""
    if os.path.exists(model):
        return model
    from fastattn.weights import download

    if (entry := download.find_model(model)) is not None:
        return find_entry(entry, progress)
    from fastattn.weights.download import hub

    return str(hub.fetch(model, bars=progress.enabled)) if hub.is_hub_name(model) else model


def announce_default(name: str, remark: str) -> None:
    """Say on a terminal which model is used by default; ``remark`` tells how another is chosen."""
    from fastattn.weights.download.catalog import CATALOG

    if sys.stderr is not None and sys.stderr.isatty():
        title = CATALOG[name].title.partition(" (")[0]
        say(f"fastattn: {name}, {title} ({remark})", err=True)


def find_encoder(model: str | None, progress: Progress) -> Path:
    """The folder of an encoder, of DEFAULT_ENCODER for None; a missing encoder is downloaded."""
    from fastattn.weights import download
    from fastattn.weights.download.catalog import CATALOG, DEFAULT_ENCODER

    if model is None:
        announce_default(DEFAULT_ENCODER, "-m chooses another")
    progress.show(f"loading {model or DEFAULT_ENCODER}")
    if model is not None:
        return download.resolve(find_model(model, progress))
    return download.resolve(find_entry(CATALOG[DEFAULT_ENCODER], progress))  # even if there is a folder of that name


def open_model(kind: str, model: str | None, progress: Progress, **options: Any) -> tuple[Any, Compilation]:
    """(an object of the public class ``kind``; the Compilation of its kernels).

    model    name or path; None: the default encoder
    options  arguments of the class; arguments that are None are left out
    """
    with pause_gc():
        path = find_encoder(model, progress)
        compilation = Compilation(progress)
        # The class is imported, and Numba with it, only after the model is found.
        constructor = getattr(import_module(_CLASSES[kind]), kind)
        return constructor(path, **without_none(**options)), compilation


_CLASSES = {
    "Captioner": "fastattn.vision.captioner",
    "CrossEncoder": "fastattn.encoders.cross_encoder",
    "Encoder": "fastattn.encoders.encoder",
    "Generator": "fastattn.generation.generator",
    "TextClassifier": "fastattn.encoders.text_classifier",
}


def find_entry(entry: "CatalogEntry | FirefoxModel", progress: Progress) -> str:
    """The folder of a model of the catalog or of Firefox; a missing model is announced and downloaded."""
    if entry.folder.is_dir():
        return str(entry.folder)
    from fastattn.weights.download.pull import is_offline

    if not is_offline():
        size = f"{entry.file_size / 1e6:.0f} MB"
        progress.clear()
        say(f"fastattn: fetching {entry.name}, {entry.title}; {size}, licence {entry.licence}", err=True)
    return str(fetch_entry(entry, progress))


def fetch_entry(entry: "CatalogEntry | FirefoxModel", progress: Progress) -> Path:
    """The folder of a model of the catalog or of Firefox; a missing model is downloaded, with progress shown."""
    from fastattn.weights.download import fetch

    def on_progress(done: int, total: int) -> None:
        progress.show(f"{entry.name}: {done / 1e6:,.1f} of {total / 1e6:,.1f} MB")

    folder = fetch(entry, on_progress)
    progress.clear()
    return folder


@contextlib.contextmanager
def pause_gc() -> Iterator[None]:
    """Stop the garbage collector in the block, and exclude the block's objects from all later collections.

    Imports and a model's construction make half a million objects and drop hardly any. Collections would take a sixth
    of a short command's time, part of it when Python ends.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()
