"""The softmax of rows."""

import numpy as np


def softmax(x_NS: np.ndarray) -> np.ndarray:
    """e**x divided by its sum along the row (Bridle 1990); -inf yields 0, a row of nothing else zeros."""
    top_N1 = x_NS.max(axis=1, keepdims=True, initial=-np.inf)
    y_NS = np.exp(x_NS - np.where(np.isneginf(top_N1), 0, top_N1))
    total_N1 = y_NS.sum(axis=1, keepdims=True)
    y_NS /= np.where(total_N1 == 0, 1, total_N1)
    return y_NS
