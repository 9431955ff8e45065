"""Images whose pixels are rows (fastattn.arguments.images): convolutions, pooling, sampling, gates.

A convolution is a product of packed weights with windows. A place is a position of the window, a tap one of its pixels.
Adjacent taps, such as a row of a window whose dilation is 1, are a run of adjacent numbers. In float32 a tile reads
runs in place, by their addresses; only runs that lie partly outside the image are copied, with zeros. A tile's sums go
through all runs of a window in registers (Dukhan 2019, "The Indirect Convolution Algorithm"). In the narrow precisions
the windows of a task's places are gathered and staged like rows of a product.

Pooling, sampling and gates are bound by memory. Their vectors go over channels, which lie side by side, so no shuffle
is needed for any size, stride or dilation.
"""

import numpy as np
from numba import prange

from fastattn.arguments.images import PixelGrid
from fastattn.kernels.activation import ONE, ZERO, activate_all
from fastattn.kernels.arguments import MR, NR, PLACES
from fastattn.kernels.matmul import (
    begin_task,
    end_task,
    multiply_tile,
    step_ahead,
    tile_scratch,
    with_zeros,
    zero_scratch,
)
from fastattn.kernels.norm import ROW_BLOCK
from fastattn.kernels.packing import affine_at, rows_from, skip_columns, stage_rows
from fastattn.runtime.jit import inner, inner_overload, kernel, take_part
from fastattn.simd.arguments import SIZE, Affine, Panels, Rows, StagedRows
from fastattn.simd.convolution import make_filter_tile, make_run_tile, patch_tile, place_tile
from fastattn.simd.memory import address, load, load_integer, load_part, store, store_integer, store_part
from fastattn.simd.rows import prefetch_row_far
from fastattn.simd.target import LANES
from fastattn.simd.tile import PRECISIONS
from fastattn.simd.vector import absolute, fma, larger_magnitude, maximum, minimum, splat

filter_tile = make_filter_tile(PLACES)
run_tile, run_tile_narrow = make_run_tile(MR), make_run_tile(MR, vectors=1)


