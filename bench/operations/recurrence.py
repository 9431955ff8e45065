"""Recurrences of decoders without self-attention."""

from functools import partial
from typing import Any

import numpy as np

from bench.operations.table import Arrays, Operation, Problem, Size, normal, starts_of


def recurrence(operation: str, lengths: tuple[int, ...], width: int, size: float = 1.0) -> Problem:
    """Whole sequences, then a step that continues each; states are in an unordered table, wider than the rows."""
    rng = np.random.default_rng(sum(lengths) * 7919 + width)
    starts, rows = starts_of(lengths), sum(lengths)
    lasts = starts[1:] - 1
    order = rng.permutation(rows + len(lengths)).astype(np.int32)
    previous = np.concatenate([[-1], order[: rows - 1]]).astype(np.int32)[:rows]
    previous[starts[:-1]] = -1
    positions = (np.arange(rows) - np.repeat(starts[:-1], lengths)).astype(np.int32)
    inputs = (2 if operation == "ssru" else 1) * width
    arrays = {
        "x": normal(rng, rows, inputs) * np.float32(size),
        "next": normal(rng, len(lengths), inputs) * np.float32(size),
        "residual": normal(rng, rows, width),
        "states": np.full((len(order), width + 3), np.nan, np.float32),
    }

    def bind(ops: Any, a: Arrays) -> Any:
        def call() -> tuple[np.ndarray, ...]:
            states = a["states"].copy()
            if operation == "ssru":
                whole = ops.ssru(a["x"], a["residual"], states, previous, order[:rows])
                step = ops.ssru(a["next"], a["residual"][lasts], states, order[lasts], order[rows:])
            else:
                whole = ops.running_average(a["x"], states, previous, order[:rows], positions)
                after = positions[lasts] + np.int32(1)
                step = ops.running_average(a["next"], states, order[lasts], order[rows:], after)
            return whole, step, states

        return call

    return Problem(f"{operation}-{lengths}x{width}-{size}".replace(" ", ""), operation, arrays, bind)


AWKWARD = [
    Size(*size)
    for size in (((), 8), ((1,), 1), ((3, 1, 7), 13), ((40, 2), 64), ((5, 9), 65), ((97, 31), 200), ((4,), 8, 1e4))
]
TABLE = {name: Operation(partial(recurrence, name), AWKWARD) for name in ("ssru", "running_average")}
