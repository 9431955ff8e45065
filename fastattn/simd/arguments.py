"""Plain data that kernels share with their callers: sizes, forms of numbers in memory, named tuples. No Numba.

Fields of tuples are addresses and distances in bytes: int64 in kernels, LLVM values in emitters.
"""

import math
from collections import namedtuple
from dataclasses import dataclass

from fastattn.simd.target import LANES, TARGET, Target

SIZE = LANES * 4  # bytes of a vector
LINE = 64  # bytes of a cache line, on most CPUs
LOG2_E = math.log2(math.e)  # e**x is 2**(LOG2_E x)

# Rows and queries of the tiles of scores.py, whose accumulators are whole groups of LANES.
ROWS, QUERIES = (4, 4) if TARGET.registers == 32 else (4, 2)
ROWS_OF_ONE = ROWS * QUERIES  # rows of a tile of one query
WHOLE_BYTES = TARGET.int8 == "vnni"  # whether products take whole bytes; else they take int16, half a vector at a time

# A tile register: its greatest number of rows, the bytes of a row, and the steps of a product.
TILE_ROWS, TILE_BYTES, TILE_STEPS = 16, 64, 16
# Staged rows have room for a multiple of STAGED_ROWS and start at a multiple of STAGED_START bytes. A tile register
# reads all the rows that it has, and loads in half the time where each row lies on one cache line.
STAGED_ROWS, STAGED_START = (TILE_ROWS, TILE_BYTES) if TARGET.tiles else (1, 1)

# Weights in groups: inputs that share a scale; bytes of a group in a staged row, 32 int8 and two float32; bytes of a
# group of one output in a panel, 16 and two float16 with 4 bits, 32 and one float16 with 8 bits; rows of a tile, whose
# float sums stay in registers.
GROUP_INPUTS, STAGED_GROUP, PACKED_GROUP, PACKED_GROUP_8 = 32, 40, 20, 34
GROUPED_ROWS = 12 if TARGET.registers == 32 else 6

# Rows of float32, or of weights; with a distance of 0 one row, repeated.
Rows = namedtuple("Rows", "address distance")
# Rows, or one row, staged by ``stage_rows``, and their factors, which integers alone have.
StagedRows = namedtuple("StagedRows", "address distance factors")
StagedRow = namedtuple("StagedRow", "address factor")
# Packed weights; memory that a tile of one panel prefetches into L2, ``ahead_step`` bytes a step.
Panels = namedtuple("Panels", "address distance ahead ahead_step")
# Packed weights in groups: a panel's numbers and float16, from a column on.
GroupedPanel = namedtuple("GroupedPanel", "numbers halves")
# The numbers that turn sums into outputs, one a column; factors and corrections for integers only.
Affine = namedtuple("Affine", "bias factors corrections")
# The operands of a linear tile: StagedRows, Panels, the number of steps, Rows, Affine, Rows; see make_linear_tile.
LinearTile = namedtuple("LinearTile", "rows panels steps out affine residual")
# Bytes of a row's whole vectors, the number of 4-byte words behind them, and the address of a mask of these words.
RowWidth = namedtuple("RowWidth", "whole tail mask")
# The numbers that turn sums into scores: an int32 for each row of each query, added to sums of integers; for each row a
# float32 factor, which multiplies floats always, and integers if ``scaled``.
Terms = namedtuple("Terms", "starts scales scaled")


@dataclass(frozen=True)
class Format:
    """The operands of one way to multiply.

    group    values of the inner dimension in one step; adjacent in B for each column.
    integer  whether sums are int32.
    b_bytes  bytes of one value in B.
    a_bytes  bytes of one staged value in A.
    offset   added to every value of A, which the sums' start corrects: 128 if the instruction takes unsigned values.
    """

    name: str
    group: int
    integer: bool
    b_bytes: int
    a_bytes: int
    offset: int


_FLOAT32 = Format("float32", 1, False, 4, 4, 0)
_INT8 = (
    Format("vnni", 4, True, 1, 1, 128),
    Format("sdot", 4, True, 1, 1, 0),
    Format("smmla", 8, True, 1, 1, 0),
    Format("smlal", 2, True, 1, 2, 0),
    Format("pairs", 2, True, 1, 2, 0),
    Format("widened", 2, True, 1, 2, 0),
)
_BFLOAT16 = (
    Format("dot", 2, False, 2, 2, 0),
    Format("tiles", 2, False, 2, 2, 0),
    Format("bfdot", 2, False, 2, 2, 0),
    Format("bfmmla", 4, False, 2, 2, 0),
    Format("widened", 2, False, 2, 4, 0),
)
FORMATS = {
    "float32": {"float32": _FLOAT32},
    "int8": {form.name: form for form in _INT8},
    "bfloat16": {form.name: form for form in _BFLOAT16},
}


def format_for(precision: str, target: Target = TARGET) -> Format:
    """The format on ``target`` of "float32", "bfloat16" or "int8"."""
    names = {"float32": "float32", "int8": target.int8, "bfloat16": target.bfloat16}
    return FORMATS[precision][names[precision]]


def step_block(precision: str, target: Target = TARGET) -> int:
    """A panel's steps are a multiple of this number: tile registers multiply whole blocks."""
    return TILE_STEPS if precision in target.tiles else 1


def staged_block(precision: str, target: Target = TARGET) -> int:
    """A staged row's bytes are a multiple of this number: whole vectors and steps, or rows of a tile register.

    In int8 a step may read bytes behind the row's last vector; they meet zeros among the weights.
    """
    whole = max(target.lanes, *(format_for(narrow, target).group for narrow in ("int8", "bfloat16")))
    return TILE_BYTES if precision in target.tiles else whole * format_for(precision, target).a_bytes
