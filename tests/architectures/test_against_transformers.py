"""Every architecture at three sizes against Hugging Face transformers, where that is installed."""

from pathlib import Path

import numpy as np
import pytest

from tests.architectures import oracle
from tests.architectures.case import Case
from tests.architectures.cases import CASES
from tests.architectures.encoding import outputs

pytest.importorskip("torch")
pytest.importorskip("transformers")

ENCODERS = [case for case in CASES if case.task == "encoder"]
# The least cosine of a pooled vector to float32's.
LEAST = {"float32": 0.99999, "bfloat16": 0.999, "int8": 0.98}


def pooled(rows_TD: np.ndarray) -> list[np.ndarray]:
    """The mean and the first row."""
    return [rows_TD.mean(axis=0), rows_TD[0]]


def cosine(a_D: np.ndarray, b_D: np.ndarray) -> float:
    return float(a_D @ b_D / np.linalg.norm(a_D) / np.linalg.norm(b_D))


@pytest.mark.parametrize("case", ENCODERS, ids=lambda case: case.name)
def test_rows_are_those_of_transformers(case: Case, tmp_path: Path) -> None:
    expected = oracle.make(case, tmp_path)
    scale = np.abs(np.concatenate(expected)).max()
    for precision, least in LEAST.items():
        found = outputs(tmp_path, case, precision)
        assert [rows.shape for rows in found] == [rows.shape for rows in expected]
        cosines = [cosine(a, b) for rows in zip(found, expected) for a, b in zip(*map(pooled, rows))]
        assert min(cosines) > least, precision
        if precision == "float32":
            assert max(np.abs(a - b).max() for a, b in zip(found, expected)) <= 1e-4 * scale


@pytest.mark.parametrize("case", [case for case in CASES if case.task != "encoder"], ids=lambda case: case.name)
def test_numbers_of_heads_are_those_of_transformers(case: Case, tmp_path: Path) -> None:
    expected = oracle.make(case, tmp_path)
    scale = max(np.abs(output).max() for output in expected)
    for output, wanted in zip(outputs(tmp_path, case), expected, strict=True):
        assert output.shape == wanted.shape
        assert np.abs(output - wanted).max() <= 1e-5 * scale
