"""Attention over whole sentences, also with rows of distances, and over tables of cached keys."""

from functools import partial
from typing import Any

import numpy as np

from bench.operations.table import FLOAT, Arrays, Operation, Problem, Size, Work, normal, starts_of, with_weights
from fastattn.arguments.attention import Heads, KeyIndex, PositionBias, RaggedBatch
from fastattn.spec.rounding import bfloat16_bits


def _distances(rng: np.random.Generator, positions: str, heads: int, longest: int) -> Arrays:
    if positions == "table":
        return {"table": normal(rng, heads, 2 * longest + 3)}
    return {"slopes": normal(rng, heads)} if positions else {}


def _position_bias(a: Arrays, positions: str) -> PositionBias:
    return PositionBias(a.get("slopes"), a.get("table"), positions == "from start")


def attention(
    queries: tuple[int, ...],
    keys: tuple[int, ...],
    heads: int,
    key_heads: int,
    head_width: int,
    causal: bool = False,
    offset: tuple[int, ...] | None = None,
    bias: tuple[bool, bool] | None = None,
    hidden: float = 0.0,
    size: float = 1.0,
    fused: bool = True,
    window: int = 0,
    sinks: int = 0,
    value_width: int = 0,
    positions: str = "",
    softcap: float = 0.0,
    around: tuple[int, int] | None = None,
) -> Problem:
    """bias: whether its batch axis and its query axis have full length; hidden: the share of the bias that is -inf.

    positions  a bias by distance: "slopes", "from start" or "table"
    around  how many keys before and after its own place a query sees
    fused  rows as from a fused projection, with columns that belong to no head, and a second call that returns weights;
           else queries, keys and values are separate arrays
    """
    rng = np.random.default_rng(sum(queries) * 7919 + sum(keys) * 31 + heads * head_width)
    longest_query, longest_key = max(queries, default=0), max(keys, default=0)
    width, key_width = heads * head_width, key_heads * head_width
    query = normal(rng, sum(queries), width + 3 * fused) * np.float32(size)
    both = key_width + key_heads * (value_width or head_width)
    key = normal(rng, sum(keys), both + 2 if fused else key_width)
    arrays = {
        "query": query,
        "key": key,
        "value": key if fused else normal(rng, sum(keys), key_width),
        "query_starts": starts_of(queries),
        "key_starts": starts_of(keys),
    }
    if offset is not None:
        arrays["offset"] = np.array(offset, np.int64)
    arrays |= _distances(rng, positions, heads, max(longest_query, longest_key))
    if bias is not None:
        shape = (len(queries) if bias[0] else 1, heads, longest_query if bias[1] else 1, longest_key)
        arrays["bias"] = normal(rng, *shape)
        arrays["bias"][rng.random(shape) < hidden] = -np.inf
    form = {"heads": heads, "key_heads": key_heads, "head_width": head_width, "causal": causal}
    columns = (2, 1, 1 + key_width) if fused else (0, 0, 0)
    laid_out = Heads(heads, key_heads, head_width, value_width, *columns, softcap=softcap)

    def bind(ops: Any, a: Arrays) -> Any:
        sides, seen = around or (window - 1, 0 if causal else -1), None
        if sides != (-1, -1):
            lengths, offset = np.diff(a["key_starts"]), a.get("offset", np.zeros(1, np.int64))
            seen = ops.seen_around(a["query_starts"], lengths, offset, *sides)
        common = {"position_bias": _position_bias(a, positions), "bias_BHTS": a.get("bias")}
        batch = RaggedBatch(a["query_starts"], a["key_starts"], seen, sinks)
        call = partial(ops.attention, a["query"], a["key"], a["value"], batch, laid_out, **common)
        shape = len(queries), heads, longest_query, longest_key
        return with_weights(call, "weights_BHTS", *shape) if fused else lambda: (call(),)

    name = f"{queries}-{keys}-{heads}/{key_heads}x{head_width}-{causal}-{offset}-{bias}-{hidden}-{size}"
    if window or value_width or positions:
        name += f"-{window}-{sinks}-{value_width}-{positions}"
    if softcap:
        name += f"-softcap{softcap}"
    if around is not None:
        name += f"-{around}"
    work = Work(
        f"attention ({len(queries)}, {heads}, {longest_query}, {head_width})" + (", causal" if causal else ""),
        FLOAT * 2.0 * (width * sum(queries) + key_width * sum(keys)),
        # causal attention sees half of them
        4.0 * width * sum(t * ((t + 1) / 2 if causal else t) for t in queries),
    )
    itself = queries == keys
    return Problem(f"attention-{name}", "attention", arrays, bind, form, work=work if itself else None)


def equal_lengths(
    batch: int, heads: int, length: int, head_width: int, causal: bool = False, scaling: bool = False
) -> Size:
    """Self-attention of sentences of one length, as in other libraries: queries, keys and values are separate."""
    lengths = (length,) * batch
    return Size(lengths, lengths, heads, heads, head_width, causal=causal, fused=False, scaling=scaling)


