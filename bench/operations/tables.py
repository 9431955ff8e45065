"""Tables of rows by number: made, extended and gathered."""

from typing import Any

import numpy as np

from bench.operations.table import Arrays, Operation, Problem, Size, normal


def empty_table(rows: int, width: int, more: int) -> Problem:
    """Rows written to a table remain after it was extended, extended again, and when they are gathered."""
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


TABLE = {
    "empty_table": Operation(empty_table, [Size(*size) for size in ((0, 8, 3), (1, 1, 1), (5, 17, 30), (64, 100, 7))])
}
