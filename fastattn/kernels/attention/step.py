"""Attention over tables of keys: a decoder's step over its history or over a memory, or the next queries of a prefill.

Reading keys and values from memory limits the speed. So adjacent rows whose tables start with the same keys, the beams
of a sentence or its next queries, are processed together: each shared key and value is read once for TOGETHER rows. All
heads of a row are processed together too: LANES dot products at a time, with all heads of a key read while its row is
in L1; a softmax over each head's scores (in base 2, two passes); then VALUE_KEYS values at a time, sums in registers.
Rows and heads are divided among the threads by the number of their keys.

Bits: sums go over a row's own keys in the order of its table, so a result does not depend on the keys' positions in the
key-value cache, on other rows, whether they share keys or not, or on the number of threads.

Reached on one Zen 4 core (AVX-512) at (128 rows, 30 keys, 8 heads of 64): 53 GFLOP/s if every 4 rows see the same keys,
26 if all keys differ; less if they are not in the last-level cache, limited by memory.
15 -> 51  (shared) each key and value read once for four rows
51 -> 53, 16 -> 26  rows of the cache aligned to cache lines, an odd number of lines apart: see tables.py
258 -> 160 us a call in zh-en's steps of 48 rows, greedy, keys and values uncached: those of the next rows prefetched.
37 -> 24 ms a call, 22 -> 11 in bfloat16 (32 rows, 4,096 keys, one thread): long rows prefetch their own later keys.
No gain: prefetching the next head's memory, all heads of a key at once, or a short row's later keys.
"""

import numpy as np
from numba import prange

from fastattn.kernels.attention.constants import TOGETHER, slot_of
from fastattn.kernels.attention.scores import (
    add_biases,
    aligned,
    biases_of,
    finish_row,
    hide_from,
    multiply_row,
    softmax_shift,
)
from fastattn.runtime.jit import inner, kernel
from fastattn.runtime.parts import take_part
from fastattn.simd.constants import SIZE
from fastattn.simd.rows import copy_floats, make_add_rows, make_dot_rows, prefetch_row_far
from fastattn.simd.softmax import cap_row, make_exponentials, make_row_maxima
from fastattn.simd.target import LANES, TARGET
from fastattn.simd.vector import address, load, load_index, load_scalar, splat, store, store_index, store_scalar

VECTORS = 4 if TARGET.rows * TARGET.vectors > TOGETHER * 4 else 2  # of each sum, in registers
VALUE_KEYS = 8  # 8 rows of 4 KiB: they stay in L1 while all heads are processed
LARGE = 1 << 18  # bytes of keys and values that evict much of what was prefetched into L2 before them
AHEAD = 32  # keys; from 16 to 128 are as good

row_maximum, exponentials = make_row_maxima(1), make_exponentials(1)
dot_rows, dot_rows_together = make_dot_rows(1), make_dot_rows(TOGETHER)
add_rows, add_rows_together = make_add_rows(1, 4), make_add_rows(TOGETHER, VECTORS)


slot_layout = inner(slot_of)


@inner
def copy_index(index, count, target):
    """Copy the row numbers, int32, of LANES keys from address to address; the last replaces those beyond ``count``."""
    for n in range(LANES):
        store_index(load_index(index + min(n, count - 1) * 4), target + n * 4)


@inner
def prefetch_index_rows(index, first, last, rows, row_bytes, size):
    """Prefetch into L2 ``size`` bytes of the rows that an index lists from ``first`` to ``last``."""
    for n in range(first, last):
        row = rows + load_index(index + n * 4) * row_bytes
        prefetch_row_far(row, size)


@inner
def score_keys(table, together, query, score, slot, key, index, span, heads, ahead):
    """Write the scores of some keys of one row, or of TOGETHER rows whose scratch is ``slot`` apart.

    key    (address of the first column, distance of rows); ``table`` is an array of their dtype
    index  (address of the row's list of keys, address of space for LANES of them)
    span   (first, stop) in the list; a few scores may be written past the stop
    heads  first, last, query heads per key head, width, floats from one head's scores to the next
    ahead  (address, length) of the next row's list
    """
    first_head, last_head, group, width, stride = heads
    step = LANES // TOGETHER if together else LANES
    for s in range(span[0], span[1], step):
        here = index[0] + s * 4
        if s + step > span[1]:
            copy_index(here, span[1] - s, index[1])
            here = index[1]
        for h in range(first_head, last_head):
            rows = key[0] + h // group * width * table.itemsize
            row, place = query + h * width * 4, score + (h * stride + s) * 4
            prefetch_index_rows(ahead[0], s, min(s + step, ahead[1]), rows, key[1], width * table.itemsize)
            if together:
                dot_rows_together(table, row, slot, rows, key[1], here, width, place, slot)
            else:
                dot_rows(table, row, slot, rows, key[1], here, width, place, slot)


