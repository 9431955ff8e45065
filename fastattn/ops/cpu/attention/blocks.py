"""Scratch for a block of query rows; see ``kernels/attention/blocks.py``."""

from fastattn.kernels.attention.constants import INDICES, INTEGERS, KEYS, ROWS, whole_columns
from fastattn.simd.target import LANES


def scratch_size(limit: int, width: int, value_width: int, narrow: bool) -> int:
    """The number of scratch floats of a thread for blocks of ``limit`` rows; see cut_scratch."""
    columns, alignment = whole_columns(value_width), 16
    packed = KEYS * (whole_columns(width) + columns)
    seen = (ROWS * KEYS + 3) // 4 + LANES
    rows = limit * (LANES + columns + width + 1 + INTEGERS) + ROWS
    return packed + ROWS * KEYS + rows + seen + INDICES + narrow * KEYS * max(width, value_width) + alignment
