"""Checkpoints in an empty cache, and which of them are read."""

from pathlib import Path
from typing import Any

import pytest

from fastattn import weights
from fastattn.loading import model_cache
from tests.loading.caches import empty_cache


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty one, where files are kept however new they are."""
    monkeypatch.setattr(model_cache, "SETTLED", -1_000_000_000)
    return empty_cache(tmp_path / "cache", monkeypatch)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The folders that are read from now on."""
    found: list[Path] = []
    read = weights.read

    def noted(path: Path, *given: Any, **how: Any) -> Any:
        found.append(path)
        return read(path, *given, **how)

    monkeypatch.setattr(weights, "read", noted)
    return found
