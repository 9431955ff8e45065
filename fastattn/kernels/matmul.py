"""Matrix products with packed weights: y = activation(x W' + b) * multiply + residual.

W is packed once into panels of NR columns, [panels, inputs, NR], so that a tile reads it in order. A tile of the
target's rows x NR holds its sums in registers for the whole length of the inner dimension, which is not split for the
caches: a panel streams from L2 behind the arithmetic, at 96% of what a tile alone does, and the next one is asked for
meanwhile. Its sums start from bias and residual and go straight to y, which is activated there, or, where more follows,
to a scratch of a few kilobytes in L1, from which the epilogue writes y once.

AVX2 (6x16), one core: 96 GFLOP/s at 1024 cubed, 98 at 96x384x1536; OpenBLAS 92 and 87 in the same run.
344 -> 377  GOP/s in int8 of 48 rows whose weights, 1 MB, are not in L2: the next panel asked for
380 -> 400  GOP/s in int8 at 1024 cubed: the last panel, of 16 columns, by a tile as narrow
"""

import numpy as np
from numba import prange

from fastattn.kernels.activation import CODES, activate_all
from fastattn.kernels.packing import NR, PackedLinear
from fastattn.kernels.staging import scratch_bytes, stage_rows, staged_row
from fastattn.runtime.jit import inner, kernel
from fastattn.runtime.parts import take_part
from fastattn.runtime.threads import current_threads
from fastattn.simd.target import LANES, TARGET
from fastattn.simd.tile import make_linear_tile
from fastattn.simd.vector import LINE, load, load_first, make_scratch, splat, store, store_first

MR = TARGET.rows
# Rows that one task takes through all its panels: 48 rows of 384 to 2,048 floats, and what they become, stay in L2
# beside a panel. With 96 rows products with an activation are 4% slower, with 24 no faster.
ROW_BLOCK = 48
# One or two rows leave most accumulators idle, so they take several panels at once: the sums are then independent
# enough to hide the latency of the multiply-add, and memory sees more than one stream.
GROUP = 4
# Bytes of weights that one thread is through with before another would have begun: 10 us.
SMALL = 1 << 18

tile_full, tile_4, tile_2, tile_1 = (make_linear_tile(rows) for rows in (MR, 4, 2, 1))
tile_scratch, zeros_scratch = make_scratch(max(MR, 2 * GROUP) * NR * 4), make_scratch(GROUP * NR * 4)
tile_2_pair, tile_1_group = make_linear_tile(2, groups=2), make_linear_tile(1, groups=GROUP)
# A layer's last panel may hold less than half of its columns.
tile_narrow = make_linear_tile(MR, vectors=1)


