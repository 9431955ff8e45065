"""Users' score and mask functions, compiled into the loops of kernels.

``compile_function`` reads a function's source (source.py), rewrites it without branches (rewrite.py, straight.py), and
makes a handle whose Numba type (forms.py) names the content; kernels take handles and call what is in rows.py.
"""

from fastattn.functions.combine import and_masks, or_masks
from fastattn.functions.plan import compile_function, explain_function
from fastattn.functions.rows import (
    NO_FUNCTION,
    any_function,
    any_seen,
    mask_scores,
    modify_scores,
    tile_state,
    write_seen,
)

__all__ = [
    "NO_FUNCTION",
    "and_masks",
    "any_function",
    "any_seen",
    "compile_function",
    "explain_function",
    "mask_scores",
    "modify_scores",
    "or_masks",
    "tile_state",
    "write_seen",
]
