"""The operations on rows as wholes, and on the tables that keep them, at awkward sizes."""

from typing import Any

import numpy as np

from fastattn.spec import POOLINGS
from tests.kernels.case import Case, normal, starts_of


def rows_case(rows: int, width: int) -> Case:
    """Rows taken, some of them twice, joined, scaled and added; each to the bit what one rounding makes of it."""
    rng = np.random.default_rng(rows * 7919 + width)
    arrays = {"x": normal(rng, rows, width), "taken": rng.integers(0, max(rows, 1), 2 * rows)}

    def call(ops: Any, a: dict[str, np.ndarray]) -> tuple[np.ndarray, ...]:
        taken, none = ops.take_rows(a["x"], a["taken"]), ops.empty((0, width), a["x"].dtype)
        joined = ops.concatenate_rows([a["x"], none, taken])
        scaled = ops.scale_rows(joined, 0.3)
        return taken, joined, ops.concatenate_rows([taken]), scaled, ops.add_rows(joined, scaled)

    return Case(f"rows-{rows}x{width}", "take_rows", arrays, call, exact=(0, 1, 2))


def average_heads_case(shape: tuple[int, ...], heads: int) -> Case:
    arrays = {"weights": normal(np.random.default_rng(sum(shape)), *shape)}

    def call(ops: Any, a: dict[str, np.ndarray]) -> tuple[np.ndarray, ...]:
        weights = ops.empty(shape, a["weights"].dtype)
        weights[...] = a["weights"]
        return (ops.average_heads(weights, heads),)

    return Case(f"average_heads-{shape}-{heads}".replace(" ", ""), "average_heads", arrays, call)


def pool_case(lengths: tuple[int, ...], width: int, skip: int = 0) -> Case:
    arrays = {"x": normal(np.random.default_rng(sum(lengths) + width), sum(lengths), width)}
    starts_B1 = starts_of(lengths)

    def call(ops: Any, a: dict[str, np.ndarray]) -> tuple[np.ndarray, ...]:
        alone = (ops.pool(a["x"], starts_B1, [mode], skip) for mode in POOLINGS)
        return ops.pool(a["x"], starts_B1, POOLINGS, skip), *alone

    return Case(f"pool-{lengths}x{width}-{skip}".replace(" ", ""), "pool", arrays, call)


def table_case(rows: int, width: int, more: int) -> Case:
    """What is written to a table is there after it has grown, and after it has grown again."""
    rng = np.random.default_rng(rows * 31 + width)
    arrays = {"x": normal(rng, rows + more, width), "order": rng.permutation(rows + more).astype(np.int32)}

    def call(ops: Any, a: dict[str, np.ndarray]) -> tuple[np.ndarray, ...]:
        first, rest = a["order"][a["order"] < rows], a["order"][a["order"] >= rows]
        table = ops.empty_table(rows, width, a["x"].dtype)
        ops.write_rows(table, first, a["x"][:rows], 0)
        table = ops.extend_table(table, rows + more)
        ops.write_rows(table, rest, a["x"][rows:], 0)
        longer = ops.extend_table(table, 2 * (rows + more) + 1)
        return table[:, :width], longer[: rows + more, :width]

    return Case(f"empty_table-{rows}x{width}+{more}", "empty_table", arrays, call, exact=(0, 1))


ROW_CASES: list[Case] = [
    *(rows_case(*size) for size in ((0, 8), (1, 1), (7, 13), (64, 100))),
    average_heads_case((0, 2, 5), 1),
    average_heads_case((3, 4, 7), 3),
    average_heads_case((2, 5, 3, 9), 1),
    average_heads_case((2, 16, 13, 31), 16),
    pool_case((), 8),
    pool_case((1,), 1),
    pool_case((3, 0, 17, 1), 13),
    pool_case((3, 0, 17, 4), 13, skip=3),
    pool_case((200, 31), 65),
    table_case(0, 8, 3),
    table_case(1, 1, 1),
    table_case(5, 17, 30),
    table_case(64, 100, 7),
]
