"""Attention of whole sentences in one pass over the keys: softmax(Q K' scale + bias) V, the scores never stored.

A task is a block of query rows of one sentence and key head (the rows of all query heads that share it). For every
KEYS keys it packs them transposed and the values as panels of COLUMNS columns, then takes SCORE_ROWS query rows at a
time: scores by register tiles, online softmax (Milakov and Gimelshein 2018) in base 2, and the sum of values by
register tiles again (Dao 2023, algorithm 1). Keys that no row of a tile sees are skipped.

Bits: where a key falls into tiles depends on its index in its own sentence only, and a hidden key adds exact zeros, so
a row's result does not depend on the batch, the blocks or the number of threads.
"""

import math

import numpy as np
from numba import prange

from fastattn.kernels.jit import current_threads, inner, kernel
from fastattn.simd.rows import transpose, transpose_first
from fastattn.simd.target import LANES, TARGET
from fastattn.simd.tile import make_tile
from fastattn.simd.vector import (
    SIZE,
    exp2,
    fma,
    lane,
    load,
    load_first,
    load_scalar,
    max_lanes,
    maximum,
    splat,
    store,
    store_first,
    sum_lanes,
)

ROWS = TARGET.rows
VECTORS = 2  # divides head widths of 32 and 64 evenly on every target
COLUMNS = VECTORS * LANES
# A block of keys and values of width 64 takes 2 * 32 KiB and stays in L2; scores of SCORE_ROWS rows take 24 KiB.
KEYS = 128
SCORE_ROWS = 8 * ROWS
# The keys are packed once for so many query rows of width 64: 1% of the work there; the block's queries and sums
# take 256 KiB, whatever the length of the sentence.
BLOCK_FLOATS = 512 * 64
LOG2_E = math.log2(math.e)

score_tile = make_tile(ROWS, VECTORS)
value_tile = make_tile(ROWS, VECTORS, accumulate=True)


@inner
def copy_row(source, target, width):
    """Copy ``width`` floats."""
    whole = width - width % LANES
    for k in range(0, whole, LANES):
        store(load(source + k * 4), target + k * 4)
    if whole < width:
        tail = load_first(source + whole * 4, width - whole, splat(np.float32(0)))
        store_first(tail, target + whole * 4, width - whole)


