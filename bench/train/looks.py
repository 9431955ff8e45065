"""A small network around each other module of ``fastattn.vision``, which reads the same digits."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from bench import torch_vision
from bench.torch_residual import SqueezeExcitation
from bench.train.digits import learn

STEPS = 1500
DECAY = {"MultiScaleAttention": 1e-3}  # of its weights, else it soon takes one scale everywhere
CHANNELS, SQUEEZED, PATCH, HEADS = 16, 4, 4, 4
CLASSES = 10


class LookingNet(nn.Module):
    """Perhaps convolutions, the module, and a linear layer of each channel's maximum in quarters of the image."""

    def __init__(self, look: nn.Module, convolved: bool, channels: int = CHANNELS):
        super().__init__()
        convolutions = (
            nn.Conv2d(1, CHANNELS, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1), nn.ReLU(),
        )  # fmt: skip
        self.features = nn.Sequential(*convolutions if convolved else ())
        self.look, self.top = look, nn.Linear(channels * 16, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.top(functional.adaptive_max_pool2d(self.look(self.features(images)), 4).flatten(1))
        return logits


class Glimpses(nn.Module):
    """DynamicCapacity by itself, which answers."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential()
        self.look = torch_vision.dynamic_capacity([1, 8, CHANNELS], [1, CHANNELS, CHANNELS], CLASSES, 6, 9)

    def forward(self, images: Tensor) -> Tensor:
        return self.look.answer(self.look(images))


# The module of fastattn.vision -> its network.
NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "SqueezeExcitation": lambda: LookingNet(SqueezeExcitation(CHANNELS, SQUEEZED), True),
    "SelectiveKernel": lambda: LookingNet(torch_vision.SelectiveKernel(CHANNELS, CHANNELS, 2, SQUEEZED), True),
    "ResidualAttention": lambda: LookingNet(torch_vision.ResidualAttention(CHANNELS, 1, 2), True),
    "MultiScaleAttention": lambda: LookingNet(torch_vision.MultiScaleAttention([1, 16, CHANNELS], 16), False),
    "DynamicCapacity": Glimpses,
    "PatchAttention": lambda: LookingNet(torch_vision.PatchAttention(32, HEADS, 64, 1, PATCH), False, 32),
}
SETTINGS: dict[str, dict[str, Any]] = {"PatchAttention": {"heads": HEADS}, "DynamicCapacity": {"patches": 6}}


def load(folder: Path, name: str) -> nn.Module:
    """A trained network."""
    model = NETWORKS[name]()
    model.load_state_dict(torch.load(folder / f"{name}.pth"))
    return model.eval()


def train(archive: Path, into: Path) -> None:
    """Write NAME.pth of each module."""
    for name, make in NETWORKS.items():
        torch.manual_seed(32)
        learn(make(), STEPS, into / f"{name}.pth", DECAY.get(name, 0.0))
