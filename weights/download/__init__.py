"""From a name to a checkpoint's folder: the catalog, the Hugging Face hub, and what is pulled from them."""

import os
from pathlib import Path

from fastattn.errors import CheckpointError, InputError, warn
from fastattn.weights.download.catalog import CATALOG, what_was_meant


def resolve(name_or_path: str | os.PathLike[str]) -> Path:
    """The folder or file of a checkpoint: an existing path is returned, a catalog name is pulled if absent, and
    OWNER/NAME is fetched from the Hugging Face hub.

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
        raise CheckpointError(
            f"no checkpoint {name!r}: neither an existing path nor in the catalog ({', '.join(CATALOG)})"
            + what_was_meant(name)
        )
    folder = CATALOG[name].folder
    if folder.is_dir():
        return folder
    from fastattn.weights.download.pull import pull  # a checkpoint on disk does not need the network's modules

    return pull(name)
