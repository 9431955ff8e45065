"""Rotary positions (Su 2021)."""

import numpy as np


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
    """Rotary positions (Su 2021), in place, on the heads from ``column`` on; rotates twice the tables' width."""
    half = cos_PK2.shape[1]
    heads_NHK = x_NE[:, column : column + heads * head_width].reshape(len(x_NE), heads, head_width)
    if interleaved:
        first_NHP, second_NHP = heads_NHK[..., 0 : 2 * half : 2], heads_NHK[..., 1 : 2 * half : 2]
    else:
        first_NHP, second_NHP = heads_NHK[..., :half], heads_NHK[..., half : 2 * half]
    cos_N1P, sin_N1P = cos_PK2[positions_N, None], sin_PK2[positions_N, None]
    turned_NHP = first_NHP * cos_N1P - second_NHP * sin_N1P
    second_NHP[...] = second_NHP * cos_N1P + first_NHP * sin_N1P
    first_NHP[...] = turned_NHP
