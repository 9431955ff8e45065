"""Operations on images, whose pixels are rows: each by its definition."""

from collections.abc import Callable, Sequence

import numpy as np

from fastattn.arguments.images import PixelGrid, Window
from fastattn.ops.reference.matmul import ACTIVATIONS, ReferenceLinear, linear


def _taps(x_ND: np.ndarray, grid: PixelGrid, window: Window, border: float) -> np.ndarray:
    """The taps of the window at each position, [rows of the result, taps, D]; ``border`` outside the image."""
    (top, left), (stride_y, stride_x), (step_y, step_x) = window.padding, window.stride, window.dilation
    padding = ((0, 0), (top, top), (left, left), (0, 0))
    padded_BYXD = np.pad(x_ND.reshape(*grid, x_ND.shape[1]), padding, constant_values=border)
    out = window.over(grid)
    span_y, span_x = (out.height - 1) * stride_y + 1, (out.width - 1) * stride_x + 1
    taps = [
        padded_BYXD[:, y : y + span_y : stride_y, x : x + span_x : stride_x]
        for y in range(0, window.size[0] * step_y, step_y)
        for x in range(0, window.size[1] * step_x, step_x)
    ]
    return np.stack(taps, axis=3).reshape(out.rows, len(taps), x_ND.shape[1])


def _add_and_activate(y_NF: np.ndarray, activation: str, residual_NF: np.ndarray | None) -> np.ndarray:
    return ACTIVATIONS[activation](y_NF if residual_NF is None else y_NF + residual_NF)


def convolve(
    x_ND: np.ndarray,
    grid: PixelGrid,
    window: Window,
    groups: Sequence[ReferenceLinear],
    activation: str = "none",
    residual_NF: np.ndarray | None = None,
) -> np.ndarray:
    taps_NTD = _taps(x_ND, grid, window, 0)
    pairs = zip(np.split(taps_NTD, len(groups), axis=2), groups)
    y_NF = np.concatenate([linear(taps_NTC.reshape(-1, group.inputs), group) for taps_NTC, group in pairs], axis=1)
    return _add_and_activate(y_NF, activation, residual_NF)


def convolve_depthwise(
    x_ND: np.ndarray,
    grid: PixelGrid,
    window: Window,
    weight_TD: np.ndarray,
    bias_D: np.ndarray | None = None,
    activation: str = "none",
    residual_ND: np.ndarray | None = None,
) -> np.ndarray:
    y_ND = np.einsum("ntd,td->nd", _taps(x_ND, grid, window, 0), weight_TD)
    return _add_and_activate(y_ND if bias_D is None else y_ND + bias_D, activation, residual_ND)


def pool_windows(x_ND: np.ndarray, grid: PixelGrid, window: Window, mode: str) -> np.ndarray:
    if mode == "max":
        peaks_ND: np.ndarray = _taps(x_ND, grid, window, -np.inf).max(axis=1)
        return peaks_ND
    counts_N1 = np.array(window.size[0] * window.size[1], x_ND.dtype)
    if mode == "mean_inside":
        counts_N1 = _taps(np.ones((grid.rows, 1), x_ND.dtype), grid, window, 0).sum(axis=1)
    means_ND: np.ndarray = _taps(x_ND, grid, window, 0).sum(axis=1) / counts_N1
    return means_ND


def pool_areas(x_ND: np.ndarray, grid: PixelGrid, out: PixelGrid, mode: str) -> np.ndarray:
    x_BYXD = x_ND.reshape(*grid, x_ND.shape[1])
    pools: dict[str, Callable] = {"max": np.max, "mean": np.mean}
    edges = [
        [(i * length // count, -(-(i + 1) * length // count)) for i in range(count)]
        for length, count in zip(grid[1:], out[1:])
    ]
    areas = [
        pools[mode](x_BYXD[:, top:end, left:right], axis=(1, 2)) for top, end in edges[0] for left, right in edges[1]
    ]
    return np.stack(areas, axis=1).reshape(out.rows, x_ND.shape[1])


def sample_pixels(x_ND: np.ndarray, grid: PixelGrid, points_BP2: np.ndarray, border: str) -> np.ndarray:
    B, P, _ = points_BP2.shape
    x_BYXD, limits_2 = x_ND.reshape(*grid, x_ND.shape[1]), np.array(grid[1:]) - 1
    margin = 0 if border == "edge" else 1  # a sample one pixel outside the image is zero
    points_BP2 = np.clip(points_BP2, -margin, limits_2 + margin)
    corner_BP2 = np.floor(points_BP2)
    fraction_BP2 = (points_BP2 - corner_BP2).astype(x_ND.dtype)
    result_BPD = np.zeros((B, P, x_ND.shape[1]), x_ND.dtype)
    for corner in ((0, 0), (0, 1), (1, 0), (1, 1)):
        pixel_BP2 = corner_BP2 + corner
        share_BP = np.where(corner, fraction_BP2, 1 - fraction_BP2).prod(axis=2)
        inside_BP1 = ((pixel_BP2 >= 0) & (pixel_BP2 <= limits_2)).all(axis=2, keepdims=True)
        share_BP = np.where(inside_BP1[..., 0], share_BP, 0)
        y_BP, x_BP = np.moveaxis(np.where(inside_BP1, pixel_BP2, 0).astype(np.int64), 2, 0)
        result_BPD += share_BP[..., None] * x_BYXD[np.arange(B)[:, None], y_BP, x_BP]
    return result_BPD.reshape(B * P, x_ND.shape[1])


def gate_pixels(
    x_ND: np.ndarray,
    grid: PixelGrid,
    channels_BD: np.ndarray | None = None,
    pixels_N1: np.ndarray | None = None,
    offset: float = 0.0,
) -> np.ndarray:
    gates = np.asarray(1, x_ND.dtype)
    if channels_BD is not None:
        gates = gates * np.repeat(channels_BD, grid.height * grid.width, axis=0)
    if pixels_N1 is not None:
        gates = gates * pixels_N1
    return x_ND * (gates + x_ND.dtype.type(offset))
