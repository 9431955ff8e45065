"""Additive attention (Bahdanau 2015) in one pass over the keys: no array of positions by positions, let alone widths.

A task is a block of query rows of one sentence and head. As in blocks.py, keys and values are packed KEYS at a time and
the softmax is taken online, tile by tile; a tile's scores are those of additive_tile.py. Addresses are in bytes.
"""

import numpy as np
from numba import prange

from fastattn.kernels.attention.additive_tile import FAR, add_keys, exponentiate, exponentiate_keys, vector_factors
from fastattn.kernels.attention.ranges import finish_row_scores, seen_by_block, seen_by_rows, seen_here
from fastattn.kernels.attention.scores import (
    aligned,
    finish_row,
    finish_weights,
    softmax_shift,
    strides,
)
from fastattn.kernels.attention.tiles import (
    KEYS,
    ROWS,
    columns_of,
    multiply_values,
    pack_keys,
    pack_values,
    row_maxima,
    take_exponentials,
    whole_columns,
)
from fastattn.runtime.jit import inner, kernel
from fastattn.runtime.parts import make_scratch_parts, take_part
from fastattn.simd.rows import copy_floats
from fastattn.simd.target import LANES
from fastattn.simd.vector import SIZE, address, load_integer, load_scalar, splat, store, store_scalar

# Rows of a task: its packed keys and values are made for it alone, which costs as much as two or three rows.
LIMIT = 128 // ROWS * ROWS


def _scratch_size(width: int, value_width: int) -> int:
    """Floats of a thread's scratch; see _cut."""
    columns = whole_columns(value_width)
    packed = KEYS * (whole_columns(width) + columns)
    return packed + ROWS * KEYS + LIMIT * (LANES + columns + width + 1) + ROWS + 16


@inner
def _cut(scratch, width, value_width):
    """Addresses of packed keys, packed values, a tile's scores; totals, sums, queries, maxima of a block's rows; new
    maxima of a tile's."""
    columns = columns_of(value_width)
    values = scratch + KEYS * columns_of(width) * 4
    scores = values + KEYS * columns * 4
    totals = scores + ROWS * KEYS * 4
    sums = totals + LIMIT * SIZE
    queries = sums + LIMIT * columns * 4
    tops = queries + LIMIT * width * 4
    return scratch, values, scores, totals, sums, queries, tops, tops + LIMIT * 4


@inner
def _start(query, count, widths, exponential, places):
    """Copy a block's queries and clear its state; the last row is repeated to fill the last tile."""
    _, _, _, totals, sums, rows, tops, _ = places
    padded, columns = (count + ROWS - 1) // ROWS * ROWS, columns_of(widths[1])
    for i in range(padded):
        copy_floats(query[0] + min(i, count - 1) * query[1], rows + i * widths[0] * 4, widths[0])
        store_scalar(np.float32(-np.inf), tops + i * 4)
        store(splat(np.float32(0)), totals + i * SIZE)
    for k in range(0, padded * columns, LANES):
        store(splat(np.float32(0)), sums + k * 4)
    if exponential:
        exponentiate(rows, padded * widths[0])


@inner
def _attend_tile(i, s, here, count, widths, seen, head, bias, weight, places):
    """Attention of a tile's rows over the packed keys and values, from key s on: adds to their sums and totals."""
    keys, values, scores, totals, sums, rows, tops, new_tops = places
    front, stop = seen_by_rows(seen, i, count, s, here)
    if front >= stop:
        return
    whole, columns = (stop + LANES - 1) // LANES * LANES, columns_of(widths[1])
    add_keys(rows + i * widths[0] * 4, keys, widths[0], front, stop, scores, head[0], head[1])
    for n in range(ROWS):
        row = scores + n * KEYS * 4
        begin, end = seen_here(seen, i + n, count, s, here, front)
        line = bias[0] + min(i + n, count - 1) * bias[1] if bias[0] != 0 else 0
        finish_row_scores(row, (begin, end), (front, whole), s, (line, bias[2]))
        if weight[0] != 0 and begin < end and i + n < count:
            copy_floats(row + begin * 4, weight[0] + (i + n) * weight[1] + (s + begin) * 4, end - begin)
        store_scalar(load_scalar(tops + (i + n) * 4), new_tops + n * 4)
    line, size, mine = scores + front * 4, (whole - front) * 4, sums + i * columns * 4
    row_maxima(line, KEYS * 4, size, new_tops)
    take_exponentials(line, size, new_tops, tops + i * 4, totals + i * SIZE, mine, columns)
    multiply_values(scores, values, front, stop, mine, columns)


