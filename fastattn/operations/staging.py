"""Scratch for rows in the form that a register tile multiplies; see ``kernels/staging.py``."""

import numpy as np

from fastattn.simd.formats import format_for
from fastattn.simd.target import LANES

# Of one value, by the type of the panels.
_STAGED_BYTES = {"f": 0, "H": format_for("bfloat16").a_bytes, "b": format_for("int8").a_bytes}


def scratch_bytes(weights: np.ndarray, width: int, rows: int) -> int:
    """Bytes for ``rows`` rows of that width and their factors, staged for weights of that type."""
    size = _STAGED_BYTES[weights.dtype.char]
    return rows * (-(-width // LANES) * LANES * size + 4) if size else 0
