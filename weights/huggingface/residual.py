"""Residual networks in directories of timm: a plain ResNet, ResNeXt, SE-ResNet, or one with CBAM, without its classes.

config.json names the architecture and how a picture becomes an image; the rest is in the shapes of the tensors. Batch
norms are folded into the convolutions before them.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fastattn.errors import CheckpointError
from fastattn.printable import first_of
from fastattn.spec.architecture import ModelSpec
from fastattn.spec.checkpoint import ArrayInput, Checkpoint
from fastattn.spec.images import BatchNorm, PictureSpec, ResidualSpec, tap_rows
from fastattn.spec.tensors import check_tensors
from fastattn.weights.containers.json_file import JsonObject, read_object
from fastattn.weights.containers.safetensors import StoredTensor
from fastattn.weights.folder import Folder
from fastattn.weights.huggingface.images import channel_numbers, check_side
from fastattn.weights.huggingface.weights import read_weights

FILTERS = {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3}
NORM = {"mean": "running_mean", "variance": "running_var", "weight": "weight", "bias": "bias"}


def is_residual(config: JsonObject) -> bool:
    """Whether the directory is one of timm's."""
    return config.has("architecture") and config.has("pretrained_cfg")


def read_residual(folder: Folder) -> Checkpoint:
    """Read a residual network; an image's vector is the mean of its last grid."""
    config = read_object(folder, "config.json")
    pictures, image = _read_pictures(config.nested("pretrained_cfg"))
    stored, where = read_weights(folder)
    state = ResidualState(stored, where)
    spec = ModelSpec("encoder", state.spec(image))  # type: ignore[arg-type]
    tensors = state.tensors(spec.encoder)  # type: ignore[arg-type]
    state.check_rest()
    check_tensors(spec, tensors, where)
    return Checkpoint(
        spec=spec,
        tensors=tensors,
        input=ArrayInput("CYX", image),
        format="timm",
        details={"architecture": config.string("architecture")},
        files=tuple(folder.used),
        pictures=pictures,
    )


def _read_pictures(config: JsonObject) -> tuple[PictureSpec, tuple[int, int, int]]:
    """(what timm's transforms of evaluation do, channels, height and width of the image)."""
    size = config.values.get("input_size", [3, 224, 224])
    if not isinstance(size, list) or len(size) != 3 or size[0] != 3 or not all(map(check_side, size)):
        raise config.error("input_size", "three channels, a height and a width", size)
    _, height, width = size
    share = config.number("crop_pct", 0.875)
    if not 0.1 <= share <= 1:
        raise config.error("crop_pct", "a number from 0.1 to 1", share)
    if config.string("crop_mode", "center") != "center" or height != width:
        raise CheckpointError(f"{config.where}: only squares from the middle of pictures are supported")
    resample = FILTERS[config.choice("interpolation", FILTERS, "bicubic")]
    numbers = [channel_numbers(config, name, usual) for name, usual in (("mean", 0.5), ("std", 0.5))]
    shorter = int(height / share)
    return PictureSpec((0, shorter), resample, (height, width), 1 / 255, *numbers), (3, height, width)


