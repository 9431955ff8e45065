"""The tutorial of corpora on Ray runs and prints what it shows; tests/clone has the others."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.clone.tutorials import run_tutorial
from tests.conftest import ENVIRONMENT


def test_the_tutorial_prints_what_it_shows(
    tmp_path: Path, pulled: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    for model in ("en-pt", "minilm"):
        pulled(model)
    monkeypatch.setenv("FASTATTN_CACHE", ENVIRONMENT["FASTATTN_CACHE"])
    run_tutorial("corpus", tmp_path, 0, monkeypatch)
