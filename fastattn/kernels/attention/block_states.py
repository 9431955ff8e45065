"""How many of the keys of each block of queries and keys a mask function shows: none, some or all."""

from numba import prange

from fastattn.kernels.attention.constants import PIECE
from fastattn.kernels.attention.types import Tile
from fastattn.kernels.user_functions.rows import tile_state, write_seen
from fastattn.kernels.user_functions.states import ALL, NONE, SOME
from fastattn.runtime.jit import inner, kernel, take_part
from fastattn.simd.bytes import fill_bytes, load_byte


@inner
def state_of_row(function, b, h, t, first, stop, seen):
    """The state of query t and the keys from ``first`` to ``stop``, piece by piece until it is mixed."""
    found = found_none = 0
    for s in range(first, stop, PIECE):
        count = min(PIECE, stop - s)
        fill_bytes(1, seen, count)
        write_seen(function, seen, b, h, t, s, count)
        for k in range(count):
            found |= load_byte(seen + k)
            found_none |= 1 - load_byte(seen + k)
        if found and found_none:
            return SOME
    return ALL if found else NONE


@inner
def state_of_block(function, b, h, queries, keys, seen):
    """The state of queries and keys, each a Tile."""
    state = tile_state(function, b, h, queries.first, queries.stop - 1, keys.first, keys.stop - 1)
    if state != SOME:
        return state
    for t in range(queries.first, queries.stop):
        row = state_of_row(function, b, h, t, keys.first, keys.stop, seen)
        if row == SOME or (t > queries.first and row != state):
            return SOME
        state = row
    return state


@kernel
def _states(function, queries, keys, block_queries, block_keys, states_BHTS, scratch_PN):
    B, H, rows, columns = states_BHTS.shape
    for part in prange(0, len(scratch_PN)):
        seen, first, stop = take_part(scratch_PN, part, B * H * rows)
        for n in range(first, stop):
            b, h, t = n // (H * rows), n // rows % H, n % rows
            block_rows = Tile(t * block_queries, min((t + 1) * block_queries, queries))
            for s in range(columns):
                block_columns = Tile(s * block_keys, min((s + 1) * block_keys, keys))
                states_BHTS[b, h, t, s] = state_of_block(function, b, h, block_rows, block_columns, seen)
