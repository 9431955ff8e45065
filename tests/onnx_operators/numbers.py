"""Types of ONNX's tensors and ours: bfloat16, which NumPy lacks, is an ml_dtypes array there and uint16 bits here."""

import numpy as np


def as_bits(array: np.ndarray) -> np.ndarray:
    """An input of attention: bfloat16 as its bits, float64 rounded to float32, all else as it is."""
    if array.dtype.name == "bfloat16":
        return array.view(np.uint16)
    return array.astype(np.float32) if array.dtype == np.float64 else array


def as_type(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """An output of attention in the type of its inputs."""
    return array.view(dtype) if array.dtype == np.uint16 else array.astype(dtype)


def as_float32(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array, np.float32)
