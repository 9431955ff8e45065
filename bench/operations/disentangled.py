"""Disentangled attention: attention whose scores have the products with rows of distances too."""

from typing import Any

import numpy as np

from bench.operations.table import FLOAT, Arrays, Operation, Problem, Size, Work, normal, starts_of
from fastattn.ops.attention import Heads, RaggedBatch


def disentangled_attention(
    lengths: tuple[int, ...],
    heads: int,
    head_width: int,
    farthest: int,
    terms: str = "keys queries",
    causal: bool = False,
    fused: bool = True,
) -> Problem:
    """farthest: the greatest distance with rows of its own; terms: which rows of distances there are.

    fused  with columns that belong to no head, and a second call that returns weights
    """
    rng = np.random.default_rng(sum(lengths) * 7919 + heads * head_width + farthest)
    rows, width, longest = sum(lengths), heads * head_width, max(lengths, default=0)
    arrays = {"rows": normal(rng, rows, 3 * width + fused), "starts": starts_of(lengths)}
    arrays |= {term: normal(rng, 2 * farthest + 1, width) for term in terms.split()}
    laid_out = Heads(
        heads, heads, head_width, 0, fused, fused + width, fused + 2 * width, scale=(3 * head_width) ** -0.5
    )

    def bind(ops: Any, a: Arrays) -> Any:
        distances = ops.pack_distances(a.get("keys"), a.get("queries"), laid_out)
        seen = ops.seen_around(a["starts"], np.diff(a["starts"]), np.zeros(1, np.int64), -1, 0) if causal else None
        inputs = a["rows"], a["rows"], a["rows"], RaggedBatch(a["starts"], a["starts"], seen), laid_out

        def call() -> tuple[np.ndarray, ...]:
            plain = ops.attention(*inputs, distances=distances)
            if not fused:
                return (plain,)
            weights = np.full((len(lengths), heads, longest, longest), np.nan, a["rows"].dtype)
            return plain, ops.attention(*inputs, distances=distances, weights_BHTS=weights), weights

        return call

    name = f"disentangled-{lengths}-{heads}x{head_width}-{farthest}-{terms}-{causal}".replace(" ", "")
    products = 2 * (2 + len(terms.split()))  # a column of distances for each key
    work = Work(
        f"pack_distances and attention ({len(lengths)}, {heads}, {longest}, {head_width})",
        FLOAT * width * (4.0 * rows + len(terms.split()) * (2 * farthest + 1)),
        float(products * width * sum(length**2 for length in lengths)),
    )
    return Problem(name, "pack_distances", arrays, bind, work=work)


TABLE = {
    "pack_distances": Operation(
        disentangled_attention,
        awkward=[
            Size((), 2, 8, 3),
            Size((1,), 1, 1, 1),
            Size((3, 0, 5), 2, 7, 0),
            Size((1, 17, 16, 15), 2, 16, 5),
            Size((130, 33), 2, 24, 200),
            Size((37, 290), 1, 40, 60),
            Size((290,), 2, 8, 289, terms="keys"),
            Size((19, 64), 2, 33, 20, terms="queries"),
            Size((70, 300), 1, 8, 90, causal=True),
        ],
        large=[Size((512,) * 8, 12, 64, 511, fused=False), Size((32,) * 64, 12, 64, 511, fused=False)],
        toy=[Size((16,), 2, 8, 7, fused=False)],
    ),
}
