"""Operations on images: their Protocol, how the pixels of a batch lie in rows, the windows that move over them.

Inside, channels are last: a pixel is a row, so a 1x1 convolution is ``linear``, the mean of an image is ``pool``, and
patches are a transformer's rows, all by the operations that text has.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np


class PixelGrid(NamedTuple):
    """Images of one size in rows: row (b * height + y) * width + x is the pixel (y, x) of image b."""

    images: int
    height: int
    width: int

    @property
    def rows(self) -> int:
        """How many rows the images have."""
        return self.images * self.height * self.width


class Window(NamedTuple):
    """A window that moves over an image; each field (y, x), in pixels.

    padding   pixels of zeros, or for a maximum of nothing, on both sides
    dilation  from one tap of the window to the next
    """

    size: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)

    def over(self, grid: PixelGrid) -> PixelGrid:
        """The grid of its places; a side is 0 where the window is larger than the padded image."""
        height, width = (
            max(0, (length + 2 * self.padding[i] - self.dilation[i] * (self.size[i] - 1) - 1) // self.stride[i] + 1)
            for i, length in enumerate(grid[1:])
        )
        return PixelGrid(grid.images, height, width)


class ImageOps(Protocol):
    """Those of a namespace of operations (``ops.protocol`` Ops), whose pixels are rows of it."""

    def convolve(
        self,
        x_ND: np.ndarray,
        grid: PixelGrid,
        window: Window,
        groups: Sequence[Any],
        activation: str = "none",
        residual_NF: np.ndarray | None = None,
    ) -> np.ndarray:
        """activation(W * x + b + residual); each group's layer takes its part of each tap's channels, tap after tap."""

    def convolve_depthwise(
        self,
        x_ND: np.ndarray,
        grid: PixelGrid,
        window: Window,
        weight_TD: np.ndarray,
        bias_D: np.ndarray | None = None,
        activation: str = "none",
        residual_ND: np.ndarray | None = None,
    ) -> np.ndarray:
        """activation(W * x + b + residual) with one filter a channel, float32 [rows of the window's grid, D]."""

    def pool_windows(self, x_ND: np.ndarray, grid: PixelGrid, window: Window, mode: str) -> np.ndarray:
        """mode: "max"; "mean" of all taps, zeros of the padding among them; "mean_inside" of those in the image."""

    def pool_areas(self, x_ND: np.ndarray, grid: PixelGrid, out: PixelGrid, mode: str) -> np.ndarray:
        """The "max" or "mean" of each of ``out``'s areas, which cut an image into equal parts; they may overlap."""

    def sample_pixels(self, x_ND: np.ndarray, grid: PixelGrid, points_BP2: np.ndarray, beyond: str) -> np.ndarray:
        """Bilinear samples at points (y, x) of each image, float32, in pixels from the middle of the first: [B P, D].

        beyond  what lies outside: "zeros", or the nearest "edge"
        """

    def gate_pixels(
        self,
        x_ND: np.ndarray,
        grid: PixelGrid,
        channels_BD: np.ndarray | None = None,
        pixels_N1: np.ndarray | None = None,
        added: float = 0.0,
    ) -> np.ndarray:
        """x times the gates of its image's channels and of its pixels, either or both, plus ``added`` x."""
