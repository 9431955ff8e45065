"""Small residual networks with timm's names: their directories from drawn weights."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.architectures.drawing import draw
from tests.images.cases import Shapes
from tests.weights.containers.safetensors_writer import safetensors_bytes, write_json


@dataclass(frozen=True)
class ResidualCase:
    """The arguments of bench.torch_residual.ResidualNetwork, and the side of an image."""

    name: str
    blocks: tuple[int, ...]
    widths: tuple[int, ...]
    expansion: int
    groups: int
    gate: str
    size: int


RESIDUAL_CASES = (
    ResidualCase("plain", (2, 1), (16, 24), 1, 1, "none", 37),
    ResidualCase("squeeze and excitation", (1, 2), (8, 16), 4, 1, "squeeze-excitation", 40),
    ResidualCase("cbam in groups", (1, 1), (16, 32), 2, 4, "cbam", 33),
)
STEM = 12


def image_of(case: ResidualCase) -> np.ndarray:
    """Two images, float32 [2, 3, Y, X]."""
    rng = np.random.default_rng(case.size)
    return rng.standard_normal((2, 3, case.size, case.size)).astype(np.float32)


def draw_state(shapes: Shapes) -> dict[str, np.ndarray]:
    """The state dict: convolutions that keep the size of their input, variances above zero."""
    state = {}
    for name, shape in shapes.items():
        if len(shape) == 4:
            state[name] = draw(name, (shape[0], shape[1] * shape[2] * shape[3]), 3).reshape(shape)
        elif shape:
            drawn, positive = draw(name, shape, 3), len(shape) == 1 and name.endswith(("running_var", "weight"))
            state[name] = np.abs(drawn) + np.float32(0.5) if positive else drawn
    return state


def write_residual(case: ResidualCase, shapes: Shapes, folder: Path) -> Path:
    """The directory as timm has it on the hub."""
    settings = {"input_size": [3, case.size, case.size], "mean": [0.4, 0.5, 0.6], "std": [0.2, 0.3, 0.25]}
    config = {"architecture": "resnet", "pretrained_cfg": settings | {"interpolation": "bicubic", "crop_pct": 0.9}}
    write_json(folder / "config.json", config)
    (folder / "model.safetensors").write_bytes(safetensors_bytes(draw_state(shapes)))
    return folder
