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
