"""Convolutions of images whose pixels are rows (fastattn.ops.images): products of packed weights with windows.

A window's taps that lie side by side, a row of it where nothing is between them, are a run of adjacent numbers. In
float32 a tile reads runs where they are, by their addresses, and nothing is gathered; what is partly outside the image
is copied, with zeros. Its sums go through all runs of a window in registers (Dukhan 2019, "The Indirect Convolution
Algorithm"). In the narrow precisions the windows of a task's places are gathered and staged like rows of a product.
"""

import numpy as np
from numba import prange

from fastattn.kernels.activation import activate_all
from fastattn.kernels.arguments import MR, NR
from fastattn.kernels.matmul import (
    TileScratch,
    affine_at,
    begin_task,
    clear_zeros,
    end_task,
    multiply_tile,
    skip_columns,
    step_ahead,
    tile_scratch,
    zeros_scratch,
)
from fastattn.kernels.packing import rows_from, stage_rows
from fastattn.runtime.jit import inner, inner_overload, kernel, take_part
from fastattn.simd.arguments import SIZE, Panels, Rows, StagedRows
from fastattn.simd.target import LANES
from fastattn.simd.tile import PRECISIONS, make_run_tile
from fastattn.simd.vector import address, load, load_part, splat, store, store_integer, store_part

ZERO = np.float32(0)
run_tile, run_tile_narrow = make_run_tile(MR), make_run_tile(MR, vectors=1)


@inner
def find_run(x_ND, grid, window, out, part, n, run, target):
    """The address of a run of place n's taps: in the image or, where not all of it is inside, of a copy at target."""
    D, across = x_ND.shape[1], window.size[1] // part.taps
    image, place = n // (out.height * out.width), n % (out.height * out.width)
    y = place // out.width * window.stride[0] - window.padding[0] + run // across * window.dilation[0]
    x = place % out.width * window.stride[1] - window.padding[1] + run % across * window.dilation[1]
    found = address(x_ND) + (((image * grid.height + y) * grid.width + x) * D + part.channel) * 4
    in_height = 0 <= y and y < grid.height
    if in_height and 0 <= x and x + part.taps <= grid.width:
        return found
    zero = splat(ZERO)
    for tap in range(part.taps):
        inside = in_height and 0 <= x + tap and x + tap < grid.width
        for c in range(0, part.channels, LANES):
            left, at = part.channels - c, (tap * part.channels + c) * 4
            store_part(load_part(found + at, left, zero) if inside else zero, target + at, left)
    return target


