"""A case through the product: its folder read, its sentences encoded."""

from pathlib import Path
from typing import Any

import numpy as np

from fastattn.models.kinds import build_model
from fastattn.ops import cpu as operations
from fastattn.weights import read
from tests.architectures.case import Case, make_ids, make_types


def outputs(folder: Path, case: Case, precision: str = "float32") -> list[np.ndarray]:
    """The last hidden states [T, D] of each sentence, or what the head gives of it: [labels], [T, labels] or [T, V]."""
    checkpoint, ids_B, types_B = read(folder, "encoder"), make_ids(case), make_types(case)
    model: Any = build_model(checkpoint, operations, precision)
    rows_ND, starts_B1 = model.encode(ids_B, *(() if types_B is None else (types_B,)))
    if case.task != "encoder":
        assert checkpoint.spec.head is not None, checkpoint.headless
        rows_ND = model.head(rows_ND, starts_B1)
        if checkpoint.spec.head.rows != "each":
            return list(rows_ND)
    return [rows_ND[start:end] for start, end in zip(starts_B1, starts_B1[1:])]
