"""Plain data that kernels share with those who call them: sizes, forms of numbers in memory, named tuples. No Numba.

Fields of tuples are addresses and distances in bytes, int64 in kernels, LLVM values in emitters.
"""

import math
from collections import namedtuple
from dataclasses import dataclass

from fastattn.simd.target import LANES, TARGET, Target

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

# Of weights in groups: inputs that share a scale; bytes of a group in a staged row, 32 int8 and two float32, and of one
# output in a panel, of 4 bits 16 of numbers and two float16, of 8 bits 32 and one; rows of a tile, whose sums of floats
# stay in registers.
GROUP_INPUTS, STAGED_GROUP, PACKED_GROUP, PACKED_GROUP_8 = 32, 40, 20, 34
GROUPED_ROWS = 12 if TARGET.registers == 32 else 6


# rows of float32, or of weights; with a distance of 0 one row, repeated
Rows = namedtuple("Rows", "address distance")
# rows, or one, staged by ``stage_rows``, and their factors, which integers alone have
StagedRows = namedtuple("StagedRows", "address distance factors")
StagedRow = namedtuple("StagedRow", "address factor")
# packed weights, and memory to prefetch into L2 meanwhile, ``ahead_step`` bytes a step: if there is one panel
Panels = namedtuple("Panels", "address distance ahead ahead_step")
# packed weights in groups: a panel's numbers and float16, from a column on
GroupedPanel = namedtuple("GroupedPanel", "numbers halves")
# what makes outputs of sums, one number a column; factors and corrections for integers only
Affine = namedtuple("Affine", "bias factors corrections")
# what emitters of linear tiles take: StagedRows, Panels, the number of steps, Rows, Affine, Rows; see make_linear_tile
LinearTile = namedtuple("LinearTile", "rows panels steps out affine residual")
# bytes of a row's whole vectors, 4-byte words that are left, and the address of a mask of these
RowWidth = namedtuple("RowWidth", "whole tail mask")
# what makes scores of sums: int32 added to sums of integers, of each row of each query; a float32 factor of each row;
# whether integers are multiplied by it, as floats always are
Terms = namedtuple("Terms", "starts scales scaled")


@dataclass(frozen=True)
class Format:
    """The operands of one way to multiply.

    group      values of the inner dimension in one step; adjacent in B for each column.
    integer    whether sums are int32.
    b_bytes    bytes of one value in B.
    a_bytes    bytes of one staged value in A.
    offset     added to every value of A, corrected in the sums' start: 128 if the instruction takes unsigned values.
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
    """A panel's steps are a multiple of this: tile registers multiply whole blocks."""
    return TILE_STEPS if precision in target.tiles else 1


def staged_block(precision: str, target: Target = TARGET) -> int:
    """A staged row's bytes are a multiple of this: whole vectors of floats and whole steps, or rows of a tile register.

    What a step reads behind the row's last vector, in int8 alone, meets zeros among the weights.
    """
    whole = max(target.lanes, *(format_for(narrow, target).group for narrow in ("int8", "bfloat16")))
    return TILE_BYTES if precision in target.tiles else whole * format_for(precision, target).a_bytes
