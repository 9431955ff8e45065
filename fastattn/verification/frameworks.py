"""The source frameworks, which the environment may have: imported quietly, or asked for in one line."""

import contextlib
import importlib
import importlib.util
import warnings
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from fastattn.errors import CheckpointError, FastattnError, InputError


def framework(*packages: str) -> list[Any]:
    """The packages of these names on the index, imported. Raises InputError for what is not installed."""
    modules = [package.replace("-", "_") for package in packages]
    missing = [package for package, name in zip(packages, modules) if importlib.util.find_spec(name) is None]
    if missing:
        raise InputError(f"verify needs {' and '.join(packages)} to compare with: pip install {' '.join(missing)}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [importlib.import_module(name) for name in modules]


def versions(*packages: str) -> str:
    """``torch 2.9.0, transformers 5.0.0``; the names alone where the environment does not tell."""
    told = []
    for package in packages:
        try:
            told.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            told.append(package)
    return ", ".join(told)


@contextlib.contextmanager
def blaming(what: str) -> Iterator[None]:
    """A framework's part: without its warnings; whatever it raises becomes a CheckpointError that begins with what."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except (FastattnError, MemoryError):
        raise
    except Exception as error:
        told = " ".join(str(error).split())
        raise CheckpointError(f"{what}: {type(error).__name__}: {told[:200]}") from error


def silence(transformers: Any) -> None:
    """No progress bars, no warnings: what differs is told here."""
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
