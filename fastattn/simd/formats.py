"""How the numbers of a product lie in memory, for each precision and each way to multiply; nothing here emits code.

The choice for a precision depends on the features that are compiled for; ``fastattn.simd.arithmetic`` has the
instructions of each, under the same names.
"""

from dataclasses import dataclass

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
    Format("pairs", 2, True, 1, 2, 0),
    Format("widened", 2, True, 1, 2, 0),
)
_BFLOAT16 = Format("dot", 2, False, 2, 2, 0), Format("widened", 2, False, 2, 4, 0)
FORMATS = {
    "float32": {"float32": _FLOAT32},
    "int8": {each.name: each for each in _INT8},
    "bfloat16": {each.name: each for each in _BFLOAT16},
}


def format_for(precision: str, target: Target = TARGET) -> Format:
    """The format on ``target`` of "float32", "bfloat16" or "int8"."""
    names = {"float32": "float32", "int8": target.int8, "bfloat16": target.bfloat16}
    return FORMATS[precision][names[precision]]
