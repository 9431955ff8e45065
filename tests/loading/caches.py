"""Caches that are empty but for the kernels, which take seconds each to compile."""

import os
from pathlib import Path

import pytest

from fastattn.system.cache_folder import cache_root


def empty_cache(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Makes this folder the cache for the rest of the test."""
    kernels = cache_root().absolute() / "kernels"
    folder.mkdir(exist_ok=True)
    if os.name != "nt" and kernels.is_dir():  # where few may make links
        (folder / "kernels").symlink_to(kernels)
    monkeypatch.setenv("FASTATTN_CACHE", str(folder))
    return folder
