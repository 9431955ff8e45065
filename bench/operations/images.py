"""Operations on images, whose pixels are rows."""

from typing import Any

import numpy as np

from bench.operations.table import (
    FLOAT,
    GBYTES,
    GFLOPS,
    GOPS,
    WEIGHT_BYTES,
    Arrays,
    Operation,
    Problem,
    Size,
    Work,
    normal,
)
from fastattn.arguments.images import PixelGrid, Window

Grid = tuple[int, int, int]


def _name(*parts: Any) -> str:
    return "-".join(map(str, parts))


def _pixels(rng: np.random.Generator, rows: int, channels: int) -> np.ndarray:
    """Rows on whole cache lines, as operations return them; peers get them too."""
    room = np.empty(rows * channels + 16, np.float32)
    first = -room.ctypes.data % 64 // 4
    pixels_ND = room[first : first + rows * channels].reshape(rows, channels)
    pixels_ND[...] = normal(rng, rows, channels)
    return pixels_ND


def _title(operation: str, grid: Grid, channels: int, window: Window) -> str:
    images, height, width = grid
    return f"{operation} {images} x {channels} x {height} x {width}, {'x'.join(map(str, window.size))}" + (
        f" / {window.stride[0]}" * (window.stride != (1, 1))
    )


def convolve(
    grid: Grid,
    channels: int,
    outputs: int,
    window: Window,
    activation: str = "none",
    residual: bool = False,
    groups: int = 1,
    precision: str = "float32",
) -> Problem:
    rng, over = np.random.default_rng(sum(grid) * 31 + channels + outputs), window.over(PixelGrid(*grid))
    inputs = window.size[0] * window.size[1] * channels // groups
    arrays = {
        "x": _pixels(rng, PixelGrid(*grid).rows, channels),
        "weight": normal(rng, outputs, inputs) / np.float32(inputs) ** 0.5,
        "bias": normal(rng, outputs),
    }
    if residual:
        arrays["residual"] = normal(rng, over.rows, outputs)

    def bind(ops: Any, a: Arrays) -> Any:
        weights, biases = np.split(a["weight"], groups), np.split(a["bias"], groups)
        packed = [ops.pack_linear(weight, bias, precision) for weight, bias in zip(weights, biases)]
        return lambda: (ops.convolve(a["x"], PixelGrid(*grid), window, packed, activation, a.get("residual")),)

    moved = FLOAT * (arrays["x"].size + over.rows * outputs) + WEIGHT_BYTES[precision] * outputs * inputs
    title, unit = _title("convolve", grid, channels, window) + f" to {outputs}", GOPS if precision == "int8" else GFLOPS
    return Problem(
        _name("convolve", grid, channels, outputs, *window, activation, residual, groups, precision),
        "convolve",
        arrays,
        bind,
        {"grid": grid, "window": window, "groups": groups, "activation": activation, "precision": precision},
        work=Work(title, moved, 2.0 * over.rows * outputs * inputs, unit),
    )


def convolve_depthwise(
    grid: Grid, channels: int, window: Window, activation: str = "none", bias: bool = True, residual: bool = False
) -> Problem:
    rng, over = np.random.default_rng(sum(grid) * 31 + channels), window.over(PixelGrid(*grid))
    taps = window.size[0] * window.size[1]
    arrays = {"x": _pixels(rng, PixelGrid(*grid).rows, channels), "weight": normal(rng, taps, channels)}
    if bias:
        arrays["bias"] = normal(rng, channels)
    if residual:
        arrays["residual"] = normal(rng, over.rows, channels)

    def bind(ops: Any, a: Arrays) -> Any:
        more = a.get("bias"), activation, a.get("residual")
        return lambda: (ops.convolve_depthwise(a["x"], PixelGrid(*grid), window, a["weight"], *more),)

    moved, work = FLOAT * (arrays["x"].size + (over.rows + taps) * channels), 2.0 * over.rows * channels * taps
    return Problem(
        _name("convolve_depthwise", grid, channels, *window, activation, bias, residual),
        "convolve_depthwise",
        arrays,
        bind,
        {"grid": grid, "window": window, "activation": activation},
        work=Work(_title("convolve_depthwise", grid, channels, window), moved, work),
    )


