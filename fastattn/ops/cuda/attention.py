"""Attention over whole sentences: its arguments as kernels take them, and the call of the kernel of attend.py."""

from typing import Any

import numpy as np
from numba import cuda, float32

from fastattn.arguments.attention import Heads, PositionBias, RaggedBatch
from fastattn.ops.cuda import card
from fastattn.ops.cuda.attend import Form, NearRows, Outputs, Rows, make_attend
from fastattn.ops.cuda.card import SIDE, THREADS, TILE, none
from fastattn.ops.cuda.scores import Broadcast, LaidHeads, Seen, Terms

COLUMNS = 1, 2, 4, 8  # how many value columns a thread may have


@card.kernel
def _clear(array_X):
    for x in range(cuda.grid(1), len(array_X), cuda.gridsize(1)):
        array_X[x] = float32(0)


def cleared(array: Any) -> Any:
    """The array of the card, which is zero now."""
    flat_X = flat(array)
    card.launch(_clear, min(-(-len(flat_X) // THREADS), 1 << 16), flat_X)
    return array


def flat(array: Any) -> Any:
    """The array on the card with one axis."""
    array = card.upload(array)
    return array.reshape(array.size)


def laid(array_NE: Any, column: int, width: int) -> LaidHeads:
    """Rows whose heads of a width begin at a column."""
    return LaidHeads(flat(array_NE), column, 0, array_NE.shape[1], width)


def broadcast(array: Any, dtype: Any = np.float32) -> Broadcast:
    """An array [B, H, T, S], or None."""
    if array is None or array.size == 0:
        return Broadcast(none(1, dtype), 0, 0, 0, 0)
    _, h, t, s = array.shape
    steps = (step if size > 1 else 0 for size, step in zip(array.shape, (h * t * s, t * s, s, 1)))
    return Broadcast(flat(array), *steps)


def terms_of(
    heads: Heads,
    bias_BHTS: Any = None,
    position_bias: PositionBias | None = None,
    sinks_H: Any = None,
    vector_HK: Any = None,
) -> Terms:
    """What kernels take."""
    position_bias = position_bias or PositionBias()
    scale = heads.width**-0.5 if heads.scale is None else heads.scale
    if vector_HK is not None:
        scale = 1.0
    slopes_H, table_HL = card.parameter(position_bias.slopes_H), card.parameter(position_bias.table_HL, 2)
    callers = card.optional(sinks_H, 1), card.optional(vector_HK, 2)  # which may have changed since the last call
    numbers = np.float32(scale), np.float32(heads.softcap)
    return Terms(*numbers, broadcast(bias_BHTS), slopes_H, table_HL, int(position_bias.from_start), *callers)


def places_of(query_starts_B1: np.ndarray, key_starts_B1: np.ndarray) -> np.ndarray:
    """places_X6 of ``Rows``."""
    queries_B, keys_B = np.diff(query_starts_B1), np.diff(key_starts_B1)
    tiles_B = -(-queries_B // TILE)
    b_X = np.repeat(np.arange(len(queries_B)), tiles_B)
    first_X = (np.arange(len(b_X)) - (np.cumsum(tiles_B) - tiles_B)[b_X]) * TILE
    columns = b_X, first_X, query_starts_B1[b_X], queries_B[b_X], key_starts_B1[b_X], keys_B[b_X]
    return np.stack(columns, axis=1).astype(np.uint32)


def launch_attend(
    form: Form, rows: Rows, seen: Seen, terms: Terms, distances: NearRows, outputs: Outputs, heads: int
) -> None:
    """The kernel of the form, but with as many value columns for a thread as there are, or the most."""
    columns = next((most for most in COLUMNS if most * SIDE >= rows.value_width), COLUMNS[-1])
    blocks = len(rows.places_X6), heads, -(-rows.value_width // (columns * SIDE))
    card.launch(make_attend(form._replace(columns=columns)), blocks, rows, seen, terms, distances, outputs)


def pack_distances(key_LE: np.ndarray | None, query_LE: np.ndarray | None, heads: Heads) -> NearRows:
    return NearRows(card.optional(key_LE, 2), card.optional(query_LE, 2))


def attention(
    query_NE: np.ndarray,
    key_ME: np.ndarray,
    value_ME: np.ndarray,
    batch: RaggedBatch,
    heads: Heads,
    *,
    bias_BHTS: np.ndarray | None = None,
    position_bias: PositionBias | None = None,
    distances: NearRows | None = None,
    weights_BHTS: np.ndarray | None = None,
) -> np.ndarray:
    H, G, K, V = heads.query_heads, heads.key_heads, heads.width, heads.value_width or heads.width
    out_NF = card.empty((len(query_NE), H * V), np.float32)
    query, key = laid(query_NE, heads.query_column, K), laid(key_ME, heads.key_column, K)
    value, places_X6 = laid(value_ME, heads.value_column, V), card.upload(places_of(*batch[:2]))
    rows = Rows(query, key, value, laid(out_NF, 0, V), places_X6, K, V, H // G)
    every = broadcast(None, np.uint8)
    seen = Seen(card.optional(batch.seen_N2, 2, np.int64), batch.sinks, every, every, 1, 1)
    weights_BHTS = none(4) if weights_BHTS is None else cleared(card.upload(weights_BHTS))
    distances = NearRows(none(2), none(2)) if distances is None else distances
    form = Form(near_keys=len(distances.key_LE) > 0, near_queries=len(distances.query_LE) > 0)
    outputs = Outputs(weights_BHTS, none(1), 0, 0, 0, none(1, np.int32))
    launch_attend(form, rows, seen, terms_of(heads, bias_BHTS, position_bias), distances, outputs, H)
    return out_NF
