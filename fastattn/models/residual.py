"""Residual networks over images (He 2016): whole images in, the rows of their last grid out."""

from collections.abc import Callable, Sequence

import numpy as np

from fastattn.arguments.images import PixelGrid, Window
from fastattn.layers.images import ChannelAndPixelGate, ChannelGate, ImageConvolution
from fastattn.layers.parameters import Parameters
from fastattn.spec.images import BlockSizes, ResidualSpec

Gate = Callable[[np.ndarray, PixelGrid], np.ndarray]
GATES: dict[str, Callable[[Parameters, str], Gate]] = {"squeeze-excitation": ChannelGate, "cbam": ChannelAndPixelGate}


class ResidualBlock:
    """relu(gate(convolutions of x) + x), from ``name.1``, ``.2``, ``.3``, ``.shortcut`` and ``.gate``."""

    def __init__(self, parameters: Parameters, name: str, spec: ResidualSpec, sizes: BlockSizes):
        self.ops, strides = parameters.ops, (sizes.stride, sizes.stride)
        strided_window = Window((3, 3), strides, (1, 1))
        windows = [(Window((1, 1)), 1), (strided_window, spec.groups), (Window((1, 1)), 1)]
        if spec.expansion == 1:
            windows = [(strided_window, 1), (Window((3, 3), padding=(1, 1)), 1)]
        self.gate = None if spec.gate == "none" else GATES[spec.gate](parameters, f"{name}.gate")
        activations = ["relu"] * (len(windows) - 1) + ["relu" if self.gate is None else "none"]
        self.convolutions = [
            ImageConvolution(parameters, f"{name}.{i + 1}", window, activation, groups)
            for i, ((window, groups), activation) in enumerate(zip(windows, activations))
        ]
        self.shortcut = None
        if sizes.has_shortcut:
            self.shortcut = ImageConvolution(parameters, f"{name}.shortcut", Window((1, 1), strides))

    def __call__(self, x_ND: np.ndarray, grid: PixelGrid) -> tuple[np.ndarray, PixelGrid]:
        shortcut_ND = x_ND if self.shortcut is None else self.shortcut(x_ND, grid)[0]
        *first_convolutions, last_convolution = self.convolutions
        for convolution in first_convolutions:
            x_ND, grid = convolution(x_ND, grid)
        x_ND, grid = last_convolution(x_ND, grid, shortcut_ND if self.gate is None else None)
        if self.gate is None:
            return x_ND, grid
        return np.maximum(self.ops.add_rows(self.gate(x_ND, grid), shortcut_ND), 0), grid


class ResidualEncoder:
    """Runs images through the network of ``name.*``. An image comes as rows [pixels of the last grid, ``row_values``]
    that hold the image's numbers in order, channels last, so that a source has as many rows as its memory."""

    def __init__(self, parameters: Parameters, spec: ResidualSpec, name: str = "encoder"):
        self.ops, self.spec, side, self.limit = parameters.ops, spec, spec.stem_size, 0
        window = Window((side, side), (spec.stem_stride,) * 2, (side // 2,) * 2)
        self.stem = ImageConvolution(parameters, f"{name}.stem", window, "relu")
        self.pool = Window((3, 3), (2, 2), (1, 1)) if spec.stem_pool else None
        self.blocks = [
            ResidualBlock(parameters, f"{name}.layers.{i}", spec, sizes) for i, sizes in enumerate(spec.block_sizes)
        ]

    def encode(
        self, pixels_B: Sequence[np.ndarray], types_B: object = None, visible_B: object = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """(rows_ND, starts_B1): a row for each pixel of an image's last grid, in order."""
        rows_ND, starts_B1, _ = self.encode_to_states(pixels_B)
        return rows_ND, starts_B1

    def encode_to_states(self, pixels_B: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """``encode``, and the mean of each image's rows, [B, D], a decoder's first input."""
        image_rows = [self._run(pixels_PE) for pixels_PE in pixels_B]  # one by one: an image has rows for all threads
        height, width = self.spec.grid
        starts_B1 = np.arange(len(image_rows) + 1, dtype=np.int64) * (height * width)
        empty_ND = self.ops.empty((0, self.spec.width), np.dtype(np.float32))
        rows_ND = self.ops.concatenate_rows(image_rows or [empty_ND])
        return rows_ND, starts_B1, self.ops.pool(rows_ND, starts_B1, ["mean"])

    def _run(self, pixels_PE: np.ndarray) -> np.ndarray:
        channels, *sides = self.spec.image
        grid = PixelGrid(1, *sides)
        pixels_NC = pixels_PE.reshape(-1)[: grid.rows * channels].reshape(grid.rows, channels)
        x_ND, grid = self.stem(self.ops.as_rows(pixels_NC), grid)
        if self.pool is not None:
            x_ND, grid = self.ops.pool_windows(x_ND, grid, self.pool, "max"), self.pool.over(grid)
        for block in self.blocks:
            x_ND, grid = block(x_ND, grid)
        return x_ND
