"""Recurrent layers with the product of their inputs, and joined columns."""

from typing import Any

import numpy as np

from bench.operations.table import (
    FLOAT,
    GFLOPS,
    GOPS,
    WEIGHT_BYTES,
    Arrays,
    Operation,
    Problem,
    Size,
    Work,
    copy_of,
    normal,
    starts_of,
)
from fastattn.arguments.recurrent import Columns, States
from fastattn.spec.quantized import take
from fastattn.spec.recurrent import CELLS


def recur(
    cell: str,
    lengths: tuple[int, ...],
    inputs: int,
    units: int,
    directions: int = 1,
    goes_on: float = 0.0,
    precision: str = "float32",
) -> Problem:
    """goes_on: the share of sentences with an earlier state; their table is unordered and wider than a state."""
    (gates, parts), rows, B = CELLS[cell], sum(lengths), len(lengths)
    rng = np.random.default_rng(rows * 7919 + units * 31 + inputs)
    states = directions * units
    arrays = {"x": normal(rng, rows, inputs), "starts": starts_of(lengths)}
    for d in range(directions):
        arrays[f"input_{d}"] = normal(rng, gates * units, inputs) / np.float32(inputs) ** 0.5
        arrays[f"weight_{d}"] = normal(rng, gates * units, units) / np.float32(units) ** 0.5
        arrays[f"input_bias_{d}"], arrays[f"bias_{d}"] = normal(rng, gates * units), normal(rng, gates * units)
    order = rng.permutation(2 * B).astype(np.int32)
    arrays["previous"] = np.where(rng.random(B) < goes_on, order[:B], np.int32(-1))
    arrays["rows"], arrays["table"] = order[B:], normal(rng, 2 * B, parts * states + 5)

    def bind(ops: Any, a: Arrays) -> Any:
        order_F = ops.gate_rows(gates, units)

        def ordered(name: str) -> list[np.ndarray]:
            matrices = [a[f"{name}_{d}"] for d in range(directions)]
            return matrices if order_F is None else [take(matrix, order_F) for matrix in matrices]

        biases = np.concatenate(ordered("input_bias"))
        packed_inputs = ops.pack_linear(np.concatenate(ordered("input")), biases, precision)
        weights = [ops.pack_linear(*pair, precision) for pair in zip(ordered("weight"), ordered("bias"))]

        def call() -> tuple[np.ndarray, ...]:
            table = copy_of(a["table"])
            places = States(table, a["previous"], table, a["rows"], 2, 3 + states)
            x = ops.linear(a["x"], packed_inputs)
            return ops.recur(x, weights, cell, units, a["starts"], places), table

        return call

    title = f"recur {cell} {B} x {max(lengths, default=0)} x {inputs}, {units} units" + ", both ways" * (directions > 1)
    products = directions * gates * units * (inputs + units)
    moved = WEIGHT_BYTES[precision] * products + FLOAT * rows * (inputs + states)
    return Problem(
        f"recur-{cell}-{lengths}-{inputs}x{units}-{directions}-{goes_on}",
        "recur",
        arrays,
        bind,
        {"cell": cell, "precision": precision},
        work=Work(title, moved, 2.0 * rows * products, GOPS if precision == "int8" else GFLOPS),
    )


def join_columns(rows: int, *widths: int) -> Problem:
    """Parts of rows and of a table's rows; the first of each three has its own rows."""
    rng = np.random.default_rng(rows * 31 + sum(widths))
    arrays = {f"part_{i}": normal(rng, rows if i % 3 == 0 else rows + 4, width + i) for i, width in enumerate(widths)}
    arrays |= {f"rows_{i}": rng.integers(-1, rows + 4, rows).astype(np.int32) for i in range(len(widths)) if i % 3}

    def bind(ops: Any, a: Arrays) -> Any:
        parts = [Columns(a[f"part_{i}"], i, width, a.get(f"rows_{i}")) for i, width in enumerate(widths)]
        return lambda: (ops.join_columns(parts),)

    name = "x".join(map(str, (rows, *widths)))
    return Problem(f"join_columns-{name}", "join_columns", arrays, bind, exact=(0,))


LENGTHS = ((), (1,), (3, 0, 1), (1,) * 5, (7, 2, 2, 9, 1, 4, 0, 3), (5,) * 17)
SIZES = ((1, 1), (3, 7), (5, 16), (40, 33), (8, 100))

TABLE = {
    "recur": Operation(
        recur,
        awkward=[
            Size(cell, lengths, *SIZES[(i + j) % len(SIZES)], directions, goes_on)
            for i, cell in enumerate(CELLS)
            for j, lengths in enumerate(LENGTHS)
            for directions, goes_on in ((1, 0.0), (2, 0.5), (1, 1.0))
        ],
        large=[Size("lstm", (50,) * 64, 512, 512), Size("lstm", (50,), 512, 512), Size("gru", (50,) * 64, 512, 512)],
        toy=[Size("lstm", (3,) * 4, 8, 16), Size("gru", (3,) * 4, 8, 16)],
        precisions=("float32", "bfloat16", "int8"),
    ),
    "join_columns": Operation(
        join_columns, [Size(*size) for size in ((0, 3), (1, 1), (5, 7, 9), (70, 16, 1, 33, 40), (3, 8, 0, 5))]
    ),
}