def attention_step(
    lengths: tuple[int, ...],
    heads: int,
    key_heads: int,
    head_width: int,
    bias: bool = False,
    size: float = 1.0,
    narrow: bool = False,
    shared: int = 50,
    chunk: int = 1,
    window: int = 0,
    value_width: int = 0,
    positions: str = "",
    softcap: float = 0.0,
    additive: bool = False,
) -> Problem:
    """One query for each row, or the last few, whose keys and values are found through a table.

    chunk   number of queries of each row, of which the last sees all of its keys
    narrow  whether keys and values are in bfloat16
    shared  number of rows of keys and values that all rows share, with columns that belong to no head, and a second
            call that returns weights; 0: each row has its own, all of one length
    """
    rng = np.random.default_rng(sum(lengths) * 7919 + heads * head_width)
    longest, rows, width, key_width = max(lengths, default=0), len(lengths), heads * head_width, key_heads * head_width
    both = key_width + key_heads * (value_width or head_width)
    arrays = {
        "query": normal(rng, rows * chunk, width + 3 * bool(shared)) * np.float32(size),
        "key_value": normal(rng, shared or rows * longest, both + 2 * bool(shared)),
    }
    if shared:
        arrays["index"] = rng.integers(0, shared, (rows, longest)).astype(np.int32)
    else:
        arrays["index"] = rng.permutation(rows * longest).astype(np.int32).reshape(rows, longest)
    arrays["stops"] = np.repeat(np.array(lengths, np.int64), chunk) - np.tile(np.arange(chunk)[::-1], rows)
    if chunk > 1:
        arrays["rows"] = np.repeat(np.arange(rows), chunk)
    if window:
        arrays["firsts"] = np.maximum(arrays["stops"] - window, 0)
    if bias:
        arrays["bias"] = normal(rng, rows * chunk, heads, longest)
    if additive:
        arrays["vector"] = normal(rng, heads, head_width)
    arrays |= _distances(rng, positions, heads, longest)
    if narrow:
        arrays["key_value"] = bfloat16_bits(arrays["key_value"])
    form = {"heads": heads, "key_heads": key_heads, "head_width": head_width}
    columns = (2, 1, 1 + key_width) if shared else (0, 0, key_width)
    laid_out = Heads(heads, key_heads, head_width, value_width, *columns, softcap=softcap)

    def bind(ops: Any, a: Arrays) -> Any:
        seen = KeyIndex(a["index"], a["stops"], a.get("rows"), a.get("firsts"))
        more = {"position_bias": _position_bias(a, positions), "vector_HK": a.get("vector"), "bias_NHS": a.get("bias")}
        call = partial(ops.attention_step, a["query"], a["key_value"], a["key_value"], seen, laid_out, **more)
        return with_weights(call, "weights_NHS", rows * chunk, heads, longest) if shared else lambda: (call(),)

    name = f"attention_step-{lengths}-{heads}/{key_heads}x{head_width}-{bias}-{size}-{narrow}"
    if chunk > 1 or window or value_width or positions:
        name += f"-{chunk}-{window}-{value_width}-{positions}"
    if softcap:
        name += f"-softcap{softcap}"
    if additive:
        name += "-additive"
    work = Work(
        f"attention_step ({rows}, {heads}, {longest}, {head_width})",
        FLOAT * 2.0 * width * (sum(lengths) + rows),
        4.0 * width * sum(lengths),
    )
    return Problem(name, "attention_step", arrays, bind, form, work=work)


