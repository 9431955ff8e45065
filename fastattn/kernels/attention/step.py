"""Attention over tables of keys: a decoder's step over its history or over a memory, or the next queries of a prefill.

Reading keys and values from memory limits the speed. So adjacent rows whose tables start with the same keys, the beams
of a sentence or its next queries, go together: a thread reads each shared key and value once for GROUP_ROWS rows. All
heads of a row go together too: LANES dot products at a time, with all heads of a key while its row is in L1; then a
softmax over each head's scores (in base 2, two passes); then VALUE_KEYS values at a time, with sums in registers.
Threads share rows and heads by the number of their keys.

Bits: sums go over a row's own keys in the order of its table, so a result does not depend on the keys' positions in the
key-value cache, on other rows, whether they share keys or not, or on the number of threads.

Reached on one Zen 4 core (AVX-512) at (128 rows, 30 keys, 8 heads of 64): 53 GFLOP/s if every 4 rows see the same keys,
26 if all keys differ; less if they are not in the last-level cache, limited by memory.
15 -> 51  (shared) reading each key and value once for four rows
51 -> 53, 16 -> 26  rows of the cache aligned to cache lines, an odd number of lines apart: see empty_table
258 -> 160 us a call in zh-en's steps of 48 rows, greedy, keys and values uncached: prefetching those of the next rows
37 -> 24 ms a call, 22 -> 11 in bfloat16 (32 rows, 4,096 keys, one thread): long rows prefetch their own later keys
No gain: prefetching the next head's memory, all heads of a key at once, or a short row's later keys.
"""

from collections import namedtuple

import numpy as np
from numba import prange

from fastattn.arguments.attention import KeyIndex
from fastattn.kernels.attention.arguments import GROUP_ROWS, HeadRows, scratch_layout
from fastattn.kernels.attention.scores import (
    add_biases,
    aligned,
    head_biases,
    hide_from,
    multiply_row,
    softmax_shift,
    total_of,
    vectors_of,
)
from fastattn.runtime.jit import inner, kernel, take_part
from fastattn.simd.arguments import SIZE
from fastattn.simd.attention import (
    additive_rows,
    cap_row,
    drop_subnormals,
    keep_subnormals,
    make_exponentials,
    make_row_maxima,
)
from fastattn.simd.memory import address, load, load_index, load_scalar, store, store_index, store_scalar
from fastattn.simd.rows import copy_floats, make_add_rows, make_dot_rows, prefetch_row_far
from fastattn.simd.target import LANES, TARGET
from fastattn.simd.vector import splat

VECTORS = 4 if TARGET.rows * TARGET.vectors > GROUP_ROWS * 4 else 2  # vectors of each row's sum, in registers
VALUE_KEYS = 8  # 8 rows of 4 KiB: they stay in L1 while all heads are processed
LARGE = 1 << 18  # bytes of keys and values that evict much of the data prefetched into L2 before them
AHEAD = 32  # keys from the one that is read to the one that is prefetched; 16 to 128 are as good

row_maximum, exponentials = make_row_maxima(1), make_exponentials(1)
dot_rows, dot_rows_together = make_dot_rows(1), make_dot_rows(GROUP_ROWS)
add_rows, add_rows_together = make_add_rows(1, 4), make_add_rows(GROUP_ROWS, VECTORS)
layout_of_scratch = inner(scratch_layout)

# HeadRows of all heads; ``like``: an array of the keys' dtype; ``vector``: the address of additive attention's v, or 0.
StepArrays = namedtuple("StepArrays", "like query key value out vector")
# Query heads ``first`` to ``last`` of ``heads``; ``group`` share a key head; a head's scores take ``stride`` floats.
StepHeads = namedtuple("StepHeads", "first last heads group width value_width stride")
# Rows that are computed together, and the number of first keys that they share.
RowGroup = namedtuple("RowGroup", "first stop shared")
# The keys that a query sees: the address of their row numbers, int32; the first key's position and the stop.
KeyList = namedtuple("KeyList", "index first stop")
# Keys ``first`` to ``stop`` of the list at an address; ``tail``, the address of room for LANES row numbers; the address
# and the length of a list whose rows are prefetched meanwhile.
ListedKeys = namedtuple("ListedKeys", "index first stop tail ahead ahead_stop")


