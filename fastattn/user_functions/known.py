"""The functions of Python, ``math`` and NumPy that become operations of simd/operations.py."""

import math
from typing import Any

import numpy as np

# Operation -> the functions that it stands for
_NAMES: dict[str, tuple[Any, ...]] = {
    "exp": (math.exp, np.exp),
    "exp2": (getattr(math, "exp2", None), np.exp2),
    "log": (math.log, np.log),
    "log2": (math.log2, np.log2),
    "tanh": (math.tanh, np.tanh),
    "erf": (math.erf,),
    "sqrt": (math.sqrt, np.sqrt),
    "power": (math.pow, np.power, pow),
    "floor_whole": (math.floor,),
    "ceil_whole": (math.ceil,),
    "round": (np.rint, np.round, np.around),
    "round_whole": (round,),
    "is_nan": (math.isnan, np.isnan),
    "absolute": (abs, np.abs, np.fabs, math.fabs),
    "maximum": (max, np.maximum, np.fmax),
    "minimum": (min, np.minimum, np.fmin),
    "to_float": (float, np.float32, np.float64),
    "to_whole": (int, np.int32, np.int64, math.trunc),
    "truth": (bool, np.bool_),
    "bit_and": (np.bitwise_and,),
    "bit_or": (np.bitwise_or,),
    "bit_xor": (np.bitwise_xor,),
    "shift_left": (np.left_shift,),
    "shift_right": (np.right_shift,),
}
_SAME = (  # NumPy's names of the same operations
    "floor", "ceil", "clip", "where", "add", "subtract", "multiply", "divide", "floor_divide", "remainder", "negative",
    "less", "less_equal", "greater", "greater_equal", "equal", "not_equal", "invert", "logical_and", "logical_or",
    "logical_xor", "logical_not",
)  # fmt: skip
_NAMES |= {name: (getattr(np, name),) for name in _SAME}
# By identity, since not every function can be hashed or compared.
KNOWN = {id(function): name for name, functions in _NAMES.items() for function in functions if function is not None}
ARITY = dict.fromkeys(KNOWN.values(), 2) | dict.fromkeys(
    (
        "exp", "exp2", "log", "log2", "tanh", "erf", "sqrt", "floor", "ceil", "floor_whole", "ceil_whole", "round",
        "round_whole", "is_nan", "absolute", "to_float", "to_whole", "truth", "negative", "invert", "logical_not",
    ),
    1,
) | {"where": 3, "clip": 3}  # fmt: skip