@inner_overload
def stage_places(weights, staging, x_ND, grid, window, out, part, first, count, scratch):
    """The StagedRows of ``count`` places from the ``first`` on; in float32 addresses of runs, [tiles, runs, MR].

    scratch  the address of room for part.rows windows in float32, then for what is staged
    """

    def addresses(weights, staging, x_ND, grid, window, out, part, first, count, scratch):
        size = part.taps * part.channels * 4
        runs = weights.shape[1] * 4 // size
        table = scratch + part.rows * runs * size
        for r in range((count + MR - 1) // MR * MR):
            n = first + min(r, count - 1)  # a tile's rows beyond the last are that again
            for run in range(runs):
                found = find_run(x_ND, grid, window, out, part, n, run, scratch + (r * runs + run) * size)
                store_integer(found, table + ((r // MR * runs + run) * MR + r % MR) * 8)
        return StagedRows(table, runs * 8, table)

    def gathered(weights, staging, x_ND, grid, window, out, part, first, count, scratch):
        length, zero = part.taps * part.channels, splat(ZERO)
        width = window.size[0] * window.size[1] * part.channels
        for r in range(count):
            for run in range(width // length):
                target = scratch + (r * width + run * length) * 4
                found = find_run(x_ND, grid, window, out, part, first + r, run, target)
                if found != target:
                    for c in range(0, length, LANES):
                        store_part(load_part(found + c * 4, length - c, zero), target + c * 4, length - c)
        return stage_rows(weights, staging, scratch, count, width, scratch + part.rows * width * 4, part.rows)

    return addresses if PRECISIONS[weights.dtype] == "float32" else gathered


@inner_overload
def convolve_tile(weights, rows, left, panels, columns, out, affine, zeros):
    """One tile of at most ``left`` places times a panel, plus bias, to ``out``; how many places it took."""

    def by_addresses(weights, rows, left, panels, columns, out, affine, zeros):
        runs = rows.distance // 8
        steps = weights.shape[1] // runs
        if columns <= LANES:
            run_tile_narrow(
                rows.address,
                runs,
                steps,
                panels.address,
                panels.ahead,
                panels.ahead_step,
                out.address,
                out.distance,
                affine.bias,
            )
        else:
            run_tile(
                rows.address,
                runs,
                steps,
                panels.address,
                panels.ahead,
                panels.ahead_step,
                out.address,
                out.distance,
                affine.bias,
            )
        return min(left, MR)

    def by_rows(weights, rows, left, panels, columns, out, affine, zeros):
        return multiply_tile(weights, rows, left, panels, 1, columns, out, affine, zeros)

    return by_addresses if PRECISIONS[weights.dtype] == "float32" else by_rows


@inner
def finish_places(tile, rows, columns, activation, residual, y, distance):
    """activation(tile + residual) to y; residual and y: addresses of rows ``distance`` apart, or 0: none."""
    if residual != 0:
        for i in range(rows):
            for j in range(0, columns, LANES):
                place, at = tile.address + i * tile.distance + j * 4, residual + i * distance + j * 4
                store(load(place) + load_part(at, columns - j, splat(ZERO)), place)
    activate_all(activation, tile, tile, rows, (columns + LANES - 1) // LANES * SIZE)
    for i in range(rows):
        for j in range(0, columns, LANES):
            store_part(load(tile.address + i * tile.distance + j * 4), y + i * distance + j * 4, columns - j)


@kernel
def _convolve(x_ND, grid, window, out, panels_PSN, arrays, part, residual_NF, scratch_PB, y_NF):
    """Runs of tasks, each of part.rows places of the window, times all panels of a group; see convolve."""
    N, F = y_NF.shape
    tasks = (N + part.rows - 1) // part.rows
    for number in prange(0, len(scratch_PB)):
        spare, first_task, last_task = take_part(scratch_PB, number, tasks)
        affine, scratch = affine_at(arrays), clear_zeros(TileScratch(tile_scratch(), zeros_scratch()))
        tile, zeros = Rows(scratch.tile, NR * 4), Rows(scratch.zeros, 0)
        distance, residual = panels_PSN.strides[0], address(residual_NF) if residual_NF.size > 0 else 0
        for task in range(first_task, last_task):
            first, count = task * part.rows, min(part.rows, N - task * part.rows)
            rows = stage_places(panels_PSN, arrays, x_ND, grid, window, out, part, first, count, spare)
            begin_task(panels_PSN, count)
            step = step_ahead(panels_PSN, count)
            for p in range(len(panels_PSN)):
                panel, columns, r = address(panels_PSN) + p * distance, min(NR, part.outputs - p * NR), 0
                ahead, column = panel + distance, skip_columns(affine, p * NR * 4)
                while r < count:
                    panels = Panels(panel, distance, ahead, step)
                    took = convolve_tile(
                        panels_PSN, rows_from(rows, r), count - r, panels, columns, tile, column, zeros
                    )
                    at = ((first + r) * F + part.output + p * NR) * 4
                    beside = residual + at if residual != 0 else 0
                    finish_places(tile, took, columns, part.activation, beside, address(y_NF) + at, F * 4)
                    r += took
                    ahead += step * panels_PSN.shape[1]
            end_task(panels_PSN, count)
