"""Rotary positions (Su 2021): pairs of a head's values turned by an angle that grows with the position.

One pass over the rows, bound by memory; the pairs are either the two halves of the turned part or neighbours.
"""

import numpy as np
from numba import prange

from fastattn.kernels.norm import ROW_BLOCK
from fastattn.runtime.jit import kernel


@kernel
def turn(x_NE, positions_N, cos_PK2, sin_PK2, column, heads, head_width, first_step, second):
    """Pair k of a head is its values k * first_step and k * first_step + second."""
    half = cos_PK2.shape[1]
    for block in prange(0, -(-len(x_NE) // ROW_BLOCK)):
        for n in range(block * ROW_BLOCK, min((block + 1) * ROW_BLOCK, len(x_NE))):
            p = positions_N[n]
            for h in range(heads):
                start = column + h * head_width
                for k in range(half):
                    i = start + k * first_step
                    a, b = x_NE[n, i], x_NE[n, i + second]
                    x_NE[n, i] = a * cos_PK2[p, k] - b * sin_PK2[p, k]
                    x_NE[n, i + second] = b * cos_PK2[p, k] + a * sin_PK2[p, k]


def rotate(
    x_NE: np.ndarray,
    positions_N: np.ndarray,
    cos_PK2: np.ndarray,
    sin_PK2: np.ndarray,
    column: int,
    heads: int,
    head_width: int,
    interleaved: bool,
) -> None:
    """Turn, in place, ``heads`` heads of ``head_width`` from ``column`` on to the angles of their rows' positions.

    cos_PK2, sin_PK2  tables by position, float32; twice their width is what turns of a head, the rest stays.
    interleaved       pairs are neighbours (0, 1), (2, 3), ...; else (0, K2), (1, K2 + 1), ...
    positions_N       int32.
    """
    if interleaved:
        turn(x_NE, positions_N, cos_PK2, sin_PK2, column, heads, head_width, 2, 1)
    else:
        turn(x_NE, positions_N, cos_PK2, sin_PK2, column, heads, head_width, 1, cos_PK2.shape[1])
