"""Numbers that compiled code shares with those who call it, who import no Numba."""

import math

from fastattn.simd.target import LANES, TARGET

SIZE = LANES * 4  # bytes of a vector
LINE = 64  # bytes of a cache line, on most CPUs
LOG2_E = math.log2(math.e)  # e**x is 2**(LOG2_E x)

# Of the tiles of scores.py: accumulators are whole groups of LANES.
ROWS, QUERIES = (4, 4) if TARGET.registers == 32 else (4, 2)
ROWS_OF_ONE = ROWS * QUERIES  # of a tile of one query
WHOLE = TARGET.int8 == "vnni"  # whether products take whole bytes; else they are widened to int16, a half at a time

# Of a tile register: rows at most, bytes of a row, and the steps of a product.
TILE_ROWS, TILE_BYTES, TILE_STEPS = 16, 64, 16
# Of staged rows: room for a multiple of so many, at a multiple of so many bytes. A tile register reads as many rows as
# it has, and is loaded in half the time where each lies on one cache line.
STAGED_ROWS, STAGED_START = (TILE_ROWS, TILE_BYTES) if TARGET.tiles else (1, 1)