@inner
def prefetch_index_rows(index, first, last, rows, row_bytes, size):
    """Prefetch into L2 ``size`` bytes of the rows that an index lists from ``first`` to ``last``."""
    for n in range(first, last):
        row = rows + load_index(index + n * 4) * row_bytes
        prefetch_row_far(row, size)


@inner
def score_keys(arrays, together, query, score, distance, listed, heads):
    """Write the scores of the listed keys for one row, or for GROUP_ROWS rows whose scratches are ``distance`` apart.

    It may write a few scores past the last key.
    """
    like, keys, width, size = arrays.like, arrays.key, heads.width, arrays.key.head_step
    step_keys = LANES // GROUP_ROWS if together and arrays.vector == 0 else LANES
    for s in range(listed.first, listed.stop, step_keys):
        index = listed.index + s * 4
        if s + step_keys > listed.stop:  # the last key stands for further keys
            for n in range(LANES):
                store_index(load_index(index + min(n, listed.stop - s - 1) * 4), listed.tail + n * 4)
            index = listed.tail
        for h in range(heads.first, heads.last):
            rows = keys.address + h // heads.group * size
            row, target = query + h * width * 4, score + (h * heads.stride + s) * 4
            prefetch_index_rows(listed.ahead, s, min(s + step_keys, listed.ahead_stop), rows, keys.row_step, size)
            if arrays.vector != 0:
                vector = arrays.vector + h * width * 4
                for at in range(0, GROUP_ROWS * distance if together else 1, distance):
                    additive_rows(like, row + at, vector, rows, keys.row_step, index, width, target + at)
            elif together:
                dot_rows_together(like, row, distance, rows, keys.row_step, index, width, target, distance)
            else:
                dot_rows(like, row, distance, rows, keys.row_step, index, width, target, distance)


@inner
def add_values(like, together, score, sums, distance, values, listed, heads):
    """Add the listed values, weighted by the exponentials of their scores, to the sums; see ``score_keys``."""
    width, size = heads.value_width, values.head_step
    for s in range(listed.first, listed.stop, VALUE_KEYS):
        index, count = listed.index + s * 4, min(VALUE_KEYS, listed.stop - s)
        for h in range(heads.first, heads.last):
            rows = values.address + h // heads.group * size
            weight, target = score + (h * heads.stride + s) * 4, sums + h * vectors_of(width) * 4
            prefetch_index_rows(listed.ahead, s, min(s + VALUE_KEYS, listed.ahead_stop), rows, values.row_step, size)
            if together:
                add_rows_together(like, weight, distance, rows, values.row_step, index, count, width, target, distance)
            else:
                add_rows(like, weight, distance, rows, values.row_step, index, count, width, target, distance)


@inner
def take_softmax(score, keys, softcap, biases, head, maximum, total):
    """Turn a head's products with a KeyList into exponentials of scores minus their maximum, summed in ``total``."""
    count = keys.stop - keys.first
    whole = vectors_of(count)
    if softcap != np.float32(0):
        cap_row(score, whole * 4, softcap)
    add_biases(score, biases, head, 0, keys.stop - 1, keys.first, count)
    if count < whole:
        hide_from(score, count, whole)
    store_scalar(np.float32(-np.inf), maximum)
    row_maximum(score, 0, whole * 4, maximum)
    store(splat(np.float32(0)), total)
    store_scalar(softmax_shift(load_scalar(maximum)), maximum)
    exponentials(score, 0, whole * 4, maximum, total)


@inner
def keys_of(keys, n):
    """The KeyList of query n."""
    row = keys.rows_N[n] if keys.rows_N.size > 0 else n
    first = keys.firsts_N[n] if keys.firsts_N.size > 0 else 0
    if keys.window > 0:
        first = max(first, keys.stops_N[n] - keys.window)
    index = address(keys.index_RS) + (row * keys.index_RS.shape[1] + first) * 4
    return KeyList(index, first, max(keys.stops_N[n], first))


