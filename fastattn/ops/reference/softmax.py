"""The softmax of rows."""

import numpy as np

from fastattn.ops.reference.attention import softmax as softmax_in_place


def softmax(x_NS: np.ndarray) -> np.ndarray:
    """e**x divided by its sum along the row (Bridle 1990); -inf yields 0, a row of nothing else zeros."""
    return softmax_in_place(x_NS.copy())
