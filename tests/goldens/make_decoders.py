"""Writes decoders.npz: logits and continuations of tests/architectures/decoders.py as transformers computes them.

Run from the root, in an environment with torch and transformers: python -m tests.goldens.make_decoders
"""

import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers

from tests.architectures import oracle
from tests.architectures.case import some_rows
from tests.architectures.decoders import GOLDEN_DECODERS
from tests.architectures.goldens import DECODERS_FILE, pack_shapes


def main() -> None:
    versions = f"transformers {transformers.__version__}, torch {torch.__version__}, numpy {np.__version__}"
    written, shapes = {"versions": np.array(versions)}, {}
    for case in GOLDEN_DECODERS:
        with tempfile.TemporaryDirectory() as folder:
            outputs = oracle.make(case, Path(folder))
            shapes[case.name] = oracle.shapes_of(Path(folder))
            written[f"{case.name} tokens"] = oracle.continuations(case, Path(folder)).astype(np.uint8)
        written[case.name] = np.concatenate([some_rows(output) for output in outputs]).astype(np.float32)
    np.savez_compressed(DECODERS_FILE, shapes=pack_shapes(shapes), **written)


if __name__ == "__main__":
    main()
