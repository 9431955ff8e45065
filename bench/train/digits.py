"""Digits, shifted and turned on a larger canvas, and small networks around modules of ``fastattn.vision``."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from bench import torch_vision
from bench.torch_residual import Cbam, SqueezeExcitation
from bench.torch_vision import SpatialTransformer
from bench.train.fitting import fit

SIDE, BATCH, STEPS, RATE = 28, 64, 3000, 2e-3
HELD_OUT = 397  # of 1,797 digits
SIZE = 16  # pixels of a digit on the canvas
TURN = 60  # degrees at most, to either side
CHANNELS, SQUEEZED = 32, 8


def canvas(digits_BYX: np.ndarray, seed: int) -> np.ndarray:
    """Digits (8 x 8, 0 to 16) at random places on canvases [B, 1, SIDE, SIDE], turned: float32 from 0 to 1."""
    rng, B = np.random.default_rng([32, seed]), len(digits_BYX)
    angle_B = np.deg2rad(rng.uniform(-TURN, TURN, B))
    shift_B2 = rng.uniform(SIZE / SIDE - 1, 1 - SIZE / SIDE, (B, 2))
    cos_B, sin_B = np.cos(angle_B) * SIDE / SIZE, np.sin(angle_B) * SIDE / SIZE
    turn_B22 = np.array([[cos_B, -sin_B], [sin_B, cos_B]]).transpose(2, 0, 1)
    maps_B23 = np.concatenate([turn_B22, -turn_B22 @ shift_B2[:, :, None]], 2)
    grid = functional.affine_grid(torch.tensor(maps_B23).float(), [B, 1, SIDE, SIDE], align_corners=False)
    images = torch.tensor(digits_BYX / 16)[:, None].float()
    return functional.grid_sample(images, grid, align_corners=False).numpy()


def scanned() -> tuple[np.ndarray, np.ndarray]:
    """(scikit-learn's digits [B, 8, 8], their labels)."""
    from sklearn.datasets import load_digits  # other networks are trained without it

    digits = load_digits()
    return digits.images, digits.target


def held_out() -> tuple[np.ndarray, np.ndarray]:
    """(images [B, 1, SIDE, SIDE], labels) that training leaves out."""
    digits_BYX, labels_B = scanned()
    return canvas(digits_BYX[-HELD_OUT:], 0), labels_B[-HELD_OUT:]


class DigitNet(nn.Module):
    """Straightens the image; then two convolutions, CBAM, and a linear layer of the channels' maxima."""

    def __init__(self) -> None:
        super().__init__()
        self.straighten = SpatialTransformer([1, 8, 16], [7, 5], 16 * 3 * 3, 32)
        last: nn.Linear = self.straighten.fc_loc[2]  # type: ignore[assignment]
        last.weight.data.zero_()
        last.bias.data = torch.tensor([1.0, 0, 0, 0, 1, 0])  # the image as it is
        self.features = nn.Sequential(
            nn.Conv2d(1, CHANNELS // 2, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(CHANNELS // 2, CHANNELS, 3, padding=1), nn.ReLU(),
        )  # fmt: skip
        self.cbam, self.top = Cbam(CHANNELS, SQUEEZED), nn.Linear(CHANNELS * 49, 10)

    def forward(self, images: Tensor) -> Tensor:
        looked = self.cbam(self.features(self.straighten(images)))
        return self.top(functional.max_pool2d(looked, 2).flatten(1))


def load(folder: Path) -> DigitNet:
    model = DigitNet()
    model.load_state_dict(torch.load(folder / "torch.pth"))
    return model.eval()


def train(archive: Path, into: Path) -> None:
    """Write torch.pth; no data is read but scikit-learn's."""
    torch.manual_seed(32)
    learn(DigitNet(), STEPS, into / "torch.pth")


def learn(model: nn.Module, steps: int, path: Path, decay: float = 0.0) -> None:
    """Train a network on all but the held-out digits, print its accuracy on these, and write its state."""
    digits_BYX, labels_B = scanned()
    images, labels = digits_BYX[:-HELD_OUT], torch.tensor(labels_B[:-HELD_OUT])

    def loss(step: int) -> Tensor:
        batch = np.random.default_rng([32, 1, step]).integers(0, len(images), BATCH)
        return functional.cross_entropy(model(torch.from_numpy(canvas(images[batch], step))), labels[batch])

    fit(model, steps, RATE, loss, decay)
    inputs, expected = held_out()
    with torch.no_grad():
        right = (model(torch.from_numpy(inputs)).argmax(1).numpy() == expected).mean()
    print(f"{path.stem}: {right:.1%} of {len(expected)} unseen digits are read", flush=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(model.state_dict(), path)


LOOK_STEPS = 1500
DECAY = {"MultiScaleAttention": 1e-3}  # weight decay, without which the network soon chooses one scale everywhere
LOOK_CHANNELS, LOOK_SQUEEZED, PATCH, HEADS = 16, 4, 4, 4
CLASSES = 10


class LookingNet(nn.Module):
    """Convolutions (optional), the module, and a linear layer of the channels' maxima in 4 x 4 parts of the image."""

    def __init__(self, look: nn.Module, convolved: bool, channels: int = LOOK_CHANNELS):
        super().__init__()
        convolutions = (
            nn.Conv2d(1, LOOK_CHANNELS, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(LOOK_CHANNELS, LOOK_CHANNELS, 3, padding=1), nn.ReLU(),
        )  # fmt: skip
        self.features = nn.Sequential(*convolutions if convolved else ())
        self.look, self.top = look, nn.Linear(channels * 16, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        return self.top(functional.adaptive_max_pool2d(self.look(self.features(images)), 4).flatten(1))


class Glimpses(nn.Module):
    """DynamicCapacity alone, which computes the logits."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential()
        self.look = torch_vision.dynamic_capacity(
            [1, 8, LOOK_CHANNELS], [1, LOOK_CHANNELS, LOOK_CHANNELS], CLASSES, 6, 9
        )

    def forward(self, images: Tensor) -> Tensor:
        return self.look.answer(self.look(images))


# The module of fastattn.vision -> its network.
NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "SqueezeExcitation": lambda: LookingNet(SqueezeExcitation(LOOK_CHANNELS, LOOK_SQUEEZED), True),
    "SelectiveKernel": lambda: LookingNet(
        torch_vision.SelectiveKernel(LOOK_CHANNELS, LOOK_CHANNELS, 2, LOOK_SQUEEZED), True
    ),
    "ResidualAttention": lambda: LookingNet(torch_vision.ResidualAttention(LOOK_CHANNELS, 1, 2), True),
    "MultiScaleAttention": lambda: LookingNet(torch_vision.MultiScaleAttention([1, 16, LOOK_CHANNELS], 16), False),
    "DynamicCapacity": Glimpses,
    "PatchAttention": lambda: LookingNet(torch_vision.PatchAttention(32, HEADS, 64, 1, PATCH), False, 32),
}
SETTINGS: dict[str, dict[str, Any]] = {"PatchAttention": {"heads": HEADS}, "DynamicCapacity": {"patches": 6}}


def load_look(folder: Path, name: str) -> nn.Module:
    model = NETWORKS[name]()
    model.load_state_dict(torch.load(folder / f"{name}.pth"))
    return model.eval()


def train_looks(archive: Path, into: Path) -> None:
    for name, make in NETWORKS.items():
        torch.manual_seed(32)
        learn(make(), LOOK_STEPS, into / f"{name}.pth", DECAY.get(name, 0.0))
