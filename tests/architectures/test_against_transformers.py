"""Every architecture at three sizes against Hugging Face transformers, where that is installed."""

from pathlib import Path

import numpy as np
import pytest

from bench.translator_cases import CASES as TRANSLATORS
from bench.translator_cases import T5_CASES
from bench.translator_models import TranslatorCase, build, make_texts
from fastattn.weights import read
from tests.architectures import oracle
from tests.architectures.case import Case
from tests.architectures.cases import ENCODERS, HEADS
from tests.architectures.decoders import DECODER_CASES
from tests.architectures.outputs import continuations, load, outputs, pass_logits, step_logits
from tests.weights.containers.safetensors_writer import write_json

pytest.importorskip("torch")
pytest.importorskip("transformers")

# The least cosine of a pooled vector, the mean and the first row, to float32's.
LEAST = {"float32": 0.99999, "bfloat16": 0.999, "int8": 0.98}


def cosine(a_D: np.ndarray, b_D: np.ndarray) -> float:
    return float(a_D @ b_D / np.linalg.norm(a_D) / np.linalg.norm(b_D))


def difference(found: list[np.ndarray], expected: list[np.ndarray]) -> float:
    """The largest of numbers of one shape, relative to the largest that is expected."""
    assert [output.shape for output in found] == [output.shape for output in expected]
    largest = max(np.abs(a - b).max() for a, b in zip(found, expected))
    return float(largest / max(np.abs(output).max() for output in expected))


@pytest.mark.parametrize("case", ENCODERS, ids=lambda case: case.name)
def test_rows_are_those_of_transformers(case: Case, tmp_path: Path) -> None:
    expected = oracle.make(case, tmp_path)
    for precision, least in LEAST.items():
        found = outputs(tmp_path, case, precision)
        off = difference(found, expected)
        assert off <= 1e-4 or precision != "float32"
        pooled = [(a.mean(axis=0), b.mean(axis=0)) for a, b in zip(found, expected)]
        pooled += [(a[0], b[0]) for a, b in zip(found, expected)]
        assert min(cosine(a, b) for a, b in pooled) > least, precision


@pytest.mark.parametrize("case", HEADS, ids=lambda case: case.name)
def test_numbers_of_heads_are_those_of_transformers(case: Case, tmp_path: Path) -> None:
    expected = oracle.make(case, tmp_path)
    assert difference(outputs(tmp_path, case), expected) <= 1e-5


@pytest.mark.parametrize("case", DECODER_CASES, ids=lambda case: case.name)
def test_logits_and_tokens_of_decoders_are_those_of_transformers(case: Case, tmp_path: Path) -> None:
    expected = oracle.make(case, tmp_path)
    model = load(tmp_path)
    for found in (pass_logits(model, case), step_logits(model, case)):
        assert difference(found, expected) <= 1e-4
    np.testing.assert_array_equal(continuations(model, case), oracle.continuations(case, tmp_path))


@pytest.mark.parametrize("case", DECODER_CASES, ids=lambda case: case.name)
def test_config_json_says_the_same_as_published_and_as_saved(case: Case, tmp_path: Path) -> None:
    oracle.save(case, case.config, tmp_path)
    saved = read(tmp_path)
    write_json(tmp_path / "config.json", case.config)
    published = read(tmp_path)
    assert (published.spec, published.text) == (saved.spec, saved.text)


@pytest.mark.parametrize("case", TRANSLATORS + T5_CASES, ids=lambda case: case.name)
def test_ids_logits_and_searches_of_translators_are_those_of_transformers(case: TranslatorCase, tmp_path: Path) -> None:
    from bench.translator_comparison import agreement

    build(tmp_path, case, (TRANSLATORS if case in TRANSLATORS else T5_CASES).index(case))
    found = agreement(tmp_path, case, make_texts(30, 3))
    assert found.whole, found
