"""Operations on images: their Protocol.

Inside, channels are last: a pixel is a row, so a 1x1 convolution is ``linear``, the mean of an image is ``pool``, and
patches are a transformer's rows, all by the operations that text has.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from fastattn.arguments.images import PixelGrid, Window


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
