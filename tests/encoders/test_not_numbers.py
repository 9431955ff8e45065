"""Checkpoints whose weights hold infinity or NaN: every class says so in place of a result."""

import re
from pathlib import Path

import numpy as np
import pytest

import fastattn
from fastattn.errors import CheckpointError
from tests.architectures.cases import CASES
from tests.architectures.drawing import draw_all
from tests.architectures.folders import write_folder
from tests.architectures.goldens import read_goldens

TEXTS = ["w7", "w9 w8 w30", "w6 w5"]
# A case, and what is asked of its checkpoint.
CALLS = {
    "Encoder": ("bert-sequence-classification", lambda folder: fastattn.Encoder(folder).encode(TEXTS)),
    "Encoder.one": ("bert-sequence-classification", lambda folder: fastattn.Encoder(folder).encode(TEXTS[0])),
    "Encoder.ubinary": (
        "bert-sequence-classification",
        lambda folder: fastattn.Encoder(folder).encode(TEXTS, output_dtype="ubinary"),
    ),
    "CrossEncoder": (
        "bert-sequence-classification",
        lambda folder: fastattn.CrossEncoder(folder).predict([(text, "w7") for text in TEXTS]),
    ),
    "TextClassifier": (
        "bert-sequence-classification",
        lambda folder: fastattn.TextClassifier(folder).classify(TEXTS),
    ),
    "TokenClassifier": (
        "bert-token-classification",
        lambda folder: fastattn.TokenClassifier(folder).classify(TEXTS),
    ),
    "MaskedLanguageModel": (
        "roberta-fill-mask",
        lambda folder: fastattn.MaskedLanguageModel(folder).fill([f"{text} <mask>" for text in TEXTS]),
    ),
}


@pytest.mark.parametrize("poison", [np.inf, np.nan])
@pytest.mark.parametrize("name", CALLS)
def test_an_output_that_is_no_number_is_an_error(name: str, poison: float, tmp_path: Path) -> None:
    of, call = CALLS[name]
    case = next(case for case in CASES if case.name == of)
    tensors = draw_all(read_goldens(case)[0], case.seed)
    call(write_folder(tmp_path, case.config, tensors))
    (weight,) = (name for name in tensors if re.search(r"encoder\.layer\.0\.output\.dense\.weight$", name))
    tensors[weight][3, 5] = poison
    with pytest.raises(CheckpointError, match="^the model's output is not a number: "):
        call(write_folder(tmp_path, case.config, tensors))
