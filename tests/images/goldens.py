"""tests/goldens/images.npz: names and shapes of each case's tensors, and what transformers makes of its pictures."""

import json
from pathlib import Path

import numpy as np

from tests import GOLDENS
from tests.images.cases import PictureCase, Shapes, write_case

FILE = GOLDENS / "images.npz"


def read_shapes(name: str) -> Shapes:
    """The shapes of a case's tensors."""
    with np.load(FILE) as goldens:
        shapes: Shapes = json.loads(goldens["shapes"].tobytes())[name]
    return {tensor: tuple(shape) for tensor, shape in shapes.items()}


def read_golden(name: str, what: str) -> np.ndarray:
    """The case's "images" (every seventh number), "rows" (every third of an image's), "vectors" or "texts"."""
    with np.load(FILE) as goldens:
        found: np.ndarray = goldens[f"{name}: {what}"]
    return found


def write_golden_images(case: PictureCase, folder: Path) -> Path:
    """The case's folder."""
    write_case(folder, case, read_shapes(case.name))
    return folder
