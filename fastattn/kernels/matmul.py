"""Matrix products with packed weights: y = activation(x W' + b) * multiply + residual.

W is packed once into panels of NR columns, [panels, inputs, NR], so that a tile reads it in order. A tile of MR rows by
NR columns holds its sums in registers for the whole inner dimension, which is not split for the caches: a panel
streams from L2 behind the arithmetic, at 96% of the speed of a tile alone, while the tile prefetches the next panel.
The sums start from bias and residual and go straight to y or, if operations follow, to a scratch of a few kilobytes in
L1, from which ``finish_tile`` writes y once. A gate is a second product of the same rows: its panel goes to y first,
where ``finish_tile`` reads it.

Vectors or the CPU's tile registers (AMX) compute a tile. Tile registers add in another order than vectors, so a CPU
that has them computes all rows of bfloat16 by them: bits never depend on the number of rows. Sums of int8 are exact
either way, so few rows of int8 take vectors, which spend no time on missing rows. Weights in groups have tiles of their
own (fastattn.simd.grouped and amx_grouped), of one block of LANES columns for many rows.

AVX2 (6x16), one core: 96 GFLOP/s at 1024 cubed, 98 at 96x384x1536; OpenBLAS 92 and 87 in the same run.
344 -> 377  GOP/s in int8 of 48 rows whose weights, 1 MB, are not in L2: prefetching the next panel
380 -> 400  GOP/s in int8 at 1024 cubed: a narrow tile for the last panel, of 16 columns
"""

from collections import namedtuple

import numpy as np
from numba import prange

from fastattn.kernels.activation import activate_all
from fastattn.kernels.arguments import GROUP, MR, NR
from fastattn.kernels.packing import affine_at, rows_from, skip_bytes, skip_columns, stage_rows
from fastattn.runtime.jit import inner, inner_overload, kernel, take_part
from fastattn.simd.amx import MOST_ROWS as AMX_ROWS
from fastattn.simd.amx import configure_tiles, make_amx_linear_tile, release_tiles
from fastattn.simd.amx_grouped import configure_grouped_tiles, make_amx_grouped_tile
from fastattn.simd.arguments import GROUP_INPUTS, GROUPED_ROWS, LINE, SIZE, TILE_ROWS, GroupedPanel, Panels, Rows
from fastattn.simd.grouped import make_grouped_tile
from fastattn.simd.memory import address, load, load_part, make_scratch, store, store_part
from fastattn.simd.target import LANES, PREFETCHES_STREAMS, TARGET
from fastattn.simd.tile import GROUPED, PRECISIONS, make_linear_tile
from fastattn.simd.vector import splat

MOST_ROWS = AMX_ROWS if TARGET.tiles else max(MR, GROUPED_ROWS)  # rows of a tile
# In int8, 16 steps of a panel take a row of vectors at best 24 cycles, a tile register of any number of rows 48.
LEAST_AMX_ROWS = 8

tile_full, tile_4, tile_2, tile_1 = (make_linear_tile(rows) for rows in (MR, 4, 2, 1))
# Intel's cores read the weights of a single tile from far memory at 9 GB/s, and with software that prefetches at 14.
tile_full_alone, tile_4_alone = (
    (make_linear_tile(rows, alone=True) for rows in (MR, 4)) if PREFETCHES_STREAMS else (tile_full, tile_4)
)
tile_2_pair, tile_1_group = make_linear_tile(2, groups=2), make_linear_tile(1, groups=GROUP)
# A layer's last panel may hold less than half of its columns.
tile_narrow = make_linear_tile(MR, vectors=1)
grouped_tile, grouped_tile_8 = make_grouped_tile(GROUPED_ROWS, 1), make_grouped_tile(8, 1)
grouped_tile_4, grouped_tile_2, grouped_tile_1 = (make_grouped_tile(rows, TARGET.vectors) for rows in (4, 2, 1))
amx_tile, amx_tile_narrow = make_amx_linear_tile(), make_amx_linear_tile(vectors=1)
HAS_GROUPED_REGISTERS = "int8" in TARGET.tiles
grouped_tile_16 = make_amx_grouped_tile() if HAS_GROUPED_REGISTERS else grouped_tile  # which no other CPU calls
tile_scratch, zero_scratch = make_scratch(max(MOST_ROWS, 2 * GROUP) * NR * 4), make_scratch(GROUP * NR * 4)

