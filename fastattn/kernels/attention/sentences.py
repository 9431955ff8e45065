"""Attention over whole sentences in one pass over the keys: softmax(Q K' scale + bias) V, scores are never stored.

A task is a block of query rows of one sentence and key head (the rows of all query heads that share it). It packs KEYS
keys at a time, transposed, and their values in panels of COLUMNS columns, then takes ROWS query rows at a time: scores
by register tiles, online softmax (Milakov and Gimelshein 2018) in base 2, the sum of values by register tiles (Dao
2023, algorithm 1). The queries are multiplied by the scale and log2(e). Each row has a first key and a stop, and may
have sinks before the first; a mask may say more (masks.py). Blocks, tiles and panels of keys that none of their rows
sees are skipped. A sentence of a few rows reads its keys and values where they are (tiles.py).

Bits: the tile of a key depends only on its index in its own sentence, and a hidden key adds exact zeros, so a row's
result does not depend on the batch, the blocks or the number of threads.

Reached on one Zen 3 core (AVX2), of 102 GFLOP/s for a tile alone: 78 at (8, 12, 512, 64), 84 at
(1, 12, 2048, 64), 54 at (32, 12, 128, 32). At the first the exponentials take 9% of the time, packing 6%, maxima 2%.
70 -> 74  softmax of a tile's rows without divisions and masked stores between rows
74 -> 76  256 keys a block instead of 128 (fewer sums rescaled; both packed blocks still fit L2)
76 -> 79  one tile's scores in a buffer of 6 KiB instead of 48 rows' in 48 KiB, which did not stay in L1
52 -> 54  (at the third, which is bound by memory: 62 if each head is contiguous) prefetching two heads ahead
No gain: prefetching the next keys of a long sentence, blocks of 1024 rows.
One Zen 4 core (AVX-512), 197 x 197 of 64, 12 heads: 89 in float32, 140 with products in bfloat16.
"""

from numba import prange

from fastattn.arguments.attention import RaggedBatch
from fastattn.kernels.attention.arguments import Ahead, BatchRows, HeadMask, HeadOutputs, HeadRows, QueryRows, RowBlock
from fastattn.kernels.attention.blocks import attend_block, cut_scratch
from fastattn.kernels.attention.masks import seen_by
from fastattn.kernels.attention.products import is_dot, product_head
from fastattn.kernels.attention.scores import aligned, head_scores
from fastattn.kernels.attention.tiles import FEW
from fastattn.runtime.jit import inner, kernel, take_part
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
def batch_rows(array, offset, batch_step, head_step, row_step):
    return BatchRows(address(array) + offset, batch_step, head_step, row_step)


@inner
def head_rows(rows, b, row, head):
    """The rows of sentence b, the first of which is ``row`` of all, from a head on."""
    first = rows.address + b * rows.batch_step + row * rows.row_step + head * rows.head_step
    return HeadRows(first, rows.head_step, rows.row_step)


