"""Pages that MkDocs makes while it builds the site: the reference of commands is what their ``--help`` prints."""

from collections.abc import Iterator
from typing import Any

import click

from fastattn.cli.entry import commands

WIDTH = 100  # columns of the help


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The page of commands, behind what its file says; other pages as they are."""
    if page.file.src_uri != "reference/commands.md":
        return markdown
    context = click.Context(commands, info_name="fastattn", terminal_width=WIDTH, max_content_width=WIDTH)
    return "\n\n".join([markdown, *_sections(commands, context)])


def _sections(command: click.Command, context: click.Context) -> Iterator[str]:
    """A section for each command, those of a group behind it."""
    yield f"## {context.command_path}\n\n```text\n{command.get_help(context)}\n```"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None, name
            yield from _sections(below, click.Context(below, context, name))
