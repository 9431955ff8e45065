"""Attention of one query a row over a table of keys: a decoder's step over its history or over a memory.

Bound by the keys' and values' memory. So the beams of a sentence, rows side by side whose tables start with the same
keys, are taken together: each key and value that they share is read once for TOGETHER rows. And a row's heads go side
by side: LANES dot products at a time, with all heads of a key read while its row is near; a softmax over each head's
scores (in base 2, two passes); then VALUE_KEYS values at a time, the sums in registers. Rows and heads are shared
among the threads by the number of their keys.

Bits: sums go over a row's own keys in the order of its table, so neither the places of the keys in the cache, nor other
rows, whether they share keys or not, nor the number of threads change a result.

Reached on one Zen 4 core (AVX-512) at (128 rows, 30 keys, 8 heads of 64): 53 GFLOP/s where 4 rows each see the same
keys, 26 where all keys differ; memory leaves less where they are not in the last cache.
15 -> 51  (shared) each key and value read once for four rows
51 -> 53, 16 -> 26  rows of the cache an odd number of lines apart, from the start of a line on: see tables.py
258 -> 160 us a call in zh-en's steps of 48 rows, greedy, keys and values in no cache: those of the next rows asked for.
No gain: asking for the next head's or the next keys' memory ahead of its use.
"""

import numpy as np
from numba import prange

from fastattn.kernels.attention.rows import (
    add_bias,
    aligned,
    copy_row,
    finish_row,
    finite,
    hide_from,
    multiply_row,
)
from fastattn.runtime.jit import inner, kernel
from fastattn.runtime.parts import make_scratch_parts, take_part
from fastattn.simd.rows import make_add_rows, make_dot_rows
from fastattn.simd.softmax import exponentials, make_row_maxima
from fastattn.simd.target import LANES, TARGET
from fastattn.simd.vector import (
    LINE,
    LOG2_E,
    SIZE,
    load,
    load_index,
    load_scalar,
    prefetch_far,
    splat,
    store,
    store_index,
    store_scalar,
)

TOGETHER = 4  # rows at once over the keys that they share
VECTORS = 4 if TARGET.rows * TARGET.vectors > TOGETHER * 4 else 2  # of each of their sums in registers
VALUE_KEYS = 8  # 8 rows of 4 KiB: they stay in the first cache while all heads pass over them
GRAIN = 1 << 17  # products that are worth a thread: 10 to 30 us, where launching it takes 2 to 15

row_maximum = make_row_maxima(1)
dot_rows, dot_rows_together = make_dot_rows(1), make_dot_rows(TOGETHER)
add_rows, add_rows_together = make_add_rows(1, 4), make_add_rows(TOGETHER, VECTORS)


def _slot(heads, width, stride):
    """Bytes of a row's scratch: where its heads' totals, sums and queries start behind their scores; all of it."""
    padded = (width + LANES - 1) // LANES * SIZE
    total = heads * stride * 4
    sums = total + heads * SIZE
    query = sums + heads * padded
    return total, sums, query, query + (heads * padded + 63) // 64 * 64


slot_layout = inner(_slot)


@inner
def copy_index(index, count, target):
    """The row numbers (addresses of int32) of LANES keys; the last stands for those beyond ``count``."""
    for n in range(LANES):
        store_index(load_index(index + min(n, count - 1) * 4), target + n * 4)


@inner
def ask_for(index, first, last, rows, row_bytes, size):
    """Bring ``size`` bytes of the rows that an index lists from ``first`` to ``last`` into the second cache."""
    for n in range(first, last):
        row = rows + load_index(index + n * 4) * row_bytes
        for k in range(0, size, LINE):
            prefetch_far(row + k)


@inner
def score_keys(
    table,
    together,
    query,
    score,
    slot,
    key,
    key_row,
    index,
    first,
    last,
    first_head,
    last_head,
    group,
    width,
    stride,
    tail,
    ahead,
    ahead_count,
):
    """Scores of the keys ``first`` to ``last``, of one row or of TOGETHER rows whose scratch is ``slot`` apart.

    A few more may be written behind the last.
    """
    step = LANES // TOGETHER if together else LANES
    for s in range(first, last, step):
        here = index + s * 4
        if s + step > last:
            copy_index(here, last - s, tail)
            here = tail
        for h in range(first_head, last_head):
            rows = key + h // group * width * table.itemsize
            row, place = query + h * width * 4, score + (h * stride + s) * 4
            ask_for(ahead, s, min(s + step, ahead_count), rows, key_row, width * table.itemsize)
            if together:
                dot_rows_together(table, row, slot, rows, key_row, here, width, place, slot)
            else:
                dot_rows(table, row, slot, rows, key_row, here, width, place, slot)


