"""``fastattn languages``: lists the pairs of languages that models of the catalog and of Firefox translate."""

import click

from fastattn.cli.options import declare
from fastattn.cli.printing import as_json, say
from fastattn.printable import counted


@click.command(
    epilog="""\b
Examples:
  fastattn languages
  fastattn languages --json | jq -r .source
  fastattn translate --from de --to fr "Guten Morgen"

\b
A line is a pair of codes, the languages, and which models there are: the
catalog's, or Firefox's by their qualities, with * for those that Firefox has
not released. What is on this machine is marked "here". Every other pair of
these languages goes through English, by two models.

\b
Firefox's models are Mozilla's list, which is kept for a day;
FASTATTN_FIREFOX_MODELS is the address of another one of its form.
"""
)
@declare("--json: Write one JSON object a line: source, target, models, here.")
def languages(json: bool) -> None:
    """List the languages that models translate between."""
    from fastattn.errors import DownloadError
    from fastattn.text.languages import name_of
    from fastattn.weights.download.catalog import CATALOG
    from fastattn.weights.download.firefox import listed_models

    failure = None
    pairs: dict[tuple[str, str], list[tuple[str, bool]]] = {}
    for entry in CATALOG.values():
        if entry.languages:
            pairs.setdefault(entry.languages, []).append(("catalog", entry.folder.is_dir()))
    try:
        for model in listed_models():
            name = model.architecture + "*" * (not model.released)
            pairs.setdefault((model.source, model.target), []).append((name, model.folder.is_dir()))
    except DownloadError as error:
        failure = error
    for (source, target), models in sorted(pairs.items()):
        names, has_local = [name for name, _ in models], any(is_local for _, is_local in models)
        if json:
            say(as_json({"source": source, "target": target, "models": names, "here": has_local}))
        else:
            pair = f"{name_of(source)} to {name_of(target)}"
            say(f"{f'{source}-{target}':<12} {pair:<40} {', '.join(names)}{', here' * has_local}")
    if failure is not None:
        raise failure
    codes = {code for pair in pairs for code in pair}
    say(f"{counted(len(codes), 'language')}, {counted(len(pairs), 'pair')}; others go through English", err=True)
