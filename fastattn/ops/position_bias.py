"""A bias of attention scores by position: linear in the distance, or looked up by it; never a matrix."""

from typing import NamedTuple

import numpy as np


class PositionBias(NamedTuple):
    """Bias of a query at position p and a key at position s, by head: one array of the scores' dtype, or none.

    slopes_H    adds slope (s - p), or slope s where it counts ``from_start`` (ALiBi, Press 2022)
    table_HL    adds table[s - p + L // 2]; L is odd, and no distance is beyond L // 2 (T5, Raffel 2020)
    """

    slopes_H: np.ndarray | None = None
    table_HL: np.ndarray | None = None
    from_start: bool = False
