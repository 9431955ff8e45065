"""Attention over whole sentences, and one step over cached keys."""

from typing import Any

import numpy as np

from bench.operations.table import FLOAT, Arrays, Operation, Problem, Size, Work, normal, starts_of
from fastattn.rounding import bfloat16_bits


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
) -> Problem:
    """bias: whether its batch axis and its query axis are of full length; hidden: the share of it that is -inf.

    fused  rows as a fused projection lays them out, with columns that belong to no head, and once more with the
           weights asked for; else queries, keys and values are arrays of their own
    """
    rng = np.random.default_rng(sum(queries) * 7919 + sum(keys) * 31 + heads * head_width)
    longest_query, longest_key = max(queries, default=0), max(keys, default=0)
    width, key_width = heads * head_width, key_heads * head_width
    query = normal(rng, sum(queries), width + 3 * fused) * np.float32(size)
    key = normal(rng, sum(keys), 2 * key_width + 2 if fused else key_width)
    arrays = {
        "query": query,
        "key": key,
        "value": key if fused else normal(rng, sum(keys), key_width),
        "query_starts": starts_of(queries),
        "key_starts": starts_of(keys),
    }
    if offset is not None:
        arrays["offset"] = np.array(offset, np.int64)
    if bias is not None:
        shape = (len(queries) if bias[0] else 1, heads, longest_query if bias[1] else 1, longest_key)
        arrays["bias"] = normal(rng, *shape)
        arrays["bias"][rng.random(shape) < hidden] = -np.inf
    form = {"heads": heads, "key_heads": key_heads, "head_width": head_width, "causal": causal}
    columns = {"query_column": 2, "key_column": 1, "value_column": 1 + key_width} if fused else {}

    def bind(ops: Any, a: Arrays) -> Any:
        rows = a["query"], a["key"], a["value"], a["query_starts"], a["key_starts"]
        common = {**form, **columns, "offset_B": a.get("offset"), "bias_BHTS": a.get("bias")}

        def call() -> tuple[np.ndarray, ...]:
            plain = ops.attention(*rows, **common)
            if not fused:
                return (plain,)
            weights = np.full((len(queries), heads, longest_query, longest_key), np.nan, a["query"].dtype)
            return plain, ops.attention(*rows, **common, weights_BHTS=weights), weights

        return call

    name = f"{queries}-{keys}-{heads}/{key_heads}x{head_width}-{causal}-{offset}-{bias}-{hidden}-{size}"
    work = Work(
        f"attention ({len(queries)}, {heads}, {longest_query}, {head_width})" + (", causal" if causal else ""),
        FLOAT * 2.0 * (width * sum(queries) + key_width * sum(keys)),
        # of causal work the visible half alone
        4.0 * width * sum(t * ((t + 1) / 2 if causal else t) for t in queries),
    )
    itself = queries == keys
    return Problem(f"attention-{name}".replace(" ", ""), "attention", arrays, bind, form, work=work if itself else None)


def equal_lengths(
    batch: int, heads: int, length: int, head_width: int, causal: bool = False, scaling: bool = False
) -> Size:
    """Sentences of one length, each to itself, as other libraries take them: queries, keys and values apart."""
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
) -> Problem:
    """One position for each row, its keys and values found through a table.

    narrow  whether keys and values are in bfloat16
    shared  rows of keys and values into which all rows look, in rows with columns that belong to no head, and once more
            with the weights asked for; 0: each row has its own, as long as the others'
    """
    rng = np.random.default_rng(sum(lengths) * 7919 + heads * head_width)
    longest, rows, width, key_width = max(lengths, default=0), len(lengths), heads * head_width, key_heads * head_width
    arrays = {
        "query": normal(rng, rows, width + 3 * bool(shared)) * np.float32(size),
        "key_value": normal(rng, shared or rows * longest, 2 * key_width + 2 * bool(shared)),
    }
    if shared:
        arrays["index"] = rng.integers(0, shared, (rows, longest)).astype(np.int32)
    else:
        arrays["index"] = rng.permutation(rows * longest).astype(np.int32).reshape(rows, longest)
    arrays["lengths"] = np.array(lengths, np.int64)
    if bias:
        arrays["bias"] = normal(rng, rows, heads, longest)
    if narrow:
        arrays["key_value"] = bfloat16_bits(arrays["key_value"])
    form = {"heads": heads, "key_heads": key_heads, "head_width": head_width}
    margin = {"query_column": 2, "key_column": 1} if shared else {}

    def bind(ops: Any, a: Arrays) -> Any:
        inputs = a["query"], a["key_value"], a["key_value"], a["index"], a["lengths"]
        common = {**form, **margin, "value_column": bool(shared) + key_width, "bias_RHS": a.get("bias")}

        def call() -> tuple[np.ndarray, ...]:
            plain = ops.attention_step(*inputs, **common)
            if not shared:
                return (plain,)
            weights = np.full((rows, heads, longest), np.nan, a["query"].dtype)
            return plain, ops.attention_step(*inputs, **common, weights_RHS=weights), weights

        return call

    name = f"attention_step-{lengths}-{heads}/{key_heads}x{head_width}-{bias}-{size}-{narrow}".replace(" ", "")
    work = Work(
        f"attention_step ({rows}, {heads}, {longest}, {head_width})",
        FLOAT * 2.0 * width * (sum(lengths) + rows),
        4.0 * width * sum(lengths),
    )
    return Problem(name, "attention_step", arrays, bind, form, work=work)


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
        ],
        large=[
            equal_lengths(8, 12, 512, 64, scaling=True),
            equal_lengths(1, 12, 2048, 64, scaling=True),
            equal_lengths(1, 12, 2048, 64, causal=True),
            equal_lengths(32, 12, 128, 32),
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
        ],
        large=[Size((64,) * 256, 8, 8, 64, shared=0)],
        toy=[Size((5,) * 4, 2, 2, 8, shared=0)],
    ),
}
