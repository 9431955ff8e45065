"""What attention's kernels have in common: where rows lie, what scores are made of, which keys are seen."""

import math
from typing import Any, NamedTuple

import numpy as np
from numba import float32, int32, uint64

from fastattn.arguments.attention import ALL, NONE, SOME
from fastattn.ops.cuda.card import TILE, device
from fastattn.ops.cuda.matmul import nearest_bfloat16

INFINITY = math.inf


class LaidHeads(NamedTuple):
    """Rows of heads in a flat array: column d of row n is at first + b batch + n row + h head + d."""

    array_X: Any
    first: int
    batch: int
    row: int
    head: int


class Broadcast(NamedTuple):
    """An array [B, H, T, S], flat, and its steps, 0 along an axis of length one; empty: there is none."""

    array_X: Any
    batch: int
    head: int
    row: int
    key: int


class Seen(NamedTuple):
    """Which keys the queries see, as ``Visible`` has it; empty arrays for none."""

    seen_N2: Any
    sinks: int
    mask: Broadcast
    states: Broadcast
    block_queries: int
    block_keys: int


class Terms(NamedTuple):
    """What scores are made of; empty arrays for none."""

    scale: Any
    softcap: Any
    bias: Broadcast
    slopes_H: Any
    table_HL: Any
    from_start: int
    sinks_H: Any
    vector_HK: Any


@device
def _float32(number):
    return float32(number)


@device
def _of_bfloat16(bits):
    return np.uint32(np.uint32(bits) << np.uint32(16)).view(np.float32)


@device
def _to_bfloat16(number):
    return nearest_bfloat16(int(np.float32(number).view(np.uint32)))


@device
def same_score(score, b, h, t, s):
    """The score_mod where there is none."""
    return score


@device
def every_key(b, h, t, s):
    """The mask_mod where there is none."""
    return True


def reader(dtype: Any) -> Any:
    """The device function from numbers of arrays to float32: uint16 are the bits of bfloat16."""
    return _of_bfloat16 if np.dtype(dtype) == np.uint16 else _float32


def writer(dtype: Any) -> Any:
    """The device function from float32 to numbers of arrays."""
    return _to_bfloat16 if np.dtype(dtype) == np.uint16 else _float32


@device
def start_of(laid, b, n, h):
    """Where a row's head begins."""
    return laid.first + b * laid.batch + n * laid.row + h * laid.head


@device
def number_of(array, b, h, t, s):
    """What a ``Broadcast`` has there."""
    return array.array_X[uint64(b * array.batch + h * array.head + t * array.row + s * array.key)]


@device
def finished_score(score, terms, score_mod, b, h, t, s, position):
    """The score of query t and key s, from the product; ``position`` is the query's for biases by distance."""
    score = score * terms.scale
    if terms.softcap > float32(0):
        score = terms.softcap * math.tanh(score / terms.softcap)
    score = float32(score_mod(score, b, h, t, s))
    if len(terms.bias.array_X) > 0:
        score += number_of(terms.bias, b, h, t, s)
    if len(terms.slopes_H) > 0:
        score += terms.slopes_H[h] * float32(s if terms.from_start else s - position)
    if len(terms.table_HL) > 0:
        score += terms.table_HL[h, s - position + terms.table_HL.shape[1] // 2]
    return score


@device
def seen_range(seen_N2, n, keys):
    """(first key, stop) of row n; (0, 0) if it sees none."""
    first, stop = int32(0), int32(keys)
    if len(seen_N2) > 0:
        first = int32(min(max(seen_N2[n, 0], 0), keys))
        stop = int32(min(max(seen_N2[n, 1], 0), keys))
    if first >= stop:
        first, stop = int32(0), int32(0)
    return first, stop


@device
def is_shown(seen, mask_mod, b, h, t, s):
    """Whether mask, blocks and function show key s to query t; the function decides where a block is SOME."""
    if len(seen.mask.array_X) > 0 and number_of(seen.mask, b, h, t, s) == 0:
        return False
    state = SOME
    if len(seen.states.array_X) > 0:
        state = number_of(seen.states, b, h, t // seen.block_queries, s // seen.block_keys)
    if state == SOME:
        return True if mask_mod(b, h, t, s) else False
    return state == ALL


@device
def is_hidden(seen, b, h, t, last_t, keys):
    """Whether none of the TILE keys from s on is seen by a query from t to last_t; keys: s, begin and end of all."""
    s, begin, end = keys
    if s >= seen.sinks and s + TILE <= begin:
        return True
    if len(seen.states.array_X) == 0:
        return False
    for i in range(t // seen.block_queries, last_t // seen.block_queries + 1):
        for j in range(s // seen.block_keys, (min(s + TILE, end) - 1) // seen.block_keys + 1):
            if number_of(seen.states, b, h, i, j) != NONE:
                return False
    return True


@device
def shift_of(top):
    """What is subtracted from exponents: a row's greatest score, or 0 where it sees no key."""
    return float32(0) if top == -INFINITY else top
