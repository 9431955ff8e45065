"""From a name, or two languages, to a checkpoint's folder: the catalog, Firefox's models, the Hugging Face hub."""

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from fastattn.errors import CheckpointError, DownloadError, InputError, check_text, warn
from fastattn.weights.download.catalog import CATALOG, PAIR, CatalogEntry, name_hint, translation_between

if TYPE_CHECKING:
    from fastattn.weights.download.firefox import FirefoxModel
    from fastattn.weights.download.pull import Progress


def resolve(name_or_path: str | os.PathLike[str]) -> Path:
    """The folder or file of a checkpoint. A name that is no existing path is downloaded unless the cache has it.

    A name is an entry of the catalog, a pair of languages such as de-en (Firefox's model), or OWNER/NAME on the Hugging
    Face hub. Warns of a str that is both a path and a catalog name. Raises InputError for a wrong type, CheckpointError
    for an unknown name, DownloadError if the download fails.
    """
    if not isinstance(name_or_path, str | os.PathLike):
        raise InputError(f"a checkpoint's path or name should be a str or a path, got {type(name_or_path).__name__}")
    name = os.fspath(name_or_path)
    if name and os.path.exists(name):
        if name_or_path in CATALOG:
            warn(f"{name} here hides the catalog's {name} and is read instead; ./{name} does so without a warning")
        return Path(name)
    if name not in CATALOG:
        from fastattn.weights.download import hub  # not at the top: hub imports several exporters, which takes 11 ms

        if isinstance(name_or_path, str) and hub.is_hub_name(name):
            return hub.fetch(name)
    model = find_model(name)
    if model is None:
        raise CheckpointError(
            f"no checkpoint {name!r}: neither an existing path nor in the catalog ({', '.join(CATALOG)})"
            + name_hint(name)
        )
    return fetch(model)


def find_model(name: str) -> "CatalogEntry | FirefoxModel | None":
    """The model ``name`` of the catalog, or Firefox's model of a pair such as de-en; None where there is none.

    Raises CheckpointError where Mozilla's list of models is not in the cache and cannot be downloaded.
    """
    if name in CATALOG:
        return CATALOG[name]
    pair = re.fullmatch(PAIR, name)
    if pair is None:
        return None
    from fastattn.text.languages import iso_code

    try:
        return _firefox_model(*map(iso_code, pair.groups()))
    except InputError:
        return None
    except DownloadError as error:
        raise CheckpointError(
            f"no checkpoint {name!r}: neither an existing path nor in the catalog, and {error}{name_hint(name)}"
        ) from None


def models_between(
    source: str | None, target: str | None, quality: str | None = None
) -> "list[CatalogEntry | FirefoxModel]":
    """The models that translate from one language to another: one model, or two by way of English.

    source, target  codes or English names. If one is None: the catalog's only model with the other language. If both
                    are None: the catalog's default
    quality         of Firefox's models, where the catalog has none: "tiny", "base-memory" or "base"; None: the best
    Raises InputError, which lists the models, where there is no such model.
    """
    if quality is not None:
        from fastattn.weights.download.firefox import check_quality

        check_quality(quality)
    if source is None and target is None:
        return [translation_between(source, target)]
    from fastattn.text.languages import iso_code  # not at the top: a path or a name needs no table of languages

    source, target = (None if code is None else iso_code(check_text("a language", code)) for code in (source, target))
    if source is None or target is None:
        return [translation_between(source, target)]
    if source == target:
        raise InputError(f"a translation should be from one language to another, is from {source} to {target}")
    try:
        return [translation_between(source, target)]
    except InputError as error:
        hops = [(source, target)] if "en" in (source, target) else [(source, "en"), ("en", target)]
        models: list[CatalogEntry | FirefoxModel] = []
        for hop in hops:
            entry = next((entry for entry in CATALOG.values() if entry.languages == hop), None)
            try:
                models.append(entry or _firefox_model(*hop, quality))
            except (InputError, DownloadError) as reason:
                raise InputError(f"{error}; {reason}") from None
        return models


def _firefox_model(source: str, target: str, quality: str | None = None) -> "FirefoxModel":
    from fastattn.weights.download import firefox  # not at the top: firefox imports the network's modules

    model = firefox.best_model(source, target, quality)
    if model is None:
        raise InputError(f"Firefox has no model {source}-{target} (fastattn languages shows what there is)")
    return model


def fetch(model: "CatalogEntry | FirefoxModel", progress: "Progress | None" = None) -> Path:
    """The folder of a model in the cache, downloaded first if it is missing; ``progress`` as for ``pull.pull``."""
    if model.folder.is_dir():
        return model.folder
    if isinstance(model, CatalogEntry):
        from fastattn.weights.download.pull import pull_entry  # not at the top: pull imports the network's modules

        return pull_entry(model, progress)
    from fastattn.weights.download.firefox import pull_model

    return pull_model(model, progress)
