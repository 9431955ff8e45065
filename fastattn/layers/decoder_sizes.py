"""What a decoder's cache and its callers know of its sizes."""

import numpy as np

from fastattn.system.records import dataclass


@dataclass(frozen=True)
class DecoderSizes:
    """Sizes of the key-value cache, and limits of sequences.

    max_positions  how many tokens it has positions for; 0: no limit
    vocabulary     its number of tokens
    layer_weights  about how many weights its layers have, without the projection
    row_widths     of each layer E of a cached target position
    memory_widths  of each layer E of a cached memory position: its keys, then its values; none: no memory
    row_dtype      of both: uint16, the bits of bfloat16, if products are narrower than float32 and rows are keys and
                   values, since a step is bound by reading them; or as ``Decoder.cache_in`` has it
    dtype          of hidden states and attention weights
    records        whether its steps can be recorded
    aligns         whether it attends to its memory, so that its attention can be asked for
    """

    max_positions: int
    vocabulary: int
    layer_weights: int
    row_widths: tuple[int, ...]
    memory_widths: tuple[int, ...]
    row_dtype: np.dtype
    dtype: np.dtype
    records: bool
    aligns: bool