# Addresses of outputs, of factors that multiply them and of the residual, in rows ``distance`` bytes apart; 0: absent.
Destination = namedtuple("Destination", "y multiply residual distance")
# Addresses of a tile and of a row of zeros.
TileScratch = namedtuple("TileScratch", "tile zeros")
# The first row of a product's task, the number of its rows, its first panel and the end of its panels.
Task = namedtuple("Task", "first rows panel end_panel")


def _least_rows(weights) -> int:
    """The least number of rows for which products with weights of a Numba type take tile registers; 0: none."""
    if weights.dtype in GROUPED:
        return TILE_ROWS if HAS_GROUPED_REGISTERS else 0
    precision = PRECISIONS[weights.dtype]
    if precision not in TARGET.tiles:
        return 0
    return LEAST_AMX_ROWS if precision == "int8" else 1


@inner_overload
def begin_task(weights, rows):
    """Configure this thread's tile registers for a task of that many rows, if it uses them, until ``end_task``."""
    least = _least_rows(weights)

    def configure(weights, rows):
        if rows >= least:
            configure_tiles(min(rows, TILE_ROWS))

    def configure_grouped(weights, rows):
        if rows >= least:
            configure_grouped_tiles()

    if least == 0:
        return lambda weights, rows: None
    return configure_grouped if weights.dtype in GROUPED else configure


@inner_overload
def end_task(weights, rows):
    """Release the tile registers of a task of that many rows."""
    least = _least_rows(weights)

    def release(weights, rows):
        if rows >= least:
            release_tiles()

    return release if least else lambda weights, rows: None


