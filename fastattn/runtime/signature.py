"""What a kernel's arguments are, as text: the key by which its compiled forms are told apart, kept and found again.

    f2C          an array: the character of its dtype, its dimensions, "C" where it is C-contiguous, "A" otherwise, in
                 small letters where it is not aligned
    I B D F Z    an integer, a truth value, a float64, a float32, None
    (I,f2C)      a tuple;  module:Name(...)  a named one
    <name>       an object with a ``_numba_type_`` of that name, and an ``address``

Whether an array may be written to makes no other form. Integers of NumPy are integers like any other.
"""

import importlib
import re
from typing import Any

import numpy as np


def signature_of(arguments: tuple, classes: list[type]) -> str:
    """The key of a call's arguments; TypeError for one that no kernel takes.

    classes  gets the classes that the key names, in order: those of named tuples and of objects with a Numba type.
    """
    return ",".join([_of(argument, classes) for argument in arguments])


def classes_of(key: str) -> list[type]:
    """The classes of named tuples that a key names."""
    named = re.findall(r"([\w.]+):(\w+)\(", key)
    return [getattr(importlib.import_module(module), name) for module, name in named]


def _of(value: Any, classes: list[type]) -> str:
    if isinstance(value, np.ndarray):
        layout = "C" if value.flags.c_contiguous else "A"
        return f"{value.dtype.char}{value.ndim}{layout if value.flags.aligned else layout.lower()}"
    if isinstance(value, tuple):
        if type(value) is not tuple:
            classes.append(type(value))
            return f"{type(value).__module__}:{type(value).__qualname__}({signature_of(value, classes)})"
        return f"({signature_of(value, classes)})"
    if value is None:
        return "Z"
    if isinstance(value, bool | np.bool_):
        return "B"
    if isinstance(value, int | np.integer):
        return "I"
    if isinstance(value, np.float32):
        return "F"
    if isinstance(value, float):
        return "D"
    if hasattr(value, "_numba_type_"):
        classes.append(type(value))
        return f"<{value._numba_type_.name}>"
    raise TypeError(f"no kernel takes a {type(value).__name__}")
