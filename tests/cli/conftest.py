"""The models that tests of the command line share."""

import pytest

from tests.weights.ctranslate2.writer import write_tiny


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with a random Transformer; words are ▁w0 ... ▁w15, told apart by spaces."""
    return str(write_tiny(tmp_path_factory.mktemp("model")))
