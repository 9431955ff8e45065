"""Numbers and named tuples that kernels share with those who call them; nothing here imports Numba.

Fields are addresses and distances in bytes, int64 in kernels, LLVM values in emitters.
"""

import math
from collections import namedtuple

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


# rows of float32, or of weights; with a distance of 0 one row, repeated
Rows = namedtuple("Rows", "address distance")
# rows, or one, staged by ``stage_rows``, and their factors, which integers alone have
StagedRows = namedtuple("StagedRows", "address distance factors")
StagedRow = namedtuple("StagedRow", "address factor")
# packed weights, and memory to prefetch into L2 meanwhile, ``ahead_step`` bytes a step: if there is one panel
Panels = namedtuple("Panels", "address distance ahead ahead_step")
# what makes outputs of sums, one number a column; factors and corrections for integers only
Affine = namedtuple("Affine", "bias factors corrections")
# what emitters of linear tiles take: StagedRows, Panels, the number of steps, Rows, Affine, Rows; see make_linear_tile
LinearTile = namedtuple("LinearTile", "rows panels steps out affine residual")
# bytes of a row's whole vectors, 4-byte words that are left, and the address of a mask of these
RowWidth = namedtuple("RowWidth", "whole left mask")
# what makes scores of sums: int32 added to sums of integers, of each row of each query; a float32 factor of each row;
# whether integers are multiplied by it, as floats always are
Terms = namedtuple("Terms", "starts scales scaled")