@inner
def add_values(table, together, score, sums, slot, value, index, span, heads, ahead):
    """Add some values, weighted by the exponentials of their scores, to the sums; arguments as in ``score_keys``."""
    first_head, last_head, group, width, stride = heads
    padded = (width + LANES - 1) // LANES * SIZE
    for s in range(span[0], span[1], VALUE_KEYS):
        here, count = index + s * 4, min(VALUE_KEYS, span[1] - s)
        for h in range(first_head, last_head):
            rows = value[0] + h // group * width * table.itemsize
            weight, place = score + (h * stride + s) * 4, sums + h * padded
            prefetch_index_rows(ahead[0], s, min(s + VALUE_KEYS, ahead[1]), rows, value[1], width * table.itemsize)
            if together:
                add_rows_together(table, weight, slot, rows, value[1], here, count, width, place, slot)
            else:
                add_rows(table, weight, slot, rows, value[1], here, count, width, place, slot)


@inner
def take_softmax(score, keys, softcap, biases, head, top, total):
    """Turn a head's products into exponentials of scores minus their maximum; ``total`` becomes their sum by lanes.

    keys  (first, stop) of the keys that are scored
    """
    count = keys[1] - keys[0]
    whole = (count + LANES - 1) // LANES * LANES
    if softcap != np.float32(0):
        cap_row(score, whole * 4, softcap)
    add_biases(score, biases, head, 0, keys[1] - 1, keys[0], count)
    if count < whole:
        hide_from(score, count, whole)
    store_scalar(np.float32(-np.inf), top)
    row_maximum(score, 0, whole * 4, top)
    store(splat(np.float32(0)), total)
    store_scalar(softmax_shift(load_scalar(top)), top)
    exponentials(score, 0, whole * 4, top, total)


@inner
def finish_head(score, count, sums, total, width, out, weight):
    """Write a head's output from its sums, and its softmax weights to the address ``weight`` unless that is 0."""
    inverse = finish_row(sums, total, out, width)
    if weight != 0:
        for s in range(0, count, LANES):
            store(load(score + s * 4) * splat(inverse), score + s * 4)
        copy_floats(score, weight, count)


@inner
def keys_of(keys, n):
    """(address, first, stop) of the keys that query n sees: in its list, from the first on."""
    index_RS, rows_N, firsts_N, stops_N = keys
    row, first = rows_N[n] if rows_N.size > 0 else n, firsts_N[n] if firsts_N.size > 0 else 0
    return address(index_RS) + (row * index_RS.shape[1] + first) * 4, first, max(stops_N[n], first)


@inner
def ahead_of(keys, index, stop, end, row_bytes):
    """(address, length) of the list whose rows are prefetched meanwhile, at the same places.

    The next row's list; of a long row, where that would be evicted before it is read, its own a few keys later.
    """
    if stop * row_bytes > LARGE:
        return index + AHEAD * 4, stop - AHEAD
    ahead, begin, following = keys_of(keys, end) if end < len(keys[3]) else (index, 0, 0)
    return ahead, following - begin


@inner
def attend_together(table, query, key, value, out, keys, rows, heads, form, weight, scratch):
    """Attention of some heads of a few rows, whose first ``shared`` keys are the same.

    query, key, value, out  (address of the first column, distance of rows); ``table`` is an array of the keys' dtype
    keys     see keys_of
    rows     first, end, shared
    heads    first, last, all, query heads per key head, widths of keys and values, floats between two heads' scores
    form     see score_form, with each query as a sentence
    weight   (address, distance of rows, distance of heads); address 0: no weights are wanted
    """
    first, end, shared = rows
    first_head, last_head, every, group, width, value_width, stride = heads
    weights, weight_row, weight_head = weight
    total, sums, queries, slot = slot_layout(every, width, value_width, stride)
    tail = scratch + TOGETHER * slot
    top = tail + SIZE
    sums_head = (value_width + LANES - 1) // LANES * SIZE
    # the last row replaces missing ones, whose results are not read
    for i in range(TOGETHER if shared > 0 else end - first):
        line, place = query[0] + min(first + i, end - 1) * query[1], scratch + i * slot
        at = first_head * width * 4
        multiply_row(line + at, form[0], place + queries + at, (last_head - first_head) * width)
        for k in range(first_head * sums_head, last_head * sums_head, SIZE):
            store(splat(np.float32(0)), place + sums + k)

    key_heads, value_heads = (
        (first_head, last_head, group, width, stride),
        (first_head, last_head, group, value_width, stride),
    )
    # first the keys that all rows share, then the other keys of each
    for i in range(-1, end - first):
        together, place = i < 0, scratch + max(i, 0) * slot
        index, begin, stop = keys_of(keys, first + max(i, 0))
        span = (0, shared) if together else (shared, stop - begin)
        following = ahead_of(keys, index, span[1], end, key[1])
        score_keys(table, together, place + queries, place, slot, key, (index, tail), span, key_heads, following)
    for i in range(end - first):
        place = scratch + i * slot
        _, begin, stop = keys_of(keys, first + i)
        biases = biases_of(form, first + i, 0)
        for h in range(first_head, last_head):
            score, mine = place + h * stride * 4, place + total + h * SIZE
            take_softmax(score, (begin, stop), form[1], biases, h, top, mine)
    for i in range(-1, end - first):
        together, place = i < 0, scratch + max(i, 0) * slot
        index, begin, stop = keys_of(keys, first + max(i, 0))
        span = (0, shared) if together else (shared, stop - begin)
        following = ahead_of(keys, index, span[1], end, key[1])
        add_values(table, together, place, place + sums, slot, value, index, span, value_heads, following)
    for i in range(end - first):
        place = scratch + i * slot
        _, begin, stop = keys_of(keys, first + i)
        line = weights + (first + i) * weight_row + begin * 4
        for h in range(first_head, last_head):
            finish_head(
                place + h * stride * 4, stop - begin, place + sums + h * sums_head, place + total + h * SIZE,
                value_width, out[0] + (first + i) * out[1] + h * value_width * 4,
                line + h * weight_head if weights != 0 else 0,
            )  # fmt: skip