@inner
def keys_to_read(keys, rows, i, row_bytes, tail):
    """For i = -1 the keys that all rows share, else the other keys of row i; and the keys to prefetch meanwhile.

    These are the next row's keys; a long row would evict them before their use, so it prefetches later keys of its own.
    """
    row_keys = keys_of(keys, rows.first + max(i, 0))
    first, stop = (0, rows.shared) if i < 0 else (rows.shared, row_keys.stop - row_keys.first)
    if stop * row_bytes > LARGE:
        return ListedKeys(row_keys.index, first, stop, tail, row_keys.index + AHEAD * 4, stop - AHEAD)
    next_keys = keys_of(keys, rows.stop) if rows.stop < len(keys.stops_N) else KeyList(row_keys.index, 0, 0)
    return ListedKeys(row_keys.index, first, stop, tail, next_keys.index, next_keys.stop - next_keys.first)


@inner
def attend_together(arrays, keys, rows, heads, scores, weights, scratch):
    """Attention of some heads of a few rows that share their first keys.

    scores   ScoreArguments, with each query as a sentence
    weights  HeadRows; address 0: no weights are written
    """
    like, query, out, value_width = arrays.like, arrays.query, arrays.out, heads.value_width
    layout = layout_of_scratch(heads.heads, heads.width, value_width, heads.stride)
    tail = scratch + GROUP_ROWS * layout.size
    maximum = tail + SIZE
    sums_head = vectors_of(value_width) * 4
    # the last row stands for rows that a group lacks, whose results are not read
    for i in range(GROUP_ROWS if rows.shared > 0 else rows.stop - rows.first):
        line = query.address + min(rows.first + i, rows.stop - 1) * query.row_step
        row_scratch, column = scratch + i * layout.size, heads.first * query.head_step
        count = (heads.last - heads.first) * heads.width
        multiply_row(line + column, scores.factor, row_scratch + layout.queries + column, count)
        for k in range(heads.first * sums_head, heads.last * sums_head, SIZE):
            store(splat(np.float32(0)), row_scratch + layout.sums + k)

    # first the keys that all rows share, then the other keys of each
    for i in range(-1, rows.stop - rows.first):
        row_scratch, listed = scratch + max(i, 0) * layout.size, keys_to_read(keys, rows, i, arrays.key.row_step, tail)
        score_keys(arrays, i < 0, row_scratch + layout.queries, row_scratch, layout.size, listed, heads)
    for i in range(rows.stop - rows.first):
        row_scratch, row_keys = scratch + i * layout.size, keys_of(keys, rows.first + i)
        biases = head_biases(scores, rows.first + i, 0)
        for h in range(heads.first, heads.last):
            score, total = row_scratch + h * heads.stride * 4, row_scratch + layout.totals + h * SIZE
            take_softmax(score, row_keys, scores.softcap, biases, h, maximum, total)
    for i in range(-1, rows.stop - rows.first):
        row_scratch, listed = scratch + max(i, 0) * layout.size, keys_to_read(keys, rows, i, arrays.key.row_step, tail)
        add_values(like, i < 0, row_scratch, row_scratch + layout.sums, layout.size, arrays.value, listed, heads)
    for i in range(rows.stop - rows.first):
        row_scratch, row_keys = scratch + i * layout.size, keys_of(keys, rows.first + i)
        line, count = out.address + (rows.first + i) * out.row_step, row_keys.stop - row_keys.first
        weight = weights.address + (rows.first + i) * weights.row_step + row_keys.first * 4
        for h in range(heads.first, heads.last):
            _, inverse = total_of(row_scratch + layout.totals + h * SIZE)
            multiply_row(row_scratch + layout.sums + h * sums_head, inverse, line + h * out.head_step, value_width)
            if weights.address != 0:
                score = row_scratch + h * heads.stride * 4
                for s in range(0, count, LANES):
                    store(load(score + s * 4) * splat(inverse), score + s * 4)
                copy_floats(score, weight + h * weights.head_step, count)


@inner
def find_end(keys, first):
    """The end of the rows from ``first`` on, at most GROUP_ROWS, that have the same first key at the same position."""
    end = first + 1
    first_keys = keys_of(keys, first)
    if first_keys.stop > first_keys.first:
        limit = min(first + GROUP_ROWS, len(keys.stops_N))
        while end < limit:
            row_keys = keys_of(keys, end)
            differs = row_keys.first != first_keys.first or row_keys.stop <= row_keys.first
            if differs or load_index(row_keys.index) != load_index(first_keys.index):
                break
            end += 1
    return end


