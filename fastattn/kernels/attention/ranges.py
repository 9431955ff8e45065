"""What the rows of a tile see of the packed keys, as a first key and a stop each, and their scores made ready.

Addresses are in bytes; ``seen`` is that of the block's first pair of int64. The last row stands for rows beyond it.
"""

from fastattn.kernels.attention.scores import add_bias, hide_between, hide_from
from fastattn.kernels.attention.tiles import COLUMNS, ROWS
from fastattn.runtime.jit import inner
from fastattn.simd.vector import load_integer


@inner
def seen_here(seen, i, count, s, here, nothing):
    """(begin, stop) of what row i sees among ``here`` keys from s on; (nothing, nothing) if none of them."""
    place = seen + min(i, count - 1) * 16
    begin, stop = max(load_integer(place) - s, 0), min(load_integer(place + 8) - s, here)
    return (begin, stop) if begin < stop else (nothing, nothing)


@inner
def seen_by_rows(seen, i, count, s, here):
    """(begin, stop) of what any row of the tile from row i on sees, from a whole panel on; begin >= stop if nothing."""
    front, last = here, 0
    for n in range(i, i + ROWS):
        begin, stop = seen_here(seen, n, count, s, here, 0)
        if begin < stop:
            front, last = min(front, begin), max(last, stop)
    return front - front % COLUMNS, last


@inner
def seen_by_block(seen, count):
    """(first key, stop) of what the rows of a block see, from the least to the greatest."""
    least, last = load_integer(seen), 0
    for i in range(count):
        least, last = min(least, load_integer(seen + i * 16)), max(last, load_integer(seen + i * 16 + 8))
    return max(least, 0), last


@inner
def finish_row_scores(row, seen, span, s, bias):
    """Add a row's bias to its scores, and hide what it does not see.

    seen  (begin, stop) among the packed keys;  span  those of the tile's scores, in whole vectors
    s     the first packed key;  bias  (address of the row, distance of keys in bytes: 0 or 4); address 0: none
    """
    begin, stop = seen
    front, whole = span
    if bias[0] != 0 and begin < stop:
        add_bias(row + front * 4, bias[0] + (s + front) * bias[1], bias[1], stop - front)
    if stop < whole:
        hide_from(row, max(stop, front), whole)
    if begin > front:
        hide_between(row, front, begin)
