"""A small case of each module of ``fastattn.vision``: its twin in bench.torch_vision, its settings, its images."""

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests import GOLDENS
from tests.images.residual_cases import draw_state

FILE = GOLDENS / "vision.npz"


@dataclass(frozen=True)
class ModuleCase:
    """twin  the name of what makes it, and its arguments; views: methods beside the call, the twin's too."""

    name: str
    twin: tuple[Any, ...]
    shape: tuple[int, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    views: tuple[str, ...] = ()


MODULE_CASES = (
    ModuleCase("SqueezeExcitation", ("SqueezeExcitation", 6, 3), (2, 6, 4, 5)),
    ModuleCase("CBAM", ("Cbam", 6, 3), (2, 6, 5, 8)),
    ModuleCase("SelectiveKernel", ("SelectiveKernel", 4, 6, 2, 3, 2, 2), (2, 4, 7, 6), {"stride": 2, "groups": 2}),
    ModuleCase("SelectiveKernel", ("SelectiveKernel", 6, 4, 3, 2, 1, 1, True), (1, 6, 5, 5), {"split": True}),
    ModuleCase("SpatialTransformer", ("SpatialTransformer", [2, 3, 4], [3, 2], 16, 5), (2, 2, 13, 13)),
    ModuleCase(
        "SpatialTransformer", ("SpatialTransformer", [1, 3], [3], 75, 5, (4, 9)), (2, 1, 12, 12), {"size": (4, 9)}
    ),
    ModuleCase(
        "DynamicCapacity", ("dynamic_capacity", [2, 4, 5], [2, 5], 3, 4, 5), (2, 2, 13, 18),
        {"patches": 4, "side": 5}, ("saliency",),
    ),
    ModuleCase("ResidualAttention", ("ResidualAttention", 4, 2, 2), (2, 4, 9, 7)),
    ModuleCase("MultiScaleAttention", ("MultiScaleAttention", [2, 4, 3], 5), (2, 2, 9, 6)),
    ModuleCase("PatchAttention", ("PatchAttention", 6, 2, 10, 2, 3), (2, 2, 7, 9), {"heads": 2}),
    ModuleCase("PatchAttention", ("PatchAttention", 8, 4, 6), (1, 8, 3, 5), {"heads": 4}),
)  # fmt: skip


def images_of(case: ModuleCase) -> np.ndarray:
    return np.random.default_rng(case.shape).standard_normal(case.shape).astype(np.float32)


def state_of(case: ModuleCase) -> dict[str, np.ndarray]:
    """The drawn state dict, of the shapes that the golden has."""
    with np.load(FILE) as goldens:
        shapes = json.loads(goldens["shapes"].tobytes())[str(MODULE_CASES.index(case))]
    return draw_state({name: tuple(shape) for name, shape in shapes.items()})


def golden(case: ModuleCase, view: str = "") -> np.ndarray:
    """What the twin made of the images."""
    with np.load(FILE) as goldens:
        found: np.ndarray = goldens[f"{MODULE_CASES.index(case)}{view}"]
    return found