def pool_windows(grid: Grid, channels: int, window: Window, mode: str) -> Problem:
    arrays = {"x": _pixels(np.random.default_rng(sum(grid)), PixelGrid(*grid).rows, channels)}

    def bind(ops: Any, a: Arrays) -> Any:
        return lambda: (ops.pool_windows(a["x"], PixelGrid(*grid), window, mode),)

    moved = FLOAT * (arrays["x"].size + window.over(PixelGrid(*grid)).rows * channels)
    work = Work(_title(f"pool_windows {mode}", grid, channels, window), moved, unit=GBYTES)
    form = {"grid": grid, "window": window, "mode": mode}
    name = _name("pool_windows", grid, channels, *window, mode)
    return Problem(name, "pool_windows", arrays, bind, form, (0,) if mode == "max" else (), work)


def pool_areas(grid: Grid, channels: int, areas: tuple[int, int]) -> Problem:
    arrays = {"x": _pixels(np.random.default_rng(sum(grid)), PixelGrid(*grid).rows, channels)}

    def bind(ops: Any, a: Arrays) -> Any:
        arguments = a["x"], PixelGrid(*grid), PixelGrid(grid[0], *areas)
        return lambda: (ops.pool_areas(*arguments, "mean"), ops.pool_areas(*arguments, "max"))

    return Problem(_name("pool_areas", grid, channels, areas), "pool_areas", arrays, bind, exact=(1,))


def sample_pixels(grid: Grid, channels: int, points: int, beyond: str) -> Problem:
    """Points inside and outside, on pixels and on edges, and some that are no numbers."""
    rng = np.random.default_rng(sum(grid) + points)
    points_BP2 = rng.uniform(-2, 2 + np.array(grid[1:]), (grid[0], points, 2)).astype(np.float32)
    points_BP2[:, 1::4] = np.rint(points_BP2[:, 1::4])
    points_BP2[:, 9::10, 1] = (np.nan, np.inf, -1e30)[points % 3]
    arrays = {"x": _pixels(rng, PixelGrid(*grid).rows, channels), "points": points_BP2}

    def bind(ops: Any, a: Arrays) -> Any:
        return lambda: (ops.sample_pixels(a["x"], PixelGrid(*grid), a["points"], beyond),)

    return Problem(_name("sample_pixels", grid, channels, points, beyond), "sample_pixels", arrays, bind)


def gate_pixels(grid: Grid, channels: int, of_channels: bool, of_pixels: bool, added: float = 0.0) -> Problem:
    rng, rows = np.random.default_rng(sum(grid)), PixelGrid(*grid).rows
    arrays = {"x": _pixels(rng, rows, channels)}
    if of_channels:
        arrays["channels"] = normal(rng, grid[0], channels)
    if of_pixels:
        arrays["pixels"] = normal(rng, rows, 1)

    def bind(ops: Any, a: Arrays) -> Any:
        gates = a.get("channels"), a.get("pixels"), added
        return lambda: (ops.gate_pixels(a["x"], PixelGrid(*grid), *gates),)

    return Problem(_name("gate_pixels", grid, channels, of_channels, of_pixels, added), "gate_pixels", arrays, bind)


def _square(size: int, stride: int = 1, padding: int = 0, dilation: int = 1) -> Window:
    return Window((size, size), (stride, stride), (padding, padding), (dilation, dilation))


# Windows as large as the padded image, larger than the image, beyond its borders, rows and columns of other kinds.
PLACES = (
    ((0, 5, 5), _square(3, padding=1)),
    ((1, 1, 1), _square(1)),
    ((2, 4, 7), _square(1)),
    ((2, 5, 4), _square(1, stride=2)),
    ((1, 1, 1), _square(3, padding=1)),
    ((1, 3, 2), Window((5, 4), padding=(1, 1))),
    ((3, 7, 9), _square(3, padding=1)),
    ((2, 9, 15), _square(3, 2, 1)),
    ((1, 12, 10), _square(3, 1, 2, 2)),
    ((2, 6, 11), Window((2, 5), (3, 1), (1, 4), (2, 3))),
    ((1, 13, 14), _square(7, 2, 3)),
    ((5, 8, 8), Window((1, 3), padding=(0, 1))),
    ((1, 5, 40), Window((3, 1), (1, 2), (2, 0))),
)
CHANNELS = (1, 3, 16, 17, 40)

