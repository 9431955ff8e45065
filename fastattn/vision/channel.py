"""Attention to channels, and to channels and places."""

from functools import reduce

import numpy as np

from fastattn.arguments.images import PixelGrid
from fastattn.arguments.recurrent import Columns
from fastattn.errors import InputError, check_bool, check_count
from fastattn.layers.images import ChannelAndPlaceGate, ChannelGate, image_starts
from fastattn.vision.module import ImageModule, StateReader


class SqueezeExcitation(ImageModule):
    """x sigmoid(W2 relu(W1 mean(x))): each channel by what all channels are on average (Hu 2018, section 3).

    Tensors by timm's names: fc1 and fc2, 1 x 1 convolutions.
    """

    def __init__(self, state: StateReader):
        super().__init__(state)
        self.channels = state.size("fc1", 1)
        state.gate("", self.channels)
        self._gate = ChannelGate(state.parameters, "gate")

    def weights(self, x: np.ndarray) -> np.ndarray:
        """By what each image's channels are multiplied: float32 [B, C]."""
        return np.asarray(self._gate.gates(*self._pixels(x)))

    def _run(self, x_ND: np.ndarray, grid: PixelGrid) -> tuple[np.ndarray, PixelGrid]:
        return self._gate(x_ND, grid), grid


class CBAM(ImageModule):
    """Channels by their means and maxima, then places by those of their channels (Woo 2018, section 3).

    Tensors by timm's names: channel.fc1, channel.fc2, spatial.conv.conv of 7 x 7 and the batch norm spatial.conv.bn.
    """

    def __init__(self, state: StateReader):
        super().__init__(state)
        self.channels = state.size("channel.fc1", 1)
        state.gate("channel.", self.channels, 2)  # the sum of an MLP of the mean and one of the maximum
        weight_FE = state.take("spatial.conv.conv.weight", 1, 2, 7, 7).transpose(0, 2, 3, 1).reshape(1, -1)
        state.add("gate.spatial", weight_FE, "spatial.conv.conv.bias", "spatial.conv.bn")
        self._gate = ChannelAndPlaceGate(state.parameters, "gate")

    def weights(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """By what each image's channels and places are multiplied: float32 [B, C] and [B, Y, X]."""
        x_ND, grid = self._pixels(x)
        channels_BD = self._gate.channels(x_ND, grid)
        places_N1 = self._gate.places(self.ops.gate_pixels(x_ND, grid, channels_BD), grid)
        return np.asarray(channels_BD), np.asarray(places_N1).reshape(grid)

    def _run(self, x_ND: np.ndarray, grid: PixelGrid) -> tuple[np.ndarray, PixelGrid]:
        return self._gate(x_ND, grid), grid


class SelectiveKernel(ImageModule):
    """The sum of convolutions of several sizes, each channel by a softmax over them (Li 2019, section 3.1).

    Tensors by timm's names: paths.0.conv, paths.0.bn and so on, attn.fc_reduce, attn.bn and attn.fc_select.
    stride, groups  of the convolutions
    dilation        of path i it is 1 + i: 3 x 3, then 5 x 5 by dilation; False: of none
    split           each path takes its share of the channels, as timm's ``split_input``
    """

    def __init__(
        self, state: StateReader, stride: int = 1, groups: int = 1, dilation: bool = True, split: bool = False
    ):
        super().__init__(state)
        stride, groups = check_count("stride", stride), check_count("groups", groups)
        self._split, dilated = check_bool("split", split), check_bool("dilation", dilation)
        numbers = state.numbers("paths")
        if numbers != list(range(max(2, len(numbers)))):
            raise InputError(f"state: expected paths.0, paths.1 and so on, got paths {numbers}")
        outputs, self._inputs = state.size("paths.0.conv"), state.size("paths.0.conv", 1) * groups
        self.channels = self._inputs * (len(numbers) if self._split else 1)
        self._paths = [
            state.convolution(
                f"paths.{i}.conv", self._inputs, outputs, "relu",
                norm=f"paths.{i}.bn", stride=stride, groups=groups, dilation=1 + i if dilated else 1,
            )
            for i in numbers
        ]  # fmt: skip
        inner = state.size("attn.fc_reduce")
        self._reduce = state.convolution("attn.fc_reduce", outputs, inner, "relu", norm="attn.bn")
        self._select = state.convolution("attn.fc_select", inner, outputs * len(numbers))

    def weights(self, x: np.ndarray) -> np.ndarray:
        """How much of each path each image's channels take: float32 [B, paths, C], whose sums over paths are 1."""
        return self._attend(*self._pixels(x))[2].transpose(1, 0, 2)

    def _attend(self, x_ND: np.ndarray, grid: PixelGrid) -> tuple[list[np.ndarray], PixelGrid, np.ndarray]:
        """(each path's rows, their grid, weights_PBF)."""
        parts, rows_P, means_P = [x_ND] * len(self._paths), [], []
        if self._split:
            firsts = range(0, len(parts) * self._inputs, self._inputs)
            parts = [self.ops.join_columns([Columns(x_ND, first, self._inputs)]) for first in firsts]
        for part_ND, path in zip(parts, self._paths):
            rows_NF, out = path(part_ND, grid)
            means_P.append(self.ops.pool(rows_NF, image_starts(out), ["mean"]))
            rows_P.append(rows_NF)
        pixel = PixelGrid(grid.images, 1, 1)
        scores_BE, _ = self._select(*self._reduce(reduce(self.ops.add_rows, means_P), pixel))
        scores_PBF = np.asarray(scores_BE).reshape(grid.images, len(rows_P), -1).transpose(1, 0, 2)
        powers_PBF = np.exp(scores_PBF - scores_PBF.max(axis=0))
        return rows_P, out, powers_PBF / powers_PBF.sum(axis=0)

    def _run(self, x_ND: np.ndarray, grid: PixelGrid) -> tuple[np.ndarray, PixelGrid]:
        rows_P, out, weights_PBF = self._attend(x_ND, grid)
        gated_P = (
            self.ops.gate_pixels(rows_NF, out, np.ascontiguousarray(weights_BF))
            for rows_NF, weights_BF in zip(rows_P, weights_PBF)
        )
        return reduce(self.ops.add_rows, gated_P), out