@inner
def add_values(
    table,
    together,
    score,
    sums,
    slot,
    value,
    value_row,
    index,
    first,
    last,
    first_head,
    last_head,
    group,
    width,
    stride,
    ahead,
    ahead_count,
):
    """Add the values ``first`` to ``last``, weighted with what became of their scores, to the sums of all heads."""
    padded = (width + LANES - 1) // LANES * SIZE
    for s in range(first, last, VALUE_KEYS):
        here, count = index + s * 4, min(VALUE_KEYS, last - s)
        for h in range(first_head, last_head):
            rows = value + h // group * width * table.itemsize
            weight, place = score + (h * stride + s) * 4, sums + h * padded
            ask_for(ahead, s, min(s + VALUE_KEYS, ahead_count), rows, value_row, width * table.itemsize)
            if together:
                add_rows_together(table, weight, slot, rows, value_row, here, count, width, place, slot)
            else:
                add_rows(table, weight, slot, rows, value_row, here, count, width, place, slot)


@inner
def take_softmax(score, count, bias, has_bias, top, total):
    """A head's scores become exponentials against their maximum, and ``total`` lane by lane their sum."""
    whole = (count + LANES - 1) // LANES * LANES
    if has_bias and count > 0:
        add_bias(score, bias, 1, count)
    if count < whole:
        hide_from(score, count, whole)
    store_scalar(np.float32(-np.inf), top)
    row_maximum(score, 0, whole * 4, top)
    store(splat(np.float32(0)), total)
    exponentials(score, whole * 4, finite(load_scalar(top)), total)


@inner
def finish_head(score, count, sums, total, width, out, weight, has_weights):
    """A head's sums become its output, and its scores the softmax weights where these are wanted."""
    inverse = finish_row(sums, total, out, width)
    if has_weights:
        for s in range(0, count, LANES):
            store(load(score + s * 4) * splat(inverse), score + s * 4)
        copy_row(score, weight, count)


@inner
def attend_together(
    table, query, query_row, key, key_row, value, value_row, index, index_row, lengths_R, first, end, shared,
    first_head, last_head, heads, group, width, factor,
    bias, bias_row, bias_head, has_bias, weight, weight_row, weight_head, has_weights, out, scratch, stride,
):  # fmt: skip
    """Heads ``first_head`` to ``last_head`` of the rows ``first`` to ``end``, whose first ``shared`` keys are the same.

    Addresses are those of row ``first``; distances are in bytes. ``table`` is of the type of keys and values.
    """
    total, sums, queries, slot = slot_layout(heads, width, stride)
    tail = scratch + TOGETHER * slot
    top = tail + SIZE
    score_head, out_head, sums_head = stride * 4, width * 4, (width + LANES - 1) // LANES * SIZE
    # with the last row in place of those that are missing, whose results nobody reads
    for i in range(TOGETHER if shared > 0 else end - first):
        mine, place = min(i, end - first - 1) * query_row + first_head * out_head, scratch + i * slot
        multiply_row(query + mine, factor, place + queries + first_head * out_head, (last_head - first_head) * width)
        for k in range(first_head * sums_head, last_head * sums_head, SIZE):
            store(splat(np.float32(0)), place + sums + k)

    # the next rows' keys and values come meanwhile
    ahead, ahead_count = index + (end - first) * index_row, lengths_R[end] if end < len(lengths_R) else 0
    # first what all rows share, then what each has to itself
    for i in range(-1, end - first):
        together, place = i < 0, scratch + max(i, 0) * slot
        start, stop = (0, shared) if together else (shared, lengths_R[first + i])
        score_keys(
            table, together, place + queries, place, slot, key, key_row, index + max(i, 0) * index_row, start, stop,
            first_head, last_head, group, width, stride, tail, ahead, ahead_count,
        )  # fmt: skip
    for i in range(end - first):
        place, mine = scratch + i * slot, bias + i * bias_row
        for h in range(first_head, last_head):
            take_softmax(
                place + h * score_head, lengths_R[first + i], mine + h * bias_head, has_bias, top,
                place + total + h * SIZE,
            )  # fmt: skip
    for i in range(-1, end - first):
        together, place = i < 0, scratch + max(i, 0) * slot
        start, stop = (0, shared) if together else (shared, lengths_R[first + i])
        add_values(
            table, together, place, place + sums, slot, value, value_row, index + max(i, 0) * index_row, start, stop,
            first_head, last_head, group, width, stride, ahead, ahead_count,
        )  # fmt: skip
    for i in range(end - first):
        place = scratch + i * slot
        for h in range(first_head, last_head):
            finish_head(
                place + h * score_head, lengths_R[first + i], place + sums + h * sums_head, place + total + h * SIZE,
                width, out + (i * heads + h) * out_head, weight + i * weight_row + h * weight_head, has_weights,
            )  # fmt: skip


@inner
def find_end(index_RS, lengths_R, first):
    """The end of the rows from ``first`` on, TOGETHER at most, whose tables start with the same key."""
    end = first + 1
    if lengths_R[first] > 0:
        stop = min(first + TOGETHER, len(lengths_R))
        while end < stop and lengths_R[end] > 0 and index_RS[end, 0] == index_RS[first, 0]:
            end += 1
    return end


