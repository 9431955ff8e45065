"""State between a decoder's steps: rows and tables of the key-value cache, recurrent states."""

from functools import partial
from typing import Any

import numpy as np

from bench.operations.table import Arrays, Operation, Problem, Size, copy_of, normal, starts_of
from fastattn.spec.rounding import as_floats


def write_rows(rows: int, width: int, column: int, narrow: bool) -> Problem:
    """narrow: whether the cache is in bfloat16."""
    rng = np.random.default_rng(rows * 31 + width)
    arrays = {"values": normal(rng, rows, column + width), "rows": rng.permutation(2 * rows)[:rows].astype(np.int32)}

    def bind(ops: Any, a: Arrays) -> Any:
        def call() -> tuple[np.ndarray, ...]:
            # in bfloat16 both sides round the same float32, whatever the oracle's dtype
            dtype = np.dtype(np.uint16) if narrow else a["values"].dtype
            table = np.full((2 * rows, width + 3), 7, dtype)
            ops.write_rows(table, a["rows"], a["values"], column)
            rounded = a["values"].astype(np.float32)
            ops.round_rows(rounded, column)
            return (as_floats(table) if narrow else table, rounded)

        return call

    return Problem(f"write_rows-{rows}-{width}-{column}-{narrow}", "write_rows", arrays, bind, exact=(0, 1))


def empty_table(rows: int, width: int, more: int) -> Problem:
    """Rows written to a table remain after it is extended twice, and when they are gathered."""
    rng = np.random.default_rng(rows * 31 + width)
    arrays = {"x": normal(rng, rows + more, width), "order": rng.permutation(rows + more).astype(np.int32)}

    def bind(ops: Any, a: Arrays) -> Any:
        def call() -> tuple[np.ndarray, ...]:
            first, rest = a["order"][a["order"] < rows], a["order"][a["order"] >= rows]
            table = ops.empty_table(rows, width, a["x"].dtype)
            ops.write_rows(table, first, a["x"][:rows], 0)
            table = ops.extend_table(table, rows + more)
            ops.write_rows(table, rest, a["x"][rows:], 0)
            longer = ops.extend_table(table, 2 * (rows + more) + 1)
            gathered = ops.gather_table(longer, rest, more + 2)
            return table[:, :width], longer[: rows + more, :width], gathered[:more, :width]

        return call

    return Problem(f"empty_table-{rows}x{width}+{more}", "empty_table", arrays, bind, exact=(0, 1, 2))


def recurrence(operation: str, lengths: tuple[int, ...], width: int, size: float = 1.0) -> Problem:
    """Whole sequences, then a step that continues each; the table of states is unordered and wider than the rows."""
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
            states = copy_of(a["states"])
            if operation == "ssru":
                whole = ops.ssru(a["x"], a["residual"], states, previous, order[:rows])
                step = ops.ssru(a["next"], a["residual"][lasts], states, order[lasts], order[rows:])
            else:
                whole = ops.running_average(a["x"], states, previous, order[:rows], positions)
                after = positions[lasts] + np.int32(1)
                step = ops.running_average(a["next"], states, order[lasts], order[rows:], after)
            return whole, step, states

        return call

    return Problem(f"{operation}-{lengths}x{width}-{size}", operation, arrays, bind)


AWKWARD = [
    Size(*size)
    for size in (((), 8), ((1,), 1), ((3, 1, 7), 13), ((40, 2), 64), ((5, 9), 65), ((97, 31), 200), ((4,), 8, 1e4))
]


TABLE = {
    "write_rows": Operation(
        write_rows,
        awkward=[
            Size(*size, narrow) for narrow in (False, True) for size in ((0, 8, 0), (1, 1, 2), (33, 53, 5), (70, 64, 0))
        ],
    ),
    "empty_table": Operation(empty_table, [Size(*size) for size in ((0, 8, 3), (1, 1, 1), (5, 17, 30), (64, 100, 7))]),
    **{name: Operation(partial(recurrence, name), AWKWARD) for name in ("ssru", "running_average")},
}
