"""Activation functions on vectors, chosen by a code inside the epilogue of a product.

A branch a vector costs nothing beside the product; one compiled product for all activations saves start-up time.
"""

import math

import numpy as np

from fastattn.kernels.jit import inner
from fastattn.simd.vector import erf, exp, fma, maximum, splat, tanh
from fastattn.spec import ACTIVATIONS

CODES = {name: code for code, name in enumerate(("none", *ACTIVATIONS))}

RELU, GELU, GELU_TANH = CODES["relu"], CODES["gelu"], CODES["gelu_tanh"]
GELU_SIGMOID, SWISH, TANH, SIGMOID = CODES["gelu_sigmoid"], CODES["swish"], CODES["tanh"], CODES["sigmoid"]

ZERO, HALF, ONE = np.float32(0), np.float32(0.5), np.float32(1)
SQRT_HALF = np.float32(math.sqrt(0.5))
SQRT_2_OVER_PI = np.float32(math.sqrt(2 / math.pi))
CUBIC = np.float32(0.044715)
QUICK = np.float32(1.702)


@inner
def sigmoid(x):
    """1 / (1 + e**-x); exp overflows to inf, whose reciprocal is the right limit."""
    return splat(ONE) / (splat(ONE) + exp(splat(ZERO) - x))


@inner
def activate(x, code):
    """The activation of this code, on every lane."""
    if code == RELU:
        return maximum(x, splat(ZERO))
    if code == GELU:
        half = splat(HALF) * x
        return fma(half, erf(x * splat(SQRT_HALF)), half)
    if code == SWISH:
        return x * sigmoid(x)
    if code == GELU_TANH:
        half = splat(HALF) * x
        inside = x * fma(splat(CUBIC), x * x, splat(ONE))
        return fma(half, tanh(splat(SQRT_2_OVER_PI) * inside), half)
    if code == GELU_SIGMOID:
        return x * sigmoid(splat(QUICK) * x)
    if code == TANH:
        return tanh(x)
    if code == SIGMOID:
        return sigmoid(x)
    return x
