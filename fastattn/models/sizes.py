"""The sizes of a decoder that decoding needs."""

import numpy as np

from fastattn.system.records import dataclass


@dataclass(frozen=True)
class DecoderSizes:
    """Sizes of the key-value cache, and limits of sequences.

    max_positions  how many tokens it has positions for; 0: no limit
    vocabulary     its number of tokens
    layers         of both pools of the cache
    layer_weights  about how many weights its layers have, without the projection
    row_width      E of a cached target position
    memory_width   E of a cached memory position: its keys, then its values; 0: no memory
    row_dtype      of both: uint16, the bits of bfloat16, if products are narrower than float32 and rows are keys and
                   values, since a step is bound by reading them
    dtype          of hidden states and attention weights
    records        whether its steps can be recorded
    """

    max_positions: int
    vocabulary: int
    layers: int
    layer_weights: int
    row_width: int
    memory_width: int
    row_dtype: np.dtype
    dtype: np.dtype
    records: bool
