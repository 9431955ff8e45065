"""Matrix products with packed weights: y = activation(x W' + b) * multiply + residual.

W is packed once into panels of NR columns, [panels, inputs, NR], so that a tile reads it in order. A tile of the
target's rows x NR holds its sums in registers for the whole length of the inner dimension, which is not split for the
caches: a panel streams from L2 behind the arithmetic, at 96% of what a tile alone does, and the next one is asked for
meanwhile. Its sums start from bias and residual and go straight to y or, where more follows, to a scratch of a few
kilobytes in L1, from which the epilogue writes y once. A gate is a second product of the same rows: its panel goes to y
first, where the epilogue finds it.

AVX2 (6x16), one core: 96 GFLOP/s at 1024 cubed, 98 at 96x384x1536; OpenBLAS 92 and 87 in the same run.
344 -> 377  GOP/s in int8 of 48 rows whose weights, 1 MB, are not in L2: the next panel asked for
380 -> 400  GOP/s in int8 at 1024 cubed: the last panel, of 16 columns, by a tile as narrow
"""

import numpy as np
from numba import prange

from fastattn.kernels.activation import activate_all
from fastattn.kernels.constants import GROUP, NR
from fastattn.kernels.multiply import MOST_ROWS, begin_task, end_task, multiply_tile, skip_columns, step_ahead
from fastattn.kernels.staging import rows_from, stage_rows
from fastattn.runtime.jit import inner, kernel
from fastattn.runtime.parts import take_part
from fastattn.simd.target import LANES
from fastattn.simd.vector import address, load, load_part, make_scratch, splat, store, store_part

tile_scratch, zeros_scratch = make_scratch(max(MOST_ROWS, 2 * GROUP) * NR * 4), make_scratch(GROUP * NR * 4)


@inner
def affine_at(affine):
    """(bias, factors, corrections), the addresses of a PackedLinear's, whose ``affine`` it is."""
    return address(affine[0]), address(affine[1]), address(affine[2])


@inner
def finish_tile(tile, rows, columns, target):
    """Rows of a tile, (address, row), to y, times multiply, plus residual; target as for ``multiply_panels``.

    All that is read is read before y is written, for the reason that multiply_panels gives.
    """
    scratch, scratch_row = tile
    y, multiply, residual, y_row = target
    zero = splat(np.float32(0))
    if multiply != 0 or residual != 0:
        for i in range(rows):
            for j in range(0, columns, LANES):
                left, at, place = columns - j, i * y_row + j * 4, scratch + i * scratch_row + j * 4
                value = load(place)
                if multiply != 0:
                    value = value * load_part(multiply + at, left, zero)
                if residual != 0:
                    value = value + load_part(residual + at, left, zero)
                store(value, place)
    for i in range(rows):
        for j in range(0, columns, LANES):
            store_part(load(scratch + i * scratch_row + j * 4), y + i * y_row + j * 4, columns - j)


