"""Activation functions on vectors, and the choice of one by its code in the epilogue of a product.

One compiled product serves all activations, which saves start-up time; it chooses once a tile.
"""

import math

import numpy as np

from fastattn.kernels.arguments import ACTIVATION_CODES
from fastattn.runtime.jit import inner
from fastattn.simd.arguments import SIZE
from fastattn.simd.memory import load, store
from fastattn.simd.vector import erf, exp, fma, maximum, minimum, splat, tanh

ZERO, HALF, ONE = np.float32(0), np.float32(0.5), np.float32(1)
SQRT_HALF = np.float32(math.sqrt(0.5))
SQRT_2_OVER_PI = np.float32(math.sqrt(2 / math.pi))
CUBIC_FACTOR = np.float32(0.044715)
SIGMOID_FACTOR = np.float32(1.702)
TWO, MISH_LIMIT = np.float32(2), np.float32(20)  # from MISH_LIMIT on mish(x) is x


@inner
def sigmoid(x):
    """1 / (1 + e**-x); exp overflows to inf, whose reciprocal is the right limit."""
    return splat(ONE) / (splat(ONE) + exp(splat(ZERO) - x))


@inner
def relu(x):
    return maximum(splat(ZERO), x)  # in this order NaN stays


@inner
def gelu(x):
    """x times the normal distribution's integral, by the error function (Hendrycks 2016)."""
    half = splat(HALF) * x
    return fma(half, erf(x * splat(SQRT_HALF)), half)


@inner
def gelu_tanh(x):
    """The tanh approximation of gelu."""
    half = splat(HALF) * x
    inside = x * fma(splat(CUBIC_FACTOR), x * x, splat(ONE))
    return fma(half, tanh(splat(SQRT_2_OVER_PI) * inside), half)


@inner
def gelu_sigmoid(x):
    """The sigmoid approximation of gelu."""
    return x * sigmoid(splat(SIGMOID_FACTOR) * x)


@inner
def swish(x):
    return x * sigmoid(x)


@inner
def relu_squared(x):
    """So 2021, section 3."""
    rectified = relu(x)
    return rectified * rectified


@inner
def mish(x):
    """x tanh(ln(1 + e^x)), a quotient of polynomials in e^x (Misra 2020)."""
    power = exp(minimum(splat(MISH_LIMIT), x))  # in this order NaN stays
    numerator = power * (power + splat(TWO))
    return x * (numerator / (numerator + splat(TWO)))


# in the order in which ``activate_all`` compares their codes
FUNCTIONS = {
    "relu": relu,
    "gelu": gelu,
    "swish": swish,
    "gelu_tanh": gelu_tanh,
    "gelu_sigmoid": gelu_sigmoid,
    "tanh": tanh,
    "sigmoid": sigmoid,
    "relu_squared": relu_squared,
    "mish": mish,
}


@inner
def _no_activation(code, source, target, rows, size):
    """The end of the chain: the code of no activation."""


def _make_choice(name, function, next_choice):
    """Make an ``activate_all`` for one activation's code, which leaves other codes to ``next_choice``."""
    activation_code = ACTIVATION_CODES[name]

    @inner
    def activate(code, source, target, rows, size):
        if code == activation_code:
            for i in range(rows):
                row, out = source.address + i * source.distance, target.address + i * target.distance
                for at in range(0, size, SIZE):
                    store(function(load(row + at)), out + at)
        else:
            next_choice(code, source, target, rows, size)

    return activate


# activate_all(code, source, target, rows, size): the activation of the first ``size`` bytes (whole vectors) of ``rows``
# rows. ``source`` and ``target`` are Rows, perhaps the same.
activate_all = _no_activation
for _name, _function in reversed(FUNCTIONS.items()):
    activate_all = _make_choice(_name, _function, activate_all)
