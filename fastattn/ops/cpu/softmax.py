"""The softmax of rows."""

import numpy as np

from fastattn.runtime.handle import kernel_named

_softmax = kernel_named("softmax", "_softmax")


def softmax(x_NS: np.ndarray) -> np.ndarray:
    """e**x divided by its sum along the row (Bridle 1990); float32 [N, S], C-contiguous.

    -inf yields 0, a row of nothing else zeros; a row with NaN or +inf is NaN.
    """
    y_NS = np.empty_like(x_NS)
    _softmax(x_NS, y_NS)
    return y_NS
