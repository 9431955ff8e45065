"""Rotary positions (Su 2021): pairs of a head's values turned by an angle that grows with the position.

One pass over the rows, bound by memory; the pairs are either the two halves of the turned part or neighbours. Halves,
which most models have, are turned in vectors, all heads of a row by those of the tables in registers.
"""

import numpy as np
from numba import prange

from fastattn.kernels.norm import ROW_BLOCK
from fastattn.runtime.jit import kernel
from fastattn.simd.target import LANES
from fastattn.simd.vector import address, load_part, splat, store_part


@kernel
def turn_halves(x_NE, positions_N, cos_PK2, sin_PK2, column, heads, head_width):
    """Pair k of a head is its values k and half + k."""
    half, zero = cos_PK2.shape[1], splat(np.float32(0))
    for block in prange(0, -(-len(x_NE) // ROW_BLOCK)):
        for n in range(block * ROW_BLOCK, min((block + 1) * ROW_BLOCK, len(x_NE))):
            row, angles = address(x_NE) + (n * x_NE.shape[1] + column) * 4, positions_N[n] * half * 4
            for k in range(0, half, LANES):
                left = half - k
                cos = load_part(address(cos_PK2) + angles + k * 4, left, zero)
                sin = load_part(address(sin_PK2) + angles + k * 4, left, zero)
                for h in range(heads):
                    first = row + (h * head_width + k) * 4
                    second = first + half * 4
                    a, b = load_part(first, left, zero), load_part(second, left, zero)
                    store_part(a * cos - b * sin, first, left)
                    store_part(b * cos + a * sin, second, left)


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
