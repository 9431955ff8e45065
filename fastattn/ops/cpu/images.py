"""Operations on images, whose pixels are rows: see ``fastattn.ops.images``."""

from collections.abc import Sequence

import numpy as np

from fastattn.kernels.arguments import ACTIVATION_CODES, MR, ConvolutionPart
from fastattn.ops.cpu.matmul import ROW_BLOCK, SMALL, PackedLinear, scratch_bytes
from fastattn.ops.images import PixelGrid, Window
from fastattn.runtime.arena import empty
from fastattn.runtime.handle import kernel_named
from fastattn.runtime.threads import current_threads

_convolve = kernel_named("convolution", "_convolve")
_convolve_depthwise, _pool = kernel_named("images", "_convolve_depthwise"), kernel_named("images", "_pool")
_sample, _gate = kernel_named("images", "_sample"), kernel_named("images", "_gate")
_NONE, _NO_BIAS = np.empty((0, 0), np.float32), np.empty(0, np.float32)


def convolve(
    x_ND: np.ndarray,
    grid: PixelGrid,
    window: Window,
    groups: Sequence[PackedLinear],
    activation: str = "none",
    residual_NF: np.ndarray | None = None,
) -> np.ndarray:
    """activation(W * x + b + residual), float32 [rows of the window's grid, outputs of all groups].

    groups  each of one size and precision; it takes its part of each tap's channels, tap after tap
    """
    out, packed, (height, width) = window.over(grid), groups[0], window.size
    y_NF = empty((out.rows, packed.outputs * len(groups)))
    if not out.rows:
        return y_NF
    channels, panels = packed.inputs // (height * width), packed.panels_PSN
    threads = 1 if panels.nbytes * (out.rows + MR) <= SMALL * MR else current_threads()
    tasks = -(-out.rows // (ROW_BLOCK * threads)) * threads
    rows = -(-out.rows // (tasks * MR)) * MR
    # taps side by side are numbers side by side where nothing lies between them
    taps = width if window.dilation[1] == 1 and len(groups) == 1 else 1
    addresses = 8 * height * width // taps
    room = rows * (4 * packed.inputs + addresses) + scratch_bytes(panels, packed.inputs, rows)
    scratch_PB = empty((min(threads, -(-out.rows // rows)), -(-room // 8) * 8), np.uint8)
    for number, group in enumerate(groups):
        part = ConvolutionPart(
            number * channels, channels, number * group.outputs, group.outputs, taps, rows, ACTIVATION_CODES[activation]
        )
        residual = _NONE if residual_NF is None else residual_NF
        _convolve(
            x_ND, grid, window, out, group.panels_PSN, group.kernel_arrays, part, residual, scratch_PB, y_NF
        )  # fmt: skip
    return y_NF


def convolve_depthwise(
    x_ND: np.ndarray,
    grid: PixelGrid,
    window: Window,
    weight_TD: np.ndarray,
    bias_D: np.ndarray | None = None,
    activation: str = "none",
    residual_ND: np.ndarray | None = None,
) -> np.ndarray:
    """activation(W * x + b + residual) with one filter a channel, float32 [rows of the window's grid, D]."""
    out = window.over(grid)
    y_ND = empty((out.rows, x_ND.shape[1]))
    _convolve_depthwise(
        x_ND, grid, window, out, weight_TD, _NO_BIAS if bias_D is None else bias_D, ACTIVATION_CODES[activation],
        _NONE if residual_ND is None else residual_ND, y_ND,
    )  # fmt: skip
    return y_ND


def pool_windows(x_ND: np.ndarray, grid: PixelGrid, window: Window, mode: str) -> np.ndarray:
    """The maximum or mean of each place of the window; "mean_inside" leaves padding out of the count."""
    out = window.over(grid)
    edges = []
    for i, (length, places) in enumerate(zip(grid[1:], out[1:], strict=True)):
        step, first_N = window.dilation[i], np.arange(places) * window.stride[i] - window.padding[i]
        end_N = np.minimum(first_N + window.size[i] * step, length)
        edges.append(np.stack([np.where(first_N < 0, first_N % step, first_N), end_N, np.full(places, step)], axis=1))
    return _pooled(x_ND, grid, out, edges, mode, window.size[0] * window.size[1] if mode == "mean" else 0)


def pool_areas(x_ND: np.ndarray, grid: PixelGrid, out: PixelGrid, mode: str) -> np.ndarray:
    """The "max" or "mean" of each of ``out``'s areas, which cut an image into equal parts; they may overlap."""
    edges = []
    for length, parts in zip(grid[1:], out[1:], strict=True):
        place_N = np.arange(parts)
        edges.append(
            np.stack([place_N * length // parts, -(-(place_N + 1) * length // parts), place_N * 0 + 1], axis=1)
        )
    return _pooled(x_ND, grid, out, edges, mode, 0)


def _pooled(
    x_ND: np.ndarray, grid: PixelGrid, out: PixelGrid, edges: list[np.ndarray], mode: str, taps: int
) -> np.ndarray:
    """taps: what a sum is divided by; 0: the number of pixels that are there."""
    y_ND = empty((out.rows, x_ND.shape[1]))
    _pool(x_ND, grid, out, *edges, mode == "max", taps, y_ND)
    return y_ND


def sample_pixels(x_ND: np.ndarray, grid: PixelGrid, points_BP2: np.ndarray, beyond: str) -> np.ndarray:
    """Bilinear samples at points (y, x) of each image, float32, in pixels from the middle of the first: [B P, D].

    beyond  what lies outside: "zeros", or the nearest "edge"
    """
    points_N2 = points_BP2.reshape(-1, 2)
    y_ND = empty((len(points_N2), x_ND.shape[1]))
    if len(points_N2):
        _sample(x_ND, grid, points_N2, beyond == "edge", y_ND)
    return y_ND


def gate_pixels(
    x_ND: np.ndarray,
    grid: PixelGrid,
    channels_BD: np.ndarray | None = None,
    pixels_N1: np.ndarray | None = None,
    added: float = 0.0,
) -> np.ndarray:
    """x times the gates of its image's channels and of its pixels, either or both, plus ``added`` x."""
    y_ND = empty(x_ND.shape)
    channels, pixels = (_NONE if gates is None else gates for gates in (channels_BD, pixels_N1))
    _gate(x_ND, grid.height * grid.width, channels, pixels, float(added), y_ND)
    return y_ND
