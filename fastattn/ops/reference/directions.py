"""Rows divided by their length, for cosines."""

import numpy as np


def unit_vectors(x: np.ndarray) -> np.ndarray:
    """Vectors along the last axis divided by their length; zeros stay."""
    largest = np.abs(x).max(axis=-1, keepdims=True, initial=0)
    scaled = x / np.where(largest == 0, 1, largest)
    return scaled / np.maximum(np.sqrt(np.square(scaled).sum(axis=-1, keepdims=True)), np.finfo(x.dtype).tiny)
