"""The keys that the rows of a tile see: a range of keys for each row, and within it a byte for each key.

Ranges are (first key, stop), of the keys of a sentence; rows see earlier keys below ``sinks`` too. Bytes come from the
caller's array, from the caller's function, and from a table of blocks, whose states say where the function need not be
called.

A user's function changes a row of scores, clears bytes of hidden keys, or answers for a whole tile. It is the handle of
``compile_function``, or NO_FUNCTION, for which nothing is compiled. A row is that of query t of head h of sentence b;
b, h, t and the first key s are int64. Scores are float32 times log2(e), in memory of whole vectors.

No gain, by shares of the time: asking a function for the state of each panel of a tile, so that rows are written only
for panels at edges (a window 1.04, documents 1.42); leaving out panels of NONE at both ends of a tile first (0.993).
"""

from numba import prange, types

from fastattn.arguments.attention import ALL, NONE, SOME
from fastattn.kernels.attention.arguments import COLUMNS, KEYS, PIECE, ROWS, Tile
from fastattn.kernels.attention.tiles import columns_of
from fastattn.runtime.jit import inner, inner_overload, kernel, take_part
from fastattn.simd.attention import copy_bytes, fill_bytes, load_byte, make_any_byte, store_byte
from fastattn.simd.memory import load_integer

MIXED = 3  # beside NONE, SOME and ALL, the state of a tile whose blocks have several of these states

any_column = make_any_byte(ROWS, COLUMNS)


def _is_none(function) -> bool:
    """Whether a Numba type is that of NO_FUNCTION or of a function that is left out."""
    return isinstance(function, types.Integer) or function == types.Tuple(())


@inner_overload
def any_function(function):
    """Whether there is a function; known when the kernel is compiled."""
    return (lambda function: False) if _is_none(function) else (lambda function: True)


@inner_overload
def modify_scores(function, score, b, h, t, s, count):
    """score = score_mod(score, b, h, t, s) at the address ``score``, for the keys s to s + count - 1."""
    if _is_none(function):
        return lambda function, score, b, h, t, s, count: None
    return function.modify_loop()


@inner_overload
def write_seen(function, target, b, h, t, s, count):
    """Set the bytes at ``target`` of hidden keys among s to s + count - 1 to 0, and leave all other bytes."""
    if _is_none(function):
        return lambda function, target, b, h, t, s, count: None
    return function.write_loop()


@inner_overload
def tile_state(function, b, h, t_first, t_last, s_first, s_last):
    """Whether mask_mod shows NONE, SOME or ALL of these keys to these queries, the last ones included."""
    if _is_none(function):
        return lambda function, b, h, t_first, t_last, s_first, s_last: ALL
    return function.state_of_ranges()


@inner
def seen_by(seen, t, keys):
    """(first key, stop) of query t; ``seen`` is the address of all queries' pairs, or 0 where all see all keys."""
    if seen == 0:
        return 0, keys
    return max(load_integer(seen + t * 16), 0), min(load_integer(seen + t * 16 + 8), keys)


@inner
def seen_here(ranges, n, s, count, sinks):
    """(begin, stop), counted from s, of the keys that row n may see among ``count`` from s on."""
    begin, stop = load_integer(ranges + n * 16) - s, min(load_integer(ranges + n * 16 + 8) - s, count)
    if begin >= count:
        stop = min(stop, sinks - s)
    return (0 if s < sinks else max(begin, 0)), stop


@inner
def seen_by_tile(ranges, tile, s, count, sinks):
    """(begin, stop, every): the keys that any row of a tile sees among ``count`` from s on, and whether every row does.

    ``begin`` is the start of a panel.
    """
    front, stop, last_front, first_stop = count, 0, 0, count
    for n in range(tile.first, tile.stop):
        begin, end = seen_here(ranges, n, s, count, sinks)
        if begin < end:
            front, stop = min(front, begin), max(stop, end)
        last_front, first_stop = max(last_front, load_integer(ranges + n * 16) - s), min(first_stop, end)
    front -= front % COLUMNS
    return front, stop, last_front <= front and first_stop >= stop


@inner
def query_of_row(rows, n):
    """(head, query) of a block's row; the last row stands for further rows."""
    return divmod(rows.first + min(n, rows.length - 1), rows.queries)


@inner
def is_masked(mask):
    return mask.seen != 0 or mask.states != 0 or any_function(mask.function)


