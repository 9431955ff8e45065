"""A case through the product: its folder read, its sentences encoded."""

from pathlib import Path
from typing import Any

import numpy as np

from fastattn.models.kinds import build_model
from fastattn.ops import cpu as operations
from fastattn.weights import read
from tests.architectures.case import Case, make_ids, make_types


def encode(folder: Path, case: Case, precision: str = "float32") -> list[np.ndarray]:
    """The last hidden states [T, D] of each sentence, all encoded together."""
    types_B = make_types(case)
    model: Any = build_model(read(folder), operations, precision)
    rows_ND, starts_B1 = model.encode(make_ids(case), *(() if types_B is None else (types_B,)))
    return [rows_ND[start:end] for start, end in zip(starts_B1, starts_B1[1:])]


def logits(folder: Path, case: Case, precision: str = "float32") -> list[np.ndarray]:
    """What the head gives of each sentence: [labels], or [T, labels] or [T, V]."""
    checkpoint = read(folder)
    assert checkpoint.spec.head is not None, checkpoint.headless
    model: Any = build_model(checkpoint, operations, precision)
    rows_ND, starts_B1 = model.encode(make_ids(case), make_types(case))
    outputs = model.head(rows_ND, starts_B1)
    if checkpoint.spec.head.rows != "each":
        return list(outputs)
    return [outputs[start:end] for start, end in zip(starts_B1, starts_B1[1:])]
