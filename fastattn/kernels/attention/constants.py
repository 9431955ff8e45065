"""Sizes and layouts that attention's loops share with the operations that call them. Nothing here imports Numba."""

import math

from fastattn.kernels.attention.types import SlotLayout
from fastattn.simd.constants import SIZE
from fastattn.simd.target import LANES, TARGET

# Tiles: ROWS query rows by up to KEYS keys
ROWS = TARGET.rows
VECTORS = 2  # divides head widths of 32 and 64 evenly on every target
COLUMNS = VECTORS * LANES
# Packed keys and values of width 64 take 2 * 64 KiB and stay in L2 for all query rows; a tile's scores take 6 KiB.
KEYS = 256

# Blocks of rows
INTEGERS = 4  # the size in floats of two int64: a row's first key and stop
INDICES = KEYS
LIMIT = 128 // ROWS * ROWS  # rows of a task that chooses keys: its packed keys are made for it alone
PIECE = 256  # keys that a mask is asked about at once

# Scores by distance
STRIP = 16 * ROWS  # query rows; the strip takes 96 KiB (AVX2), half of the products' columns lie outside at 6 rows
_STEP = math.lcm(ROWS, LANES)
DISTANCE_KEYS = -(-24 // _STEP) * _STEP  # of a chunk; their scores take 16 KiB (AVX2)
WIDE = KEYS + 2 * COLUMNS  # floats of a row of a tile's scores by distance
LONG = STRIP + DISTANCE_KEYS + 2 * COLUMNS  # of a row of a chunk's

TOGETHER = 4  # rows of a step that are processed together over shared keys


def whole_columns(width):
    """``width`` rounded up to whole panels."""
    return (width + COLUMNS - 1) // COLUMNS * COLUMNS


def whole_vectors(width):
    """``width`` rounded up to whole vectors."""
    return (width + LANES - 1) // LANES * LANES


def whole_tiles(rows):
    """``rows`` rounded up to whole tiles."""
    return (rows + ROWS - 1) // ROWS * ROWS


def slot_layout(heads, width, value_width, stride):
    """The scratch of a step's row, with ``stride`` floats for a head's scores."""
    totals = heads * stride * 4
    sums = totals + heads * SIZE
    queries = sums + heads * ((value_width + LANES - 1) // LANES * SIZE)
    size = queries + (heads * ((width + LANES - 1) // LANES * SIZE) + 63) // 64 * 64
    return SlotLayout(totals, sums, queries, size)
