"""A small captioner of drawn weights, in the folder that bench.train writes."""

from pathlib import Path

import numpy as np

from tests.images.cases import Shapes
from tests.images.goldens import read_shapes
from tests.images.residual_cases import draw_state
from tests.weights.containers.safetensors_writer import safetensors_bytes

WORDS = "</s> <s> a red green blue yellow circle square triangle above left of".split()
MAPPING = """like = "captioner"
[pictures]
side = 64
mean = 0.5
std = 0.25
"""


def caption_pictures() -> list[np.ndarray]:
    """Three pictures, uint8 [64, 64, 3]."""
    y, x, c = np.mgrid[:64, :64, :3]
    return [((y * (2 + n) + x * (3 - n) + 40 * c * n) % 256).astype(np.uint8) for n in range(3)]


def draw_captioner(shapes: Shapes) -> dict[str, np.ndarray]:
    """Its tensors, of which those that choose words are large, so that words differ."""
    drawn = draw_state({name: shape for name, shape in shapes.items() if shape})
    large = ("decoder.projection.weight", "decoder.readout.weight", "decoder.attention.score.weight")
    return {name: array * np.float32(3) if name in large else array for name, array in drawn.items()}


def write_captioner(folder: Path) -> Path:
    """The folder."""
    (folder / "model.safetensors").write_bytes(safetensors_bytes(draw_captioner(read_shapes("captioner"))))
    (folder / "words.txt").write_text("".join(f"{word}\n" for word in WORDS), encoding="utf-8")
    (folder / "fastattn.toml").write_text(MAPPING, encoding="utf-8")
    return folder