def disentangled_attention(
    lengths: tuple[int, ...],
    heads: int,
    head_width: int,
    farthest: int,
    terms: str = "keys queries",
    causal: bool = False,
    fused: bool = True,
) -> Problem:
    """farthest: the greatest distance that has rows; terms: the kinds of rows of distances.

    fused  rows with columns that belong to no head, and a second call that returns weights
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
        batch = RaggedBatch(a["starts"], a["starts"], seen)
        call = partial(ops.attention, *[a["rows"]] * 3, batch, laid_out, distances=distances)
        return with_weights(call, "weights_BHTS", len(lengths), heads, longest, longest) if fused else lambda: (call(),)

    name = f"disentangled-{lengths}-{heads}x{head_width}-{farthest}-{terms}-{causal}"
    products = 2 * (2 + len(terms.split()))  # a column of distances for each key
    work = Work(
        f"pack_distances and attention ({len(lengths)}, {heads}, {longest}, {head_width})",
        FLOAT * width * (4.0 * rows + len(terms.split()) * (2 * farthest + 1)),
        float(products * width * sum(length**2 for length in lengths)),
    )
    return Problem(name, "pack_distances", arrays, bind, work=work)


TABLE = {
    "attention": Operation(
        attention,
        awkward=[
            Size((), (), 2, 2, 8),
            Size((1,), (1,), 1, 1, 1),
            Size((3, 0, 5), (3, 0, 5), 2, 2, 8),
            Size((2, 3), (0, 7), 2, 1, 7),
            Size((1, 17, 16, 15), (1, 17, 16, 15), 4, 2, 16),
            Size((33, 2), (65, 64), 3, 3, 24),
            Size((7, 13), (7, 13), 2, 2, 40, causal=True),
            Size((5, 4, 3), (9, 4, 2), 2, 1, 8, causal=True, offset=(4, -2, -9)),
            Size((130,), (130,), 1, 1, 80, causal=True),
            Size((4, 6), (5, 3), 2, 2, 8, bias=(True, True)),
            Size((4, 6), (5, 3), 2, 2, 8, bias=(False, True), causal=True),
            Size((4, 6), (5, 3), 4, 2, 8, bias=(False, False)),
            Size((4, 6), (5, 3), 2, 2, 8, bias=(True, False), hidden=0.6),
            Size((4, 6), (5, 3), 2, 2, 8, bias=(True, True), hidden=1.0),
            Size((6, 19), (6, 19), 2, 2, 64, size=1e4),
            Size((6, 19), (6, 19), 2, 2, 64, causal=True, size=1e4),
            Size((130,), (130,), 2, 1, 16, causal=True, window=37),
            Size((330, 9), (330, 9), 1, 1, 24, causal=True, window=20, sinks=3),
            Size((600,), (600,), 1, 1, 8, causal=True, window=17),
            Size((280,), (590,), 1, 1, 8, causal=True, offset=(310,), window=40, sinks=270),
            Size((5, 4), (700, 300), 2, 2, 8, causal=True, offset=(650, -2), window=50, sinks=4),
            Size((330, 9), (330, 9), 1, 1, 24, around=(20, 20)),
            Size((70, 3), (90, 40), 2, 1, 8, around=(-1, 5), offset=(3, 30)),
            Size((33, 2), (65, 64), 2, 1, 24, value_width=40),
            Size((33, 2), (65, 64), 2, 2, 40, causal=True, value_width=7),
            *(Size((19, 33), (40, 33), 4, 2, 16, positions=form) for form in ("slopes", "from start", "table")),
            *(
                Size((290,), (290,), 2, 2, 8, causal=True, window=100, sinks=2, positions=form)
                for form in ("slopes", "from start", "table")
            ),
            Size((33, 2), (65, 64), 2, 1, 24, softcap=0.5),
            Size(
                (9, 17), (300, 17), 2, 2, 40, causal=True, offset=(290, 0), bias=(True, True), hidden=0.3, softcap=5.0
            ),
            Size((40,), (40,), 4, 2, 16, causal=True, window=9, sinks=2, positions="slopes", softcap=50.0, size=5.0),
            Size((6, 19), (6, 19), 2, 2, 64, softcap=30.0, size=1e4),
            Size((2, 3), (0, 7), 2, 1, 7, softcap=2.0),
        ],
        large=[
            equal_lengths(8, 12, 512, 64, scaling=True),
            equal_lengths(1, 12, 2048, 64, scaling=True),
            equal_lengths(1, 12, 2048, 64, causal=True),
            equal_lengths(32, 12, 128, 32),
            equal_lengths(64, 8, 32, 64),
        ],
        toy=[equal_lengths(1, 2, 16, 8, scaling=True)],
    ),
    "attention_step": Operation(
        attention_step,
        awkward=[
            Size((), 2, 2, 8),
            Size((1,), 1, 1, 1),
            Size((3, 0, 5, 17), 2, 2, 8),
            Size((31, 32, 33), 4, 2, 24, bias=True),
            Size((64, 1, 65), 3, 1, 80),
            Size((3, 0, 5, 17), 2, 2, 8, narrow=True),
            Size((31, 32, 33), 4, 2, 24, bias=True, narrow=True),
            Size((64, 1, 65), 3, 1, 80, narrow=True),
            Size((9, 16), 2, 2, 64, size=1e4),
            Size((9, 40, 17), 4, 2, 16, chunk=6),
            Size((33, 18), 2, 2, 24, bias=True, chunk=17, narrow=True),
            Size((64, 1, 65), 2, 1, 8, window=20),
            Size((40, 35), 2, 2, 16, chunk=5, window=9, value_width=33, positions="table"),
            *(Size((31, 0, 33), 4, 2, 24, positions=form) for form in ("slopes", "from start", "table")),
            Size((31, 0, 33, 1), 4, 2, 24, softcap=0.5),
            Size((33, 18), 2, 2, 24, bias=True, chunk=17, narrow=True, positions="table", softcap=5.0),
            Size((9, 16), 2, 2, 64, softcap=30.0, size=1e4),
            Size((31, 0, 33, 1), 1, 1, 100, additive=True),
            Size((9, 40, 17), 4, 2, 13, chunk=6, window=9, value_width=33, bias=True, narrow=True, additive=True),
        ],
        large=[Size((64,) * 256, 8, 8, 64, shared=0)],
        toy=[Size((5,) * 4, 2, 2, 8, shared=0)],
    ),
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
