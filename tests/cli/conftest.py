"""The models that tests of the command line share."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fastattn.encoders.encoder import Encoder
from tests.encoders.test_encoder import _encoder
from tests.weights.ctranslate2.writer import write_tiny


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with a random Transformer; words are ▁w0 ... ▁w15, told apart by spaces."""
    return str(write_tiny(tmp_path_factory.mktemp("model")))


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Encoder]:
    """Has a command get a random encoder, with these attributes of its checkpoint's text, for the folder "any".

    Its vectors need no compiled kernel. The current folder is an empty one but for "any".
    """

    def serve(**text: Any) -> Encoder:
        encoder = _encoder(**text)
        monkeypatch.setattr("fastattn.encoders.encoder.Encoder", lambda name, **options: encoder)
        return encoder

    (tmp_path / "any").mkdir()
    monkeypatch.chdir(tmp_path)
    return serve


@pytest.fixture
def encoder(served: Callable[..., Encoder]) -> Encoder:
    return served()
