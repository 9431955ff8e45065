"""Imports and errors of the source frameworks: their warnings are not shown, their errors become one line."""

import contextlib
import importlib.util
import warnings
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from fastattn.errors import CheckpointError, FastattnError, InputError


def import_packages(*packages: str) -> list[Any]:
    """Import the modules of packages of the Python package index; InputError for packages that are not installed.

    If transformers is one of them, it shows neither progress bars nor warnings from then on.
    """
    modules = [package.replace("-", "_") for package in packages]
    missing = [package for package, name in zip(packages, modules) if importlib.util.find_spec(name) is None]
    if missing:
        raise InputError(f"verify needs {' and '.join(packages)} to compare with: pip install {' '.join(missing)}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        frameworks = [importlib.import_module(name) for name in modules]
        if "transformers" in packages:
            logging = frameworks[packages.index("transformers")].utils.logging
            logging.set_verbosity_error()
            logging.disable_progress_bar()
        return frameworks


def versions(*packages: str) -> str:
    """``torch 2.9.0, transformers 5.0.0``; the name alone of a package without a version in the environment."""
    names = []
    for package in packages:
        try:
            names.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            names.append(package)
    return ", ".join(names)


@contextlib.contextmanager
def framework_errors(beginning: str) -> Iterator[None]:
    """Run a framework's code without its warnings; its errors become CheckpointErrors with this ``beginning``."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except (FastattnError, MemoryError):
        raise
    except Exception as error:
        message = " ".join(str(error).split())
        raise CheckpointError(f"{beginning}: {type(error).__name__}: {message[:200]}") from error
