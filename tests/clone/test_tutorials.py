"""Every tutorial runs and prints what it shows; tests/distributed runs that of Ray."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import ROOT
from tests.clone.tutorials import run_tutorial
from tests.conftest import ENVIRONMENT

MODELS = {"book": ["en-pt"], "notes": ["minilm", "splade-tiny"], "attention": [], "team": ["en-pt", "pt-en", "minilm"]}


@pytest.mark.parametrize("name", MODELS)
def test_a_tutorial_prints_what_it_shows(
    name: str, tmp_path: Path, pulled: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    for model in MODELS[name]:
        pulled(model)
    monkeypatch.setenv("FASTATTN_CACHE", ENVIRONMENT["FASTATTN_CACHE"])
    run_tutorial(name, tmp_path, 20_000 + os.getpid() % 12_000, monkeypatch)  # a port below what the system gives


def test_every_tutorial_is_run() -> None:
    assert {path.stem for path in (ROOT / "docs" / "tutorials").iterdir()} == {*MODELS, "corpus"}
