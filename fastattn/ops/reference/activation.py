"""Activation functions by name, and the error function."""

import math
from collections.abc import Callable

import numpy as np

_SQRT_HALF = math.sqrt(0.5)
_exact_erf = np.frompyfunc(math.erf, 1, 1)


def erf(x: np.ndarray) -> np.ndarray:
    """The error function: math.erf for float64; for float32 Abramowitz and Stegun 7.1.26, 1.5e-7 absolute.

    math.erf costs about 100 ns an element, which would make the naive side of the benchmark look slower than it is.
    """
    if x.dtype != np.float32:
        return np.asarray(_exact_erf(x)).astype(x.dtype)
    size = np.abs(x)
    t = 1 / (1 + np.float32(0.3275911) * size)
    series = t * np.float32(1.061405429)
    for coefficient in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        series += np.float32(coefficient)
        series *= t
    np.square(size, out=size)
    np.negative(size, out=size)
    series *= np.exp(size, out=size)
    return np.copysign(1 - series, x)


def sigmoid(x: np.ndarray) -> np.ndarray:
    small = np.exp(-np.abs(x))  # exp(-|x|) cannot overflow
    return np.where(x < 0, small, 1) / (1 + small)


def _gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + erf(x * x.dtype.type(_SQRT_HALF)))


def _gelu_tanh(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))))


ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "none": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "gelu_sigmoid": lambda x: x * sigmoid(1.702 * x),
    "swish": lambda x: x * sigmoid(x),
    "tanh": np.tanh,
    "sigmoid": sigmoid,
    "relu_squared": lambda x: np.square(np.maximum(x, 0)),
    "mish": lambda x: x * np.tanh(np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))),
}