@inner
def _attend_block(query, key, value, out, count, widths, seen, head, bias, weight, places):
    """Attention of a block of ``count`` rows of one sentence and head.

    query, key, value, out  (address of the first row, distance of rows)
    widths  of keys and values
    seen    the address of the first row's pair (first key, stop)
    head    (address of its ``vector_factors``, whether queries and keys are to be exponentials)
    bias    (address of the first row, distances of rows, and of keys in floats: 0 or 1); address 0: none
    weight  (address of the first row, distance of rows); address 0: no weights are wanted
    """
    keys, values, _, totals, sums, _, tops, _ = places
    _start(query, count, widths, head[1], places)
    least, last = seen_by_block(seen, count)
    for s in range(least // KEYS * KEYS, last, KEYS):
        here = min(KEYS, last - s)
        pack_keys(key[0] + s * key[1], key[1], here, widths[0], keys)
        pack_values(value[0] + s * value[1], value[1], here, widths[1], values)
        if head[1]:
            exponentiate_keys(keys, here, widths[0])
        for i in range(0, count, ROWS):
            _attend_tile(i, s, here, count, widths, seen, head, bias, weight, places)
    columns = columns_of(widths[1])
    for i in range(count):
        inverse = finish_row(sums + i * columns * 4, totals + i * SIZE, out[0] + i * out[1], widths[1])
        if weight[0] != 0:
            begin, stop = load_integer(seen + i * 16), load_integer(seen + i * 16 + 8)
            shift = softmax_shift(load_scalar(tops + i * 4))
            finish_weights(weight[0] + i * weight[1] + begin * 4, stop - begin, shift, inverse)


@kernel
def _attend(rows, seen_BT2, factors_HE, exponential_BH, bias_BHTS, weights_BHTS, scratch_PN):
    """All blocks, dealt to the parts in turn; see additive_attention."""
    query_BTHD, key_BSGD, value_BSGV, out_BTHV = rows
    B, T, H, D = query_BTHD.shape
    S, G, V = value_BSGV.shape[1:]
    blocks = (T + LIMIT - 1) // LIMIT
    batch, head, row, step = strides(bias_BHTS)
    for part in prange(0, len(scratch_PN)):
        scratch, _, _ = take_part(scratch_PN, part, 0)
        places = _cut(aligned(scratch), D, V)
        for task in range(part, B * H * blocks, len(scratch_PN)):
            b, h, t = task // (H * blocks), task // blocks % H, task % blocks * LIMIT
            g = h // (H // G)
            bias = address(bias_BHTS) + (b * batch + h * head + t * row) * 4 if bias_BHTS.size > 0 else 0
            weight = address(weights_BHTS) + ((b * H + h) * T + t) * S * 4 if weights_BHTS.size > 0 else 0
            _attend_block(
                (address(query_BTHD) + (((b * T + t) * H) + h) * D * 4, H * D * 4),
                (address(key_BSGD) + (b * S * G + g) * D * 4, G * D * 4),
                (address(value_BSGV) + (b * S * G + g) * V * 4, G * V * 4),
                (address(out_BTHV) + ((b * T + t) * H + h) * V * 4, H * V * 4),
                min(LIMIT, T - t), (D, V), address(seen_BT2) + (b * T + t) * 16,
                (address(factors_HE) + h * (D + 1) * 4, exponential_BH[b, h] != 0),
                (bias, row * 4, step), (weight, S * 4), places,
            )  # fmt: skip


_NONE = np.empty((0, 0, 0, 0), np.float32)


def additive_attention(
    query_BTHD: np.ndarray,
    key_BSGD: np.ndarray,
    value_BSGV: np.ndarray,
    vector_HD: np.ndarray,
    *,
    seen_BT2: np.ndarray,
    bias_BHTS: np.ndarray | None = None,
    weights_BHTS: np.ndarray | None = None,
) -> np.ndarray:
    """softmax(v . tanh(q + k) + bias) V of each head: float32 (B, T, H, V); query and key are projected already.

    seen_BT2   int64: query t of sentence b sees keys seen[b, t, 0] <= s < seen[b, t, 1], both from 0 to S.
    bias_BHTS  added; axes of length one are broadcast; -inf hides a key.
    weights_BHTS  written if given: the softmax weights, 0 for a hidden key.
    A query that sees no key yields zeros. Arrays are float32 and C-contiguous; nothing is checked here.
    """
    B, T, H, D = query_BTHD.shape
    V = value_BSGV.shape[3]
    out_BTHV = np.empty((B, T, H, V), np.float32)
    if weights_BHTS is not None:
        weights_BHTS.fill(0)
    scratch_PN = make_scratch_parts(max(B * H * -(-T // LIMIT), 1), _scratch_size(D, V), dtype=np.float32)
    _attend(
        (query_BTHD, key_BSGD, value_BSGV, out_BTHV), seen_BT2, vector_factors(vector_HD),
        (~far_heads(query_BTHD, key_BSGD, seen_BT2)).astype(np.uint8), _NONE if bias_BHTS is None else bias_BHTS,
        _NONE if weights_BHTS is None else weights_BHTS, scratch_PN,
    )  # fmt: skip
    return out_BTHV


def far_heads(query_BTHD: np.ndarray, key_BSGD: np.ndarray, seen_BT2: np.ndarray) -> np.ndarray:
    """[B, H]: whether a head has queries and keys too far from zero for exponentials of both."""
    group = query_BTHD.shape[2] // key_BSGD.shape[2]
    return _far(query_BTHD) & np.repeat(_far(key_BSGD, seen_BT2), group, axis=1)


def _far(x_BNHD: np.ndarray, seen_BT2: np.ndarray | None = None) -> np.ndarray:
    """[B, H]: whether any number of a sentence's head, up to the last key seen, is beyond FAR, or NaN."""
    far_BNH = ~((x_BNHD.max(axis=3, initial=0) <= FAR) & (x_BNHD.min(axis=3, initial=0) >= -FAR))
    if seen_BT2 is not None:
        lasts_B = seen_BT2[:, :, 1].max(axis=1, initial=0)
        far_BNH &= (np.arange(x_BNHD.shape[1]) < lasts_B[:, None])[:, :, None]
    return far_BNH.any(axis=1)
