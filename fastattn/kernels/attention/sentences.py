"""Attention of whole sentences in one pass over the keys: softmax(Q K' scale + bias) V, the scores never stored.

A task is a block of query rows of one sentence and key head (the rows of all query heads that share it). For every
KEYS keys it packs them transposed and the values as panels of COLUMNS columns, then takes ROWS query rows at a time:
scores by register tiles, online softmax (Milakov and Gimelshein 2018) in base 2, the sum of values by register tiles
(Dao 2023, algorithm 1). The scale and log2(e) are multiplied into the queries; keys that no row of a tile sees are
skipped.

Bits: where a key falls into tiles depends on its index in its own sentence only, and a hidden key adds exact zeros, so
a row's result does not depend on the batch, the blocks or the number of threads.

Reached on one Zen 3 core (AVX2), of 102 GFLOP/s that a tile alone does: 78 at (8, 12, 512, 64), 84 at
(1, 12, 2048, 64), 54 at (32, 12, 128, 32). At the first the exponentials take 9% of the time, packing 6%, maxima 2%.
70 -> 74  softmax of a tile's rows without divisions and masked stores between them
74 -> 76  256 keys a block instead of 128 (fewer sums rescaled; both packed blocks still fit L2)
76 -> 79  one tile's scores in a buffer of 6 KiB instead of 48 rows' in 48 KiB, which left the first cache
52 -> 54  (at the third, which is bound by memory: 62 where each head lies apart) prefetching two heads ahead
No gain: prefetching the next keys of a long sentence, blocks of 1024 rows.
"""

import numpy as np
from numba import prange

from fastattn.kernels.attention.rows import (
    add_bias,
    aligned,
    copy_row,
    finish_row,
    finish_weights,
    finite,
    hide_from,
    multiply_row,
)
from fastattn.runtime.jit import inner, kernel
from fastattn.runtime.threads import current_threads
from fastattn.simd.rows import transpose, transpose_first
from fastattn.simd.softmax import exponentials, make_row_maxima
from fastattn.simd.target import LANES, TARGET
from fastattn.simd.tile import make_tile
from fastattn.simd.vector import (
    LOG2_E,
    SIZE,
    exp2,
    lane,
    load,
    load_first,
    load_integer,
    load_scalar,
    prefetch,
    splat,
    store,
    store_integer,
    store_scalar,
)

ROWS = TARGET.rows
VECTORS = 2  # divides head widths of 32 and 64 evenly on every target
COLUMNS = VECTORS * LANES
# Packed keys and values of width 64 take 2 * 64 KiB and stay in L2 for all query rows; a tile's scores take 6 KiB.
KEYS = 256
# The keys are packed once for so many query rows of width 64: 1% of the work there; the block's queries and sums
# take 256 KiB, whatever the length of the sentence.
BLOCK_FLOATS = 512 * 64
# Rows of heads side by side lie too far apart for the hardware to foresee: while one head is computed, those of the
# head so many further on are asked for.
AHEAD = 2

