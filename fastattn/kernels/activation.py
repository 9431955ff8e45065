"""Activation functions on vectors, and the codes by which the epilogue of a product chooses one.

One compiled product serves all activations, which saves start-up time; the choice is made once a tile.
"""

import math

import numpy as np

from fastattn.kernels.constants import ACTIVATION_CODES
from fastattn.runtime.jit import inner
from fastattn.simd.constants import SIZE
from fastattn.simd.vector import erf, exp, fma, load, maximum, minimum, splat, store, tanh

ZERO, HALF, ONE = np.float32(0), np.float32(0.5), np.float32(1)
SQRT_HALF = np.float32(math.sqrt(0.5))
SQRT_2_OVER_PI = np.float32(math.sqrt(2 / math.pi))
CUBIC = np.float32(0.044715)
QUICK = np.float32(1.702)
TWO, FAR = np.float32(2), np.float32(20)  # beyond FAR mish is its argument


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
    inside = x * fma(splat(CUBIC), x * x, splat(ONE))
    return fma(half, tanh(splat(SQRT_2_OVER_PI) * inside), half)


@inner
def gelu_sigmoid(x):
    """The sigmoid approximation of gelu."""
    return x * sigmoid(splat(QUICK) * x)


@inner
def swish(x):
    return x * sigmoid(x)


@inner
def hyperbolic_tangent(x):
    return tanh(x)


@inner
def relu_squared(x):
    """So 2021, section 3."""
    above = relu(x)
    return above * above


@inner
def mish(x):
    """x tanh(ln(1 + e^x)), a quotient of polynomials in e^x (Misra 2020)."""
    power = exp(minimum(splat(FAR), x))  # in this order NaN stays
    above = power * (power + splat(TWO))
    return x * (above / (above + splat(TWO)))


RELU, GELU, GELU_TANH = ACTIVATION_CODES["relu"], ACTIVATION_CODES["gelu"], ACTIVATION_CODES["gelu_tanh"]
GELU_SIGMOID, SWISH, TANH, SIGMOID = (ACTIVATION_CODES[name] for name in ("gelu_sigmoid", "swish", "tanh", "sigmoid"))
RELU_SQUARED, MISH = ACTIVATION_CODES["relu_squared"], ACTIVATION_CODES["mish"]


def _make_loop(function):
    @inner
    def loop(source, target, rows, size):
        for i in range(rows):
            row, out = source[0] + i * source[1], target[0] + i * target[1]
            for at in range(0, size, SIZE):
                store(function(load(row + at)), out + at)

    return loop


_relu, _gelu, _gelu_tanh = _make_loop(relu), _make_loop(gelu), _make_loop(gelu_tanh)
_gelu_sigmoid, _swish = _make_loop(gelu_sigmoid), _make_loop(swish)
_tanh, _sigmoid = _make_loop(hyperbolic_tangent), _make_loop(sigmoid)
_relu_squared, _mish = _make_loop(relu_squared), _make_loop(mish)


@inner
def activate_all(code, source, target, rows, size):
    """The activation of ``size`` bytes (whole vectors) of each of some rows, from source to target: (address, row).

    A row is the distance to the next; source and target may be the same.
    """
    if code == RELU:
        _relu(source, target, rows, size)
    elif code == GELU:
        _gelu(source, target, rows, size)
    elif code == SWISH:
        _swish(source, target, rows, size)
    elif code == GELU_TANH:
        _gelu_tanh(source, target, rows, size)
    elif code == GELU_SIGMOID:
        _gelu_sigmoid(source, target, rows, size)
    elif code == TANH:
        _tanh(source, target, rows, size)
    elif code == SIGMOID:
        _sigmoid(source, target, rows, size)
    elif code == RELU_SQUARED:
        _relu_squared(source, target, rows, size)
    elif code == MISH:
        _mish(source, target, rows, size)
