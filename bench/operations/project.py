"""Projections onto a vocabulary: log-softmax, its k best, the targets' values; maxima of sentences."""

from typing import Any

import numpy as np

from bench.operations.table import FLOAT, Arrays, Operation, Problem, Size, Work, normal, starts_of
from fastattn.arguments.steps import Edits


def _edits(rng: np.random.Generator, rows: int, vocabulary: int, edited: bool) -> Arrays:
    """Ids to suppress and to penalize; a row has each penalized id once, as the operations require."""
    if not edited:
        return {}
    penalized = np.stack([rng.permutation(vocabulary)[:5] for _ in range(rows)]).astype(np.int32)
    penalized[:, 3] = -1
    amounts = rng.integers(-2, 3, penalized.shape).astype(np.float32)
    suppressed = rng.integers(-1, vocabulary, (rows, 3)).astype(np.int32)
    return {"suppressed": suppressed, "penalized": penalized, "amounts": amounts}


def _given(a: Arrays, penalty: float) -> Edits:
    return Edits(a.get("suppressed"), a.get("penalized"), penalty, a.get("amounts"))


def project_top_k(rows: int, width: int, vocabulary: int, k: int, edited: bool = False, whole: bool = True) -> Problem:
    """whole: small whole numbers, whose logits are exact in float32 and often tie; ids must equal the oracle's."""
    rng = np.random.default_rng(rows * 7919 + width * 31 + vocabulary)

    def draw(*shape: int) -> np.ndarray:
        return rng.integers(-1, 2, shape).astype(np.float32) if whole else normal(rng, *shape)

    arrays = {
        "x": draw(rows, width),
        "weight": draw(vocabulary, width) / np.float32(1 if whole else width**0.5),
        "bias": draw(vocabulary),
        **_edits(rng, rows, vocabulary, edited),
    }

    def bind(ops: Any, a: Arrays) -> Any:
        packed, edits = ops.pack_linear(a["weight"], a["bias"]), _given(a, 2.0)
        return lambda: ops.project_top_k(a["x"], packed, k, edits)

    name = f"project_top_k-{rows}x{width}x{vocabulary}-{k}-{edited}"
    work = Work(
        f"project_top_k {rows} x {width} x {vocabulary}, k {k}",
        FLOAT * (rows * width + (width + 1.0) * vocabulary),
        2.0 * rows * width * vocabulary,
    )
    return Problem(name, "project_top_k", arrays, bind, {"k": k}, (1,) if whole else (), work)


def log_probs(rows: int, width: int, vocabulary: int, size: float = 1.0, edited: bool = False) -> Problem:
    """The targets' log-probabilities, and those of all ids."""
    rng = np.random.default_rng(rows * 7919 + width * 31 + vocabulary)
    arrays = {
        "x": normal(rng, rows, width) * np.float32(size),
        "weight": normal(rng, vocabulary, width),
        "targets": rng.integers(0, vocabulary, rows).astype(np.int32),
        **_edits(rng, rows, vocabulary, edited),
    }

    def bind(ops: Any, a: Arrays) -> Any:
        packed, edits = ops.pack_linear(a["weight"]), _given(a, 1.7)
        return lambda: (ops.log_probs(a["x"], packed, a["targets"], edits), ops.project_all(a["x"], packed, edits))

    return Problem(f"log_probs-{rows}x{width}x{vocabulary}-{size}-{edited}", "log_probs", arrays, bind)


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
            ops.project_peaks(a["x"], whole, packed, -np.inf),  # for sentences that have rows
        )

    work = Work(
        f"project_peaks {len(lengths)} sentences of {rows} x {width} x {vocabulary}",
        FLOAT * (rows * width + (width + 1.0 + len(lengths)) * vocabulary),
        2.0 * rows * width * vocabulary,
    )
    name = f"project_peaks-{lengths}x{width}x{vocabulary}"
    return Problem(name, "project_peaks", arrays, bind, work=work)


TABLE = {
    "project_top_k": Operation(
        project_top_k,
        awkward=[
            Size(0, 8, 20, 2),
            Size(1, 1, 1, 1),
            Size(3, 8, 5, 5),
            Size(4, 9, 131, 1),
            Size(5, 16, 257, 10, edited=True),
            Size(17, 33, 1000, 7, edited=True),
        ],
        large=[Size(64, 512, 65000, 1, whole=False), Size(4, 512, 65000, 8, whole=False)],
        toy=[Size(2, 16, 50, 2, whole=False)],
    ),
    "log_probs": Operation(
        log_probs,
        awkward=[
            *(Size(*size) for size in ((0, 4, 7), (1, 1, 1), (5, 17, 131), (18, 64, 500))),
            Size(6, 16, 100, size=1e3),
            Size(7, 19, 130, edited=True),
        ],
    ),
    "project_peaks": Operation(
        project_peaks,
        awkward=[Size((), 8, 20), Size((1,), 1, 1), Size((3, 0, 17, 1), 13, 131), Size((2, 127, 5), 33, 500)],
        large=[Size((32,) * 8, 768, 30522)],
        toy=[Size((3, 2), 16, 50)],
    ),
}
