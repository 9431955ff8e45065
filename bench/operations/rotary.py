"""Rotary positions, in place."""

from typing import Any

import numpy as np

from bench.operations.table import Arrays, Operation, Problem, Size, normal


def rotate(rows: int, heads: int, head_width: int, rotary_width: int, interleaved: bool) -> Problem:
    rng = np.random.default_rng(rows * 7919 + heads * 31 + head_width)
    angle = np.arange(11)[:, None] * 10000.0 ** (-np.arange(0, rotary_width, 2) / rotary_width)
    arrays = {
        "x": normal(rng, rows, heads * head_width + 5),
        "positions": rng.integers(0, 11, rows).astype(np.int32),
        "cos": np.cos(angle).astype(np.float32),
        "sin": np.sin(angle).astype(np.float32),
    }

    def bind(ops: Any, a: Arrays) -> Any:
        def call() -> tuple[np.ndarray, ...]:
            x = a["x"].copy()
            ops.rotate(x, a["positions"], a["cos"], a["sin"], 3, heads, head_width, interleaved)
            return (x,)

        return call

    return Problem(f"rotate-{rows}x{heads}x{head_width}-{rotary_width}-{interleaved}", "rotate", arrays, bind)


TABLE = {
    "rotate": Operation(
        rotate,
        awkward=[
            Size(*size, interleaved)
            for size in ((0, 1, 8, 8), (1, 1, 2, 2), (5, 3, 10, 6), (9, 4, 16, 16))
            for interleaved in (False, True)
        ],
    )
}
