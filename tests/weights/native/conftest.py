"""A folder to damage."""

from pathlib import Path

import pytest

from fastattn.weights import read
from tests.weights.native.folders import converted, translation_model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return converted(read(translation_model(tmp_path / "model", tied=True)), tmp_path / "out", "int8")
