"""Residual networks in state dicts with timm's names: plain, grouped or gated, as the tensors' names and shapes say.

Batch norms are folded into the convolutions before them.
"""

from collections.abc import Mapping

import numpy as np

from fastattn.errors import CheckpointError
from fastattn.printable import first_of
from fastattn.spec.images import NORM_TENSORS, BatchNorm, ResidualSpec, tap_rows
from fastattn.weights.tensor_mapping import Array


class ResidualState:
    """A state dict with timm's names, without their ``prefix``; it notes which tensors were not used."""

    def __init__(self, stored: Mapping[str, Array], where: str, prefix: str = ""):
        self._arrays = {name.removeprefix(prefix): array for name, array in stored.items() if name.startswith(prefix)}
        self._unused = {name for name in self._arrays if not name.startswith("fc.")}
        self.where = where

    def _shape(self, name: str, axes: int = 4) -> tuple[int, ...]:
        """The shape of a tensor, which should have ``axes`` axes; zeros where there is no such tensor."""
        shape = self._arrays[name].shape if name in self._arrays else (0,) * axes
        if len(shape) != axes:
            raise CheckpointError(f"{self.where}: {name} should have {axes} axes, is {list(shape)}")
        return tuple(shape)

    @property
    def stem_side(self) -> int:
        """The side of the first convolution's window; 0 without such a convolution."""
        return self._shape("conv1.weight")[2]

    def _take(self, name: str) -> np.ndarray:
        """Return the tensor in float32 and mark it as used; CheckpointError where it is missing."""
        if name not in self._arrays:
            raise CheckpointError(f"{self.where}: tensors do not fit a residual network: missing {name}")
        self._unused.discard(name)
        return self._arrays[name].vector.reshape(self._arrays[name].shape)

    def spec(self, image: tuple[int, int, int]) -> ResidualSpec:
        """The network that the tensors' names and shapes describe, for images of the size ``image``."""
        blocks: list[int] = []
        while f"layer{len(blocks) + 1}.0.conv1.weight" in self._arrays:
            stage = f"layer{len(blocks) + 1}."
            blocks.append(sum(name.startswith(stage) and name.endswith(".conv1.weight") for name in self._arrays))
        first_blocks = [f"layer{i + 1}.0" for i in range(len(blocks))]
        if not first_blocks or "conv1.weight" not in self._arrays:
            raise CheckpointError(
                f"{self.where}: neither conv1.weight nor layer1.0.conv1.weight, or not both, are there"
            )
        widths = tuple(self._shape(f"{block}.conv2.weight")[0] for block in first_blocks)
        bottleneck = "layer1.0.conv3.weight" in self._arrays
        outputs = self._shape("layer1.0.conv3.weight")[0] if bottleneck else widths[0]
        group_width = max(1, self._shape("layer1.0.conv2.weight")[1])
        gate, gate_weight = "none", ""
        for kind, weight in (("squeeze-excitation", "se.fc1.weight"), ("cbam", "se.channel.fc1.weight")):
            if f"layer1.0.{weight}" in self._arrays:
                gate, gate_weight = kind, weight
        stem, _, side, _ = self._shape("conv1.weight")
        return ResidualSpec(
            image=image,
            stem=stem,
            stem_size=side,
            blocks=tuple(blocks),
            widths=widths,
            expansion=outputs // max(1, widths[0]) if bottleneck else 1,
            groups=max(1, widths[0] // group_width) if bottleneck else 1,
            gate=gate,
            squeezed=tuple(self._shape(f"{block}.{gate_weight}")[0] for block in first_blocks) if gate_weight else (),
        )

    def tensors(self, spec: ResidualSpec, name: str = "encoder") -> dict[str, np.ndarray]:
        """The tensors by canonical name, batch norms folded; CheckpointError where tensors of the state dict remain."""
        tensors: dict[str, np.ndarray] = {}

        def add(target: str, conv: str, norm: str) -> None:
            """Add the convolution ``target``: the weight ``conv`` with the batch norm ``norm`` folded in."""
            mean, variance, weight, bias = (self._take(f"{norm}.{part}") for part in NORM_TENSORS)
            statistics = BatchNorm(mean, variance, weight, bias)
            self._unused.discard(f"{norm}.num_batches_tracked")
            weight_FCYX = self._take(conv)
            if weight_FCYX.ndim != 4 or any(vector.shape != weight_FCYX.shape[:1] for vector in statistics[:4]):
                raise CheckpointError(f"{self.where}: {conv} {list(weight_FCYX.shape)} and {norm} do not fit")
            with np.errstate(all="ignore"):  # weights of any size are data
                weight_FE, tensors[f"{name}.{target}.bias"] = statistics.folded(tap_rows(weight_FCYX))
            tensors[f"{name}.{target}.weight"] = weight_FE

        add("stem", "conv1.weight", "bn1")
        block_names = [f"layer{i + 1}.{block}" for i, blocks in enumerate(spec.blocks) for block in range(blocks)]
        for i, (sizes, block_name) in enumerate(zip(spec.block_sizes, block_names)):
            layer = f"layers.{i}"
            for k in range(1, 3 + (spec.expansion > 1)):
                add(f"{layer}.{k}", f"{block_name}.conv{k}.weight", f"{block_name}.bn{k}")
            if sizes.has_shortcut:
                add(f"{layer}.shortcut", f"{block_name}.downsample.0.weight", f"{block_name}.downsample.1")
            if spec.gate != "none":
                mlp = f"{block_name}.se" + ".channel" * (spec.gate == "cbam")
                for fc, outputs in (("fc1", sizes.gate_width), ("fc2", sizes.outputs)):
                    weight, bias = self._take(f"{mlp}.{fc}.weight"), f"{mlp}.{fc}.bias"
                    tensors[f"{name}.{layer}.gate.{fc}.weight"] = weight.reshape(len(weight), -1)
                    bias_F = self._take(bias) if bias in self._arrays else np.zeros(outputs, np.float32)
                    # CBAM adds the MLP's results for the maximum and for the mean, so the MLP's last bias counts twice.
                    tensors[f"{name}.{layer}.gate.{fc}.bias"] = bias_F * (1 + (spec.gate == "cbam" and fc == "fc2"))
            if spec.gate == "cbam":
                spatial = f"{block_name}.se.spatial.conv"
                add(f"{layer}.gate.spatial", f"{spatial}.conv.weight", f"{spatial}.bn")
        if self._unused:
            unexpected = [f"unexpected {name} {list(self._arrays[name].shape)}" for name in sorted(self._unused)]
            problems = "; ".join(first_of(unexpected, "unexpected"))
            raise CheckpointError(f"{self.where}: tensors do not fit a plain residual network: {problems}")
        return tensors
