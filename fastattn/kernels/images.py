"""Filters of single channels, pooling, sampling and gates of images whose pixels are rows (fastattn.ops.images).

Vectors go over channels, which lie side by side, so no shuffle is needed for any size, stride or dilation. All are
bound by memory, but for filters, which hold four places of a channel in registers: each weight is read once for them.
"""

from collections import namedtuple

import numpy as np
from numba import prange

from fastattn.kernels.activation import activate_all
from fastattn.kernels.norm import ROW_BLOCK
from fastattn.runtime.jit import inner, kernel
from fastattn.simd.arguments import SIZE, Rows
from fastattn.simd.target import LANES
from fastattn.simd.vector import (
    address,
    fma,
    load_first,
    load_part,
    make_scratch,
    maximum,
    splat,
    store,
    store_first,
    store_part,
)

ZERO, ONE = np.float32(0), np.float32(1)
TOGETHER = 4  # places whose sums are in registers at once
vector_scratch = make_scratch(SIZE)

# Addresses of the first tap of a place and of its weights, of bias, residual and result; the last two 0: none.
Place = namedtuple("Place", "x weight bias residual y")
# Bytes to the next row of taps, to the next tap in it, to the next row of its weights, to the next place.
Steps = namedtuple("Steps", "down across weight_row place")


@inner
def filter_one(place, steps, rows, taps, D):
    """One place with ``rows`` x ``taps`` taps inside the image."""
    zero = splat(ZERO)
    for d in range(0, D, LANES):
        left, at = D - d, d * 4
        total = load_part(place.bias + at, left, zero) if place.bias != 0 else zero
        for i in range(rows):
            for j in range(taps):
                weight = load_part(place.weight + at + i * steps.weight_row + j * D * 4, left, zero)
                pixel = load_part(place.x + at + i * steps.down + j * steps.across, left, zero)
                total = fma(weight, pixel, total)
        if place.residual != 0:
            total = total + load_part(place.residual + at, left, zero)
        store_part(total, place.y + at, left)


@inner
def filter_together(place, steps, rows, taps, D):
    """TOGETHER places side by side, ``steps.place`` apart: each sum is that of ``filter_one``."""
    zero = splat(ZERO)
    for d in range(0, D, LANES):
        left, at = D - d, d * 4
        first = load_part(place.bias + at, left, zero) if place.bias != 0 else zero
        second, third, fourth = first, first, first
        for i in range(rows):
            for j in range(taps):
                weight = load_part(place.weight + at + i * steps.weight_row + j * D * 4, left, zero)
                x = place.x + at + i * steps.down + j * steps.across
                first = fma(weight, load_part(x, left, zero), first)
                second = fma(weight, load_part(x + steps.place, left, zero), second)
                third = fma(weight, load_part(x + 2 * steps.place, left, zero), third)
                fourth = fma(weight, load_part(x + 3 * steps.place, left, zero), fourth)
        if place.residual != 0:
            beside = place.residual + at
            first = first + load_part(beside, left, zero)
            second = second + load_part(beside + D * 4, left, zero)
            third = third + load_part(beside + 2 * D * 4, left, zero)
            fourth = fourth + load_part(beside + 3 * D * 4, left, zero)
        store_part(first, place.y + at, left)
        store_part(second, place.y + at + D * 4, left)
        store_part(third, place.y + at + 2 * D * 4, left)
        store_part(fourth, place.y + at + 3 * D * 4, left)


@inner
def activate_numbers(activation, y, count):
    """The activation of ``count`` adjacent numbers, in place."""
    whole = count // LANES * SIZE
    line = Rows(y, 0)
    activate_all(activation, line, line, 1, whole)
    if activation != 0 and whole < count * 4:
        scratch = Rows(vector_scratch(), 0)
        store(load_first(y + whole, count - whole // 4, splat(ZERO)), scratch.address)
        activate_all(activation, scratch, scratch, 1, SIZE)
        store_first(load_first(scratch.address, LANES, splat(ZERO)), y + whole, count - whole // 4)


@inner
def taps_inside(start, size, step, length):
    """(first, end) of a window's taps, ``step`` apart from ``start`` on, that are inside 0 to ``length``."""
    first = min(size, max(0, (-start + step - 1) // step))
    return first, max(first, min(size, (length - start + step - 1) // step))


@kernel
def _convolve_depthwise(x_ND, grid, window, out, weight_TD, bias_D, activation, residual_ND, y_ND):
    """A task is a row of an image's places."""
    D = x_ND.shape[1]
    pixel, taps = D * 4, window.size[1]
    stride, step = window.stride[1], window.dilation[1]
    steps = Steps(window.dilation[0] * grid.width * pixel, step * pixel, taps * pixel, stride * pixel)
    bias = address(bias_D) if bias_D.size > 0 else 0
    for line in prange(0, out.images * out.height):
        top = line % out.height * window.stride[0] - window.padding[0]
        first_row, end_row = taps_inside(top, window.size[0], window.dilation[0], grid.height)
        above = (line // out.height * grid.height + top + first_row * window.dilation[0]) * grid.width
        weight, x = address(weight_TD) + first_row * steps.weight_row, 0
        while x < out.width:
            left, at = x * stride - window.padding[1], (line * out.width + x) * pixel
            residual = address(residual_ND) + at if residual_ND.size > 0 else 0
            y, last = address(y_ND) + at, left + (TOGETHER - 1) * stride + (taps - 1) * step
            if left >= 0 and last < grid.width and x + TOGETHER <= out.width:
                place, took = Place(address(x_ND) + (above + left) * pixel, weight, bias, residual, y), TOGETHER
                filter_together(place, steps, end_row - first_row, taps, D)
            else:
                first, end = taps_inside(left, taps, step, grid.width)
                pixels, took = address(x_ND) + (above + left + first * step) * pixel, 1
                place = Place(pixels, weight + first * pixel, bias, residual, y)
                filter_one(place, steps, end_row - first_row, end - first, D)
            activate_numbers(activation, y, took * D)
            x += took


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
                total = splat(np.float32(-np.inf)) if maximal else zero
                for i in range(top, bottom, down):
                    row = address(x_ND) + (image + i) * grid.width * pixel + d * 4
                    for j in range(left, right, across):
                        value = load_part(row + j * pixel, D - d, zero)
                        total = maximum(total, value) if maximal else total + value
                store_part(total if maximal else total / divisor, y + d * 4, D - d)


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
