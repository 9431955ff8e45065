"""Pages that MkDocs makes while it builds the site: what commands print as help, and results of benchmarks."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from mkdocs.structure.files import File, Files

from fastattn.cli.entry import commands

WIDTH = 100  # columns of the help
RESULTS = Path(__file__).parent.parent / "bench" / "results"


def on_files(files: Files, config: Any) -> Files:
    """Add the results, which stand beside the benchmark that writes them."""
    for path in sorted(RESULTS.rglob("*")):
        if path.suffix in (".md", ".svg"):
            uri = f"results/{path.relative_to(RESULTS).as_posix()}"
            files.append(File.generated(config, uri, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The page's text: links to results lead to their pages, and the page of commands has their help."""
    markdown = markdown.replace("](../bench/results/", "](results/")
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