@inner_overload
def step_ahead(weights, rows):
    """Bytes of the next panel that a step prefetches; 0 for a single tile, which prefetches its own panel, or none."""

    def by_vectors(weights, rows):
        steps, tiles = weights.shape[1], (rows + MR - 1) // MR
        return min(LINE, weights.strides[0] // (steps * tiles) + 1) if rows > MR else 0

    def by_tiles(weights, rows):
        tiles = (rows + AMX_ROWS - 1) // AMX_ROWS
        return weights.strides[0] // (weights.shape[1] * tiles) if rows > TILE_ROWS else 0

    if weights.dtype in GROUPED:
        return lambda weights, rows: 0
    return by_tiles if _least_rows(weights) else by_vectors


def _by_vectors(weights, rows, remaining, panels, count, columns, out, affine, start):
    steps = weights.shape[1]
    if count == GROUP:
        if remaining < 2:
            tile_1_group(weights, rows, panels, steps, out, affine, start)
            return 1
        for half in range(0, GROUP, 2):
            skip = half * NR * 4
            pair = Panels(panels.address + half * panels.distance, panels.distance, panels.ahead, 0)
            part_start = skip_bytes(start, skip)
            tile_2_pair(weights, rows, pair, steps, skip_bytes(out, skip), skip_columns(affine, skip), part_start)
        return 2
    if remaining >= MR and columns <= LANES:
        tile_narrow(weights, rows, panels, steps, out, affine, start)
        return MR
    is_alone = panels.ahead_step == 0
    if remaining >= MR and is_alone:
        tile_full_alone(weights, rows, panels, steps, out, affine, start)
        return MR
    if remaining >= MR:
        tile_full(weights, rows, panels, steps, out, affine, start)
        return MR
    if remaining >= 4 and is_alone:
        tile_4_alone(weights, rows, panels, steps, out, affine, start)
        return 4
    if remaining >= 4:
        tile_4(weights, rows, panels, steps, out, affine, start)
        return 4
    if remaining >= 2:
        tile_2(weights, rows, panels, steps, out, affine, start)
        return 2
    tile_1(weights, rows, panels, steps, out, affine, start)
    return 1


def _in_registers(weights, rows, remaining, panels, count, columns, out, affine, start):
    steps = weights.shape[1]
    for q in range(count):
        skip = q * NR * 4
        panel = Panels(panels.address + q * panels.distance, panels.distance, panels.ahead, panels.ahead_step)
        out_q, start_q, affine_q = skip_bytes(out, skip), skip_bytes(start, skip), skip_columns(affine, skip)
        if columns <= LANES:
            amx_tile_narrow(weights, remaining, rows, panel, steps, out_q, affine_q, start_q)
        else:
            amx_tile(weights, remaining, rows, panel, steps, out_q, affine_q, start_q)
    return min(remaining, AMX_ROWS)


@inner_overload
def first_halves(weights):
    """The offset in bytes of the first float16 in a panel of weights in groups."""
    if PRECISIONS[weights.dtype] == "int4":
        return lambda weights: GROUP_INPUTS // 2 * NR
    return lambda weights: weights.shape[1] * GROUP_INPUTS * NR


@inner
def grouped_panel(weights, panel, j):
    """The GroupedPanel of the panel at an address, from its vector ``j`` on."""
    return GroupedPanel(panel + j * SIZE, panel + first_halves(weights) + j * LANES * 2)


@inner
def rows_of_block(remaining):
    """The number of rows of the next tile of one column block; 0: the ``remaining`` rows are too few for such a tile.

    8 rows in two tiles of 4 take 18% longer than in one; 16 rows as 12 and 4 take 5% longer than as 8 and 8.
    """
    if HAS_GROUPED_REGISTERS and remaining >= TILE_ROWS:
        return TILE_ROWS
    if GROUPED_ROWS > 8 and (8 <= remaining < GROUPED_ROWS or remaining == 16):
        return 8
    return GROUPED_ROWS if remaining >= GROUPED_ROWS else 0


def _by_groups(weights, rows, remaining, panels, count, columns, out, affine, start):
    groups, blocks = weights.shape[1], (columns + LANES - 1) // LANES
    height = rows_of_block(remaining)
    if height > 0:
        for j in range(blocks):
            skip, block = j * SIZE, grouped_panel(weights, panels.address, j)
            out_j, start_j, affine_j = skip_bytes(out, skip), skip_bytes(start, skip), skip_columns(affine, skip)
            if height == TILE_ROWS:
                grouped_tile_16(weights, rows, block, groups, out_j, affine_j, start_j)
            elif height == GROUPED_ROWS:
                grouped_tile(weights, rows, block, groups, out_j, affine_j, start_j)
            else:
                grouped_tile_8(weights, rows, block, groups, out_j, affine_j, start_j)
        return height
    for q in range(count):
        skip, panel = q * NR * 4, grouped_panel(weights, panels.address + q * panels.distance, 0)
        out_q, start_q, affine_q = skip_bytes(out, skip), skip_bytes(start, skip), skip_columns(affine, skip)
        if remaining >= 4:
            grouped_tile_4(weights, rows, panel, groups, out_q, affine_q, start_q)
        elif remaining >= 2:
            grouped_tile_2(weights, rows, panel, groups, out_q, affine_q, start_q)
        else:
            grouped_tile_1(weights, rows, panel, groups, out_q, affine_q, start_q)
    return 4 if remaining >= 4 else 2 if remaining >= 2 else 1


by_vectors, in_registers = inner(_by_vectors), inner(_in_registers)


@inner_overload
def multiply_tile(weights, rows, remaining, panels, count, columns, out, affine, start):
    """Compute a tile of at most ``remaining`` rows times ``count`` panels, plus bias and residual; returns its rows.

    It writes at least ``columns`` results of each row. ``weights`` is the array of panels, ``count`` 1 or GROUP,
    ``start`` the residual, from which the sums start; ``make_linear_tile`` explains rows, panels, out and affine.
    """
    if weights.dtype in GROUPED:
        return _by_groups
    least = _least_rows(weights)

    def by_either(weights, rows, remaining, panels, count, columns, out, affine, start):
        if remaining >= least:
            return in_registers(weights, rows, remaining, panels, count, columns, out, affine, start)
        return by_vectors(weights, rows, remaining, panels, count, columns, out, affine, start)

    return (_by_vectors, _in_registers)[least] if least < 2 else by_either


@inner
def finish_tile(tile, rows, columns, target):
    """Write a tile's rows times ``multiply`` plus ``residual`` to y, the addresses in the Destination ``target``.

    Writing y begins after all operands are read, for the reason in multiply_panels.
    """
    zero = splat(np.float32(0))
    if target.multiply != 0 or target.residual != 0:
        for i in range(rows):
            for j in range(0, columns, LANES):
                count, at, place = columns - j, i * target.distance + j * 4, tile.address + i * tile.distance + j * 4
                value = load(place)
                if target.multiply != 0:
                    value = value * load_part(target.multiply + at, count, zero)
                if target.residual != 0:
                    value = value + load_part(target.residual + at, count, zero)
                store(value, place)
    for i in range(rows):
        for j in range(0, columns, LANES):
            value = load(tile.address + i * tile.distance + j * 4)
            store_part(value, target.y + i * target.distance + j * 4, columns - j)


@inner
def multiply_panels(weights, rows, count, first, width, affine, activation, target, scratch):
    """Write the products of ``count`` rows and ``width`` panels from panel ``first`` on to y.

    affine   the Affine of the first output
    target   the Destination of the first row's first output
    """
    y, multiply, residual, y_row = target
    distance, skip = weights.strides[0], first * NR * 4
    step = step_ahead(weights, count)
    panel = address(weights) + first * distance
    columns = min(width * NR, y_row // 4 - first * NR)
    tile, zeros = Rows(scratch.tile, width * NR * 4), Rows(scratch.zeros, 0)
    # A whole tile goes from the registers to y if no operation follows. Operations that follow read the tile from a
    # scratch: rows of y may lie a multiple of 4 KB apart, and each load would then wait for the stores of other rows.
    whole = columns == width * NR
    direct = whole and multiply == 0 and activation == 0
    panel_affine, ahead, r = skip_columns(affine, skip), panel + width * distance, 0
    while r < count:
        at = r * y_row + skip
        out = Rows(y + at, y_row) if direct else tile
        start = Rows(residual + at, y_row) if direct and residual != 0 else zeros
        panels = Panels(panel, distance, ahead, step)
        height = multiply_tile(weights, rows_from(rows, r), count - r, panels, width, columns, out, panel_affine, start)
        if whole and multiply == 0 and residual == 0:
            activate_all(activation, out, Rows(y + at, y_row), height, tile.distance)
        elif not direct:
            activate_all(activation, tile, tile, height, tile.distance)
            times, plus = multiply + at if multiply != 0 else 0, residual + at if residual != 0 else 0
            finish_tile(tile, height, columns, Destination(y + at, times, plus, y_row))
        r += height
        ahead += step * weights.shape[1]


@inner
def with_zeros(tile, zeros):
    """The TileScratch of two addresses, whose row of zeros is written here."""
    for j in range(0, GROUP * NR, LANES):
        store(splat(np.float32(0)), zeros + j * 4)
    return TileScratch(tile, zeros)


@inner
def find_task(task, blocks, rows, panels):
    """The Task of a number: tasks go through all rows of one column block, then through all rows of the next."""
    row_blocks = (rows + blocks.rows - 1) // blocks.rows
    first, block = task % row_blocks * blocks.rows, task // row_blocks
    count = min(rows - first, blocks.rows)
    return Task(first, count, block * panels // blocks.columns, (block + 1) * panels // blocks.columns)


@inner
def multiply_task(weights, rows, task, affine, activation, target, scratch):
    """``multiply_panels`` of all panels of a Task; for few rows GROUP panels at once.

    A panel of which only some columns are outputs goes alone, so that for any number of rows its residual comes last.
    """
    p, outputs = task.panel, target.distance // 4
    while p < task.end_panel:
        group = task.rows < 4 and p + GROUP <= task.end_panel and (p + GROUP) * NR <= outputs
        width = GROUP if group else 1
        multiply_panels(weights, rows, task.rows, p, width, affine, activation, target, scratch)
        p += width


@kernel
def _linear(x_ND, panels_PSN, arrays, activation, multiply_NF, residual_NF, blocks, scratch_PB, y_NF):
    """Each part computes a run of tasks, each a row block times a column block; see ``linear`` in ops/cpu/matmul.py."""
    N, D = x_ND.shape
    P, F = len(panels_PSN), y_NF.shape[1]
    y, multiply, residual = address(y_NF), address(multiply_NF), address(residual_NF)
    tasks = (N + blocks.rows - 1) // blocks.rows * blocks.columns
    for part in prange(0, len(scratch_PB)):
        staged, first_task, last_task = take_part(scratch_PB, part, tasks)
        affine, scratch = affine_at(arrays), with_zeros(tile_scratch(), zero_scratch())
        for number in range(first_task, last_task):
            task = find_task(number, blocks, N, P)
            x, at = address(x_ND) + task.first * D * 4, task.first * F * 4
            rows = stage_rows(panels_PSN, arrays, x, task.rows, D, staged, blocks.rows)
            begin_task(panels_PSN, task.rows)
            times = multiply + at if multiply_NF.size > 0 else 0
            plus = residual + at if residual_NF.size > 0 else 0
            target = Destination(y + at, times, plus, F * 4)
            multiply_task(panels_PSN, rows, task, affine, activation, target, scratch)
            end_task(panels_PSN, task.rows)


@kernel
def _gated(x_ND, panels_PSN, arrays, gate_PSN, gate_arrays, activation, blocks, scratch_PB, y_NF):
    """``_linear`` times a second product of the same rows, the gate, which y holds first; see ``gated`` there."""
    N, D = x_ND.shape
    P, F = len(panels_PSN), y_NF.shape[1]
    tasks = (N + blocks.rows - 1) // blocks.rows * blocks.columns
    for part in prange(0, len(scratch_PB)):
        staged, first_task, last_task = take_part(scratch_PB, part, tasks)
        scratch, half = with_zeros(tile_scratch(), zero_scratch()), scratch_PB.shape[1] // 2
        affine, gate_affine = affine_at(arrays), affine_at(gate_arrays)
        for number in range(first_task, last_task):
            task = find_task(number, blocks, N, P)
            x, y = address(x_ND) + task.first * D * 4, address(y_NF) + task.first * F * 4
            rows = stage_rows(panels_PSN, arrays, x, task.rows, D, staged, blocks.rows)
            gate_rows = stage_rows(gate_PSN, gate_arrays, x, task.rows, D, staged + half, blocks.rows)
            begin_task(panels_PSN, task.rows)
            first, product = Destination(y, 0, 0, F * 4), Destination(y, y, 0, F * 4)
            # With few rows, all panels of the gate are read in order, then all panels of the product.
            run = max(1, task.end_panel - task.panel) if task.rows < 4 else 1
            for p in range(task.panel, task.end_panel, run):
                run_task = Task(task.first, task.rows, p, p + run)
                multiply_task(gate_PSN, gate_rows, run_task, gate_affine, 0, first, scratch)
                multiply_task(panels_PSN, rows, run_task, affine, activation, product, scratch)
            end_task(panels_PSN, task.rows)