@inner
def rows_ahead(query, key, value, out, batch, shape, b, g):
    """The first rows of the head AHEAD key heads later, or of the last one."""
    g += AHEAD
    while g >= shape.key_heads and b + 1 < len(batch.query_starts_B1) - 1:
        b, g = b + 1, g - shape.key_heads
    g = min(g, shape.key_heads - 1)
    q, k, h = batch.query_starts_B1[b], batch.key_starts_B1[b], g * (shape.heads // shape.key_heads)
    return Ahead(
        head_rows(query, b, q, h).address,
        head_rows(key, b, k, g).address,
        head_rows(value, b, k, g).address,
        head_rows(out, b, q, h).address,
    )


@inner
def seen_from(seen_N2, first):
    """The address in seen_N2 of row ``first``; 0: every row sees all keys."""
    return address(seen_N2) + first * 16 if seen_N2.size > 0 else 0


@inner
def head_mask(mask, b, h):
    """MaskArguments of a sentence's heads from h on."""
    seen = address(mask.seen) + b * mask.seen_batch + h * mask.seen_head if mask.seen.size > 0 else 0
    states = address(mask.states) + b * mask.states_batch + h * mask.states_head if mask.states.size > 0 else 0
    return HeadMask(
        seen, mask.seen_head, mask.seen_row, mask.seen_key,
        states, mask.states_head, mask.block_queries, mask.block_keys, mask.key_blocks, b, h, mask.function,
    )  # fmt: skip


@inner
def head_outputs(outputs, b, first, h):
    """OutputArguments of a sentence's heads from h on; the sentence begins with row ``first``."""
    _, H, T, S = outputs.weights_BHTS.shape
    weights = address(outputs.weights_BHTS) + (b * H + h) * T * S * 4 if outputs.weights_BHTS.size > 0 else 0
    start = b * outputs.logs_batch + first * outputs.logs_row + h * outputs.logs_head
    logs = address(outputs.logs) + start if outputs.logs.size > 0 else 0
    return HeadOutputs(weights, T * S * 4, S * 4, logs, outputs.logs_head, outputs.logs_row)


@inner
def heads_together(shape, product):
    """The query heads whose rows share blocks: all of a key head, or one where each has scores of its own."""
    return shape.heads // shape.key_heads if is_dot(product) else 1


@inner
def whole_cost(batch, shape, together):
    """The cost of all blocks."""
    total = 0
    for b in range(len(batch.query_starts_B1) - 1):
        first_row = batch.query_starts_B1[b]
        queries = batch.query_starts_B1[b + 1] - first_row
        keys, seen = batch.key_starts_B1[b + 1] - batch.key_starts_B1[b], seen_from(batch.seen_N2, first_row)
        for first in range(0, queries * together, shape.limit):
            count = min(shape.limit, queries * together - first)
            total += shape.heads // together * block_cost(first, count, queries, keys, seen)
    return total


@inner
def attend_share(arrays, steps, batch, shape, mask, scores, outputs, share, scratch):
    """Compute a thread's blocks; share: (its number, number of shares, cost of all); others as in ``attend``."""
    query_array, key_array, value_array, out_array = arrays
    query, key = batch_rows(query_array, *steps[:4]), batch_rows(key_array, *steps[4:8])
    value, out = batch_rows(value_array, *steps[8:12]), batch_rows(out_array, *steps[12:])
    part, parts, everything = share
    together = heads_together(shape, scores.product)
    places = cut_scratch(aligned(scratch), shape.limit, shape.width, shape.value_width)
    invalid = done = 0
    for b in range(len(batch.query_starts_B1) - 1):
        q, k = batch.query_starts_B1[b], batch.key_starts_B1[b]
        queries, keys = batch.query_starts_B1[b + 1] - q, batch.key_starts_B1[b + 1] - k
        ranges = seen_from(batch.seen_N2, q)
        for h in range(0, shape.heads, together):
            g = h // (shape.heads // shape.key_heads)
            for first in range(0, queries * together, shape.limit):
                count = min(shape.limit, queries * together - first)
                owner = min(done * parts // max(everything, 1), parts - 1)
                done += block_cost(first, count, queries, keys, ranges)
                if owner != part:
                    continue
                block = RowBlock(
                    query_array,
                    head_rows(query, b, q, h),
                    head_rows(key, b, k, g),
                    head_rows(value, b, k, g),
                    head_rows(out, b, q, h),
                    QueryRows(first, count, queries),
                    keys,
                    shape.width,
                    shape.value_width,
                    queries * together <= FEW and is_dot(scores.product),
                    ranges,
                    batch.sinks,
                    head_scores(scores, b, h, product_head(scores.product, scores.details, b, h)),
                    head_mask(mask, b, h),
                    head_outputs(outputs, b, q, h),
                    places,
                )
                invalid += attend_block(block, rows_ahead(query, key, value, out, batch, shape, b, g))
    return invalid


@kernel
def attend(arrays, steps, batch, shape, mask, scores, outputs, scratch_PN, invalid_P):
    """All blocks of ``limit`` rows, divided into P parts of similar cost, one for each thread; see attention.

    arrays   queries, keys, values, out, of one type, for their addresses
    steps    of each: bytes to its first head, from batch to batch (beside the rows between), head to head, row to row
    batch    the members of a RaggedBatch; seen_N2 is empty where all keys are seen
    shape    ShapeArguments; mask, scores and outputs likewise
    invalid_P  written: the number of rows of each part that see a key and have a total of 0 or NaN
    """
    sentences = RaggedBatch(*batch)
    everything = whole_cost(sentences, shape, heads_together(shape, scores.product))
    for part in prange(0, len(scratch_PN)):
        scratch, _, _ = take_part(scratch_PN, part, 0)
        share = part, len(scratch_PN), everything
        invalid_P[part] = attend_share(arrays, steps, sentences, shape, mask, scores, outputs, share, scratch)


@kernel
def _see(query_starts_B1, lengths_B, offset_B, before, after, seen_N2):
    """See seen_around; below 0 there is no bound before or after."""
    for _ in prange(0, 1):  # takes microseconds: not worth several threads
        for b in range(len(query_starts_B1) - 1):
            for n in range(query_starts_B1[b], query_starts_B1[b + 1]):
                t, stop = n - query_starts_B1[b] + offset_B[b % len(offset_B)], lengths_B[b]
                if after >= 0:
                    stop = min(t + after + 1, stop)
                seen_N2[n, 0] = max(t - before, 0) if before >= 0 else 0
                seen_N2[n, 1] = stop
