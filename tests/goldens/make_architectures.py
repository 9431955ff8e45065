"""Writes architectures.npz and decoders.npz: what transformers computes of the golden cases of tests/architectures/.

Rows and logits, and of decoders continuations too. Run from the root, in an environment with torch and transformers:
python -m tests.goldens.make_architectures
"""

import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers

from tests.architectures import oracle
from tests.architectures.case import Case, some_rows
from tests.architectures.cases import GOLDEN_CASES
from tests.architectures.decoders import GOLDEN_DECODERS, TASK
from tests.architectures.goldens import DECODERS_FILE, FILE, pack_shapes


def write(file: Path, cases: list[Case]) -> None:
    versions = f"transformers {transformers.__version__}, torch {torch.__version__}, numpy {np.__version__}"
    written, shapes = {"versions": np.array(versions)}, {}
    for case in cases:
        with tempfile.TemporaryDirectory() as folder:
            outputs = oracle.make(case, Path(folder))
            shapes[case.name] = oracle.shapes_of(Path(folder))
            if case.task == TASK:
                written[f"{case.name} tokens"] = oracle.continuations(case, Path(folder)).astype(np.uint8)
        written[case.name] = np.concatenate([some_rows(output) for output in outputs]).astype(np.float32)
    np.savez_compressed(file, shapes=pack_shapes(shapes), **written)


if __name__ == "__main__":
    write(FILE, GOLDEN_CASES)
    write(DECODERS_FILE, GOLDEN_DECODERS)
