"""Attention of one query a row over a table of keys: a decoder's step over its history or over a memory.

Bound by the keys' and values' memory, so a row's heads go side by side: LANES keys at a time for the scores, a lane
each, with all heads of a key read while its row is near; a softmax over each head's scores (in base 2, two passes);
then VALUE_KEYS values at a time, the sums of four vectors of a head in registers. Rows and heads are shared among the
threads by the number of their keys.

Bits: sums go over the keys in the order of the table, so neither the places of the keys in the cache, nor other rows,
nor the number of threads change a result.
"""

import numpy as np

from fastattn.kernels.attention_rows import (
    LOG2_E,
    add_bias,
    aligned,
    copy_row,
    finish_row,
    finite,
    hide_from,
    multiply_row,
)
from fastattn.kernels.jit import current_threads, inner, kernel
from fastattn.simd.rows import dot_rows
from fastattn.simd.softmax import exponentials, make_row_maxima
from fastattn.simd.target import LANES
from fastattn.simd.vector import (
    SIZE,
    fma,
    load,
    load_first,
    load_index,
    load_scalar,
    splat,
    store,
    store_index,
    store_scalar,
)

row_maximum = make_row_maxima(1)
VALUE_KEYS = 16  # 16 rows of 4 KiB: they stay in the first cache while all heads pass over them


@inner
def copy_index(index, count, target):
    """The row numbers (addresses of int32) of LANES keys; the last stands for those beyond ``count``."""
    for n in range(LANES):
        store_index(load_index(index + min(n, count - 1) * 4), target + n * 4)


@inner
def add_values(weight, value, value_row, index, first, last, sums, width):
    """sums += weight * value of keys ``first`` to ``last``; sums are whole vectors, in registers four at a time."""
    zero = splat(np.float32(0))
    k = 0
    while k + 4 * LANES <= width:
        place = sums + k * 4
        a, b, c, d = load(place), load(place + SIZE), load(place + 2 * SIZE), load(place + 3 * SIZE)
        for s in range(first, last):
            p = splat(load_scalar(weight + s * 4))
            row = value + load_index(index + s * 4) * value_row + k * 4
            a = fma(p, load(row), a)
            b = fma(p, load(row + SIZE), b)
            c = fma(p, load(row + 2 * SIZE), c)
            d = fma(p, load(row + 3 * SIZE), d)
        store(a, place)
        store(b, place + SIZE)
        store(c, place + 2 * SIZE)
        store(d, place + 3 * SIZE)
        k += 4 * LANES
    while k < width:
        a = load(sums + k * 4)
        lanes = min(LANES, width - k)
        for s in range(first, last):
            p = splat(load_scalar(weight + s * 4))
            a = fma(p, load_first(value + load_index(index + s * 4) * value_row + k * 4, lanes, zero), a)
        store(a, sums + k * 4)
        k += LANES