score_tile = make_tile(ROWS, VECTORS)
half_score_tile = make_tile(ROWS, 1)  # the last keys, where they fit
value_tile = make_tile(ROWS, VECTORS, accumulate=True)
row_maxima = make_row_maxima(ROWS)


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
    """Values as panels of KEYS rows and COLUMNS columns, filled up with zeros."""
    zero = splat(np.float32(0))
    columns = (width + COLUMNS - 1) // COLUMNS * COLUMNS
    whole = width - width % LANES
    for s in range(count):
        start = source + s * row
        line = target + s * COLUMNS * 4
        for k in range(0, whole, LANES):
            store(load(start + k * 4), line + (k // COLUMNS * KEYS * COLUMNS + k % COLUMNS) * 4)
        for k in range(whole, columns, LANES):
            value = load_first(start + k * 4, width - k, zero) if k < width else zero
            store(value, line + (k // COLUMNS * KEYS * COLUMNS + k % COLUMNS) * 4)


@inner
def visible_keys(t, keys, causal, offset):
    """How many keys query t sees, from the first on."""
    return min(max(t + offset + 1, 0), keys) if causal else keys


@inner
def multiply_keys(query, keys, panel_width, width, count, score):
    """Scores of a tile's rows with ``count`` packed keys, and with what fills up the last vector."""
    for c in range(0, count, COLUMNS):
        panel = keys + c * panel_width * 4
        if count - c > LANES:
            score_tile(query, width * 4, panel, COLUMNS * 4, width, score + c * 4, KEYS * 4)
        else:
            half_score_tile(query, width * 4, panel, COLUMNS * 4, width, score + c * 4, KEYS * 4)


@inner
def prefetch_rows(address, row, first, stop, width):
    """Ask for the cache lines of rows ``first`` to ``stop``."""
    for s in range(first, stop):
        for k in range(0, width, 16):
            prefetch(address + s * row + k * 4)


@inner
def take_exponentials(score, size, fresh, top, total, sums, columns):
    """Scores of a tile's rows become exponentials against their maxima, added to the rows' totals.

    Where a maximum grew, the total and the sums that were taken against the one before shrink first. ``size`` is in
    bytes, a row of ``sums`` has ``columns`` floats; the rest are addresses of the first row's.
    """
    for n in range(ROWS):
        now, before = load_scalar(fresh + n * 4), load_scalar(top + n * 4)
        if now != before:
            store_scalar(now, top + n * 4)
            if before != np.float32(-np.inf):  # else there is nothing yet
                shrink = lane(exp2(splat(before - now)))
                multiply_row(total + n * SIZE, shrink, total + n * SIZE, LANES)
                multiply_row(sums + n * columns * 4, shrink, sums + n * columns * 4, columns)
        exponentials(score + n * KEYS * 4, size, finite(now), total + n * SIZE)


@inner
def start_rows(
    query, query_row, query_head, queries, keys, width, first, count, causal, offset, factor, scratch, top, total, seen
):
    """Rows ``first`` to first + count: the queries times ``factor`` end to end, the state cleared; the most keys seen.

    Rows that fill up the last tile repeat the last row.
    """
    last = 0
    h, t = first // queries, first % queries
    for i in range((count + ROWS - 1) // ROWS * ROWS):
        multiply_row(query + h * query_head + t * query_row, factor, scratch + i * width * 4, width)
        sees = visible_keys(t, keys, causal, offset)
        store_integer(sees, seen + i * 8)
        last = max(last, sees)
        store_scalar(np.float32(-np.inf), top + i * 4)
        store(splat(np.float32(0)), total + i * SIZE)
        if i + 1 < count:
            t += 1
            if t == queries:
                h, t = h + 1, 0
    return last


def scratch_size(limit, width):
    """Floats of scratch that a thread takes for blocks of ``limit`` rows, see attend_block."""
    columns = (width + COLUMNS - 1) // COLUMNS * COLUMNS
    alignment, integers = 16, 2
    return 2 * KEYS * columns + ROWS * KEYS + limit * (LANES + columns + width + 1 + integers) + ROWS + alignment


@inner
def attend_block(
    query, query_row, query_head, key, key_row, value, value_row, out, out_row,
    queries, keys, width, first, count, causal, offset, factor,
    bias, bias_head, bias_row, bias_step, has_bias, weight, weight_head, weight_row, has_weights, scratch, limit,
):  # fmt: skip
    """Rows ``first`` to first + count of one key head, where row r is query r % queries of its head r // queries.

    Addresses and distances in bytes, but for bias_step, in floats. Count is ``limit`` at most.
    """
    padded = (count + ROWS - 1) // ROWS * ROWS
    columns = (width + COLUMNS - 1) // COLUMNS * COLUMNS
    panel_width = (width + LANES - 1) // LANES * LANES
    key_scratch = scratch
    value_scratch = key_scratch + KEYS * columns * 4
    score = value_scratch + KEYS * columns * 4
    total = score + ROWS * KEYS * 4
    sum_scratch = total + limit * SIZE
    query_scratch = sum_scratch + limit * columns * 4
    fresh = query_scratch + limit * width * 4
    top = fresh + ROWS * 4
    seen = top + limit * 4
    last = start_rows(
        query, query_row, query_head, queries, keys, width, first, count, causal, offset, factor,
        query_scratch, top, total, seen,
    )  # fmt: skip
    for k in range(0, padded * columns, LANES):
        store(splat(np.float32(0)), sum_scratch + k * 4)

    for s in range(0, last, KEYS):
        here = min(KEYS, last - s)
        pack_keys(key + s * key_row, key_row, here, width, key_scratch)
        pack_values(value + s * value_row, value_row, here, width, value_scratch)
        for i in range(0, padded, ROWS):
            if s + KEYS >= last:
                ahead, stop = AHEAD * width * 4, min(i + ROWS, queries)
                prefetch_rows(query + ahead, query_row, i, stop, width)
                prefetch_rows(out + ahead, out_row, i, stop, width)
                near, far = min(KEYS, keys) * i // padded, min(KEYS, keys) * (i + ROWS) // padded
                prefetch_rows(key + ahead, key_row, near, far, width)
                prefetch_rows(value + ahead, value_row, near, far, width)
            tile_keys = 0
            for n in range(i, i + ROWS):
                tile_keys = max(tile_keys, min(load_integer(seen + n * 8) - s, here))
            if tile_keys <= 0:
                continue
            multiply_keys(query_scratch + i * width * 4, key_scratch, panel_width, width, tile_keys, score)
            whole = (tile_keys + LANES - 1) // LANES * LANES
            for n in range(i, i + ROWS):
                row = score + (n - i) * KEYS * 4
                mine = max(min(load_integer(seen + n * 8) - s, here), 0)
                if has_bias or has_weights:
                    r = first + min(n, count - 1)
                    h, t = r // queries, r % queries
                    if has_bias and mine > 0:
                        line = bias + h * bias_head + t * bias_row
                        add_bias(row, line + s * 4 * bias_step, bias_step, mine)
                    if has_weights:
                        copy_row(row, weight + h * weight_head + t * weight_row + s * 4, mine)
                if mine < whole:
                    hide_from(row, mine, whole)
                store_scalar(load_scalar(top + n * 4), fresh + (n - i) * 4)
            row_maxima(score, KEYS * 4, whole * 4, fresh)
            sums = sum_scratch + i * columns * 4
            take_exponentials(score, whole * 4, fresh, top + i * 4, total + i * SIZE, sums, columns)
            for c in range(0, columns, COLUMNS):
                value_tile(
                    score, KEYS * 4, value_scratch + c * KEYS * 4, COLUMNS * 4, tile_keys,
                    sums + c * 4, columns * 4,
                )  # fmt: skip

    h, t = first // queries, first % queries
    for i in range(count):
        place = out + h * width * 4 + t * out_row
        inverse = finish_row(sum_scratch + i * columns * 4, total + i * SIZE, place, width)
        if has_weights:
            line = weight + h * weight_head + t * weight_row
            finish_weights(line, load_integer(seen + i * 8), finite(load_scalar(top + i * 4)), inverse)
        t += 1
        if t == queries:
            h, t = h + 1, 0


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
    heads, key_heads, width, query_column, key_column, value_column, causal, offset_B, factor,
    bias_BHTS, has_bias, weights_BHTS, has_weights, out_NF, scratch_PN, limit,
):  # fmt: skip
    """All blocks of ``limit`` rows cut into P runs of like cost, a thread each; see attention."""
    B, parts = len(query_starts_B), len(scratch_PN)
    group = heads // key_heads
    everything = 0
    for b in range(B):
        queries = query_stops_B[b] - query_starts_B[b]
        keys = key_stops_B[b] - key_starts_B[b]
        for first in range(0, queries * group, limit):
            count = min(limit, queries * group - first)
            everything += key_heads * block_cost(first, count, queries, keys, causal, offset_B[b % len(offset_B)])
    bias_strides = strides(bias_BHTS)
    weight_strides = strides(weights_BHTS)

    for part in prange(0, parts):
        scratch = aligned(scratch_PN.ctypes.data + part * scratch_PN.shape[1] * 4)
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
                        queries, keys, width, first, count, causal, offset, factor,
                        bias_BHTS.ctypes.data + (b * bias_strides[0] + h * bias_strides[1]) * 4,
                        bias_strides[1] * 4,
                        bias_strides[2] * 4,
                        bias_strides[3],
                        has_bias,
                        weights_BHTS.ctypes.data + (b * weight_strides[0] + h * weight_strides[1]) * 4,
                        weight_strides[1] * 4,
                        weight_strides[2] * 4,
                        has_weights, scratch, limit,
                    )  # fmt: skip


def block_rows(N, heads, key_heads, width, parts):
    """The most rows of a block: what fits the cache, four blocks a thread where they are not too small."""
    rows = BLOCK_FLOATS // width
    if parts > 1:
        rows = min(rows, max(N * heads // (4 * parts), 8 * ROWS))
    rows = max(rows // ROWS * ROWS, ROWS)
    return min(rows, max(-(-N * (heads // key_heads) // ROWS), 1) * ROWS)


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
    scale, parts = head_width**-0.5 if scale is None else scale, current_threads()
    out_NF = np.empty((len(query_NE), heads * head_width), np.float32)
    if weights_BHTS is not None:
        weights_BHTS.fill(0)
    limit = block_rows(len(query_NE), heads, key_heads, head_width, parts)
    attend(
        query_NE, key_ME, value_ME, query_starts_B, query_stops_B, key_starts_B, key_stops_B,
        heads, key_heads, head_width, query_column, key_column, value_column,
        causal, NO_OFFSET if offset_B is None else offset_B, np.float32(scale * LOG2_E),
        NOTHING if bias_BHTS is None else np.ascontiguousarray(bias_BHTS), bias_BHTS is not None,
        NOTHING if weights_BHTS is None else weights_BHTS, weights_BHTS is not None,
        out_NF, np.empty((parts, scratch_size(limit, head_width)), np.float32), limit,
    )  # fmt: skip
    return out_NF
