"""The oracle itself, against loops written out by hand and against formulas of another form."""

import math

import numpy as np

from fastattn.ops import reference
from fastattn.ops.reference.matmul import erf
from fastattn.spec.architecture import ACTIVATIONS


def test_erf() -> None:
    for dtype, allowed in ((np.float64, 1e-15), (np.float32, 1e-6)):
        x = np.concatenate([np.linspace(-6, 6, 401), [0.0, 1e-30, 40.0, -40.0]]).astype(dtype)
        expected = [math.erf(value) for value in x]
        assert erf(x).dtype == dtype
        np.testing.assert_allclose(erf(x), expected, rtol=0, atol=allowed)


def _activated(name: str, x: float) -> float:
    def sigmoid(z: float) -> float:
        return 1 / (1 + math.exp(-z))

    return {
        "relu": max(x, 0.0),
        "gelu": x * 0.5 * math.erfc(-x / math.sqrt(2)),
        "gelu_tanh": x * sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)),
        "gelu_sigmoid": x * sigmoid(1.702 * x),
        "swish": x * sigmoid(x),
        "tanh": math.tanh(x),
        "sigmoid": sigmoid(x),
        "relu_squared": max(x, 0.0) ** 2,
        "mish": x * math.tanh(math.log1p(math.exp(x))),
    }[name]


def test_activations() -> None:
    x, large = np.linspace(-8, 8, 65), np.array([[-1e4], [1e4]], np.float32)
    exact, rounded = (reference.pack_linear(np.ones((1, 1), dtype)) for dtype in (np.float64, np.float32))
    for activation in ACTIVATIONS:
        expected = [_activated(activation, value) for value in x]
        got = reference.linear(x[:, None], exact, activation)[:, 0]
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-15)
        assert np.isfinite(reference.linear(large, rounded, activation)).all()
