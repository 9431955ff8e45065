"""The largest of each sentence's projections onto a vocabulary."""

from typing import Any

import numpy as np

from bench.operations.table import FLOAT, Arrays, Operation, Problem, Size, Work, normal, starts_of


def project_peaks(lengths: tuple[int, ...], width: int, vocabulary: int) -> Problem:
    rows = sum(lengths)
    rng = np.random.default_rng(rows * 7919 + width * 31 + vocabulary)
    arrays = {
        "x": normal(rng, rows, width),
        "weight": normal(rng, vocabulary, width) / np.float32(width**0.5),
        "bias": normal(rng, vocabulary),
    }
    starts_B1 = starts_of(lengths)

    def bind(ops: Any, a: Arrays) -> Any:
        packed = ops.pack_linear(a["weight"], a["bias"])
        whole = starts_B1 if 0 not in lengths else starts_of(tuple(filter(None, lengths)))
        return lambda: (
            ops.project_peaks(a["x"], starts_B1, packed),
            ops.project_peaks(a["x"], whole, packed, -np.inf),  # of sentences that have rows
        )

    work = Work(
        f"project_peaks {len(lengths)} sentences of {rows} x {width} x {vocabulary}",
        FLOAT * (rows * width + (width + 1.0 + len(lengths)) * vocabulary),
        2.0 * rows * width * vocabulary,
    )
    name = f"project_peaks-{lengths}x{width}x{vocabulary}".replace(" ", "")
    return Problem(name, "project_peaks", arrays, bind, work=work)


TABLE = {
    "project_peaks": Operation(
        project_peaks,
        awkward=[
            Size((), 8, 20),
            Size((1,), 1, 1),
            Size((3, 0, 17, 1), 13, 131),
            Size((2, 127, 5), 33, 500),
        ],
        large=[Size((32,) * 8, 768, 30522)],
        toy=[Size((3, 2), 16, 50)],
    )
}
