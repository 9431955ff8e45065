"""Every architecture of decoders at three sizes against Hugging Face transformers, where that is installed."""

from pathlib import Path

import numpy as np
import pytest

from fastattn.weights import read
from tests.architectures import oracle
from tests.architectures.case import Case
from tests.architectures.continuing import continuations, load, pass_logits, step_logits
from tests.architectures.decoders import DECODER_CASES
from tests.weights.containers.safetensors_writer import write_json

pytest.importorskip("torch")
pytest.importorskip("transformers")


@pytest.mark.parametrize("case", DECODER_CASES, ids=lambda case: case.name)
def test_logits_and_tokens_are_those_of_transformers(case: Case, tmp_path: Path) -> None:
    expected = oracle.make(case, tmp_path)
    model, scale = load(tmp_path), max(np.abs(logits).max() for logits in expected)
    for found in (pass_logits(model, case), step_logits(model, case)):
        assert max(np.abs(a - b).max() for a, b in zip(found, expected, strict=True)) <= 1e-4 * scale
    np.testing.assert_array_equal(continuations(model, case), oracle.continuations(case, tmp_path))


@pytest.mark.parametrize("case", DECODER_CASES, ids=lambda case: case.name)
def test_config_json_says_the_same_as_published_and_as_saved(case: Case, tmp_path: Path) -> None:
    oracle.save(case, case.config, tmp_path)
    saved = read(tmp_path)
    write_json(tmp_path / "config.json", case.config)
    published = read(tmp_path)
    assert (published.spec, published.text) == (saved.spec, saved.text)