@inner
def pack_keys(source, row, count, width, target):
    """Keys as panels of COLUMNS keys, transposed; the last panel is filled up with copies of the last key."""
    padded = (width + LANES - 1) // LANES * LANES
    for s in range(0, count, LANES):
        panel = target + (s // COLUMNS * padded * COLUMNS + s % COLUMNS) * 4
        start = source + s * row
        for k in range(0, padded, LANES):
            block = panel + k * COLUMNS * 4
            if k + LANES <= width:
                transpose(start + k * 4, row, count - s, LANES, block, COLUMNS * 4)
            else:
                transpose_first(start + k * 4, row, count - s, width - k, block, COLUMNS * 4)


@inner
def pack_values(source, row, count, width, target):
    """Values as panels of COLUMNS columns, filled up with zeros."""
    zero = splat(np.float32(0))
    for c in range(0, width, COLUMNS):
        panel = target + c * KEYS * 4
        for v in range(VECTORS):
            k = c + v * LANES
            if k + LANES <= width:
                for s in range(count):
                    store(load(source + s * row + k * 4), panel + (s * COLUMNS + v * LANES) * 4)
            else:
                for s in range(count):
                    value = zero
                    if k < width:
                        value = load_first(source + s * row + k * 4, width - k, zero)
                    store(value, panel + (s * COLUMNS + v * LANES) * 4)


@inner
def add_bias(score, bias, step, count, scale):
    """score = score * scale + bias, the bias ``step`` floats (0 or 1) apart."""
    zero, factor, constant = splat(np.float32(0)), splat(scale), splat(load_scalar(bias))
    for s in range(0, count, LANES):
        if step != 0:
            constant = load_first(bias + s * 4, min(LANES, count - s), zero)
        store(fma(load(score + s * 4), factor, constant), score + s * 4)


@inner
def row_maximum(score, count, start):
    """The largest of ``start`` and ``count`` scores."""
    hidden = splat(np.float32(-np.inf))
    top = splat(start)
    whole = count - count % LANES
    for s in range(0, whole, LANES):
        top = maximum(top, load(score + s * 4))
    if whole < count:
        top = maximum(top, load_first(score + whole * 4, count - whole, hidden))
    return max_lanes(top)


@inner
def exponentials(score, count, steps, factor, shift, total):
    """score = 2**(score * factor - shift), zeros from ``count`` to ``steps``; adds to the vector at ``total``."""
    hidden, zero = splat(np.float32(-np.inf)), splat(np.float32(0))
    multiplier, subtrahend = splat(factor), splat(-shift)
    added = load(total)
    whole = count - count % LANES
    for s in range(0, whole, LANES):
        p = exp2(fma(load(score + s * 4), multiplier, subtrahend))
        added = added + p
        store(p, score + s * 4)
    if whole < count:
        p = exp2(fma(load_first(score + whole * 4, count - whole, hidden), multiplier, subtrahend))
        added = added + p
        store(p, score + whole * 4)
        whole += LANES
    for s in range(whole, steps, LANES):
        store(zero, score + s * 4)
    store(added, total)


@inner
def rescale(address, count, factor):
    """Multiply ``count`` floats, a multiple of LANES."""
    multiplier = splat(factor)
    for k in range(0, count, LANES):
        store(load(address + k * 4) * multiplier, address + k * 4)


@inner
def finite(top):
    """The maximum that exponents are taken against: 0 for a row that has seen no key."""
    return np.float32(0) if top == np.float32(-np.inf) else top


@inner
def finish_weights(weight, count, factor, shift, inverse):
    """Scores kept in the weights' own row become the softmax."""
    hidden = splat(np.float32(-np.inf))
    multiplier, subtrahend, scale = splat(factor), splat(-shift), splat(inverse)
    for s in range(0, count, LANES):
        lanes = min(LANES, count - s)
        score = load_first(weight + s * 4, lanes, hidden)
        store_first(exp2(fma(score, multiplier, subtrahend)) * scale, weight + s * 4, lanes)


@inner
def finish_row(sums, total, out, width):
    """out = sums / total, zeros where the total is."""
    everything = sum_lanes(load(total))
    inverse = np.float32(0) if everything == np.float32(0) else np.float32(1) / everything
    multiplier = splat(inverse)
    for k in range(0, width, LANES):
        store_first(load(sums + k * 4) * multiplier, out + k * 4, min(LANES, width - k))
    return inverse


@inner
def visible_keys(t, keys, causal, offset):
    """How many keys query t sees, from the first on."""
    return min(max(t + offset + 1, 0), keys) if causal else keys


@inner
def attend_block(
    query, query_row, query_head, key, key_row, value, value_row, out, out_row,
    queries, keys, width, first, count, causal, offset, scale,
    bias, bias_head, bias_row, bias_step, has_bias, weight, weight_head, weight_row, has_weights,
    query_scratch, sum_scratch, key_scratch, value_scratch, score_scratch, top, total, seen,
):  # fmt: skip
    """Rows ``first`` to first + count of one key head, where row r is query r % queries of its head r // queries.

    Addresses and distances in bytes, but for bias_step, in floats. Scratch is what allocate_scratch says.
    """
    padded = (count + ROWS - 1) // ROWS * ROWS
    columns = (width + COLUMNS - 1) // COLUMNS * COLUMNS
    panel_width = (width + LANES - 1) // LANES * LANES
    factor = np.float32(LOG2_E) if has_bias else np.float32(scale * np.float32(LOG2_E))
    last = 0
    for i in range(padded):
        r = first + min(i, count - 1)  # rows that fill up the last tile repeat the last one
        t = r % queries
        copy_row(query + r // queries * query_head + t * query_row, query_scratch + i * width * 4, width)
        seen[i] = visible_keys(t, keys, causal, offset)
        last = max(last, seen[i])
        top[i] = np.float32(-np.inf)
        for n in range(LANES):
            total[i, n] = np.float32(0)
        for k in range(0, columns, LANES):
            store(splat(np.float32(0)), sum_scratch + (i * columns + k) * 4)

    for s in range(0, last, KEYS):
        here = min(KEYS, last - s)
        pack_keys(key + s * key_row, key_row, here, width, key_scratch)
        pack_values(value + s * value_row, value_row, here, width, value_scratch)
        for start in range(0, padded, SCORE_ROWS):
            stop = min(start + SCORE_ROWS, padded)
            for i in range(start, stop, ROWS):
                tile_keys = 0
                for n in range(i, i + ROWS):
                    tile_keys = max(tile_keys, min(seen[n] - s, here))
                if tile_keys <= 0:
                    continue
                score = score_scratch + (i - start) * KEYS * 4
                for c in range(0, tile_keys, COLUMNS):
                    score_tile(
                        query_scratch + i * width * 4, width * 4,
                        key_scratch + c * panel_width * 4, COLUMNS * 4, 0, width,
                        score + c * 4, KEYS * 4,
                    )  # fmt: skip
                for n in range(i, i + ROWS):
                    row = score + (n - i) * KEYS * 4
                    mine = max(min(seen[n] - s, here), 0)
                    r = first + min(n, count - 1)
                    t = r % queries
                    if has_bias and mine > 0:
                        line = bias + r // queries * bias_head + t * bias_row
                        add_bias(row, line + s * 4 * bias_step, bias_step, mine, scale)
                    if has_weights and mine > 0:
                        copy_row(row, weight + r // queries * weight_head + t * weight_row + s * 4, mine)
                    before = top[n]
                    now = row_maximum(row, mine, before)
                    shift = finite(now) * factor
                    exponents = total.ctypes.data + n * SIZE
                    if now != before:
                        top[n] = now
                        shrink = lane(exp2(splat(before * factor - shift)))
                        rescale(exponents, LANES, shrink)
                        rescale(sum_scratch + n * columns * 4, columns, shrink)
                    exponentials(row, mine, tile_keys, factor, shift, exponents)
                for c in range(0, columns, COLUMNS):
                    value_tile(
                        score, KEYS * 4, value_scratch + c * KEYS * 4, COLUMNS * 4, 0, tile_keys,
                        sum_scratch + (i * columns + c) * 4, columns * 4,
                    )  # fmt: skip

    for i in range(count):
        r = first + i
        t = r % queries
        inverse = finish_row(
            sum_scratch + i * columns * 4,
            total.ctypes.data + i * SIZE,
            out + r // queries * width * 4 + t * out_row,
            width,
        )
        if has_weights:
            line = weight + r // queries * weight_head + t * weight_row
            finish_weights(line, seen[i], factor, finite(top[i]) * factor, inverse)


@inner
def block_cost(first, count, queries, keys, causal, offset):
    """Roughly how many scores a block of rows computes; blocks are shared among threads by it."""
    if causal and first // queries == (first + count - 1) // queries:
        middle = (first + count // 2) % queries
        return count * (visible_keys(middle, keys, causal, offset) + 16)
    return count * (keys + 16)


@inner
def strides(array_BHTS):
    """Distances in floats along batch, head and row, 0 along an axis of length one, and along the last axis."""
    B, H, T, S = array_BHTS.shape
    return (
        H * T * S if B > 1 else 0,
        T * S if H > 1 else 0,
        S if T > 1 else 0,
        1 if S > 1 else 0,
    )


@kernel
def attend(
    query_NE, key_ME, value_ME, query_starts_B, query_stops_B, key_starts_B, key_stops_B,
    heads, key_heads, width, query_column, key_column, value_column, causal, offset_B, scale,
    bias_BHTS, has_bias, weights_BHTS, has_weights, out_NF, parts,
):  # fmt: skip
    """The work cut into ``parts`` runs of blocks of like cost, a thread each; see attention."""
    B = len(query_starts_B)
    group = heads // key_heads
    limit = max(BLOCK_FLOATS // width // SCORE_ROWS, 1) * SCORE_ROWS
    if parts > 1:  # four blocks a thread at least, where they are not too small
        rows = len(query_NE) * heads // (4 * parts)
        limit = min(limit, (rows + SCORE_ROWS) // SCORE_ROWS * SCORE_ROWS)
    everything, longest = 0, 0
    for b in range(B):
        queries = query_stops_B[b] - query_starts_B[b]
        keys = key_stops_B[b] - key_starts_B[b]
        longest = max(longest, queries * group)
        for first in range(0, queries * group, limit):
            count = min(limit, queries * group - first)
            everything += key_heads * block_cost(first, count, queries, keys, causal, offset_B[b % len(offset_B)])
    limit = min(limit, (longest + ROWS - 1) // ROWS * ROWS)
    columns = (width + COLUMNS - 1) // COLUMNS * COLUMNS
    bias_strides = strides(bias_BHTS)
    weight_strides = strides(weights_BHTS)

    for part in prange(parts):
        query_scratch = np.empty(limit * width, np.float32)
        sum_scratch = np.empty(limit * columns, np.float32)
        key_scratch = np.empty(KEYS * columns, np.float32)
        value_scratch = np.empty(KEYS * columns, np.float32)
        score_scratch = np.empty(SCORE_ROWS * KEYS, np.float32)
        top = np.empty(limit, np.float32)
        total = np.empty((limit, LANES), np.float32)
        seen = np.empty(limit, np.int64)
        done = 0
        for b in range(B):
            queries = query_stops_B[b] - query_starts_B[b]
            keys = key_stops_B[b] - key_starts_B[b]
            offset = offset_B[b % len(offset_B)]
            for g in range(key_heads):
                for first in range(0, queries * group, limit):
                    count = min(limit, queries * group - first)
                    owner = min(done * parts // max(everything, 1), parts - 1)
                    done += block_cost(first, count, queries, keys, causal, offset)
                    if owner != part:
                        continue
                    h = g * group
                    q, k = query_starts_B[b], key_starts_B[b]
                    attend_block(
                        query_NE.ctypes.data + (q * query_NE.shape[1] + query_column + h * width) * 4,
                        query_NE.shape[1] * 4,
                        width * 4,
                        key_ME.ctypes.data + (k * key_ME.shape[1] + key_column + g * width) * 4,
                        key_ME.shape[1] * 4,
                        value_ME.ctypes.data + (k * value_ME.shape[1] + value_column + g * width) * 4,
                        value_ME.shape[1] * 4,
                        out_NF.ctypes.data + (q * heads + h) * width * 4,
                        heads * width * 4,
                        queries, keys, width, first, count, causal, offset, scale,
                        bias_BHTS.ctypes.data + (b * bias_strides[0] + h * bias_strides[1]) * 4,
                        bias_strides[1] * 4,
                        bias_strides[2] * 4,
                        bias_strides[3],
                        has_bias,
                        weights_BHTS.ctypes.data + (b * weight_strides[0] + h * weight_strides[1]) * 4,
                        weight_strides[1] * 4,
                        weight_strides[2] * 4,
                        has_weights,
                        query_scratch.ctypes.data, sum_scratch.ctypes.data, key_scratch.ctypes.data,
                        value_scratch.ctypes.data, score_scratch.ctypes.data, top, total, seen,
                    )  # fmt: skip


NOTHING = np.zeros((1, 1, 1, 1), np.float32)
NO_OFFSET = np.zeros(1, np.int64)


def attention(
    query_NE: np.ndarray,
    key_ME: np.ndarray,
    value_ME: np.ndarray,
    query_starts_B1: np.ndarray,
    key_starts_B1: np.ndarray,
    *,
    heads: int,
    key_heads: int,
    head_width: int,
    query_column: int = 0,
    key_column: int = 0,
    value_column: int = 0,
    causal: bool = False,
    offset_B: np.ndarray | None = None,
    scale: float | None = None,
    bias_BHTS: np.ndarray | None = None,
    weights_BHTS: np.ndarray | None = None,
) -> np.ndarray:
    """Multi-head attention (Vaswani 2017) over a ragged batch: out_NF float32, F = heads * head_width.

    Sentence b has query rows query_starts[b] .. query_starts[b + 1], likewise keys; starts are int64. Head h of query
    row n is query[n, query_column + h K : + K]; its keys are of key head h // (heads // key_heads).
    causal        query t sees keys s <= t + offset[b]; offsets are int64, 0 where none are given.
    scale         of the scores, 1 / sqrt(head_width) where none is given.
    bias_BHTS     added after the scale; axes of length one are broadcast; -inf hides a key.
    weights_BHTS  written where given, float32 and C-contiguous: the softmax weights, 0 beyond a sentence's ends.
    A query that sees no key yields zeros. Arrays are float32 and C-contiguous; nothing is checked here.
    """
    return attend_between(
        query_NE, key_ME, value_ME, query_starts_B1[:-1], query_starts_B1[1:], key_starts_B1[:-1], key_starts_B1[1:],
        heads, key_heads, head_width, query_column, key_column, value_column,
        causal, offset_B, scale, bias_BHTS, weights_BHTS,
    )  # fmt: skip


def attend_between(
    query_NE, key_ME, value_ME, query_starts_B, query_stops_B, key_starts_B, key_stops_B,
    heads, key_heads, head_width, query_column=0, key_column=0, value_column=0,
    causal=False, offset_B=None, scale=None, bias_BHTS=None, weights_BHTS=None,
):  # fmt: skip
    """``attention`` on sentences that need not lie end to end: b has rows starts[b] .. stops[b]."""
    scale = head_width**-0.5 if scale is None else scale
    if bias_BHTS is None and scale <= 0:
        bias_BHTS = NOTHING  # a scale folded into the exponent's must be positive
    out_NF = np.empty((len(query_NE), heads * head_width), np.float32)
    if weights_BHTS is not None:
        weights_BHTS.fill(0)
    attend(
        query_NE, key_ME, value_ME, query_starts_B, query_stops_B, key_starts_B, key_stops_B,
        heads, key_heads, head_width, query_column, key_column, value_column,
        causal, NO_OFFSET if offset_B is None else offset_B, np.float32(scale),
        NOTHING if bias_BHTS is None else np.ascontiguousarray(bias_BHTS), bias_BHTS is not None,
        NOTHING if weights_BHTS is None else weights_BHTS, weights_BHTS is not None,
        out_NF, current_threads(),
    )  # fmt: skip
    return out_NF