@inner
def state_of_blocks(mask, head, t, first, stop):
    """The state of query t and the keys from ``first`` to ``stop``, by the table of blocks alone."""
    row = mask.states + head * mask.states_head + t // mask.block_queries * mask.key_blocks
    state = load_byte(row + first // mask.block_keys)
    for c in range(first // mask.block_keys + 1, (stop - 1) // mask.block_keys + 1):
        if load_byte(row + c) != state:
            return MIXED
    return state


@inner
def state_of_tile(mask, tile, rows, first, stop):
    """The state of a tile's rows and the keys from ``first`` to ``stop``, by blocks and function, not by the array.

    The function answers only for blocks that are SOME, so not for MIXED blocks.
    """
    head, t = query_of_row(rows, tile.first)
    last_head, last = query_of_row(rows, tile.stop - 1)
    state = SOME if any_function(mask.function) else ALL
    if mask.states != 0:
        state = state_of_blocks(mask, head, t, first, stop)
        for n in range(tile.first + 1, tile.stop):
            row_head, row_query = query_of_row(rows, n)
            if row_head != head or row_query // mask.block_queries != t // mask.block_queries:
                if state_of_blocks(mask, row_head, row_query, first, stop) != state:
                    state = MIXED
    if state == SOME and head == last_head and any_function(mask.function):
        return tile_state(mask.function, mask.b, mask.h + head, t, last, first, stop - 1)
    return state


@inner
def write_row(mask, head, t, first, count, target):
    """Write whether query t sees each key, a byte for each of ``count`` keys from ``first`` on, up to whole vectors."""
    seen = mask.seen + head * mask.seen_head + t * mask.seen_row
    if mask.seen == 0:
        fill_bytes(1, target, count)
    elif mask.seen_key == 0:
        fill_bytes(load_byte(seen), target, count)
    else:
        copy_bytes(seen + first, target, count)
    if mask.states == 0:
        write_seen(mask.function, target, mask.b, mask.h + head, t, first, count)
        return
    row = mask.states + head * mask.states_head + t // mask.block_queries * mask.key_blocks
    for c in range(first // mask.block_keys, (first + count - 1) // mask.block_keys + 1):
        begin, end = max(c * mask.block_keys, first), min((c + 1) * mask.block_keys, first + count)
        state = load_byte(row + c)
        if state == NONE:
            for s in range(begin, end):
                store_byte(0, target + s - first)
        elif state == SOME:
            write_seen(mask.function, target + begin - first, mask.b, mask.h + head, t, begin, end - begin)


@inner
def mask_tile(mask, tile, rows, s, front, stop, seen):
    """Write a byte for each row of a tile and packed key ``front`` to ``stop``; key s is the first packed one.

    Returns (begin, stop, 1): the keys that any row sees, from the start of a panel on; (0, 0, 0) if no row sees any; or
    (front, stop, 0), without writing, where every row sees all. ``seen`` has rows of KEYS bytes.
    """
    state = state_of_tile(mask, tile, rows, s + front, s + stop)
    if state == NONE:
        return 0, 0, 0
    if state == ALL and mask.seen == 0:
        return front, stop, 0
    whole = columns_of(stop)
    for n in range(ROWS):
        line = seen + n * KEYS
        if tile.first + n < tile.stop:
            head, t = query_of_row(rows, tile.first + n)
            write_row(mask, head, t, s + front, stop - front, line + front)
            for k in range(stop, whole):
                store_byte(0, line + k)
        else:
            fill_bytes(0, line + front, whole - front)
    begin, end = stop, 0
    for c in range(front, stop, COLUMNS):
        if any_column(seen + c, KEYS):
            begin, end = min(begin, c), c + COLUMNS
    return (begin, min(end, stop), 1) if begin < end else (0, 0, 0)


@inner
def state_of_row(function, b, h, t, first, stop, seen):
    """The state of query t and the keys from ``first`` to ``stop``, piece by piece until it is SOME."""
    any_seen = any_hidden = 0
    for s in range(first, stop, PIECE):
        count = min(PIECE, stop - s)
        fill_bytes(1, seen, count)
        write_seen(function, seen, b, h, t, s, count)
        for k in range(count):
            any_seen |= load_byte(seen + k)
            any_hidden |= 1 - load_byte(seen + k)
        if any_seen and any_hidden:
            return SOME
    return ALL if any_seen else NONE


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
    """Write the state of each block of queries and keys."""
    B, H, rows, columns = states_BHTS.shape
    for part in prange(0, len(scratch_PN)):
        seen, first, stop = take_part(scratch_PN, part, B * H * rows)
        for n in range(first, stop):
            b, h, t = n // (H * rows), n // rows % H, n % rows
            block_rows = Tile(t * block_queries, min((t + 1) * block_queries, queries))
            for s in range(columns):
                block_columns = Tile(s * block_keys, min((s + 1) * block_keys, keys))
                states_BHTS[b, h, t, s] = state_of_block(function, b, h, block_rows, block_columns, seen)
