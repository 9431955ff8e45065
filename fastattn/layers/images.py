"""Layers of images: convolutions, and gates of channels and pixels."""

import numpy as np

from fastattn.arguments.images import PixelGrid, Window
from fastattn.layers.blocks import Linear
from fastattn.layers.parameters import Parameters
from fastattn.spec.quantized import as_float32


class ImageConvolution:
    """activation(W * x + b [+ residual]), from ``name.weight`` [F, taps * C / groups] and ``name.bias``.

    groups  how many groups the channels form; as many as channels: one filter a channel (depthwise)
    """

    def __init__(self, parameters: Parameters, name: str, window: Window, activation: str = "none", groups: int = 1):
        self.ops, self.window, self.activation = parameters.ops, window, activation
        self.filters_TD, self.bias, self.groups = None, parameters.optional(f"{name}.bias"), []
        if groups == 1:
            self.groups = [parameters.packed(name)]
            return
        weight_FE = as_float32(parameters.tensor(f"{name}.weight"))
        if groups == len(weight_FE) and weight_FE.shape[1] == window.size[0] * window.size[1]:
            self.filters_TD = np.ascontiguousarray(weight_FE.T)
            return
        biases = [None] * groups if self.bias is None else np.split(self.bias, groups)
        pairs, precision = zip(np.split(weight_FE, groups), biases), parameters.precision
        precision = "int8" if precision == "int4" else precision  # a group's few inputs are seldom whole int4 groups
        self.groups = [self.ops.pack_linear(weight, bias, precision) for weight, bias in pairs]

    def __call__(
        self, x_ND: np.ndarray, grid: PixelGrid, residual_NF: np.ndarray | None = None
    ) -> tuple[np.ndarray, PixelGrid]:
        """(rows of the result, their grid)."""
        if self.filters_TD is None:
            rows = self.ops.convolve(x_ND, grid, self.window, self.groups, self.activation, residual_NF)
        else:
            arguments = self.filters_TD, self.bias, self.activation, residual_NF
            rows = self.ops.convolve_depthwise(x_ND, grid, self.window, *arguments)
        return rows, self.window.over(grid)


def image_starts(grid: PixelGrid) -> np.ndarray:
    """Where each image's rows start, and where the last image's rows end."""
    return np.arange(grid.images + 1, dtype=np.int64) * (grid.height * grid.width)


class ChannelGate:
    """x times sigmoid(fc2(relu(fc1(mean of the image)))) (Hu 2018), from ``name.fc1`` and ``name.fc2``."""

    def __init__(self, parameters: Parameters, name: str):
        self.ops = parameters.ops
        self.inner, self.outer = Linear(parameters, f"{name}.fc1", "relu"), Linear(parameters, f"{name}.fc2", "sigmoid")

    def gates(self, x_ND: np.ndarray, grid: PixelGrid) -> np.ndarray:
        """The gates of each image's channels, [images, D]."""
        return self.outer(self.inner(self.ops.pool(x_ND, image_starts(grid), ["mean"])))

    def __call__(self, x_ND: np.ndarray, grid: PixelGrid) -> np.ndarray:
        return self.ops.gate_pixels(x_ND, grid, self.gates(x_ND, grid))


class ChannelAndPixelGate:
    """Gates channels, then pixels (Woo 2018), by ``name.fc1``, ``name.fc2`` and ``name.spatial``, a 7 x 7 convolution.

    Channels: sigmoid(fc2(relu(fc1(mean)) + relu(fc1(max)))); fc2 has twice the bias of the paper's MLP, which the paper
    applies to mean and maximum. Pixels: sigmoid of the convolution of the mean and the maximum of a pixel's channels.
    """

    def __init__(self, parameters: Parameters, name: str):
        self.ops = parameters.ops
        self.inner, self.outer = Linear(parameters, f"{name}.fc1", "relu"), Linear(parameters, f"{name}.fc2", "sigmoid")
        self.spatial = ImageConvolution(parameters, f"{name}.spatial", Window((7, 7), padding=(3, 3)), "sigmoid")

    def channels(self, x_ND: np.ndarray, grid: PixelGrid) -> np.ndarray:
        """The gates of each image's channels, [images, D]."""
        pooled = [self.ops.pool(x_ND, image_starts(grid), [mode]) for mode in ("mean", "max")]
        return self.outer(self.ops.add_rows(*map(self.inner, pooled)))

    def pixels(self, x_ND: np.ndarray, grid: PixelGrid) -> np.ndarray:
        """The gate of each pixel, [N, 1], from rows after the gates of channels."""
        summary_N2 = np.stack([x_ND.mean(axis=1), x_ND.max(axis=1)], axis=1)  # as fast as a kernel: bound by memory
        return self.spatial(self.ops.as_rows(summary_N2), grid)[0]

    def __call__(self, x_ND: np.ndarray, grid: PixelGrid) -> np.ndarray:
        x_ND = self.ops.gate_pixels(x_ND, grid, self.channels(x_ND, grid))
        return self.ops.gate_pixels(x_ND, grid, None, self.pixels(x_ND, grid))