@inner
def count_shared(keys, first, end):
    """The number of first keys that all the rows share; 0 for a single row."""
    first_keys = keys_of(keys, first)
    shared = first_keys.stop - first_keys.first if end - first > 1 else 0
    for r in range(first + 1, end):
        row_keys = keys_of(keys, r)
        s, limit = 1, min(shared, row_keys.stop - row_keys.first)
        if row_keys.index == first_keys.index:  # a later query of the same list
            s = limit
        while s < limit and load_index(row_keys.index + s * 4) == load_index(first_keys.index + s * 4):
            s += 1
        shared = s
    return shared


@inner
def step_arrays(arrays, columns, width, value_width):
    """The arrays from the first query, key and value on."""
    query_NE, key_ME, value_ME, out_NF, vector_HK = arrays
    query_column, key_column, value_column = columns
    size = key_ME.itemsize
    scale = 4 if size == 1 else 0  # bytes behind each head of int8
    first_key, first_value = key_column // width * scale, value_column // value_width * scale
    return StepArrays(
        key_ME,
        HeadRows(address(query_NE) + query_column * 4, width * 4, query_NE.shape[1] * 4),
        HeadRows(address(key_ME) + key_column * size + first_key, width * size + scale, key_ME.shape[1] * size),
        HeadRows(
            address(value_ME) + value_column * size + first_value, value_width * size + scale, value_ME.shape[1] * size
        ),
        HeadRows(address(out_NF), value_width * 4, out_NF.shape[1] * 4),
        address(vector_HK) if vector_HK.size > 0 else 0,
    )


@inner
def cost_of(keys, first, end):
    """Roughly the number of scores of one head of the rows ``first`` to ``end``."""
    cost = 0
    for n in range(first, end):
        row_keys = keys_of(keys, n)
        cost += row_keys.stop - row_keys.first + 16
    return cost


@inner
def attend_share(arrays, keys, shape, columns, scores, weights_NHS, begin, stop, scratch, stride):
    """Compute a thread's part of all rows and heads, ``begin`` to ``stop`` in cost; see ``attend_rows``."""
    heads, group, width, value_width = shape
    step_rows = step_arrays(arrays, columns, width, value_width)
    head_step = weights_NHS.shape[2] * 4
    address_of_weights = address(weights_NHS) if weights_NHS.size > 0 else 0
    weights = HeadRows(address_of_weights, head_step, weights_NHS.shape[1] * head_step)
    done = first = 0
    while first < len(keys.stops_N):
        end = find_end(keys, first)
        cost = cost_of(keys, first, end)
        # a head belongs to the part that contains the start of its cost
        first_head = min(max((begin - done + cost - 1) // cost, 0), heads)
        last_head = min(max((stop - done + cost - 1) // cost, 0), heads)
        done += cost * heads
        if first_head < last_head:
            row_group = RowGroup(first, end, count_shared(keys, first, end))
            step_heads = StepHeads(first_head, last_head, heads, group, width, value_width, stride)
            attend_together(step_rows, keys, row_group, step_heads, scores, weights, aligned(scratch))
        first = end


@kernel
def attend_rows(arrays, keys, shape, columns, scores, weights_NHS, scratch_PN, stride):
    """All (row, head) pairs, divided into P parts of similar cost, one for each thread; see attention_step.

    arrays   query_NE, key_ME, value_ME, out_NF, and vector_HK of additive attention, else empty
    keys     the members of a KeyIndex; rows_N and firsts_N may be empty
    shape    heads, query heads per key head, widths of keys and values
    columns  the columns of the first query, key and value
    scores   ScoreArguments, with each query as a sentence
    """
    heads, _, _, _ = shape
    key_index = KeyIndex(*keys)
    total_cost = cost_of(key_index, 0, len(key_index.stops_N)) * heads
    for part in prange(0, len(scratch_PN)):
        scratch, begin, stop = take_part(scratch_PN, part, total_cost)
        subnormals = drop_subnormals()
        attend_share(arrays, key_index, shape, columns, scores, weights_NHS, begin, stop, scratch, stride)
        keep_subnormals(subnormals)
