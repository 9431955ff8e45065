"""Norms and the softmax of rows."""

from functools import partial
from typing import Any

import numpy as np

from bench.operations.table import FLOAT, GBYTES, Arrays, Operation, Problem, Size, Work, copy_of, normal


def norm(operation: str, rows: int, width: int, residual: bool = False, mean: float = 0.0) -> Problem:
    """residual: whether a residual is added to x; mean: the mean of x."""
    rng = np.random.default_rng(rows * 7919 + width)
    arrays = {"x": normal(rng, rows, width) + np.float32(mean), "weight": normal(rng, width)}
    if operation == "layer_norm":
        arrays["bias"] = normal(rng, width)
    if residual:
        arrays["residual"] = normal(rng, rows, width)
    epsilon = 1e-5 if operation == "layer_norm" else 1e-6

    def bind(ops: Any, a: Arrays) -> Any:
        weights = [a["weight"], a["bias"]] if operation == "layer_norm" else [a["weight"]]
        return lambda: (getattr(ops, operation)(a["x"], *weights, epsilon, a.get("residual")),)

    name = f"{operation}-{rows}x{width}-{residual}-{mean}"
    moved = FLOAT * (3.0 if residual else 2.0) * rows * width
    work = Work(f"{operation} {rows} x {width}", moved, unit=GBYTES)
    return Problem(name, operation, arrays, bind, {"epsilon": epsilon}, work=work)


def normalize_heads(rows: int, heads: int, head_width: int, column: int = 0) -> Problem:
    rng = np.random.default_rng(rows * 7919 + heads * 31 + head_width)
    arrays = {"x": normal(rng, rows, column + heads * head_width + 5), "weight": normal(rng, heads, head_width)}

    def bind(ops: Any, a: Arrays) -> Any:
        def call() -> tuple[np.ndarray, ...]:
            x = copy_of(a["x"])
            ops.normalize_heads(x, a["weight"], 1e-6, column)
            return (x,)

        return call

    name = f"normalize_heads-{rows}x{heads}x{head_width}-{column}"
    return Problem(name, "normalize_heads", arrays, bind, {"epsilon": 1e-6})


AWKWARD = [Size(0, 8), Size(1, 1), Size(3, 7, True), Size(2, 16), Size(5, 129, True)]


def softmax(rows: int, columns: int, scale: float = 1.0, hidden: bool = False) -> Problem:
    """scale: of the scores; hidden: whether every third score and the whole last row are -inf."""
    x_NS = normal(np.random.default_rng(rows * 7919 + columns), rows, columns) * np.float32(scale)
    if hidden:
        x_NS[:, ::3] = x_NS[-1] = -np.inf

    def bind(ops: Any, a: Arrays) -> Any:
        return lambda: (ops.softmax(a["x"]),)

    work = Work(f"softmax {rows} x {columns}", FLOAT * 2.0 * rows * columns, unit=GBYTES)
    return Problem(f"softmax-{rows}x{columns}-{scale}-{hidden}", "softmax", {"x": x_NS}, bind, work=work)


TABLE = {
    "layer_norm": Operation(
        partial(norm, "layer_norm"),
        awkward=[*AWKWARD, Size(4, 384, mean=1000.0)],
        large=[Size(2048, 384, True)],
        toy=[Size(8, 16, True)],
    ),
    "rms_norm": Operation(partial(norm, "rms_norm"), AWKWARD),
    "normalize_heads": Operation(
        normalize_heads,
        [Size(0, 1, 8), Size(1, 1, 1), Size(33, 3, 7), Size(5, 2, 16), Size(9, 4, 129), Size(4, 1, 35, 12)],
    ),
    "softmax": Operation(
        softmax,
        awkward=[
            Size(0, 8),
            Size(3, 0),
            Size(1, 1),
            Size(3, 7, hidden=True),
            Size(2, 16, 1e4),
            Size(33, 17, 10.0),
            Size(67, 129, 30.0, hidden=True),
        ],
        large=[Size(2048, 512)],
        toy=[Size(8, 16)],
    ),
}
