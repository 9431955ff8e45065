"""Writes architectures.npz: rows and logits of tests/architectures/cases.py as transformers computes them.

Run from the root, in an environment with torch and transformers: python -m tests.goldens.make_architectures
"""

import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers

from tests.architectures import oracle
from tests.architectures.case import some_rows
from tests.architectures.cases import GOLDEN_CASES
from tests.architectures.goldens import FILE, pack_shapes


def main() -> None:
    versions = f"transformers {transformers.__version__}, torch {torch.__version__}, numpy {np.__version__}"
    written, shapes = {"versions": np.array(versions)}, {}
    for case in GOLDEN_CASES:
        with tempfile.TemporaryDirectory() as folder:
            outputs = oracle.make(case, Path(folder))
            shapes[case.name] = oracle.shapes_of(Path(folder))
        written[case.name] = np.concatenate([some_rows(output) for output in outputs]).astype(np.float32)
    np.savez_compressed(FILE, shapes=pack_shapes(shapes), **written)


if __name__ == "__main__":
    main()
