"""Writing and rounding of rows of the key-value cache."""

from typing import Any

import numpy as np

from bench.operations.table import Arrays, Operation, Problem, Size, normal
from fastattn.spec.rounding import as_floats


def write_rows(rows: int, width: int, column: int, narrow: bool) -> Problem:
    """narrow: whether the cache is in bfloat16."""
    rng = np.random.default_rng(rows * 31 + width)
    arrays = {
        "values": normal(rng, rows, column + width),
        "rows": rng.permutation(2 * rows)[:rows].astype(np.int32),
    }

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


TABLE = {
    "write_rows": Operation(
        write_rows,
        awkward=[
            Size(*size, narrow) for narrow in (False, True) for size in ((0, 8, 0), (1, 1, 2), (33, 53, 5), (70, 64, 0))
        ],
    )
}
