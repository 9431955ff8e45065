"""Agreement with a formula in float64: as near as twice the same formula's error in float32, and a floor."""

from collections.abc import Callable
from typing import Any

import numpy as np

from fastattn import mechanisms as m
from fastattn.ops.reference import mechanisms as formulas
from tests.kernels.cases import FLOOR


def normal(seed: int, *shape: int, size: float = 1.0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) * size).astype(np.float32)


def shares(seed: int, *shape: int) -> np.ndarray:
    """Random numbers that add up to 1 along the last axis."""
    numbers = np.random.default_rng(seed).random(shape) + 0.01
    return (numbers / numbers.sum(axis=-1, keepdims=True)).astype(np.float32)


def inputs(B=2, T=5, S=9, H=3, G=None, K=7, V=6, size=1.0):
    """Query, key and value of heads."""
    G = G or H
    return normal(1, B, T, H, K, size=size), normal(2, B, S, G, K, size=size), normal(3, B, S, G, V)


def cast(value: Any, dtype: type) -> Any:
    """float32 arrays, alone or in tuples, in another dtype."""
    if isinstance(value, tuple | list):
        return tuple(cast(v, dtype) for v in value)
    return value.astype(dtype) if isinstance(value, np.ndarray) and value.dtype == np.float32 else value


def check(got: np.ndarray, formula: Callable[..., np.ndarray], *arguments: Any) -> None:
    """Assert that ``got`` is what ``formula`` says, whose arguments are arrays of float32 and anything else."""
    assert got.dtype == np.float32
    with np.errstate(all="ignore"):
        expected = formula(*cast(arguments, np.float64))
        naive = formula(*cast(arguments, np.float32))
    assert got.shape == expected.shape
    if got.size:
        off = np.abs(naive - expected).max()
        allowed = 2 * (off if np.isfinite(off) else 0) + FLOOR * max(np.abs(expected).max(), 1)
        np.testing.assert_allclose(got, expected, rtol=0, atol=allowed)


def check_attention(got, score, arrays, parameters=(), mask=True) -> None:
    """``got`` is (out, weights): of a score's formula on query and key, with a mask, and the values."""
    query, key, value = (np.repeat(x, arrays[0].shape[2] // x.shape[2], axis=2) for x in arrays)

    def weights(query, key, *parameters):
        return formulas.weights(score(query, key, *parameters), mask)

    check(got[1], weights, query, key, *parameters)
    check(got[0], lambda q, k, v, *p: formulas.soft(weights(q, k, *p), v), query, key, value, *parameters)


# Zachary's karate club (Zachary 1977): of each member, counted from 0, those after it whom it met outside of the club.
_MET = {
    0: "1 2 3 4 5 6 7 8 10 11 12 13 17 19 21 31", 1: "2 3 7 13 17 19 21 30", 2: "3 7 8 9 13 27 28 32", 3: "7 12 13",
    4: "6 10", 5: "6 10 16", 6: "16", 8: "30 32 33", 9: "33", 13: "33", 14: "32 33", 15: "32 33", 18: "32 33", 19: "33",
    20: "32 33", 22: "32 33", 23: "25 27 29 32 33", 24: "25 27 31", 25: "31", 26: "29 33", 27: "33", 28: "31 33",
    29: "32 33", 30: "32 33", 31: "32 33", 32: "33",
}  # fmt: skip
MEMBERS = 34
EDGES = [(one, int(other)) for one, others in _MET.items() for other in others.split()]
CLUB = m.Neighbours.from_edges(EDGES, MEMBERS)


def layer(nodes=MEMBERS, F=34, H=8, V=8):
    """Features, and a layer's weight and vector."""
    return normal(1, nodes, F), normal(2, H, V, F, size=F**-0.5), normal(3, H, 2 * V)
