"""The softmax of rows."""

from typing import Any

import numpy as np

from bench.operations.table import FLOAT, GBYTES, Arrays, Operation, Problem, Size, Work, normal


def softmax(rows: int, columns: int, scale: float = 1.0, hidden: bool = False) -> Problem:
    """scale: of the scores; hidden: whether every third is -inf, and the last row nothing else."""
    x_NS = normal(np.random.default_rng(rows * 7919 + columns), rows, columns) * np.float32(scale)
    if hidden:
        x_NS[:, ::3] = x_NS[-1] = -np.inf

    def bind(ops: Any, a: Arrays) -> Any:
        return lambda: (ops.softmax(a["x"]),)

    work = Work(f"softmax {rows} x {columns}", FLOAT * 2.0 * rows * columns, unit=GBYTES)
    return Problem(f"softmax-{rows}x{columns}-{scale}-{hidden}", "softmax", {"x": x_NS}, bind, work=work)


TABLE = {
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
    )
}
