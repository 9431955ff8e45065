"""examples/transformer_in_numpy.py, the first read, says what a Translator says: of two models, of which one has no
self-attention in its decoder."""

import runpy

import pytest

from fastattn import Translator, weights
from tests import ROOT


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("en-pt", "The children could not go to school."),
        pytest.param("zh-en", "请把门关上,外面很冷。", marks=pytest.mark.slow),
    ],
)
def test_the_example_translates_as_a_translator_does(pulled, name, text):
    folder = pulled(name)
    example = runpy.run_path(str(ROOT / "examples" / "transformer_in_numpy.py"))
    expected = Translator(folder, "float32").translate(text, beam_size=1, shortlist=False)
    assert example["Transformer"](weights.read(folder)).translate(text) == expected
