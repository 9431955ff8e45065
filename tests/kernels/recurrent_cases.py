"""Stacks of recurrent layers drawn at random, for goldens and their tests."""

from typing import NamedTuple

import numpy as np

from bench.operations.table import normal, starts_of
from fastattn.arguments.recurrent import States
from fastattn.spec.quantized import take
from fastattn.spec.recurrent import CELLS

PYTORCHS = ("lstm", "gru")
NUMBER = 16  # of goldens


class DrawnStack(NamedTuple):
    """Layers from the lowest up, and sentences; ``tensors`` are those of a layer's directions, by PyTorch's names."""

    cell: str
    units: int
    directions: int
    lengths: tuple[int, ...]
    x_ND: np.ndarray
    tensors: list[list[dict[str, np.ndarray]]]


def draw(seed: int) -> DrawnStack:
    rng = np.random.default_rng(seed)
    cell, directions, layers = PYTORCHS[seed % 2], int(rng.integers(1, 3)), int(rng.integers(1, 4))
    units, width = int(rng.integers(1, 70)), int(rng.integers(1, 40))
    lengths = tuple(map(int, rng.integers(1, 12, rng.integers(1, 9))))
    x_ND, tensors, rows = normal(rng, sum(lengths), width), [], CELLS[cell][0] * units
    for _ in range(layers):
        layer = []
        for _ in range(directions):
            weights = {"weight_ih": normal(rng, rows, width), "weight_hh": normal(rng, rows, units)}
            layer.append({name: weight / np.float32(weight.shape[1]) ** 0.5 for name, weight in weights.items()})
            layer[-1] |= {name: normal(rng, rows) for name in ("bias_ih", "bias_hh")}
        tensors.append(layer)
        width = directions * units
    return DrawnStack(cell, units, directions, lengths, x_ND, tensors)


def run(ops, stack: DrawnStack, precision: str = "float32") -> tuple[np.ndarray, np.ndarray]:
    """The last layer's rows, and all layers' last states side by side: h of both directions, then c."""
    (gates, parts), B, H = CELLS[stack.cell], len(stack.lengths), stack.directions * stack.units
    order_F, x_ND, states = ops.gate_rows(gates, stack.units), stack.x_ND, []
    for layer in stack.tensors:
        found = [{name: one if order_F is None else take(one, order_F) for name, one in t.items()} for t in layer]
        inputs = (np.concatenate([t[f"{name}_ih"] for t in found]) for name in ("weight", "bias"))
        weights = [ops.pack_linear(t["weight_hh"], t["bias_hh"], precision) for t in found]
        table, rows = np.full((B, parts * H), np.nan, np.float32), np.arange(B, dtype=np.int32)
        places = States(table, np.full(B, -1, np.int32), table, rows, 0, H)
        inputs_NE = ops.linear(x_ND, ops.pack_linear(*inputs, precision))
        x_ND = ops.recur(inputs_NE, weights, stack.cell, stack.units, starts_of(stack.lengths), places)
        states.append(table)
    return x_ND, np.concatenate(states, axis=1)