@inner
def find_end(keys, first):
    """The end of the rows from ``first`` on, at most TOGETHER, with the same first key at the same position."""
    end = first + 1
    index, begin, stop = keys_of(keys, first)
    if stop > begin:
        limit = min(first + TOGETHER, len(keys[3]))
        while end < limit:
            other, other_begin, other_stop = keys_of(keys, end)
            if other_begin != begin or other_stop <= other_begin or load_index(other) != load_index(index):
                break
            end += 1
    return end


@inner
def count_shared(keys, first, end):
    """The number of first keys that all of the rows have in common; 0 for a single row."""
    index, begin, stop = keys_of(keys, first)
    shared = stop - begin if end - first > 1 else 0
    for r in range(first + 1, end):
        other, begin, stop = keys_of(keys, r)
        s, most = 1, min(shared, stop - begin)
        if other == index:  # a next query of the same table
            s = most
        while s < most and load_index(other + s * 4) == load_index(index + s * 4):
            s += 1
        shared = s
    return shared


@inner
def step_places(rows, columns):
    """(address of the first column, distance of rows) of each array, for ``attend_together``."""
    query_NE, key_ME, value_ME, out_NF = rows
    return (
        (address(query_NE) + columns[0] * 4, query_NE.shape[1] * 4),
        (address(key_ME) + columns[1] * key_ME.itemsize, key_ME.shape[1] * key_ME.itemsize),
        (address(value_ME) + columns[2] * value_ME.itemsize, value_ME.shape[1] * value_ME.itemsize),
        (address(out_NF), out_NF.shape[1] * 4),
    )


@inner
def cost_of(keys, first, end):
    """Roughly the number of scores that one head of some rows computes."""
    cost = 0
    for n in range(first, end):
        _, begin, stop = keys_of(keys, n)
        cost += stop - begin + 16
    return cost


@inner
def attend_share(rows, keys, shape, columns, form, weights_NHS, share, scratch, stride):
    """Compute a thread's part of all rows and heads; share: its (start, stop) in cost; others as in ``attend_rows``."""
    heads, group, width, value_width = shape
    query, key, value, out = step_places(rows, columns)
    weight_head = weights_NHS.shape[2] * 4
    weight = address(weights_NHS) if weights_NHS.size > 0 else 0, weights_NHS.shape[1] * weight_head, weight_head
    done = first = 0
    while first < len(keys[3]):
        end = find_end(keys, first)
        cost = cost_of(keys, first, end)
        # a head belongs to the part that contains the start of its cost
        first_head = min(max((share[0] - done + cost - 1) // cost, 0), heads)
        last_head = min(max((share[1] - done + cost - 1) // cost, 0), heads)
        done += cost * heads
        if first_head < last_head:
            together = first, end, count_shared(keys, first, end)
            mine = first_head, last_head, heads, group, width, value_width, stride
            attend_together(rows[1], query, key, value, out, keys, together, mine, form, weight, aligned(scratch))
        first = end


@kernel
def attend_rows(rows, keys, shape, columns, form, weights_NHS, scratch_PN, stride):
    """All (row, head) pairs, divided into P parts of similar cost, one for each thread; see attention_step.

    rows     query_NE, key_ME, value_ME, out_NF
    keys     index_RS, rows_N, firsts_N, stops_N; rows_N and firsts_N may be empty
    shape    heads, query heads per key head, widths of keys and values
    columns  of the first query, key and value
    form     see score_form, with each query as a sentence
    """
    _, _, _, stops_N = keys
    everything = cost_of(keys, 0, len(stops_N)) * shape[0]
    for part in prange(0, len(scratch_PN)):
        scratch, start, stop = take_part(scratch_PN, part, everything)
        attend_share(rows, keys, shape, columns, form, weights_NHS, (start, stop), scratch, stride)
