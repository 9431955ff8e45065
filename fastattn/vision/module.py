"""The base of modules on images [B, C, Y, X], and the reader of the PyTorch state dicts from which they are made."""

import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

from fastattn.arguments.images import PixelGrid, Window
from fastattn.array_attention.arguments import check_dtype
from fastattn.array_attention.multi_head import PRECISIONS
from fastattn.array_attention.torch_state import first_names, float32_array, torch_state
from fastattn.errors import InputError, check_known
from fastattn.layers.blocks import Linear
from fastattn.layers.images import ImageConvolution
from fastattn.layers.parameters import Parameters
from fastattn.ops import backend
from fastattn.spec.images import NORM_TENSORS, BatchNorm, tap_rows

T = TypeVar("T", bound="ImageModule")


class StateReader:
    """Makes a module's layers from a state dict's tensors. Errors are InputErrors of one line."""

    def __init__(self, state: Mapping[str, Any], prefix: str, device: str, precision: str):
        self.ops, self._state, self._prefix = backend(device), state, prefix
        self._unread = {name for name in state if not name.endswith(".num_batches_tracked")}
        self._tensors: dict[str, np.ndarray] = {}
        self.parameters = Parameters(self._tensors, self.ops, precision)

    def has(self, name: str) -> bool:
        return name in self._state

    def take(self, name: str, *shape: int) -> np.ndarray:
        """The tensor of this name and shape, in which 0 stands for any length."""
        if name not in self._state:
            raise InputError(f"state: missing {self._prefix}{name}")
        self._unread.discard(name)
        array = float32_array(self._prefix + name, self._state[name])
        has_shape = array.ndim == len(shape) and all(a == b or (a and not b) for a, b in zip(array.shape, shape))
        if not has_shape or not array.size:
            expected = ", ".join(str(size or "any") for size in shape)
            raise InputError(f"state: expected {self._prefix}{name} of shape ({expected}), got {array.shape}")
        if self.parameters.precision == "int8" and not np.isfinite(array).all():
            raise InputError(f"state: expected finite numbers in {self._prefix}{name}, which int8 can hold")
        return array

    def size(self, name: str, axis: int = 0) -> int:
        """The length of an axis of a convolution's weight."""
        return self.take(f"{name}.weight", 0, 0, 0, 0).shape[axis]

    def numbers(self, name: str) -> list[int]:
        """The numbers that follow ``name.`` in names of tensors, ascending."""
        parts = [key.removeprefix(f"{name}.").split(".")[0] for key in self._state if key.startswith(f"{name}.")]
        return sorted({int(part) for part in parts if part.isdecimal() and part.isascii()})

    def add(self, layer: str, weight_FE: np.ndarray, bias: str = "", norm: str = "") -> None:
        """Add the weight of ``layer`` and the tensor ``bias``, if there is one; a batch norm is folded into both."""
        outputs, bias_F = len(weight_FE), self.take(bias, len(weight_FE)) if self.has(bias) else None
        if norm:
            mean, variance, weight, shift = (self.take(f"{norm}.{part}", outputs) for part in NORM_TENSORS)
            with np.errstate(all="ignore"):  # weights of any size are data
                weight_FE, bias_F = BatchNorm(mean, variance, weight, shift).folded(weight_FE, bias_F)
        self._tensors[f"{layer}.weight"] = weight_FE
        if bias_F is not None:
            self._tensors[f"{layer}.bias"] = bias_F

    def add_gate(self, prefix: str, channels: int, bias_factor: int = 1) -> None:
        """Add the 1 x 1 convolutions named ``prefix`` + fc1 and fc2; ``bias_factor`` multiplies the bias of fc2."""
        inner = self.size(f"{prefix}fc1")
        for fc, outputs, inputs in (("fc1", inner, channels), ("fc2", channels, inner)):
            weight_FD = self.take(f"{prefix}{fc}.weight", outputs, inputs, 1, 1)[:, :, 0, 0]
            self.add(f"gate.{fc}", weight_FD, f"{prefix}{fc}.bias")
        if "gate.fc2.bias" in self._tensors:
            self._tensors["gate.fc2.bias"] = self._tensors["gate.fc2.bias"] * bias_factor

    def linear(self, name: str, inputs: int, outputs: int = 0, activation: str = "none") -> Callable[..., np.ndarray]:
        """The linear layer of ``name.weight`` [outputs, inputs] and, if there is one, ``name.bias``."""
        self.add(name, self.take(f"{name}.weight", outputs, inputs), f"{name}.bias")
        return Linear(self.parameters, name, activation)

    def convolution(
        self,
        name: str,
        inputs: int,
        outputs: int = 0,
        activation: str = "none",
        *,
        norm: str = "",
        stride: int = 1,
        dilation: int = 1,
        groups: int = 1,
        padded: bool = True,
    ) -> ImageConvolution:
        """The layer of ``name.weight`` [outputs, inputs / groups, k, k], perhaps ``name.bias`` and a batch norm.

        padded  True: k has to be odd, and images are padded so that stride 1 keeps their size
        """
        if inputs % groups:
            raise InputError(f"groups: expected a number that divides {inputs} channels, got {groups}")
        weight_FCYX = self.take(f"{name}.weight", outputs, inputs // groups, 0, 0)
        side, width = weight_FCYX.shape[2:]
        if side != width or (padded and side % 2 == 0) or len(weight_FCYX) % groups:
            expected = f"{groups} whole groups of square filters{' of odd sides' if padded else ''}"
            raise InputError(f"state: expected {expected} in {self._prefix}{name}.weight, got {weight_FCYX.shape}")
        self.add(name, tap_rows(weight_FCYX), f"{name}.bias", norm)
        padding = side // 2 * dilation if padded else 0
        window = Window((side, side), (stride, stride), (padding, padding), (dilation, dilation))
        return ImageConvolution(self.parameters, name, window, activation, groups)

    def check_all_read(self) -> None:
        """Raise InputError for tensors that no layer has read."""
        if self._unread:
            raise InputError(f"state: unknown tensors {first_names(self._prefix, sorted(self._unread))}")


class ImageModule:
    """Base of the modules: images float32 [B, C, Y, X] in and out; ``from_torch`` makes them.

    channels  of the input
    """

    channels: int

    def __init__(self, state: StateReader):
        self.ops = state.ops

    @classmethod
    def from_torch(
        cls: type[T],
        state: Mapping[str, Any] | str | os.PathLike[str],
        prefix: str = "",
        *,
        precision: str = "float32",
        device: str = "cpu",
        **settings: Any,
    ) -> T:
        """The module with the tensors of a PyTorch module; the class says which names they have.

        state      tensors or arrays by name; or the path of a .safetensors file, or of a file that torch.save wrote
        prefix     beginning of names, such as "layer1.0.se."; all tensors with this prefix belong to the module
        precision  of products with weights: "float32", "bfloat16" or "int8" (each row is rounded by its own scale)
        device     where the module computes: "cpu"; modules on images have no operations on a card
        settings   arguments of the class
        Batch norms are as in evaluation. InputError for tensors that are missing, misshapen or unknown; CheckpointError
        for a file that is missing or unsound. No code of the file runs.
        """
        check_known("precision", precision, PRECISIONS)
        reader = StateReader(torch_state(state, prefix), prefix, device, precision)
        module = cls(reader, **settings)
        reader.check_all_read()
        return module

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """x: images float32 [B, C, Y, X]; InputError for anything else."""
        rows_ND, grid = self._run(*self._pixels(x))
        return np.ascontiguousarray(np.asarray(rows_ND).reshape(*grid, rows_ND.shape[1]).transpose(0, 3, 1, 2))

    def _run(self, x_ND: np.ndarray, grid: PixelGrid) -> tuple[np.ndarray, PixelGrid]:
        raise NotImplementedError

    def _pixels(self, x: np.ndarray) -> tuple[np.ndarray, PixelGrid]:
        """The images as rows of pixels, channels last, as products and gates take them."""
        check_dtype("x", x, np.float32)
        if x.ndim != 4 or x.shape[1] != self.channels or not x.size:
            raise InputError(f"x: expected images, shape (batch, {self.channels}, height, width), got {x.shape}")
        rows_ND = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).reshape(-1, self.channels)
        return self.ops.as_rows(rows_ND), PixelGrid(len(x), *x.shape[2:])

    def _resize(self, x_ND: np.ndarray, grid: PixelGrid, out: PixelGrid) -> np.ndarray:
        """The rows of ``grid`` resized to the grid ``out``: bilinear, from edge to edge, as torch's interpolate."""
        if out == grid:
            return x_ND
        centres_P2 = np.moveaxis(np.mgrid[: out.height, : out.width], 0, -1).reshape(1, -1, 2) + 0.5
        points_P2 = centres_P2 * np.array([grid.height / out.height, grid.width / out.width]) - 0.5
        points_BP2 = np.repeat(points_P2.astype(np.float32), grid.images, axis=0)
        return self.ops.sample_pixels(x_ND, grid, points_BP2, "edge")


def check_window(window: Window, grid: PixelGrid) -> PixelGrid:
    """The grid of the window's positions in the grid; InputError where the window does not fit."""
    out = window.over(grid)
    if min(out[1:]) < 1:
        raise InputError(f"x: expected larger images: {window.size} does not fit into {grid[1:]}")
    return out
