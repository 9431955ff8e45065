"""Operations on whole rows: arithmetic, embeddings, rotary positions, pooling, averages over heads."""

from typing import Any

import numpy as np

from bench.operations.table import FLOAT, GBYTES, Arrays, Operation, Problem, Size, Work, copy_of, normal, starts_of
from fastattn.spec.text_spec import POOLINGS


def take_rows(rows: int, width: int) -> Problem:
    """Take rows, some twice; concatenate, scale and add them. Each result is rounded once and must be exact."""
    rng = np.random.default_rng(rows * 7919 + width)
    arrays = {"x": normal(rng, rows, width), "taken": rng.integers(0, max(rows, 1), 2 * rows)}

    def bind(ops: Any, a: Arrays) -> Any:
        def call() -> tuple[np.ndarray, ...]:
            taken, none = ops.take_rows(a["x"], a["taken"]), ops.empty((0, width), a["x"].dtype)
            joined = ops.concatenate_rows([a["x"], none, taken])
            scaled = ops.scale_rows(joined, 0.3)
            return taken, joined, ops.concatenate_rows([taken]), scaled, ops.add_rows(joined, scaled)

        return call

    return Problem(f"rows-{rows}x{width}", "take_rows", arrays, bind, exact=(0, 1, 2))


def average_heads(shape: tuple[int, ...], heads: int) -> Problem:
    arrays = {"weights": normal(np.random.default_rng(sum(shape)), *shape)}

    def bind(ops: Any, a: Arrays) -> Any:
        def call() -> tuple[np.ndarray, ...]:
            weights = ops.empty(shape, a["weights"].dtype)
            weights[...] = a["weights"]
            return (ops.average_heads(weights, heads),)

        return call

    return Problem(f"average_heads-{shape}-{heads}", "average_heads", arrays, bind)


def neighbours(lengths: tuple[int, ...], width: int, before: int, after: int) -> Problem:
    arrays = {"x": normal(np.random.default_rng(sum(lengths)), sum(lengths), width), "starts": starts_of(lengths)}

    def bind(ops: Any, a: Arrays) -> Any:
        return lambda: (ops.neighbours(a["x"], a["starts"], before, after),)

    name = f"neighbours-{lengths}x{width}-{before}-{after}"
    return Problem(name, "neighbours", arrays, bind, exact=(0,))


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
            x = copy_of(a["x"])
            ops.rotate(x, a["positions"], a["cos"], a["sin"], 3, heads, head_width, interleaved)
            return (x,)

        return call

    return Problem(f"rotate-{rows}x{heads}x{head_width}-{rotary_width}-{interleaved}", "rotate", arrays, bind)


def pool(lengths: tuple[int, ...], width: int, skip: int = 0) -> Problem:
    arrays = {"x": normal(np.random.default_rng(sum(lengths) + width), sum(lengths), width)}
    starts_B1 = starts_of(lengths)

    def bind(ops: Any, a: Arrays) -> Any:
        def call() -> tuple[np.ndarray, ...]:
            alone = (ops.pool(a["x"], starts_B1, [mode], skip) for mode in POOLINGS)
            return ops.pool(a["x"], starts_B1, POOLINGS, skip), *alone

        return call

    return Problem(f"pool-{lengths}x{width}-{skip}", "pool", arrays, bind)


TABLE = {
    "take_rows": Operation(take_rows, [Size(*size) for size in ((0, 8), (1, 1), (7, 13), (64, 100))]),
    "neighbours": Operation(
        neighbours,
        [
            Size((), 3, 1, 1),
            Size((1,), 1, 2, 2),
            Size((3, 0, 7, 1), 5, 1, 1),
            Size((2, 9), 4, 3, 0),
            Size((6,), 2, 0, 0),
        ],
    ),
    "average_heads": Operation(
        average_heads, [Size((0, 2, 5), 1), Size((3, 4, 7), 3), Size((2, 5, 3, 9), 1), Size((2, 16, 13, 31), 16)]
    ),
    "embed": Operation(
        embed,
        awkward=[
            *(Size(*size) for size in ((0, 3, 8), (1, 1, 1), (7, 11, 13), (20, 5, 64))),
            Size(9, 4, 17, positions=False),
            *(Size(*size, tied=True) for size in ((1, 1, 1), (7, 11, 13), (20, 50, 64))),
        ],
        large=[Size(2048, 30522, 384, longest=512, least=0)],
        toy=[Size(8, 30, 16, longest=512, least=0)],
    ),
    "rotate": Operation(
        rotate,
        awkward=[
            Size(*size, interleaved)
            for size in ((0, 1, 8, 8), (1, 1, 2, 2), (5, 3, 10, 6), (9, 4, 16, 16))
            for interleaved in (False, True)
        ],
    ),
    "pool": Operation(
        pool,
        [Size((), 8), Size((1,), 1), Size((3, 0, 17, 1), 13), Size((3, 0, 17, 4), 13, skip=3), Size((200, 31), 65)],
    ),
}
