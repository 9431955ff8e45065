"""Operations on whole rows: take, concatenate, scale, add, neighbours; the average of attention weights over heads."""

from typing import Any

import numpy as np

from bench.operations.table import Arrays, Operation, Problem, Size, normal, starts_of


def take_rows(rows: int, width: int) -> Problem:
    """Rows taken, some twice, concatenated, scaled and added; each result is rounded once and must be exact."""
    rng = np.random.default_rng(rows * 7919 + width)
    arrays = {"x": normal(rng, rows, width), "taken": rng.integers(0, max(rows, 1), 2 * rows)}

    def bind(ops: Any, a: Arrays) -> Any:
        def call() -> tuple[np.ndarray, ...]:
            taken, none = ops.take_rows(a["x"], a["taken"]), ops.empty((0, width), a["x"].dtype)
            joined = ops.concatenate_rows([a["x"], none, taken])
            scaled = ops.scale_rows(joined, 0.3)
            return taken, joined, ops.concatenate_rows([taken]), scaled, ops.add_rows(joined, scaled)

        return call

    return Problem(f"rows-{rows}x{width}", "take_rows", arrays, bind, exact=(0, 1, 2))


def average_heads(shape: tuple[int, ...], heads: int) -> Problem:
    arrays = {"weights": normal(np.random.default_rng(sum(shape)), *shape)}

    def bind(ops: Any, a: Arrays) -> Any:
        def call() -> tuple[np.ndarray, ...]:
            weights = ops.empty(shape, a["weights"].dtype)
            weights[...] = a["weights"]
            return (ops.average_heads(weights, heads),)

        return call

    return Problem(f"average_heads-{shape}-{heads}".replace(" ", ""), "average_heads", arrays, bind)


def neighbours(lengths: tuple[int, ...], width: int, before: int, after: int) -> Problem:
    arrays = {"x": normal(np.random.default_rng(sum(lengths)), sum(lengths), width), "starts": starts_of(lengths)}

    def bind(ops: Any, a: Arrays) -> Any:
        return lambda: (ops.neighbours(a["x"], a["starts"], before, after),)

    name = f"neighbours-{lengths}x{width}-{before}-{after}".replace(" ", "")
    return Problem(name, "neighbours", arrays, bind, exact=(0,))


TABLE = {
    "take_rows": Operation(take_rows, [Size(*size) for size in ((0, 8), (1, 1), (7, 13), (64, 100))]),
    "neighbours": Operation(
        neighbours,
        [
            Size((), 3, 1, 1),
            Size((1,), 1, 2, 2),
            Size((3, 0, 7, 1), 5, 1, 1),
            Size((2, 9), 4, 3, 0),
            Size((6,), 2, 0, 0),
        ],
    ),
    "average_heads": Operation(
        average_heads,
        [Size((0, 2, 5), 1), Size((3, 4, 7), 3), Size((2, 5, 3, 9), 1), Size((2, 16, 13, 31), 16)],
    ),
}
