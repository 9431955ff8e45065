"""How ``--help`` is laid out: options under headings of their own, commands in the order of use, nothing cut short."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from fastattn.system.option_names import what_was_meant

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
