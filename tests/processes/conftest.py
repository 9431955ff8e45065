"""A model whose worker processes are looked at."""

import pytest

from fastattn.weights.native import convert
from tests.models.tiny_models import random_checkpoint


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A translator's."""
    path = tmp_path_factory.mktemp("translator")
    convert.write(path, random_checkpoint(21), "float32")
    return path
