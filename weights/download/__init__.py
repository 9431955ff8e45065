"""From a name to a checkpoint's folder: the catalog, the Hugging Face hub, and what is pulled from them."""

import os
import re
from pathlib import Path

from fastattn.errors import CheckpointError, DownloadError, InputError, warn
from fastattn.weights.download.catalog import CATALOG, PAIR, what_was_meant


def resolve(name_or_path: str | os.PathLike[str]) -> Path:
    """The folder or file of a checkpoint: an existing path is returned, a catalog name is pulled if absent, a pair of
    languages such as de-en is a model of Firefox's, and OWNER/NAME is fetched from the Hugging Face hub.

    Warns of a str that names both. Raises InputError for anything but a str or a path, CheckpointError if it is none of
    these, DownloadError if the pull fails.
    """
    if not isinstance(name_or_path, str | os.PathLike):
        raise InputError(f"a checkpoint's path or name should be a str or a path, got {type(name_or_path).__name__}")
    name = os.fspath(name_or_path)
    if name and os.path.exists(name):
        if name_or_path in CATALOG:
            warn(f"{name} here hides the catalog's {name} and is read instead; ./{name} does so without a warning")
        return Path(name)
    if name not in CATALOG:
        from fastattn.weights.download import hub  # whose files it reads as several exporters do, which takes 11 ms

        if isinstance(name_or_path, str) and hub.is_hub_name(name):
            return hub.fetch(name)
        if pair := re.fullmatch(PAIR, name):
            return _of_firefox(*pair.groups())
        raise CheckpointError(
            f"no checkpoint {name!r}: neither an existing path nor in the catalog ({', '.join(CATALOG)})"
            + what_was_meant(name)
        )
    folder = CATALOG[name].folder
    if folder.is_dir():
        return folder
    from fastattn.weights.download.pull import pull  # a checkpoint on disk does not need the network's modules

    return pull(name)


def _of_firefox(source: str, target: str) -> Path:
    from fastattn.weights.download import firefox  # with the network's modules

    try:
        models = firefox.models_between(source, target)
    except (InputError, DownloadError) as error:
        raise CheckpointError(
            f"no checkpoint '{source}-{target}': neither an existing path nor in the catalog ({', '.join(CATALOG)}), "
            f"and {error}" + what_was_meant(f"{source}-{target}")
        ) from None
    if len(models) > 1:
        names = " and ".join(model.name for model in models)
        raise CheckpointError(f"from {source} to {target} there are two models, {names}: Translator.for_languages")
    return firefox.pull_model(models[0])
