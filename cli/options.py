"""Options and checks that several commands share."""

import os
from pathlib import Path
from typing import Any

import click

from fastattn.cli.progress import Progress
from fastattn.errors import InputError

model_option = click.option(
    "-m", "--model", metavar="MODEL", help="A name of the catalog, a folder, or OWNER/NAME of the Hugging Face hub."
)
input_option = click.option(
    "-i", "--input", "input_path", metavar="FILE", help="Read lines from FILE ('-': standard input)."
)
threads_option = click.option(
    "-t", "--threads", type=click.IntRange(min=1), help="Use at most so many threads (default: all CPUs)."
)
precision_option = click.option(
    "--precision",
    type=click.Choice(["float32", "bfloat16", "int8", "auto"]),
    help="Of the products (default: auto, which is int8 where the checkpoint holds int8, else float32).",
)
verbose_option = click.option("-v", "--verbose", is_flag=True, help="Print times and speed to stderr at the end.")


def given(**options: Any) -> dict[str, Any]:
    """The options that were given; the API's defaults hold for the others."""
    return {name: value for name, value in options.items() if value is not None}


def require_model(model: str | None, kind: str) -> str:
    """``model``, or an InputError that lists the catalog's models of this kind."""
    if model:
        return model
    from fastattn.weights.catalog import CATALOG

    names = [f"{name} ({entry.title})" for name, entry in CATALOG.items() if entry.kind == kind]
    raise InputError(f"choose a model with -m: a folder, or one of the catalog: {', '.join(names)}")


def located(model: str, progress: Progress) -> str:
    """``model`` itself, or the folder of a catalog's checkpoint or of a model of the hub, fetched now if need be."""
    from fastattn.weights import hub
    from fastattn.weights.catalog import CATALOG

    if not os.path.exists(model) and model not in CATALOG and hub.is_hub_name(model):
        return str(hub.fetch(model, bars=progress.enabled))
    if os.path.exists(model) or model not in CATALOG or CATALOG[model].folder.is_dir():
        return model
    from fastattn.weights.pull import is_offline

    if not is_offline():
        click.echo(f"fastattn: fetching {model}, {CATALOG[model].title}; licence {CATALOG[model].licence}", err=True)
    return str(fetched(model, progress))


def fetched(name: str, progress: Progress) -> Path:
    """The folder of the catalog's checkpoint ``name``; a download shows how far it is."""
    from fastattn.weights.pull import pull

    def received(done: int, total: int) -> None:
        progress.show(f"{name}: {done / 1e6:,.1f} of {total / 1e6:,.1f} MB")

    return pull(name, received)
