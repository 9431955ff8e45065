"""Pooling of sentences' rows to vectors."""

from typing import Any

import numpy as np

from bench.operations.table import Arrays, Operation, Problem, Size, normal, starts_of
from fastattn.spec.text_spec import POOLINGS


def pool(lengths: tuple[int, ...], width: int, skip: int = 0) -> Problem:
    arrays = {"x": normal(np.random.default_rng(sum(lengths) + width), sum(lengths), width)}
    starts_B1 = starts_of(lengths)

    def bind(ops: Any, a: Arrays) -> Any:
        def call() -> tuple[np.ndarray, ...]:
            alone = (ops.pool(a["x"], starts_B1, [mode], skip) for mode in POOLINGS)
            return ops.pool(a["x"], starts_B1, POOLINGS, skip), *alone

        return call

    return Problem(f"pool-{lengths}x{width}-{skip}".replace(" ", ""), "pool", arrays, bind)


TABLE = {
    "pool": Operation(
        pool,
        [
            Size((), 8),
            Size((1,), 1),
            Size((3, 0, 17, 1), 13),
            Size((3, 0, 17, 4), 13, skip=3),
            Size((200, 31), 65),
        ],
    )
}
