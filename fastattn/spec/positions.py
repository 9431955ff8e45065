"""The table of positions that is computed, not stored."""

from typing import Any

import numpy as np


def sinusoid_table(positions: int, width: int, dtype: Any = np.float32, start: int = 1) -> np.ndarray:
    """table_PD, whose row p has the sines, then the cosines, of (p + start) exp(-i ln 10000 / (width / 2 - 1)).

    tensor2tensor's form of Vaswani 2017, section 3.5; an odd width ends in a column of zeros.
    """
    half = width // 2
    timescale_K = np.exp(-np.log(10000.0) / max(half - 1, 1) * np.arange(half))
    angle_PK = np.arange(start, start + positions)[:, None] * timescale_K
    table_PD = np.zeros((positions, width), dtype)
    table_PD[:, :half] = np.sin(angle_PK)
    table_PD[:, half : 2 * half] = np.cos(angle_PK)
    return table_PD