class ResidualState:
    """A state dict by timm's names. What is not taken of it is left over."""

    def __init__(self, stored: Mapping[str, Any], where: str, prefix: str = ""):
        self._arrays = {name.removeprefix(prefix): one for name, one in stored.items() if name.startswith(prefix)}
        self._left = {name for name in self._arrays if not name.startswith("fc.")}
        self.where = where

    def _shape(self, name: str, sizes: int = 4) -> tuple[int, ...]:
        """The shape of a tensor of so many axes; of one that is not there zeros."""
        shape = self._arrays[name].shape if name in self._arrays else (0,) * sizes
        if len(shape) != sizes:
            raise CheckpointError(f"{self.where}: {name} should have {sizes} axes, is {list(shape)}")
        return tuple(shape)

    def _take(self, name: str) -> np.ndarray:
        if name not in self._arrays:
            raise CheckpointError(f"{self.where}: tensors do not fit a residual network: missing {name}")
        self._left.discard(name)
        found = self._arrays[name]
        return found.float32() if isinstance(found, StoredTensor) else np.asarray(found, np.float32)

    def spec(self, image: tuple[int, int, int]) -> ResidualSpec:
        """The architecture, by the shapes."""
        blocks: list[int] = []
        while f"layer{len(blocks) + 1}.0.conv1.weight" in self._arrays:
            stage = f"layer{len(blocks) + 1}"
            blocks.append(sum(name.startswith(f"{stage}.") and name.endswith(".conv1.weight") for name in self._arrays))
        stages = [f"layer{i + 1}.0" for i in range(len(blocks))]
        if not stages or "conv1.weight" not in self._arrays:
            raise CheckpointError(
                f"{self.where}: neither conv1.weight nor layer1.0.conv1.weight, or not both, are there"
            )
        widths = tuple(self._shape(f"{stage}.conv2.weight")[0] for stage in stages)
        bottleneck = "layer1.0.conv3.weight" in self._arrays
        outputs = self._shape("layer1.0.conv3.weight")[0] if bottleneck else widths[0]
        inner = max(1, self._shape("layer1.0.conv2.weight")[1])
        gate, squeezed = "none", ""
        for name, sign in (("squeeze-excitation", "se.fc1.weight"), ("cbam", "se.channel.fc1.weight")):
            if f"layer1.0.{sign}" in self._arrays:
                gate, squeezed = name, sign
        stem, _, side, _ = self._shape("conv1.weight")
        return ResidualSpec(
            image=image,
            stem=stem,
            stem_size=side,
            blocks=tuple(blocks),
            widths=widths,
            expansion=outputs // max(1, widths[0]) if bottleneck else 1,
            groups=max(1, widths[0] // inner) if bottleneck else 1,
            gate=gate,
            squeezed=tuple(self._shape(f"{stage}.{squeezed}")[0] for stage in stages) if squeezed else (),
        )

    def tensors(self, spec: ResidualSpec, name: str = "encoder") -> dict[str, np.ndarray]:
        """The tensors by canonical name, batch norms folded."""
        found: dict[str, np.ndarray] = {}

        def add(ours: str, conv: str, norm: str) -> None:
            statistics = BatchNorm(**{ours: self._take(f"{norm}.{theirs}") for ours, theirs in NORM.items()})
            self._left.discard(f"{norm}.num_batches_tracked")
            weight_FCYX = self._take(conv)
            if weight_FCYX.ndim != 4 or any(one.shape != weight_FCYX.shape[:1] for one in statistics[:4]):
                raise CheckpointError(f"{self.where}: {conv} {list(weight_FCYX.shape)} and {norm} do not fit")
            with np.errstate(all="ignore"):  # weights of any size are data
                weight_FE, found[f"{name}.{ours}.bias"] = statistics.folded(tap_rows(weight_FCYX))
            found[f"{name}.{ours}.weight"] = weight_FE

        add("stem", "conv1.weight", "bn1")
        numbers = [(stage + 1, block) for stage, blocks in enumerate(spec.blocks) for block in range(blocks)]
        for i, (place, (stage, block)) in enumerate(zip(spec.places, numbers)):
            theirs, ours = f"layer{stage}.{block}", f"layers.{i}"
            for k in range(1, 3 + (spec.expansion > 1)):
                add(f"{ours}.{k}", f"{theirs}.conv{k}.weight", f"{theirs}.bn{k}")
            if place.has_shortcut:
                add(f"{ours}.shortcut", f"{theirs}.downsample.0.weight", f"{theirs}.downsample.1")
            if spec.gate != "none":
                inner = f"{theirs}.se" + ".channel" * (spec.gate == "cbam")
                for fc, outputs in (("fc1", place.squeezed), ("fc2", place.outputs)):
                    weight = self._take(f"{inner}.{fc}.weight")
                    found[f"{name}.{ours}.gate.{fc}.weight"] = weight.reshape(len(weight), -1)
                    bias = f"{inner}.{fc}.bias"
                    bias_F = self._take(bias) if bias in self._arrays else np.zeros(outputs, np.float32)
                    # CBAM adds an MLP's two results
                    found[f"{name}.{ours}.gate.{fc}.bias"] = bias_F * (1 + (spec.gate == "cbam" and fc == "fc2"))
            if spec.gate == "cbam":
                add(f"{ours}.gate.spatial", f"{theirs}.se.spatial.conv.conv.weight", f"{theirs}.se.spatial.conv.bn")
        return found

    def check_rest(self) -> None:
        """Raise CheckpointError for tensors that no one has taken: of a variant that is not known."""
        if self._left:
            listed = [f"unexpected {name} {list(self._arrays[name].shape)}" for name in sorted(self._left)]
            problems = "; ".join(first_of(listed, "unexpected"))
            raise CheckpointError(f"{self.where}: tensors do not fit a plain residual network: {problems}")
