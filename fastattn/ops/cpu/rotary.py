"""Rotary positions (Su 2021)."""

import numpy as np

from fastattn.runtime.handle import kernel_named

turn_halves, turn_neighbours = kernel_named("rotary", "turn_halves"), kernel_named("rotary", "turn_neighbours")


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
    turn = turn_neighbours if interleaved else turn_halves
    turn(x_NE, positions_N, cos_PK2, sin_PK2, column, heads, head_width)
