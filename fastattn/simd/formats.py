"""How the numbers of a product lie in memory, for each precision and each way to multiply; nothing here emits code.

The choice for a precision depends on the features that are compiled for; ``fastattn.simd.arithmetic`` has the
instructions of each, under the same names.
"""

from dataclasses import dataclass

from fastattn.simd.arguments import TILE_BYTES, TILE_STEPS
from fastattn.simd.target import TARGET, Target


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
    "int8": {each.name: each for each in _INT8},
    "bfloat16": {each.name: each for each in _BFLOAT16},
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
