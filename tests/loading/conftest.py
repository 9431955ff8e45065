"""Checkpoints in an empty cache, and which of them are read."""

import pytest

from fastattn import weights
from fastattn.loading import model_cache
from tests.loading.caches import empty_cache


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty one, where files are kept however new they are."""
    monkeypatch.setattr(model_cache, "SETTLED_NS", -1_000_000_000)
    return empty_cache(tmp_path / "cache", monkeypatch)


@pytest.fixture
def reads(monkeypatch):
    """The folders that are read from now on."""
    found, read = [], weights.read
    monkeypatch.setattr(weights, "read", lambda path, *given, **how: found.append(path) or read(path, *given, **how))
    return found
