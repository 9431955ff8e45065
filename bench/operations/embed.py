"""Rows of a table, scaled, plus rows of a table of positions."""

from typing import Any

import numpy as np

from bench.operations.table import FLOAT, GBYTES, Arrays, Operation, Problem, Size, Work, normal

SCALE = 3.5


def embed(
    rows: int,
    vocabulary: int,
    width: int,
    positions: bool = True,
    tied: bool = False,
    longest: int = 9,
    least: int = -1,
) -> Problem:
    """tied: whether the table is a projection's weights.

    longest  number of rows of positions
    least    the least id; -1 is no word
    """
    rng = np.random.default_rng(rows * 7919 + vocabulary * 31 + width)
    arrays = {
        "ids": rng.integers(least, vocabulary, rows).astype(np.int32),
        "table": normal(rng, vocabulary, width),
        "positions": rng.integers(0, longest, rows).astype(np.int32),
        "position_table": normal(rng, longest, width),
    }

    def bind(ops: Any, a: Arrays) -> Any:
        where = (a["positions"], a["position_table"]) if positions else ()
        table = ops.pack_linear(a["table"]) if tied else a["table"]
        return lambda: (ops.embed(a["ids"], table, SCALE, *where),)

    name = f"embed-{rows}x{vocabulary}x{width}-{positions}-{tied}"
    work = Work(f"embed {rows} x {vocabulary} x {width}", FLOAT * 3.0 * rows * width, unit=GBYTES)
    return Problem(name, "embed", arrays, bind, {"scale": SCALE}, work=work)


TABLE = {
    "embed": Operation(
        embed,
        awkward=[
            *(Size(*size) for size in ((0, 3, 8), (1, 1, 1), (7, 11, 13), (20, 5, 64))),
            Size(9, 4, 17, positions=False),
            *(Size(*size, tied=True) for size in ((1, 1, 1), (7, 11, 13), (20, 50, 64))),
        ],
        large=[Size(2048, 30522, 384, longest=512, least=0)],
        toy=[Size(8, 30, 16, longest=512, least=0)],
    )
}
