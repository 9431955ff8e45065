"""Which keys the rows of a tile see: a range of keys for each row, and more closely a byte for each key.

Ranges are (first key, stop), of the keys of a sentence; earlier keys below ``sinks`` are seen too. Bytes come from the
caller's array, from the caller's function, and from a table of blocks, whose states say where the function need not be
asked. Addresses are in bytes. A block of rows has them as a tuple:

mask  (address of the array's bytes for the block's sentence and first head, 0: none; distances of heads, rows and keys,
      the last 0 or 1; address of the table for that sentence and head, 0: none; its distance of heads; queries and keys
      of its blocks, number of its columns; sentence; first head; function)
"""

from fastattn.kernels.attention.constants import COLUMNS, KEYS, ROWS
from fastattn.kernels.user_functions.rows import any_function, tile_state, write_seen
from fastattn.kernels.user_functions.states import ALL, NONE, SOME
from fastattn.runtime.jit import inner
from fastattn.simd.bytes import copy_bytes, fill_bytes, load_byte, make_any_byte, store_byte
from fastattn.simd.vector import load_integer

MIXED = 3  # the state of a tile, beside NONE, SOME and ALL: of blocks in several of these

any_column = make_any_byte(ROWS, COLUMNS)


@inner
def seen_by(seen, t, keys):
    """(first key, stop) that query t sees; ``seen`` is the address of all queries' pairs, 0: all keys."""
    if seen == 0:
        return 0, keys
    return max(load_integer(seen + t * 16), 0), min(load_integer(seen + t * 16 + 8), keys)


@inner
def seen_here(ranges, n, s, here, sinks):
    """(begin, stop) of what row n sees among ``here`` keys from s on; some between them may be hidden."""
    begin, stop = load_integer(ranges + n * 16) - s, min(load_integer(ranges + n * 16 + 8) - s, here)
    if begin >= here:
        stop = min(stop, sinks - s)
    return (0 if s < sinks else max(begin, 0)), stop


@inner
def seen_by_tile(ranges, tile, s, here, sinks):
    """(begin, stop) of what any row of a tile sees among ``here`` keys from s on, begin at a whole panel, and whether
    each row sees all of it.

    tile  (first row, stop)
    """
    front, stop, last_front, first_stop = here, 0, 0, here
    for n in range(tile[0], tile[1]):
        begin, end = seen_here(ranges, n, s, here, sinks)
        if begin < end:
            front, stop = min(front, begin), max(stop, end)
        last_front, first_stop = max(last_front, load_integer(ranges + n * 16) - s), min(first_stop, end)
    front -= front % COLUMNS
    return front, stop, last_front <= front and first_stop >= stop


@inner
def place_of_row(block, n, queries):
    """(head, query) of a block's row; the last one stands for those beyond it."""
    first, count = block
    return divmod(first + min(n, count - 1), queries)


@inner
def is_masked(mask):
    return mask[0] != 0 or mask[4] != 0 or any_function(mask[11])


@inner
def state_of_blocks(mask, head, t, first, stop):
    """The state of query t and the keys from ``first`` to ``stop`` by blocks alone."""
    _, _, _, _, table, table_head, block_queries, block_keys, columns, _, _, _ = mask
    row = table + head * table_head + t // block_queries * columns
    state = load_byte(row + first // block_keys)
    for c in range(first // block_keys + 1, (stop - 1) // block_keys + 1):
        if load_byte(row + c) != state:
            return MIXED
    return state


@inner
def state_of_tile(mask, tile, block, queries, first, stop):
    """The state of a tile's rows and the keys from ``first`` to ``stop`` by blocks and function; see also the bytes.

    The function says nothing about blocks that are not SOME, so nothing about MIXED ones together.
    """
    _, _, _, _, table, _, block_queries, _, _, b, h, function = mask
    head, t = place_of_row(block, tile[0], queries)
    last_head, last = place_of_row(block, tile[1] - 1, queries)
    state = SOME if any_function(function) else ALL
    if table != 0:
        state = state_of_blocks(mask, head, t, first, stop)
        for n in range(tile[0] + 1, tile[1]):
            other_head, other = place_of_row(block, n, queries)
            if other_head != head or other // block_queries != t // block_queries:
                if state_of_blocks(mask, other_head, other, first, stop) != state:
                    state = MIXED
    if state == SOME and head == last_head and any_function(function):
        return tile_state(function, b, h + head, t, last, first, stop - 1)
    return state


@inner
def write_row(mask, head, t, first, count, target):
    """Write which of ``count`` keys from ``first`` on query t sees, as bytes; up to a multiple of LANES is written."""
    array, array_head, array_row, array_key, table, table_head, block_queries, block_keys, columns, b, h, function = (
        mask
    )
    if array == 0:
        fill_bytes(1, target, count)
    elif array_key == 0:
        fill_bytes(load_byte(array + head * array_head + t * array_row), target, count)
    else:
        copy_bytes(array + head * array_head + t * array_row + first, target, count)
    if table == 0:
        write_seen(function, target, b, h + head, t, first, count)
        return
    row = table + head * table_head + t // block_queries * columns
    for c in range(first // block_keys, (first + count - 1) // block_keys + 1):
        begin, end = max(c * block_keys, first), min((c + 1) * block_keys, first + count)
        state = load_byte(row + c)
        if state == NONE:
            for s in range(begin, end):
                store_byte(0, target + s - first)
        elif state == SOME:
            write_seen(function, target + begin - first, b, h + head, t, begin, end - begin)


@inner
def mask_tile(mask, tile, block, queries, s, front, stop, seen):
    """Write which of the packed keys ``front`` to ``stop``, the first of them key s, each row of a tile sees.

    Returns (begin, stop, 1) of those that any row sees, in whole panels, begin 0 and stop 0 if there are none; or
    (front, stop, 0) where all are seen, and nothing is written. ``seen`` has rows of KEYS bytes.
    """
    state = state_of_tile(mask, tile, block, queries, s + front, s + stop)
    if state == NONE:
        return 0, 0, 0
    if state == ALL and mask[0] == 0:
        return front, stop, 0
    whole = (stop + COLUMNS - 1) // COLUMNS * COLUMNS
    for n in range(ROWS):
        line = seen + n * KEYS
        if tile[0] + n < tile[1]:
            head, t = place_of_row(block, tile[0] + n, queries)
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
