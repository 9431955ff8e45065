"""Attention over whole sentences in one pass over the keys: softmax(Q K' scale + bias) V, scores are never stored.

A task is a block of query rows of one sentence and key head (the rows of all query heads that share it). It packs KEYS
keys at a time, transposed, and their values in panels of COLUMNS columns, then takes ROWS query rows at a time: scores
by register tiles, online softmax (Milakov and Gimelshein 2018) in base 2, the sum of values by register tiles (Dao
2023, algorithm 1). The queries are multiplied by the scale and log2(e). Each row has a first key and a stop, and may
have sinks before the first; a mask may say more (masks.py). Blocks, tiles and panels of keys that none of their rows
sees are skipped. A sentence of a few rows reads its keys and values where they are (few.py).

Bits: the tile of a key depends only on its index in its own sentence, and a hidden key adds exact zeros, so a row's
result does not depend on the batch, the blocks or the number of threads.

Reached on one Zen 3 core (AVX2), of 102 GFLOP/s for a tile alone: 78 at (8, 12, 512, 64), 84 at
(1, 12, 2048, 64), 54 at (32, 12, 128, 32). At the first the exponentials take 9% of the time, packing 6%, maxima 2%.
70 -> 74  softmax of a tile's rows without divisions and masked stores between rows
74 -> 76  256 keys a block instead of 128 (fewer sums rescaled; both packed blocks still fit L2)
76 -> 79  one tile's scores in a buffer of 6 KiB instead of 48 rows' in 48 KiB, which did not stay in L1
52 -> 54  (at the third, which is bound by memory: 62 if each head is contiguous) prefetching two heads ahead
No gain: prefetching the next keys of a long sentence, blocks of 1024 rows.
"""

from functools import lru_cache

import numpy as np
from numba import prange

from fastattn.functions.rows import NO_FUNCTION
from fastattn.heads import Heads
from fastattn.kernels.attention.blocks import attend_block, cut_scratch, scratch_size
from fastattn.kernels.attention.distance_tile import PackedDistances, scratch_floats
from fastattn.kernels.attention.few import FEW
from fastattn.kernels.attention.masks import seen_by
from fastattn.kernels.attention.memory import Laid
from fastattn.kernels.attention.products import head_factors, is_dot
from fastattn.kernels.attention.scores import DOT, aligned, score_form, score_form_of
from fastattn.kernels.attention.tiles import ROWS
from fastattn.position_bias import PositionBias
from fastattn.runtime.jit import inner, kernel
from fastattn.runtime.parts import take_part
from fastattn.runtime.threads import current_threads
from fastattn.simd.vector import address

# Keys are packed once for 512 query rows of width 64: 1% of the work there. The block's queries and sums take 256 KiB
# for a sentence of any length.
BLOCK_FLOATS = 512 * 64
# While one head is computed, the rows of the head this many further on are prefetched: heads are short, and rows of
# adjacent ones may be far apart, too far for the hardware's prefetcher.
AHEAD = 2


