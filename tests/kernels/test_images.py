"""Operations on images beyond the table: precisions, and that an image's bits are its own."""

from collections.abc import Callable
from typing import Any

import numpy as np

from fastattn.arguments.images import PixelGrid, Window
from fastattn.ops import cpu as operations
from fastattn.ops import reference
from tests.kernels.cases import normal

THREE = Window((3, 3), padding=(1, 1))
STRIDED = Window((3, 2), (2, 1), (1, 0), (1, 2))


def convolved(ops: Any, precision: str, window: Window, channels: int, outputs: int, groups: int = 1) -> Callable:
    """x and its grid -> the convolution, with weights and each image's residual that depend on the sizes alone."""
    inputs = window.size[0] * window.size[1] * channels // groups
    weight, bias = normal(inputs, groups, outputs // groups, inputs), normal(outputs, groups, outputs // groups)
    packed = [ops.pack_linear(*pair, precision) for pair in zip(weight, bias, strict=True)]

    def call(x_ND: np.ndarray, grid: PixelGrid) -> np.ndarray:
        residual_NF = normal(outputs, window.over(grid).rows // grid.images, outputs).astype(x_ND.dtype)
        residual_NF = np.tile(residual_NF, (grid.images, 1))
        found: np.ndarray = ops.convolve(x_ND, grid, window, packed, "relu", residual_NF)
        return found

    return call


NARROW = [
    *((precision, *sizes) for precision in ("int8", "bfloat16") for sizes in (
        (THREE, 16, 48, 1), (STRIDED, 5, 17, 1), (Window((1, 1)), 7, 70, 1), (THREE, 12, 20, 4)
    )),
    ("int4", THREE, 32, 20, 1),
]  # fmt: skip


def test_narrow_convolutions_follow_the_oracle():
    for precision, window, channels, outputs, groups in NARROW:
        grid = PixelGrid(2, 7, 9)
        x_ND = normal(channels, grid.rows, channels)
        found, expected = (
            convolved(ops, precision, window, channels, outputs, groups)(x, grid)
            for ops, x in ((operations, x_ND), (reference, x_ND.astype(np.float64)))
        )
        np.testing.assert_allclose(found, expected, rtol=3e-5, atol=3e-5 * np.abs(expected).max())


WEIGHT_TD = normal(1, 9, 32)
CALLS = {
    **{
        f"convolve {precision} {window.stride[0]}": convolved(operations, precision, window, 32, 64)
        for precision in ("float32", "int8", "bfloat16")
        for window in (THREE, STRIDED)
    },
    "convolve_depthwise": lambda x_ND, grid: operations.convolve_depthwise(x_ND, grid, THREE, WEIGHT_TD),
    "pool_windows": lambda x_ND, grid: operations.pool_windows(x_ND, grid, STRIDED, "mean_inside"),
    "pool_areas": lambda x_ND, grid: operations.pool_areas(x_ND, grid, PixelGrid(grid.images, 3, 2), "mean"),
}


def test_windows_whose_holes_meet_the_padding_follow_the_oracle():
    """Of 3 x 2 places two apart that begin one before the image, the first that counts is its second row."""
    grid, window = PixelGrid(2, 7, 6), Window((3, 2), (1, 2), (1, 1), (2, 2))
    x_ND, weight_TD = normal(1, grid.rows, 5), normal(2, 6, 5)
    for mode in ("max", "mean", "mean_inside"):
        expected = reference.pool_windows(x_ND.astype(np.float64), grid, window, mode)
        np.testing.assert_allclose(operations.pool_windows(x_ND, grid, window, mode), expected, atol=1e-6)
    expected = reference.convolve_depthwise(x_ND.astype(np.float64), grid, window, weight_TD)
    np.testing.assert_allclose(operations.convolve_depthwise(x_ND, grid, window, weight_TD), expected, atol=1e-5)
    found, expected = (convolved(ops, "float32", window, 5, 3)(x_ND, grid) for ops in (operations, reference))
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_an_image_does_not_depend_on_the_others():
    for height, width in ((9, 11), (2, 3)):
        for name in CALLS:
            images = 7
            x_BND = normal(height, images, height * width, 32)
            with operations.use_threads(2):
                together = CALLS[name](x_BND.reshape(-1, 32), PixelGrid(images, height, width)).reshape(images, -1)
            for b in (0, 3, 6):
                alone = CALLS[name](x_BND[b], PixelGrid(1, height, width))
                np.testing.assert_array_equal(alone.reshape(-1), together[b])


def test_what_is_no_number_stays_within_its_windows():
    """By patches it may reach the other places of its patch, and none beyond."""
    grid, x_ND = PixelGrid(1, 12, 12), np.ones((144, 16), np.float32)
    x_ND[5 * 12 + 6, 3] = np.nan
    found_YXF = convolved(operations, "float32", THREE, 16, 16)(x_ND, grid).reshape(12, 12, 16)
    assert np.isnan(found_YXF[4:7, 5:8]).all()
    far = np.ones((12, 12), bool)
    far[4:8, 4:8] = False
    assert np.isfinite(found_YXF[far]).all()


def test_a_maximum_keeps_nan_wherever_it_lies() -> None:
    for ops in (operations, reference):
        x_BND = np.repeat(normal(3, 9, 5)[None], 9, axis=0)
        x_BND[np.arange(9), np.arange(9), 2] = np.nan
        x_BND[:, 4, 3] = np.inf
        rows_ND, grid = x_BND.reshape(81, 5), PixelGrid(9, 3, 3)
        whole = ops.pool_windows(rows_ND, grid, Window((3, 3)), "max")
        for found in (whole, ops.pool_areas(rows_ND, grid, PixelGrid(9, 1, 1), "max")):
            np.testing.assert_array_equal(np.isnan(found), np.arange(5)[None] == 2 + np.zeros((9, 1)))
            np.testing.assert_array_equal(found[:, 3], np.inf)
