"""Scratch for rows in the form that a register tile multiplies; see ``kernels/staging.py``."""

import numpy as np

from fastattn.simd.constants import STAGED_ROWS, STAGED_START
from fastattn.simd.formats import format_for, staged_block

# (bytes of a value, what a row's bytes are a multiple of), by the type of the panels; rows of float32 stay as they are.
_FORMS = {
    char: (format_for(precision).a_bytes, staged_block(precision))
    for char, precision in (("H", "bfloat16"), ("b", "int8"))
}


def scratch_bytes(weights: np.ndarray, width: int, rows: int) -> int:
    """Bytes for ``rows`` rows of that width and their factors, staged for weights of that type."""
    if weights.dtype.char not in _FORMS:
        return 0
    (size, block), room = _FORMS[weights.dtype.char], -(-rows // STAGED_ROWS) * STAGED_ROWS
    return room * (-(-width * size // block) * block + 4) + STAGED_START - 1