@inner
def block_cost(first, count, queries, keys, seen):
    """Roughly the number of scores that a block of rows computes, by which blocks are divided among threads."""
    if seen != 0 and first // queries == (first + count - 1) // queries:
        begin, stop = seen_by(seen, (first + count // 2) % queries, keys)
        return count * (max(stop - begin, 0) + 16)
    return count * (keys + 16)


@inner
def place_of(arrays, steps, n, b, row, head):
    """(address of a row's head in array n, distance of rows, distance of heads)."""
    offset, batch_step, head_step, row_step = steps[4 * n], steps[4 * n + 1], steps[4 * n + 2], steps[4 * n + 3]
    return address(arrays[n]) + offset + b * batch_step + row * row_step + head * head_step, row_step, head_step


@inner
def ahead_of(arrays, steps, starts, heads, key_heads, b, g):
    """The addresses of the first rows of the head AHEAD key heads later, or of the last one."""
    g += AHEAD
    while g >= key_heads and b + 1 < len(starts[0]) - 1:
        b, g = b + 1, g - key_heads
    g = min(g, key_heads - 1)
    q, k, h = starts[0][b], starts[1][b], g * (heads // key_heads)
    return (
        place_of(arrays, steps, 0, b, q, h)[0],
        place_of(arrays, steps, 1, b, k, g)[0],
        place_of(arrays, steps, 2, b, k, g)[0],
        place_of(arrays, steps, 3, b, q, h)[0],
    )


@inner
def seen_from(seen_N2, first):
    """The address in seen_N2 of row ``first``; 0: every row sees all keys."""
    return address(seen_N2) + first * 16 if seen_N2.size > 0 else 0


@inner
def mask_of(mask, b, h):
    """The mask of a sentence's rows of the heads from h on, as masks.py has it.

    mask  an array of bytes or an empty one, and its steps from batch to batch, head to head, row to row, key to key; a
          table of blocks or an empty one, its steps from batch to batch and head to head, queries and keys of a block,
          blocks of keys; a function
    """
    seen, batch, head, row, key, table, table_batch, table_head, block_queries, block_keys, columns, function = mask
    array = address(seen) + b * batch + h * head if seen.size > 0 else 0
    blocks = address(table) + b * table_batch + h * table_head if table.size > 0 else 0
    return array, head, row, key, blocks, table_head, block_queries, block_keys, columns, b, h, function


@inner
def outputs_of(outputs, b, first, h):
    """The outputs of a sentence's rows, the first of them row ``first``, for finish_block."""
    weights_BHTS, sum_exps, batch_step, head_step, row_step = outputs
    _, H, T, S = weights_BHTS.shape
    weights = address(weights_BHTS) + (b * H + h) * T * S * 4 if weights_BHTS.size > 0 else 0
    logs = address(sum_exps) + b * batch_step + first * row_step + h * head_step if sum_exps.size > 0 else 0
    return weights, T * S * 4, S * 4, logs, head_step, row_step


@inner
def whole_cost(starts, seen_N2, group, key_heads, limit):
    """The cost of all blocks."""
    query_starts_B1, key_starts_B1 = starts
    total = 0
    for b in range(len(query_starts_B1) - 1):
        queries, keys = query_starts_B1[b + 1] - query_starts_B1[b], key_starts_B1[b + 1] - key_starts_B1[b]
        seen = seen_from(seen_N2, query_starts_B1[b])
        for first in range(0, queries * group, limit):
            count = min(limit, queries * group - first)
            total += key_heads * block_cost(first, count, queries, keys, seen)
    return total


@inner
def attend_share(arrays, steps, starts, shape, seen, mask, form, outputs, share, scratch):
    """Compute a thread's blocks; share: (its number, number of shares, cost of all); others as in ``attend``."""
    table = arrays[0]
    query_starts_B1, key_starts_B1 = starts
    heads, key_heads, width, value_width, limit = shape
    seen_N2, sinks = seen
    part, parts, everything = share
    group, places = heads // key_heads, cut_scratch(aligned(scratch), limit, width, value_width)
    invalid = done = 0
    for b in range(len(query_starts_B1) - 1):
        q, k = query_starts_B1[b], key_starts_B1[b]
        queries, keys, ranges = query_starts_B1[b + 1] - q, key_starts_B1[b + 1] - k, seen_from(seen_N2, q)
        for g in range(key_heads):
            for first in range(0, queries * group, limit):
                count = min(limit, queries * group - first)
                owner = min(done * parts // max(everything, 1), parts - 1)
                done += block_cost(first, count, queries, keys, ranges)
                if owner != part:
                    continue
                h = g * group
                invalid += attend_block(
                    table,
                    place_of(arrays, steps, 0, b, q, h),
                    place_of(arrays, steps, 1, b, k, g),
                    place_of(arrays, steps, 2, b, k, g),
                    place_of(arrays, steps, 3, b, q, h),
                    ahead_of(arrays, steps, starts, heads, key_heads, b, g),
                    (queries, keys, width, value_width, queries * group <= FEW and is_dot(form[12])),
                    (first, count),
                    (ranges, sinks),
                    (*score_form_of(form, b, h), form[12], head_factors(form[12], form[13], b, h)),
                    mask_of(mask, b, h),
                    outputs_of(outputs, b, q, h),
                    places,
                )
    return invalid


@kernel
def attend(arrays, steps, starts, shape, seen, mask, form, outputs, scratch_PN, invalid_P):
    """All blocks of ``limit`` rows, divided into P parts of similar cost, one for each thread; see attention.

    arrays   queries, keys, values, out, of one type, for their addresses
    steps    of each: bytes to its first head, from batch to batch (beside the rows between), head to head, row to row;
             these and the others are flat tuples, since Numba's own threads take no others
    starts   query_starts_B1, key_starts_B1
    shape    heads, key heads, widths of keys and values, limit
    seen     seen_N2, empty: all keys; sinks
    mask     see mask_of
    form     see score_form
    outputs  weights_BHTS; log-sum-exps and their steps from batch to batch, head to head, row to row; empty: not wanted
    invalid_P  written: the number of rows of each part that see a key and have a total of 0 or NaN
    """
    heads, key_heads, _, _, limit = shape
    everything = whole_cost(starts, seen[0], heads // key_heads, key_heads, limit)
    for part in prange(0, len(scratch_PN)):
        scratch, _, _ = take_part(scratch_PN, part, 0)
        share = part, len(scratch_PN), everything
        invalid_P[part] = attend_share(arrays, steps, starts, shape, seen, mask, form, outputs, share, scratch)


def block_rows(N: int, heads: int, key_heads: int, width: int, parts: int) -> int:
    """The most rows of a block: as many as fit the cache, with four blocks a thread unless they become too small."""
    rows = BLOCK_FLOATS // width
    if parts > 1:
        rows = min(rows, max(N * heads // (4 * parts), 8 * ROWS))
    rows = max(rows // ROWS * ROWS, ROWS)
    return min(rows, max(-(-N * (heads // key_heads) // ROWS), 1) * ROWS)


@kernel
def _see(query_starts_B1, lengths_B, offset_B, before, after, window, seen_N2):
    """See seen_keys and seen_around; below 0 there is no bound before or after."""
    for _ in prange(0, 1):  # takes microseconds: not worth several threads
        for b in range(len(query_starts_B1) - 1):
            for n in range(query_starts_B1[b], query_starts_B1[b + 1]):
                at, stop = n - query_starts_B1[b] + offset_B[b % len(offset_B)], lengths_B[b]
                if after >= 0:
                    stop = min(at + after + 1, stop)
                seen_N2[n, 0] = max(at - before if before >= 0 else stop - window, 0)
                seen_N2[n, 1] = stop


def seen_keys(
    query_starts_B1: np.ndarray,
    lengths_B: np.ndarray,
    causal: bool = False,
    offset_B: np.ndarray | None = None,
    window: int = 0,
) -> np.ndarray:
    """seen_N2 int64 for ``attention``: the first key that each query sees and its stop, within its sentence.

    causal  query t sees keys s <= t + offset[b]; offset_B is int64 and defaults to 0
    window  number of last keys that remain visible; 0: all
    """
    seen_N2 = np.empty((int(query_starts_B1[-1]), 2), np.int64)
    offset_B = _NO_OFFSET if offset_B is None else offset_B
    _see(query_starts_B1, lengths_B, offset_B, -1, 0 if causal else -1, window or _ALL, seen_N2)
    return seen_N2


def seen_around(
    query_starts_B1: np.ndarray, lengths_B: np.ndarray, offset_B: np.ndarray, before: int, after: int
) -> np.ndarray:
    """seen_N2 as of ``seen_keys``: query t sees keys t + offset - before to t + offset + after; below 0: no bound.

    All are int64, whose sums must be so as well.
    """
    seen_N2 = np.empty((int(query_starts_B1[-1]), 2), np.int64)
    _see(query_starts_B1, lengths_B, offset_B, before, after, _ALL, seen_N2)
    return seen_N2


_ALL = 1 << 62  # keys of a window without an end
_NO_OFFSET, NO_RANGES = np.zeros(1, np.int64), np.empty((0, 2), np.int64)
_NO_BYTES = np.empty(0, np.uint8)
NO_MASK = _NO_BYTES, 0, 0, 0, 0, _NO_BYTES, 0, 0, 1, 1, 0, NO_FUNCTION
NO_OUTPUTS = np.empty((0, 0, 0, 0), np.float32), np.empty(0, np.float32), 0, 0, 0


def attend_laid(laid: Laid, N: int, heads: Heads, seen: tuple, mask: tuple, form: tuple, outputs: tuple) -> np.ndarray:
    """The kernel ``attend`` of N queries on the caller's threads; its invalid_P."""
    shape, scratch_PN, invalid_P = _shape_and_scratch(N, heads, laid.arrays[0].itemsize < 4)
    attend(*laid, shape, seen, mask, form, outputs, scratch_PN, invalid_P)
    return invalid_P


def _shape_and_scratch(
    N: int, heads: Heads, narrow: bool, more: int = 0
) -> tuple[tuple[int, ...], np.ndarray, np.ndarray]:
    parts = current_threads()
    shape, floats = _shape_of(N, heads, narrow, parts)
    return shape, np.empty((parts, floats + more), np.float32), np.empty(parts, np.int64)


@lru_cache(1024)  # a model's layers, and the steps and sentences of one length, ask for the same
def _shape_of(N: int, heads: Heads, narrow: bool, parts: int) -> tuple[tuple[int, ...], int]:
    """(the kernel's shape, floats of a part's scratch)."""
    H, G, width, value_width = heads[:4]
    value_width = value_width or width
    limit = block_rows(N, H, G, width, parts)
    return (H, G, width, value_width, limit), scratch_size(limit, width, value_width, narrow)


@lru_cache(256)
def _steps_of_rows(heads: Heads, query: int, key: int, value: int) -> tuple[int, ...]:
    """The steps of packed rows, so many floats each, and of their result."""
    width, value_width = heads.width, heads.value_width or heads.width
    steps = (
        heads.query_column, 0, width, query,
        heads.key_column, 0, width, key,
        heads.value_column, 0, value_width, value,
        0, 0, value_width, heads.query_heads * value_width,
    )  # fmt: skip
    return tuple(4 * step for step in steps)


def attention(
    query_NE: np.ndarray,
    key_ME: np.ndarray,
    value_ME: np.ndarray,
    query_starts_B1: np.ndarray,
    key_starts_B1: np.ndarray,
    heads: Heads,
    *,
    seen_N2: np.ndarray | None = None,
    sinks: int = 0,
    bias_BHTS: np.ndarray | None = None,
    position_bias: PositionBias | None = None,
    distances: PackedDistances | None = None,
    weights_BHTS: np.ndarray | None = None,
) -> np.ndarray:
    """Multi-head attention (Vaswani 2017) over a ragged batch: out_NF float32, F = query heads * value width.

    Sentence b has query rows query_starts[b] .. query_starts[b + 1], likewise keys; starts are int64. Head h of query
    row n is query[n, query_column + h K : + K].
    seen_N2       int64: row n sees keys seen[n, 0] <= s < seen[n, 1] of its sentence (see seen_keys) and, if it sees
                  any, the earlier keys below ``sinks`` (Xiao 2023); None: all keys.
    bias_BHTS     added after the scale; axes of length one are broadcast; -inf hides a key.
    position_bias  added too; a query's position is its index in its sentence. Arrays are C-contiguous.
    distances     disentangled attention (He 2021), see ``pack_distances``; each query head has a key head of its own.
    weights_BHTS  written if given, float32 and C-contiguous: the softmax weights, 0 for a hidden key.
    A query that sees no key yields zeros. Arrays are float32 and C-contiguous; nothing is checked here.
    """
    N = len(query_NE)
    out_NF = np.empty((N, heads.query_heads * (heads.value_width or heads.width)), np.float32)
    steps = _steps_of_rows(heads, query_NE.shape[1], key_ME.shape[1], value_ME.shape[1])
    outputs = NO_OUTPUTS
    if weights_BHTS is not None:
        weights_BHTS.fill(0)
        outputs = weights_BHTS, *NO_OUTPUTS[1:]
    seen = (NO_RANGES if seen_N2 is None else seen_N2), sinks
    form = score_form(heads, bias_BHTS, position_bias, product=DOT if distances is None else distances)
    more = 0 if distances is None else scratch_floats(heads.width)
    shape, scratch_PN, invalid_P = _shape_and_scratch(N, heads, False, more)
    arrays, starts = (query_NE, key_ME, value_ME, out_NF), (query_starts_B1, key_starts_B1)
    attend(arrays, steps, starts, shape, seen, NO_MASK, form, outputs, scratch_PN, invalid_P)
    return out_NF
