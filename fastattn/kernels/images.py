"""Pooling, sampling and gates of images whose pixels are rows (fastattn.arguments.images), all bound by memory.

Vectors go over channels, which lie side by side, so no shuffle is needed for any size, stride or dilation.
"""

import numpy as np
from numba import prange

from fastattn.kernels.norm import ROW_BLOCK
from fastattn.runtime.jit import kernel
from fastattn.simd.target import LANES
from fastattn.simd.vector import (
    absolute,
    address,
    fma,
    larger_magnitude,
    load_part,
    maximum,
    minimum,
    splat,
    store_part,
)

ZERO, ONE = np.float32(0), np.float32(1)


@kernel
def _pool(x_ND, grid, out, rows_Y3, columns_X3, maximal, taps, y_ND):
    """The maximum, or the sum over ``taps`` (0: over as many as there are), of the pixels of each place's area.

    rows_Y3, columns_X3  first, end and step of an area's pixels
    """
    D = x_ND.shape[1]
    pixel = D * 4
    for line in prange(0, out.images * out.height):
        image, (top, bottom, down) = line // out.height * grid.height, rows_Y3[line % out.height]
        for x in range(out.width):
            left, right, across = columns_X3[x]
            y = address(y_ND) + (line * out.width + x) * pixel
            count = max(0, (bottom - top + down - 1) // down) * max(0, (right - left + across - 1) // across)
            divisor = splat(np.float32(taps if taps > 0 else count))
            for d in range(0, D, LANES):
                zero = splat(ZERO)
                total, peak = splat(np.float32(-np.inf)) if maximal else zero, zero
                for i in range(top, bottom, down):
                    row = address(x_ND) + (image + i) * grid.width * pixel + d * 4
                    for j in range(left, right, across):
                        value = load_part(row + j * pixel, D - d, zero)
                        total = maximum(total, value) if maximal else total + value
                        peak = larger_magnitude(absolute(value), peak) if maximal else peak
                # a maximum forgets a NaN before its last number, no magnitude is less than it
                store_part(minimum(total, peak) if maximal else total / divisor, y + d * 4, D - d)


@kernel
def _sample(x_ND, grid, points_N2, edge, y_ND):
    """Points of NaN, or outside by a pixel or more, are zeros unless the ``edge`` continues."""
    D, P = x_ND.shape[1], len(points_N2) // grid.images
    for block in prange(0, -(-len(points_N2) // ROW_BLOCK)):
        for n in range(block * ROW_BLOCK, min((block + 1) * ROW_BLOCK, len(points_N2))):
            zero, y, x = splat(ZERO), points_N2[n, 0], points_N2[n, 1]
            last_y, last_x = np.float32(grid.height - 1), np.float32(grid.width - 1)
            if edge:
                y, x = min(max(y, ZERO), last_y), min(max(x, ZERO), last_x)
            near = y > -ONE and y < last_y + ONE and x > -ONE and x < last_x + ONE
            top, left = int(np.floor(y)) if near else 0, int(np.floor(x)) if near else 0
            down, right = y - np.float32(top), x - np.float32(left)
            for d in range(0, D, LANES):
                total = zero
                for corner in range(4 if near else 0):
                    i, j = top + corner // 2, left + corner % 2
                    if 0 <= i and i < grid.height and 0 <= j and j < grid.width:
                        share = (down if corner > 1 else ONE - down) * (right if corner % 2 > 0 else ONE - right)
                        at = ((n // P * grid.height + i) * grid.width + j) * D + d
                        total = fma(splat(share), load_part(address(x_ND) + at * 4, D - d, zero), total)
                store_part(total, address(y_ND) + (n * D + d) * 4, D - d)


@kernel
def _gate(x_ND, pixels, channels_BD, pixels_N1, added, y_ND):
    """pixels: of an image."""
    N, D = x_ND.shape
    for block in prange(0, -(-N // ROW_BLOCK)):
        for n in range(block * ROW_BLOCK, min((block + 1) * ROW_BLOCK, N)):
            zero, plus = splat(ZERO), splat(np.float32(added))
            factor = splat(pixels_N1[n, 0] if pixels_N1.size > 0 else ONE)
            for d in range(0, D, LANES):
                at, gate = (n * D + d) * 4, factor
                if channels_BD.size > 0:
                    gate = factor * load_part(address(channels_BD) + (n // pixels * D + d) * 4, D - d, zero)
                value = load_part(address(x_ND) + at, D - d, zero)
                store_part(value * (gate + plus), address(y_ND) + at, D - d)
