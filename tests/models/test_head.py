"""Heads by their formula, in every variety of a HeadSpec."""

import math
from types import ModuleType

import numpy as np
import pytest

from fastattn.layers.parameters import Parameters
from fastattn.models.encoder import Head
from fastattn.ops import cpu as operations
from fastattn.ops import reference
from fastattn.spec.architecture import HeadSpec, NormSpec
from fastattn.spec.tensors import head_shapes

WIDTH = 19
STARTS_B1 = np.array([0, 3, 4, 11], np.int64)
VARIETIES = {
    "one layer": HeadSpec("first", 5),
    "no bias": HeadSpec("last", 1, bias=False),
    "each row": HeadSpec("each", 7),
    "tanh": HeadSpec("mean", 2, inner_width=WIDTH),
    "a norm": HeadSpec("each", 40, inner_width=11, activation="gelu", norm=NormSpec("layer", 1e-12)),
    "a norm without biases": HeadSpec(
        "mean", 3, inner_width=23, inner_bias=False, activation="relu", norm=NormSpec("layer", 1e-5, biases=False)
    ),
    "a root mean square norm": HeadSpec("last", 3, inner_width=8, activation="sigmoid", norm=NormSpec("rms", 1e-6)),
}
ACTIVATIONS = {
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "gelu": lambda x: x * (1 + np.vectorize(math.erf)(x / np.sqrt(2))) / 2,
}


def drawn(spec: HeadSpec) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in head_shapes(spec, WIDTH).items()}


def by_formula(spec: HeadSpec, tensors: dict[str, np.ndarray], rows_ND: np.ndarray) -> np.ndarray:
    take = {"first": lambda rows: rows[:1], "last": lambda rows: rows[-1:], "each": lambda rows: rows}
    take["mean"] = lambda rows: rows.mean(axis=0, keepdims=True)
    x = np.concatenate([take[spec.rows](rows_ND[a:b]) for a, b in zip(STARTS_B1, STARTS_B1[1:])]).astype(np.float64)
    if spec.inner_width:
        x = ACTIVATIONS[spec.activation](x @ tensors["head.inner.weight"].T + tensors.get("head.inner.bias", 0))
    if spec.norm is not None:
        if spec.norm.kind == "layer":
            x = x - x.mean(axis=1, keepdims=True)
        x = x / np.sqrt((x * x).mean(axis=1, keepdims=True) + spec.norm.epsilon)
        x = x * tensors["head.norm.weight"] + tensors.get("head.norm.bias", 0)
    return x @ tensors["head.output.weight"].T + tensors.get("head.output.bias", 0)


@pytest.mark.parametrize("precision", ["float32", "int8"])  # of the encoder: the head's is float32
@pytest.mark.parametrize("ops", [operations, reference], ids=["kernels", "reference"])
@pytest.mark.parametrize("variety", VARIETIES)
def test_a_head_is_its_formula(variety: str, ops: ModuleType, precision: str) -> None:
    spec = VARIETIES[variety]
    tensors = drawn(spec)
    rows_ND = np.random.default_rng(2).normal(size=(11, WIDTH)).astype(np.float32)
    found = Head(Parameters(tensors, ops, precision), spec)(rows_ND, STARTS_B1)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, by_formula(spec, tensors, rows_ND), atol=1e-4)