@inner
def multiply_panels(weights, rows, count, first, width, affine, activation, target, scratch):
    """``count`` rows times ``width`` panels from the ``first`` on, to y.

    affine   (bias, factors, corrections), addresses of the first output's
    target   (y, multiply, residual, row): addresses of the first row's first output; 0: absent; they lie alike
    scratch  (address of a tile, address of a row of zeros)
    """
    y, multiply, residual, y_row = target
    distance, skip = weights.strides[0], first * NR * 4
    step = step_ahead(weights, count)
    panel = address(weights) + first * distance
    columns = min(width * NR, y_row // 4 - first * NR)
    tile, zeros = (scratch[0], width * NR * 4), (scratch[1], 0)
    # A whole tile goes from the registers to y if nothing follows. What does follow reads it from a scratch: rows of y
    # may lie a multiple of 4 KB apart, and each load would then wait for the stores of other rows.
    whole = columns == width * NR
    direct = whole and multiply == 0 and activation == 0
    panel_affine, ahead, r = skip_columns(affine, skip), panel + width * distance, 0
    while r < count:
        at = r * y_row + skip
        out = (y + at, y_row) if direct else tile
        start = (residual + at, y_row) if direct and residual != 0 else zeros
        streams = (panel, distance, ahead, step)
        took = multiply_tile(weights, rows_from(rows, r), count - r, streams, width, columns, out, panel_affine, start)
        if whole and multiply == 0 and residual == 0:
            activate_all(activation, out, (y + at, y_row), took, tile[1])
        elif not direct:
            activate_all(activation, tile, tile, took, tile[1])
            times, plus = multiply + at if multiply != 0 else 0, residual + at if residual != 0 else 0
            finish_tile(tile, took, columns, (y + at, times, plus, y_row))
        r += took
        ahead += step * weights.shape[1]


@inner
def clear_scratch(scratch):
    """(address of a tile, address of a row of zeros), which becomes one."""
    for j in range(0, GROUP * NR, LANES):
        store(splat(np.float32(0)), scratch[1] + j * 4)
    return scratch


@kernel
def _linear(x_ND, panels_PSN, affine, activation, multiply_NF, residual_NF, blocks, scratch_PB, y_NF):
    """The tasks, a row block times a column block each, cut into runs, one a part; see linear."""
    row_block, column_blocks = blocks
    N, D = x_ND.shape
    P, F = len(panels_PSN), y_NF.shape[1]
    y, multiply, residual = address(y_NF), address(multiply_NF), address(residual_NF)
    tasks = (N + row_block - 1) // row_block * column_blocks
    for part in prange(0, len(scratch_PB)):
        staged, first_task, last_task = take_part(scratch_PB, part, tasks)
        columns, scratch = affine_at(affine), clear_scratch((tile_scratch(), zeros_scratch()))
        for task in range(first_task, last_task):
            first, block = task // column_blocks * row_block, task % column_blocks
            count, x, at = min(N - first, row_block), address(x_ND) + first * D * 4, first * F * 4
            rows = stage_rows(panels_PSN, affine[3:], x, count, D, staged, row_block)
            begin_task(panels_PSN, count)
            times = multiply + at if multiply_NF.size > 0 else 0
            plus = residual + at if residual_NF.size > 0 else 0
            p, end = block * P // column_blocks, (block + 1) * P // column_blocks
            while p < end:
                width = panels_together(count, p, end, F)
                target = (y + at, times, plus, F * 4)
                multiply_panels(panels_PSN, rows, count, p, width, columns, activation, target, scratch)
                p += width
            end_task(panels_PSN, count)


@inner
def panels_together(count, p, end, outputs):
    """How many panels from p on ``count`` rows take at once: GROUP or one.

    Panels that are not whole go alone: their residual is added last, however many rows there are.
    """
    return GROUP if count < 4 and p + GROUP <= end and (p + GROUP) * NR <= outputs else 1


@kernel
def _gated(x_ND, panels_PSN, affine, gate_PSN, gate_affine, activation, blocks, scratch_PB, y_NF):
    """``_linear`` with a second product of the same rows, which y holds until it is multiplied; see gated."""
    row_block, column_blocks = blocks
    N, D = x_ND.shape
    P, F = len(panels_PSN), y_NF.shape[1]
    tasks = (N + row_block - 1) // row_block * column_blocks
    for part in prange(0, len(scratch_PB)):
        staged, first_task, last_task = take_part(scratch_PB, part, tasks)
        scratch, half = clear_scratch((tile_scratch(), zeros_scratch())), scratch_PB.shape[1] // 2
        for task in range(first_task, last_task):
            first, block = task // column_blocks * row_block, task % column_blocks
            count, x = min(N - first, row_block), address(x_ND) + first * D * 4
            y = address(y_NF) + first * F * 4
            rows = stage_rows(panels_PSN, affine[3:], x, count, D, staged, row_block)
            gate_rows = stage_rows(gate_PSN, gate_affine[3:], x, count, D, staged + half, row_block)
            begin_task(panels_PSN, count)
            p, end = block * P // column_blocks, (block + 1) * P // column_blocks
            while p < end:
                width = panels_together(count, p, end, F)
                target = (y, 0, 0, F * 4)
                multiply_panels(gate_PSN, gate_rows, count, p, width, affine_at(gate_affine), 0, target, scratch)
                target = (y, y, 0, F * 4)
                multiply_panels(panels_PSN, rows, count, p, width, affine_at(affine), activation, target, scratch)
                p += width
            end_task(panels_PSN, count)
