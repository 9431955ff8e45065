"""How many of the keys of each block of queries and keys a mask function shows: none, some or all."""

import numpy as np

from fastattn.kernels.attention.constants import PIECE
from fastattn.runtime.arena import make_scratch_parts
from fastattn.runtime.handle import kernel_named
from fastattn.simd.target import LANES

_states = kernel_named("attention.block_states", "_states")


def block_states(function: object, shape: tuple[int, int, int, int], block: tuple[int, int]) -> np.ndarray:
    """states_BHTS uint8 of the blocks (queries, keys) of masks [B, H, T, S]; ``function`` is a compiled mask_mod."""
    B, H, T, S = shape
    block_queries, block_keys = block
    rows, columns = -(-T // block_queries), -(-S // block_keys)
    states_BHTS = np.empty((B, H, rows, columns), np.uint8)
    scratch_PN = make_scratch_parts(max(B * H * rows, 1), PIECE + LANES)
    _states(function, T, S, block_queries, block_keys, states_BHTS, scratch_PN)
    return states_BHTS
