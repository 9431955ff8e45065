"""Embedding rows plus their positions, sums, rotary positions (Su 2021): one pass over rows, bound by memory.

Rotary positions turn pairs of a head's values by an angle that grows with the position. A pair is a value of each
half of the columns that turn, or two neighbours. Most models have halves, which turn as vectors: registers hold the
tables' values for all heads of a row.
"""

import numpy as np
from numba import prange

from fastattn.kernels.norm import ROW_BLOCK
from fastattn.runtime.jit import kernel
from fastattn.simd.arguments import GROUP_INPUTS
from fastattn.simd.grouped import float16_of
from fastattn.simd.memory import address, load_part, store_part
from fastattn.simd.rows import prefetch_row_far
from fastattn.simd.target import LANES
from fastattn.simd.vector import fma, splat

AHEAD = 4  # rows from the one that is read to the one that is prefetched, anywhere in a table larger than the caches


@kernel
def _add(x_ND, y_ND, z_ND):
    N, D = x_ND.shape
    for block in prange(0, -(-N // ROW_BLOCK)):
        zero = splat(np.float32(0))
        for n in range(block * ROW_BLOCK, min((block + 1) * ROW_BLOCK, N)):
            for at in range(n * D * 4, (n + 1) * D * 4, 4 * LANES):
                count = (n + 1) * D - at // 4
                total = load_part(address(x_ND) + at, count, zero) + load_part(address(y_ND) + at, count, zero)
                store_part(total, address(z_ND) + at, count)


@kernel
def _embed(ids_N, table, is_plain, multipliers_V, scales_PGN, scale, positions_N, position_table_PD, x_ND):
    """x = table row times its multiplier and the scale, plus the position's row, for each id; a negative id has no row.

    table       [V / panel, D / group, panel, group], float32 or int8: a word is a column of a panel
    is_plain    whether the table's rows are float32, each in one piece: panel and group are 1
    scales_PGN  int16, the float16 bits of a scale for GROUP_INPUTS numbers, which are then stored 128 higher; or empty
    """
    D, panel, group, row_bytes = x_ND.shape[1], table.shape[2], table.shape[3], table.strides[0]
    positions, x = position_table_PD.ctypes.data, x_ND.ctypes.data
    has_positions, has_multipliers, has_scales = positions_N.size > 0, multipliers_V.size > 0, scales_PGN.size > 0
    offset = np.float32(128 if has_scales else 0)
    for block in prange(0, -(-len(ids_N) // ROW_BLOCK)):
        zero, factor = splat(np.float32(0)), splat(np.float32(scale))
        for n in range(block * ROW_BLOCK, min((block + 1) * ROW_BLOCK, len(ids_N))):
            word, source = ids_N[n], x + n * D * 4
            if is_plain:
                source = table.ctypes.data + word * row_bytes
                next_row = table.ctypes.data + ids_N[min(n + AHEAD, len(ids_N) - 1)] * row_bytes
                prefetch_row_far(next_row, D * 4)
            elif word >= 0:
                # the multiplier alone makes the row of a table of floats; ``scale`` follows below
                multiplier = multipliers_V[word] if has_multipliers else np.float32(1)
                column_SG, x_D = table[word // panel, :, word % panel], x_ND[n]
                lane = word % panel % LANES
                scales = address(scales_PGN) + word // panel * scales_PGN.strides[0] + (word % panel - lane) * 2
                for d in range(0, D, group):
                    if has_scales and d % GROUP_INPUTS == 0:
                        multiplier = float16_of(scales + d // GROUP_INPUTS * scales_PGN.strides[1], lane)
                    step_G = column_SG[d // group]
                    for g in range(min(group, D - d)):
                        x_D[d + g] = (np.float32(step_G[g]) - offset) * multiplier
            for d in range(0, D, LANES):
                value, target = zero, x + (n * D + d) * 4
                if has_positions:
                    value = load_part(positions + (positions_N[n] * D + d) * 4, D - d, zero)
                if word >= 0:
                    value = fma(load_part(source + d * 4, D - d, zero), factor, value)
                store_part(value, target, D - d)


@kernel
def turn_halves(x_NE, positions_N, cos_PK2, sin_PK2, column, heads, head_width):
    """Pair k of a head is its values k and half + k."""
    half, zero = cos_PK2.shape[1], splat(np.float32(0))
    for block in prange(0, -(-len(x_NE) // ROW_BLOCK)):
        for n in range(block * ROW_BLOCK, min((block + 1) * ROW_BLOCK, len(x_NE))):
            row, angles = address(x_NE) + (n * x_NE.shape[1] + column) * 4, positions_N[n] * half * 4
            for k in range(0, half, LANES):
                count = half - k
                cos = load_part(address(cos_PK2) + angles + k * 4, count, zero)
                sin = load_part(address(sin_PK2) + angles + k * 4, count, zero)
                for h in range(heads):
                    first = row + (h * head_width + k) * 4
                    second = first + half * 4
                    a, b = load_part(first, count, zero), load_part(second, count, zero)
                    store_part(a * cos - b * sin, first, count)
                    store_part(b * cos + a * sin, second, count)


@kernel
def turn_neighbours(x_NE, positions_N, cos_PK2, sin_PK2, column, heads, head_width):
    """Pair k of a head is its values 2 k and 2 k + 1."""
    for block in prange(0, -(-len(x_NE) // ROW_BLOCK)):
        for n in range(block * ROW_BLOCK, min((block + 1) * ROW_BLOCK, len(x_NE))):
            p = positions_N[n]
            for h in range(heads):
                start = column + h * head_width
                for k in range(cos_PK2.shape[1]):
                    i = start + 2 * k
                    a, b = x_NE[n, i], x_NE[n, i + 1]
                    x_NE[n, i] = a * cos_PK2[p, k] - b * sin_PK2[p, k]
                    x_NE[n, i + 1] = b * cos_PK2[p, k] + a * sin_PK2[p, k]
