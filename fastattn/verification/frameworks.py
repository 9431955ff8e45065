"""Imports of the source frameworks, without their warnings, and their errors in one line."""

import contextlib
import importlib
import importlib.util
import warnings
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from fastattn.errors import CheckpointError, FastattnError, InputError


def framework(*packages: str) -> list[Any]:
    """The packages of these names on the index, imported; InputError for what is not installed.

    From then on transformers shows neither progress bars nor warnings.
    """
    modules = [package.replace("-", "_") for package in packages]
    missing = [package for package, name in zip(packages, modules) if importlib.util.find_spec(name) is None]
    if missing:
        raise InputError(f"verify needs {' and '.join(packages)} to compare with: pip install {' '.join(missing)}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        imported = [importlib.import_module(name) for name in modules]
        if "transformers" in packages:
            logging = imported[packages.index("transformers")].utils.logging
            logging.set_verbosity_error()
            logging.disable_progress_bar()
        return imported


def versions(*packages: str) -> str:
    """``torch 2.9.0, transformers 5.0.0``; a name alone where the environment has no version of it."""
    named = []
    for package in packages:
        try:
            named.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            named.append(package)
    return ", ".join(named)


@contextlib.contextmanager
def blaming(what: str) -> Iterator[None]:
    """Run a framework's code without its warnings; its errors become CheckpointErrors that begin with ``what``."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except (FastattnError, MemoryError):
        raise
    except Exception as error:
        message = " ".join(str(error).split())
        raise CheckpointError(f"{what}: {type(error).__name__}: {message[:200]}") from error
