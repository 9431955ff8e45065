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

from numba import prange

from fastattn.kernels.attention.blocks import attend_block, cut_scratch
from fastattn.kernels.attention.few import FEW
from fastattn.kernels.attention.masks import seen_by
from fastattn.kernels.attention.products import head_factors, is_dot
from fastattn.kernels.attention.scores import aligned, score_form_of
from fastattn.runtime.jit import inner, kernel
from fastattn.runtime.parts import take_part
from fastattn.simd.vector import address

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