@inner
def count_shared(index_RS, lengths_R, first, end):
    """With how many keys the tables of all of the rows start; 0 for one row, which has none to share them with."""
    shared = lengths_R[first] if end - first > 1 else 0
    for r in range(first + 1, end):
        s, stop = 1, min(shared, lengths_R[r])
        while s < stop and index_RS[r, s] == index_RS[first, s]:
            s += 1
        shared = s
    return shared


@kernel
def attend_rows(
    query_RE, key_ME, value_ME, index_RS, lengths_R, heads, group, width,
    query_column, key_column, value_column, factor, bias_RHS, has_bias, weights_RHS, has_weights,
    out_RF, scratch_PN, stride,
):  # fmt: skip
    """The (row, head) pairs cut into P runs of like cost, a thread each; see attention_step."""
    R = len(query_RE)
    everything = 0
    for r in range(R):
        everything += (lengths_R[r] + 16) * heads
    bias_row = bias_RHS.shape[1] * bias_RHS.shape[2] * 4 if bias_RHS.shape[0] > 1 else 0
    bias_head = bias_RHS.shape[2] * 4 if bias_RHS.shape[1] > 1 else 0
    query_row, index_row, weight_head = query_RE.shape[1] * 4, index_RS.shape[1] * 4, weights_RHS.shape[2] * 4
    weight_row = weights_RHS.shape[1] * weight_head

    for part in prange(0, len(scratch_PN)):
        scratch, start, stop = take_part(scratch_PN, part, everything)
        scratch = aligned(scratch)
        done = first = 0
        while first < R:
            end = find_end(index_RS, lengths_R, first)
            cost = 0
            for r in range(first, end):
                cost += lengths_R[r] + 16
            # a head belongs to the part in which its first unit of work falls
            first_head = min(max((start - done + cost - 1) // cost, 0), heads)
            last_head = min(max((stop - done + cost - 1) // cost, 0), heads)
            done += cost * heads
            if first_head < last_head:
                attend_together(
                    key_ME, query_RE.ctypes.data + query_column * 4 + first * query_row, query_row,
                    key_ME.ctypes.data + key_column * key_ME.itemsize, key_ME.shape[1] * key_ME.itemsize,
                    value_ME.ctypes.data + value_column * value_ME.itemsize, value_ME.shape[1] * value_ME.itemsize,
                    index_RS.ctypes.data + first * index_row, index_row, lengths_R,
                    first, end, count_shared(index_RS, lengths_R, first, end),
                    first_head, last_head, heads, group, width, factor,
                    bias_RHS.ctypes.data + first * bias_row, bias_row, bias_head, has_bias,
                    weights_RHS.ctypes.data + first * weight_row, weight_row, weight_head, has_weights,
                    out_RF.ctypes.data + first * heads * width * 4, scratch, stride,
                )  # fmt: skip
            first = end


NOTHING = np.zeros((1, 1, 1), np.float32)


def attention_step(
    query_RE: np.ndarray,
    key_ME: np.ndarray,
    value_ME: np.ndarray,
    index_RS: np.ndarray,
    lengths_R: np.ndarray,
    *,
    heads: int,
    key_heads: int,
    head_width: int,
    query_column: int = 0,
    key_column: int = 0,
    value_column: int = 0,
    scale: float | None = None,
    bias_RHS: np.ndarray | None = None,
    weights_RHS: np.ndarray | None = None,
) -> np.ndarray:
    """Attention of one query a row: row r sees key[index[r, s]] for s < lengths[r]; out_RF float32, F = heads * K.

    Beams share and reorder their history through ``index_RS`` (int32 row numbers, also into the values); the keys are
    never copied in the cache itself. lengths_R is int64. Heads, columns and scale as in ``attention``.
    bias_RHS     added after the scale; rows and heads of length one are broadcast; -inf hides a key.
    weights_RHS  written where given, float32 and C-contiguous: the softmax weights, 0 beyond a row's length.
    A row that sees no key yields zeros. Fastest where rows with the same keys lie side by side. Arrays are float32,
    keys and values perhaps uint16, the bits of bfloat16, and C-contiguous; nothing is checked here.
    """
    scale = head_width**-0.5 if scale is None else scale
    rows, longest = index_RS.shape
    out_RF = np.empty((rows, heads * head_width), np.float32)
    if weights_RHS is not None:
        weights_RHS.fill(0)
    stride = (longest // LANES + 2) * LANES  # what is scored a few keys at a time may end LANES - 1 too late
    scratch_size = TOGETHER * _slot(heads, head_width, stride)[-1] // 4 + 2 * LANES + 16
    scratch_PN = make_scratch_parts(rows * longest * heads * head_width // GRAIN + 1, scratch_size, dtype=np.float32)
    attend_rows(
        query_RE, key_ME, value_ME, index_RS, lengths_R, heads, heads // key_heads, head_width,
        query_column, key_column, value_column, np.float32(scale * LOG2_E),
        NOTHING if bias_RHS is None else np.ascontiguousarray(bias_RHS), bias_RHS is not None,
        NOTHING if weights_RHS is None else weights_RHS, weights_RHS is not None,
        out_RF, scratch_PN, stride,
    )  # fmt: skip
    return out_RF