TABLE = {
    "convolve": Operation(
        convolve,
        awkward=[
            *(
                Size(
                    *place[:1],
                    CHANNELS[i % 5],
                    (1, 48, 19, 64, 101)[i % 4],
                    place[1],
                    ("none", "relu", "gelu")[i % 3],
                    i % 2 > 0,
                )
                for i, place in enumerate(PLACES)
            ),
            *(
                Size(grid, 4 * groups, (5, 16)[i % 2] * groups, window, ("relu", "none")[i % 2], i % 3 > 0, groups)
                for i, (grid, window) in enumerate(PLACES[3::2])
                for groups in (2, 5)
            ),
            # patches: odd and even sides, a single place, more places than a task has
            *(
                Size(grid, 16 * channels, 16 * outputs, _square(3, padding=padding), activation, padding != 1)
                for grid, channels, outputs, padding, activation in (
                    ((1, 1, 1), 1, 1, 1, "none"),
                    ((2, 7, 6), 2, 3, 1, "relu"),
                    ((3, 5, 4), 1, 4, 0, "none"),
                    ((1, 4, 23), 3, 7, 2, "gelu"),
                    ((5, 12, 11), 1, 2, 1, "none"),
                )
            ),
        ],
        large=[
            Size((1, 56, 56), 64, 64, _square(3, padding=1)),
            Size((8, 14, 14), 256, 256, _square(3, padding=1)),
            Size((8, 28, 28), 256, 256, _square(1)),
            Size((1, 224, 224), 3, 64, _square(7, 2, 3)),
        ],
        toy=[Size((1, 5, 6), 3, 8, _square(3, padding=1))],
        precisions=("float32", "bfloat16", "int8"),
    ),
    "convolve_depthwise": Operation(
        convolve_depthwise,
        awkward=[
            Size(grid, CHANNELS[(i + j) % 5], window, ("none", "gelu")[i % 2], j > 0, i % 3 > 0)
            for i, (grid, window) in enumerate(PLACES)
            for j in (0, 2)
        ],
        large=[Size((8, 28, 28), 256, _square(3, padding=1)), Size((8, 56, 56), 128, _square(3, 2, 1))],
        toy=[Size((1, 5, 6), 3, _square(3, padding=1))],
    ),
    "pool_windows": Operation(
        pool_windows,
        awkward=[
            Size(grid, CHANNELS[i % 5], window, mode)
            for i, (grid, window) in enumerate(PLACES)
            for mode in ("max", "mean", "mean_inside")
            if window.over(PixelGrid(*grid)).rows and 2 * max(window.padding) <= min(window.size)
        ],
        large=[Size((1, 112, 112), 64, _square(3, 2, 1), "max")],
        toy=[Size((1, 5, 6), 3, _square(3, 2, 1), "max")],
    ),
    "pool_areas": Operation(
        pool_areas,
        [
            Size(*size)
            for size in (
                ((0, 3, 3), 4, (1, 1)),
                ((1, 1, 1), 1, (1, 1)),
                ((2, 7, 7), 33, (1, 1)),
                ((2, 5, 9), 16, (3, 4)),
                ((1, 2, 3), 5, (4, 7)),
            )
        ],  # fmt: skip
    ),
    "sample_pixels": Operation(
        sample_pixels,
        [
            Size(*size, beyond)
            for size in (
                ((0, 3, 3), 4, 5),
                ((1, 1, 1), 1, 7),
                ((2, 4, 5), 17, 30),
                ((3, 6, 2), 40, 0),
                ((1, 9, 8), 3, 101),
            )
            for beyond in ("zeros", "edge")
        ],
    ),
    "gate_pixels": Operation(
        gate_pixels,
        [
            Size(grid, channels, *gates)
            for grid, channels in (((0, 2, 2), 3), ((1, 1, 1), 1), ((3, 4, 5), 33))
            for gates in ((True, False), (False, True), (True, True, 1.0))
        ],
    ),
}