@inner
def address_runs(x_ND, grid, window, out, part, n, zeros, spare, table):
    """Write the addresses of the runs of place n's taps: in the image, of zeros, or of a copy at ``spare``.

    spare  the address of room for the whole window; only the runs that lie partly outside the image are copied there
    table  Rows of one address each
    """
    D, (height, width), (down, across) = x_ND.shape[1], window.size, window.dilation
    line = n // out.width
    y = line % out.height * window.stride[0] - window.padding[0]
    left = (n - line * out.width) * window.stride[1] - window.padding[1]
    row = address(x_ND) + (((line // out.height * grid.height + y) * grid.width + left) * D + part.channel) * 4
    in_width = left >= 0 and left + (width - 1) * across < grid.width
    whole = in_width and y >= 0 and y + (height - 1) * down < grid.height
    runs, size, entry = width // part.taps, part.taps * part.channels * 4, table.address
    for i in range(height):
        in_height = 0 <= y + i * down and y + i * down < grid.height
        for j in range(runs):
            x, source = left + j * across, row + j * across * D * 4
            if not whole:
                if not in_height or x + part.taps <= 0 or x >= grid.width:
                    source = zeros
                elif x < 0 or x + part.taps > grid.width:
                    copy_inside(source, x, grid.width, part, spare)
                    source = spare
            store_integer(source, entry)
            entry += table.distance
            spare += size
        row += down * grid.width * D * 4


@inner
def copy_inside(run, x, width, part, target):
    """Copy the taps of a run from column x on, with zeros for columns outside the image."""
    zero = splat(ZERO)
    for tap in range(part.taps):
        inside = 0 <= x + tap and x + tap < width
        for c in range(0, part.channels, LANES):
            channels, at = part.channels - c, (tap * part.channels + c) * 4
            store_part(load_part(run + at, channels, zero) if inside else zero, target + at, channels)


@inner
def clear_run(part, scratch):
    """Clear a run at the start of ``scratch``; returns the run's address and its end."""
    size = (part.taps * part.channels + LANES - 1) // LANES * SIZE
    for at in range(0, size, SIZE):
        store(splat(ZERO), scratch + at)
    return scratch, scratch + size


@inner_overload
def stage_places(weights, staging, x_ND, grid, window, out, part, first, count, scratch):
    """The StagedRows of ``count`` places from ``first`` on; in float32 they are addresses of runs, [tiles, runs, MR].

    scratch  the address of room for a run, for part.rows windows and their addresses, then for the staged rows
    """

    def by_addresses(weights, staging, x_ND, grid, window, out, part, first, count, scratch):
        (zeros, spare), size = clear_run(part, scratch), weights.shape[1] * 4
        runs = weights.shape[1] // (part.taps * part.channels)
        table = spare + part.rows * size
        for r in range((count + MR - 1) // MR * MR):
            n = first + min(r, count - 1)  # the last place stands for further rows of the last tile
            entries = Rows(table + (r // MR * runs * MR + r % MR) * 8, MR * 8)
            address_runs(x_ND, grid, window, out, part, n, zeros, spare + r * size, entries)
        return StagedRows(table, runs * 8, table)

    def by_rows(weights, staging, x_ND, grid, window, out, part, first, count, scratch):
        (zeros, rows), length, zero = clear_run(part, scratch), part.taps * part.channels, splat(ZERO)
        width = window.size[0] * window.size[1] * part.channels
        table = rows + part.rows * width * 4
        for r in range(count):
            target = rows + r * width * 4
            address_runs(x_ND, grid, window, out, part, first + r, zeros, target, Rows(table, 8))
            for at in range(0, width, length):
                source = load_integer(table + at // length * 8)
                if source != target + at * 4:
                    for c in range(0, length, LANES):
                        store_part(load_part(source + c * 4, length - c, zero), target + (at + c) * 4, length - c)
        return stage_rows(weights, staging, rows, count, width, table + width // length * 8, part.rows)

    return by_addresses if PRECISIONS[weights.dtype] == "float32" else by_rows


@inner_overload
def convolve_tile(weights, rows, remaining, panels, columns, out, affine, zeros):
    """Write a tile of at most ``remaining`` places times a panel, plus bias, to ``out``; returns the places' number."""

    def by_addresses(weights, rows, remaining, panels, columns, out, affine, zeros):
        runs = rows.distance // 8
        steps = weights.shape[1] // runs
        if columns <= LANES:
            run_tile_narrow(weights, rows.address, runs, steps, panels, out, affine.bias)
        else:
            run_tile(weights, rows.address, runs, steps, panels, out, affine.bias)
        return min(remaining, MR)

    def by_rows(weights, rows, remaining, panels, columns, out, affine, zeros):
        return multiply_tile(weights, rows, remaining, panels, 1, columns, out, affine, zeros)

    return by_addresses if PRECISIONS[weights.dtype] == "float32" else by_rows


@inner
def finish_places(tile, rows, columns, activation, residual, has_residual, y, distance):
    """Write activation(tile + residual) to y; ``residual`` and y are addresses of rows ``distance`` bytes apart."""
    if has_residual:
        for i in range(rows):
            for j in range(0, columns, LANES):
                sums, addends = tile.address + i * tile.distance + j * 4, residual + i * distance + j * 4
                store(load(sums) + load_part(addends, columns - j, splat(ZERO)), sums)
    if activation != 0 and columns == NR:
        activate_all(activation, tile, Rows(y, distance), rows, NR * 4)
    else:
        activate_all(activation, tile, tile, rows, (columns + LANES - 1) // LANES * SIZE)
        for i in range(rows):
            for j in range(0, columns, LANES):
                store_part(load(tile.address + i * tile.distance + j * 4), y + i * distance + j * 4, columns - j)


@kernel
def _convolve(x_ND, grid, window, out, panels_PSN, arrays, part, residual_NF, scratch_PB, y_NF):
    """Each thread computes a run of tasks, each ``part.rows`` places times all panels; part: a ConvolutionPart."""
    N, F = y_NF.shape
    tasks = (N + part.rows - 1) // part.rows
    for number in prange(0, len(scratch_PB)):
        spare, first_task, last_task = take_part(scratch_PB, number, tasks)
        affine, scratch = affine_at(arrays), with_zeros(tile_scratch(), zero_scratch())
        tile, zeros = Rows(scratch.tile, NR * 4), Rows(scratch.zeros, 0)
        distance, residual, has_residual = panels_PSN.strides[0], address(residual_NF), residual_NF.size > 0
        plain = part.activation == 0 and not has_residual
        for task in range(first_task, last_task):
            first, count = task * part.rows, min(part.rows, N - task * part.rows)
            rows = stage_places(panels_PSN, arrays, x_ND, grid, window, out, part, first, count, spare)
            begin_task(panels_PSN, count)
            step = step_ahead(panels_PSN, count)
            for p in range(len(panels_PSN)):
                panel, columns, r = address(panels_PSN) + p * distance, min(NR, part.outputs - p * NR), 0
                ahead, column = panel + distance, skip_columns(affine, p * NR * 4)
                while r < count:
                    panels, at = Panels(panel, distance, ahead, step), ((first + r) * F + part.output + p * NR) * 4
                    y, addend = address(y_NF) + at, residual + at
                    direct = plain and columns == NR and count - r >= MR
                    sums = Rows(y, F * 4) if direct else tile  # from the registers to y if no operation follows
                    source = rows_from(rows, r)
                    height = convolve_tile(panels_PSN, source, count - r, panels, columns, sums, column, zeros)
                    if not direct:
                        finish_places(tile, height, columns, part.activation, addend, has_residual, y, F * 4)
                    r += height
                    ahead += step * panels_PSN.shape[1]
            end_task(panels_PSN, count)


@kernel
def _convolve_depthwise(x_ND, grid, window, out, weight_TD, bias_D, part, residual_ND, scratch_PB, y_ND):
    """``_convolve`` with one filter a channel; ``part`` has all channels."""
    N, D = y_ND.shape
    runs, tasks = len(weight_TD), (N + part.rows - 1) // part.rows
    for number in prange(0, len(scratch_PB)):
        spare, first_task, last_task = take_part(scratch_PB, number, tasks)
        tile, residual, has_residual = Rows(tile_scratch(), NR * 4), address(residual_ND), residual_ND.size > 0
        plain = part.activation == 0 and not has_residual
        (zeros, table), across = clear_run(part, spare), window.stride[1] * D * 4
        filters, end = Rows(address(weight_TD), D * 4), min(last_task * part.rows, N)
        for first in range(first_task * part.rows, end, PLACES):
            count = min(PLACES, end - first)
            for r in range(PLACES):
                entries = Rows(table + r * 8, PLACES * 8)
                address_runs(x_ND, grid, window, out, part, first + min(r, count - 1), zeros, spare, entries)
                # prefetches the end of the next places' windows, and their outputs
                last = load_integer(entries.address + (runs - 1) * entries.distance) + PLACES * across
                for i in range(window.stride[0]):
                    prefetch_row_far(last - i * grid.width * D * 4, across)
                prefetch_row_far(address(y_ND) + (first + PLACES + r) * D * 4, D * 4)
            for d in range(0, D, NR):
                columns, at = min(NR, D - d), (first * D + d) * 4
                y, direct = address(y_ND) + at, plain and columns == NR and count == PLACES
                sums = Rows(y, D * 4) if direct else tile
                filter_tile(weight_TD, table, runs, d * 4, columns, filters, address(bias_D), sums)
                if not direct:
                    finish_places(tile, count, columns, part.activation, residual + at, has_residual, y, D * 4)


@kernel
def _convolve_patches(x_ND, grid, patches, out, panels_PSN, bias, part, residual_NF, scratch_PB, y_NF):
    """``_convolve`` with 3x3 windows of stride 1, by patches of 4x4 pixels: see fastattn.simd.convolution.

    patches     the window that moves over the image from patch to patch
    panels_PSN  of all 16 products, one after another; the channels, and the outputs, are a multiple of LANES
    part        a task has ``part.rows`` patches
    """
    D, F, P = x_ND.shape[1], y_NF.shape[1], len(panels_PSN) // 16
    tiles = PixelGrid(out.images, (out.height + 1) // 2, (out.width + 1) // 2)
    N, distance, room = tiles.images * tiles.height * tiles.width, panels_PSN.strides[0], part.rows * D * 4
    tasks = (N + part.rows - 1) // part.rows
    for number in prange(0, len(scratch_PB)):
        spare, first_task, last_task = take_part(scratch_PB, number, tasks)
        scratch, (zeros, table) = with_zeros(tile_scratch(), zero_scratch()), clear_run(part, spare)
        zero_rows, affine = Rows(scratch.zeros, 0), Affine(scratch.zeros, 0, 0)
        residual, has_residual = address(residual_NF), residual_NF.size > 0
        values = table + 16 * 8
        products = values + 16 * room
        for task in range(first_task, last_task):
            first, count = task * part.rows, min(part.rows, N - task * part.rows)
            for r in range(count):
                address_runs(x_ND, grid, patches, tiles, part, first + r, zeros, zeros, Rows(table, 8))
                patch_tile(table, D * 4, values + r * D * 4, room)
            step = step_ahead(panels_PSN, count)
            for p in range(P):
                columns = min(NR, F - p * NR)
                for k in range(16):
                    panel, r = address(panels_PSN) + (k * P + p) * distance, 0
                    rows, ahead = StagedRows(values + k * room, D * 4, values), panel + P * distance
                    while r < count:
                        sums, source = Rows(products + (k * part.rows + r) * NR * 4, NR * 4), rows_from(rows, r)
                        panels = Panels(panel, distance, ahead, step)
                        r += multiply_tile(panels_PSN, source, count - r, panels, 1, columns, sums, affine, zero_rows)
                        ahead += step * D
                for r in range(count):
                    start = address(bias) + p * NR * 4
                    place_tile(products + r * NR * 4, part.rows * NR * 4, columns * 4, start, scratch.tile, NR * 4)
                    line, x = (first + r) // tiles.width, (first + r) % tiles.width * 2
                    y, image, width = line % tiles.height * 2, line // tiles.height, min(2, out.width - x)
                    for i in range(min(2, out.height - y)):
                        tile = Rows(scratch.tile + 2 * i * NR * 4, NR * 4)
                        at = (((image * out.height + y + i) * out.width + x) * F + p * NR) * 4
                        addend, target = residual + at, address(y_NF) + at
                        finish_places(tile, width, columns, part.activation, addend, has_residual, target, F * 4)


@kernel
def _pool(x_ND, grid, out, rows_Y3, columns_X3, maximal, taps, y_ND):
    """Write the maximum of the pixels of each place's area, or their sum divided by ``taps`` (0: by their number).

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
                # ``maximum`` may lose a NaN, ``peak`` has it; without a NaN ``peak`` is at least the maximum
                store_part(minimum(total, peak) if maximal else total / divisor, y + d * 4, D - d)


@kernel
def _sample(x_ND, grid, points_N2, edge, y_ND):
    """Bilinear interpolation of images at points (y, x).

    NaN, and points a pixel or more outside, yield zeros, unless ``edge`` continues the image.
    """
    D, P = x_ND.shape[1], len(points_N2) // grid.images
    for block in prange(0, -(-len(points_N2) // ROW_BLOCK)):
        for n in range(block * ROW_BLOCK, min((block + 1) * ROW_BLOCK, len(points_N2))):
            zero, y, x = splat(ZERO), points_N2[n, 0], points_N2[n, 1]
            last_y, last_x = np.float32(grid.height - 1), np.float32(grid.width - 1)
            if edge:
                y, x = min(max(y, ZERO), last_y), min(max(x, ZERO), last_x)
            inside = y > -ONE and y < last_y + ONE and x > -ONE and x < last_x + ONE
            top, left = int(np.floor(y)) if inside else 0, int(np.floor(x)) if inside else 0
            down, right = y - np.float32(top), x - np.float32(left)
            for d in range(0, D, LANES):
                total = zero
                for corner in range(4 if inside else 0):
                    i, j = top + corner // 2, left + corner % 2
                    if 0 <= i and i < grid.height and 0 <= j and j < grid.width:
                        share = (down if corner > 1 else ONE - down) * (right if corner % 2 > 0 else ONE - right)
                        at = ((n // P * grid.height + i) * grid.width + j) * D + d
                        total = fma(splat(share), load_part(address(x_ND) + at * 4, D - d, zero), total)
                store_part(total, address(y_ND) + (n * D + d) * 4, D - d)


@kernel
def _gate(x_ND, pixels, channels_BD, pixels_N1, offset, y_ND):
    """y = x (channels pixels_N1 + offset), with empty factors as 1; an image has ``pixels`` rows."""
    N, D = x_ND.shape
    for block in prange(0, -(-N // ROW_BLOCK)):
        for n in range(block * ROW_BLOCK, min((block + 1) * ROW_BLOCK, N)):
            zero, plus = splat(ZERO), splat(np.float32(offset))
            factor = splat(pixels_N1[n, 0] if pixels_N1.size > 0 else ONE)
            for d in range(0, D, LANES):
                at, gate = (n * D + d) * 4, factor
                if channels_BD.size > 0:
                    gate = factor * load_part(address(channels_BD) + (n // pixels * D + d) * 4, D - d, zero)
                value = load_part(address(x_ND) + at, D - d, zero)
                store_part(value * (gate + plus), address(y_ND) + at, D - d)