@inner
def attend_row(
    query, key, key_row, value, value_row, index, count, first_head, last_head, group, width, factor,
    bias, bias_head, has_bias, weight, weight_head, has_weights, out, scratch, heads, stride,
):  # fmt: skip
    """Heads ``first_head`` to ``last_head`` of one row. Addresses and distances in bytes; see scratch_size."""
    padded = (width + LANES - 1) // LANES * LANES
    score_head = stride * 4
    scores = scratch
    total = scores + heads * score_head
    sums = total + heads * SIZE
    tail = sums + heads * padded * 4
    top = tail + SIZE
    queries = top + SIZE
    size = (last_head - first_head) * width
    multiply_row(query + first_head * width * 4, factor, queries + first_head * width * 4, size)
    whole = (count + LANES - 1) // LANES * LANES
    for s in range(0, count, LANES):
        here = index + s * 4
        if s + LANES > count:
            copy_index(here, count - s, tail)
            here = tail
        for h in range(first_head, last_head):
            score = dot_rows(queries + h * width * 4, key + h // group * width * 4, key_row, here, width)
            store(score, scores + h * score_head + s * 4)

    for h in range(first_head, last_head):
        score = scores + h * score_head
        if has_bias and count > 0:
            add_bias(score, bias + h * bias_head, 1, count)
        if count < whole:
            hide_from(score, count, whole)
        store_scalar(np.float32(-np.inf), top)
        row_maximum(score, 0, whole * 4, top)
        store(splat(np.float32(0)), total + h * SIZE)
        exponentials(score, whole * 4, finite(load_scalar(top)), total + h * SIZE)
        for k in range(0, padded, LANES):
            store(splat(np.float32(0)), sums + (h * padded + k) * 4)

    for s in range(0, count, VALUE_KEYS):
        for h in range(first_head, last_head):
            stop = min(s + VALUE_KEYS, count)
            add_values(
                scores + h * score_head, value + h // group * width * 4, value_row, index, s, stop,
                sums + h * padded * 4, width,
            )  # fmt: skip

    for h in range(first_head, last_head):
        inverse = finish_row(sums + h * padded * 4, total + h * SIZE, out + h * width * 4, width)
        if has_weights:
            score = scores + h * score_head
            for s in range(0, count, LANES):
                store(load(score + s * 4) * splat(inverse), score + s * 4)
            copy_row(score, weight + h * weight_head, count)


def scratch_size(heads, width, stride):
    """Floats of scratch that a thread takes: heads' scores ``stride`` apart, their totals, sums and queries."""
    alignment, tail, top = 16, LANES, LANES
    return heads * (stride + LANES + -(-width // LANES) * LANES + width) + tail + top + alignment


@kernel
def attend_rows(
    first_part, end, query_RE, key_ME, value_ME, index_RS, lengths_R, heads, group, width,
    query_column, key_column, value_column, factor, bias_RHS, has_bias, weights_RHS, has_weights,
    out_RF, scratch_PN, stride,
):  # fmt: skip
    """The (row, head) pairs cut into P runs of like cost, a thread each; see attention_step."""
    R, parts = len(query_RE), len(scratch_PN)
    everything = 0
    for r in range(R):
        everything += (lengths_R[r] + 16) * heads
    bias_row = bias_RHS.shape[1] * bias_RHS.shape[2] if bias_RHS.shape[0] > 1 else 0
    bias_head = bias_RHS.shape[2] if bias_RHS.shape[1] > 1 else 0

    for part in range(first_part, end):
        scratch = aligned(scratch_PN.ctypes.data + part * scratch_PN.shape[1] * 4)
        start, stop = everything * part // parts, everything * (part + 1) // parts
        done = 0
        for r in range(R):
            # a head belongs to the part in which its first unit of work falls
            cost = lengths_R[r] + 16
            first_head = min(max((start - done + cost - 1) // cost, 0), heads)
            last_head = min(max((stop - done + cost - 1) // cost, 0), heads)
            done += cost * heads
            if first_head < last_head:
                attend_row(
                    query_RE.ctypes.data + (r * query_RE.shape[1] + query_column) * 4,
                    key_ME.ctypes.data + key_column * 4,
                    key_ME.shape[1] * 4,
                    value_ME.ctypes.data + value_column * 4,
                    value_ME.shape[1] * 4,
                    index_RS.ctypes.data + r * index_RS.shape[1] * 4, lengths_R[r],
                    first_head, last_head, group, width, factor,
                    bias_RHS.ctypes.data + r * bias_row * 4, bias_head * 4, has_bias,
                    weights_RHS.ctypes.data + r * weights_RHS.shape[1] * weights_RHS.shape[2] * 4,
                    weights_RHS.shape[2] * 4, has_weights,
                    out_RF.ctypes.data + r * heads * width * 4, scratch, heads, stride,
                )  # fmt: skip


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
    A row that sees no key yields zeros. Arrays are float32 and C-contiguous; nothing is checked here.
    """
    scale, parts = head_width**-0.5 if scale is None else scale, current_threads()
    out_RF = np.empty((len(query_RE), heads * head_width), np.float32)
    if weights_RHS is not None:
        weights_RHS.fill(0)
    stride = -(-index_RS.shape[1] // LANES) * LANES
    attend_rows(
        parts, query_RE, key_ME, value_ME, index_RS, lengths_R, heads, heads // key_heads, head_width,
        query_column, key_column, value_column, np.float32(scale * LOG2_E),
        NOTHING if bias_RHS is None else np.ascontiguousarray(bias_RHS), bias_RHS is not None,
        NOTHING if weights_RHS is None else weights_RHS, weights_RHS is not None,
        out_RF, np.empty((parts, scratch_size(heads, head_width, stride)), np.float32), stride,
    )  # fmt: skip
    return out_RF
