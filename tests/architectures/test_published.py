"""Published configurations against sentence-transformers, pooling, prompts and cutting included."""

from pathlib import Path

import pytest

from tests.architectures.published import ENCODERS, RERANKERS, Published
from tests.architectures.published_comparison import compare

pytestmark = pytest.mark.slow
pytest.importorskip("sentence_transformers")


@pytest.mark.parametrize("published", ENCODERS, ids=lambda published: published.name)
def test_vectors_are_those_of_sentence_transformers(published: Published, tmp_path: Path) -> None:
    difference = compare(published, tmp_path)
    assert difference.least_cosine > 0.99999 and difference.largest < 1e-4


@pytest.mark.parametrize("published", RERANKERS, ids=lambda published: published.name)
def test_scores_are_those_of_sentence_transformers(published: Published, tmp_path: Path) -> None:
    assert compare(published, tmp_path).largest < 1e-5
