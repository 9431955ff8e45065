"""The sizes of a decoder that whoever drives it has to know."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class DecoderSizes:
    """What a cache is made by, and how long and how many sequences may be.

    max_positions  how many tokens it has positions for; 0: no limit
    vocabulary     tokens that it chooses from
    layers         of the cache's own rows, and of the memory's where there is one
    layer_weights  about how many weights its layers have: what a step multiplies each row by, less its projection
    row_width      E of a cached row: what is kept of a position
    memory_width   E of a row of memory: its keys, then its values; 0: there is no memory
    row_dtype      of both: uint16, the bits of bfloat16, where products are narrower than float32 and rows are keys
                   and values, since a step is bound by reading them
    dtype          of rows and of what is attended to
    """

    max_positions: int
    vocabulary: int
    layers: int
    layer_weights: int
    row_width: int
    memory_width: int
    row_dtype: np.dtype
    dtype: np.dtype