@inner
def step_ahead(panel_bytes, steps, rows):
    """Bytes of the next panel that a step asks for, so that it is there when the rows are through with this one.

    Nothing for a single tile, which the hardware's own prefetching serves better.
    """
    return min(LINE, panel_bytes // (steps * ((rows + MR - 1) // MR)) + 1) if rows > MR else 0


@inner
def multiply_tile(
    panels, x, x_row, row_factor, left, panel, panel_bytes, count, columns, ahead, ahead_step, steps, out, out_row,
    bias, factors, corrections, residual, residual_row,
):  # fmt: skip
    """One tile of at most ``left`` rows times 1 or GROUP panels, plus bias and residual, to ``out``.

    Returns how many rows it took. Of each row at least ``columns`` results are written; everything else but panels,
    left, count and steps is an address or a stride in bytes.
    """
    size = NR * 4
    if count == GROUP:
        if left >= 2:
            for half in range(0, GROUP, 2):
                skip = half * size
                tile_2_pair(
                    panels, x, x_row, row_factor, panel + half * panel_bytes, panel_bytes, ahead, 0, steps,
                    out + skip, out_row, bias + skip, factors + skip, corrections + skip, residual + skip, residual_row,
                )  # fmt: skip
            return 2
        tile_1_group(
            panels, x, x_row, row_factor, panel, panel_bytes, ahead, 0, steps, out, out_row,
            bias, factors, corrections, residual, residual_row,
        )  # fmt: skip
        return 1
    if left >= MR and columns <= LANES:
        tile_narrow(
            panels, x, x_row, row_factor, panel, 0, ahead, ahead_step, steps, out, out_row,
            bias, factors, corrections, residual, residual_row,
        )  # fmt: skip
        return MR
    if left >= MR:
        tile_full(
            panels, x, x_row, row_factor, panel, 0, ahead, ahead_step, steps, out, out_row,
            bias, factors, corrections, residual, residual_row,
        )  # fmt: skip
        return MR
    if left >= 4:
        tile_4(
            panels, x, x_row, row_factor, panel, 0, ahead, ahead_step, steps, out, out_row,
            bias, factors, corrections, residual, residual_row,
        )  # fmt: skip
        return 4
    if left >= 2:
        tile_2(
            panels, x, x_row, row_factor, panel, 0, ahead, ahead_step, steps, out, out_row,
            bias, factors, corrections, residual, residual_row,
        )  # fmt: skip
        return 2
    tile_1(
        panels, x, x_row, row_factor, panel, 0, ahead, ahead_step, steps, out, out_row,
        bias, factors, corrections, residual, residual_row,
    )  # fmt: skip
    return 1


@inner
def finish_tile(scratch, scratch_row, rows, columns, multiply, residual, y, y_row):
    """Rows of a tile from scratch to y, times multiply, plus residual (addresses; 0: absent)."""
    zero = splat(np.float32(0))
    for i in range(rows):
        source, target = scratch + i * scratch_row, i * y_row
        for j in range(0, columns * 4, LANES * 4):
            at = target + j
            left = columns - j // 4
            value = load(source + j)
            if left >= LANES:
                if multiply != 0:
                    value = value * load(multiply + at)
                if residual != 0:
                    value = value + load(residual + at)
                store(value, y + at)
            else:
                if multiply != 0:
                    value = value * load_first(multiply + at, left, zero)
                if residual != 0:
                    value = value + load_first(residual + at, left, zero)
                store_first(value, y + at, left)


@kernel
def _linear(
    x_ND, panels_PSN, affine, activation, multiply_NF, residual_NF,
    row_block, column_blocks, scratch_PB, y_NF,
):  # fmt: skip
    """The tasks, a row block times a column block each, cut into runs, one a part; see linear."""
    bias, factors, corrections, input_scale, input_factors = affine
    N, D = x_ND.shape
    P, steps, F = panels_PSN.shape[0], panels_PSN.shape[1], y_NF.shape[1]
    x, w, b, y = x_ND.ctypes.data, panels_PSN.ctypes.data, bias.ctypes.data, y_NF.ctypes.data
    column_factors, column_corrections = factors.ctypes.data, corrections.ctypes.data
    multiply, has_multiply = multiply_NF.ctypes.data, multiply_NF.size > 0
    residual, has_residual = residual_NF.ctypes.data, residual_NF.size > 0
    direct = not has_multiply and (activation == 0 or not has_residual)
    y_row, panel_bytes = F * 4, panels_PSN.strides[0]
    a_row = staged_row(panels_PSN, D)
    tasks = (N + row_block - 1) // row_block * column_blocks
    for part in prange(0, len(scratch_PB)):
        staged, first_task, last_task = take_part(scratch_PB, part, tasks)
        row_factors = staged + row_block * a_row
        scratch, zeros = tile_scratch(), zeros_scratch()
        for j in range(0, GROUP * NR, LANES):
            store(splat(np.float32(0)), zeros + j * 4)
        for task in range(first_task, last_task):
            first = task // column_blocks * row_block
            last = min(N, first + row_block)
            column_block = task % column_blocks
            p, end = column_block * P // column_blocks, (column_block + 1) * P // column_blocks
            a = stage_rows(
                panels_PSN, (input_scale, input_factors), x + first * D * 4, last - first, D, staged, row_factors
            )
            ahead_step = step_ahead(panel_bytes, steps, last - first)
            while p < end:
                # panels that are not whole go alone: their residual is added last, however many rows there are
                grouped = last - first < 4 and p + GROUP <= end and (p + GROUP) * NR <= F
                panels = GROUP if grouped else 1
                columns = min(panels * NR, F - p * NR)
                whole = direct and columns == panels * NR
                skip, scratch_row = p * NR * 4, panels * NR * 4
                r, ahead = first, w + (p + panels) * panel_bytes
                while r < last:
                    at = r * y_row + skip
                    # a whole tile goes straight from the registers to y, and is activated there
                    out, out_row = (y + at, y_row) if whole else (scratch, scratch_row)
                    start, start_row = (residual + at, y_row) if whole and has_residual else (zeros, 0)
                    took = multiply_tile(
                        panels_PSN, a + (r - first) * a_row, a_row, row_factors + (r - first) * 4, last - r,
                        w + p * panel_bytes, panel_bytes, panels, columns, ahead, ahead_step, steps, out, out_row,
                        b + skip, column_factors + skip, column_corrections + skip, start, start_row,
                    )  # fmt: skip
                    activate_all(activation, out, out_row, took, scratch_row)
                    if not whole:
                        finish_tile(
                            scratch, scratch_row, took, columns,
                            multiply + at if has_multiply else 0, residual + at if has_residual else 0,
                            y + at, y_row,
                        )  # fmt: skip
                    r += took
                    ahead += ahead_step * steps
                p += panels


_NONE = np.empty((0, 0), np.float32)
_NO_SCRATCH = np.empty((1, 0), np.uint8)


def blocks_for(rows: int, packed: PackedLinear) -> tuple[int, int, int]:
    """(rows of a task, column blocks, parts): full tiles a task, and at least one task a thread that is worth it."""
    small = packed.panels_PSN.nbytes * (rows + MR) <= SMALL * MR
    if small and rows <= ROW_BLOCK:
        return rows, 1, 1
    panels, threads = packed.panels_PSN.shape[0], 1 if small else current_threads()
    row_blocks = -(-rows // ROW_BLOCK)
    row_block = -(-rows // row_blocks)
    row_block = -(-row_block // MR) * MR
    column_blocks = 1 if row_blocks >= 4 * threads else min(threads, panels)
    return row_block, column_blocks, min(threads, row_blocks * column_blocks)


def linear(
    x_ND: np.ndarray,
    packed: PackedLinear,
    activation: str = "none",
    residual_NF: np.ndarray | None = None,
    multiply_NF: np.ndarray | None = None,
) -> np.ndarray:
    """activation(x W' + b) * multiply + residual, float32 [N, outputs]; the inputs are float32 and C-contiguous.

    Gated feed-forward layers multiply (Shazeer 2020); the residual is added last.
    """
    N = x_ND.shape[0]
    y_NF = np.empty((N, packed.outputs), np.float32)
    if N:
        row_block, column_blocks, parts = blocks_for(N, packed)
        size = scratch_bytes(packed.panels_PSN, packed.inputs, row_block)
        scratch_PB = np.empty((parts, size), np.uint8) if size or parts > 1 else _NO_SCRATCH
        _linear(
            x_ND, packed.panels_PSN, packed.affine, CODES[activation],
            _NONE if multiply_NF is None else multiply_NF, _NONE if residual_NF is None else residual_NF,
            row_block, column_blocks, scratch_PB, y_NF,
        )  # fmt: skip
    return y_NF
