"""Positions: vectors to add to or concatenate with the inputs, rotations of queries and keys, biases of scores."""

import math
from typing import Any

import numpy as np

from fastattn.errors import InputError, check_bool, check_count
from fastattn.layers.attention import alibi_slopes as slopes_of
from fastattn.layers.attention import relative_buckets
from fastattn.mechanisms.arrays import check_float32, check_integers, check_number, shape_of
from fastattn.ops import backend

MAX_POSITIONS, MAX_HEADS, MAX_WIDTH, MAX_NUMBERS = 1 << 24, 1 << 16, 1 << 20, 1 << 32


def _checked_integers(positions: Any, low: int = 0) -> np.ndarray:
    """Positions as int64 [P]: 0, 1, ... if ``positions`` is a count, else the integers themselves."""
    shape = shape_of("positions", positions)
    if shape == ():
        return np.arange(int(check_integers("positions", positions, (), 0, MAX_POSITIONS)))
    if len(shape) != 1:
        raise InputError(f"positions: expected a count or one axis of them, got shape {shape}")
    return check_integers("positions", positions, shape, low, 1 << 40)


def _angles(positions: np.ndarray, width: int, base: float) -> np.ndarray:
    """[P, width / 2]: position times base**(-2 i / width), float64."""
    return positions[:, None] * check_number("base", base, 1e-30) ** (-np.arange(0, width, 2) / width)


def _even_width(name: str, width: Any) -> int:
    width = check_count(name, width)
    if width % 2 or width > MAX_WIDTH:
        raise InputError(f"{name}: expected an even number of at most {MAX_WIDTH}, got {width}")
    return width


def sinusoids(positions: Any, width: int, *, interleaved: bool = True, base: float = 10000.0) -> np.ndarray:
    """Sinusoidal positions (Vaswani 2017, section 3.5): float32 (P, width).

    positions    a count, for positions from 0 on, or integers [P]
    interleaved  sine and cosine of a frequency side by side, as in the paper; else all sines, then all cosines, as in
                 the authors' code
    """
    width, positions_P = _even_width("width", width), _checked_integers(positions, -(1 << 40))
    if len(positions_P) * width > MAX_NUMBERS:
        raise InputError(f"positions: expected at most 2**32 numbers, got {len(positions_P)} times {width}")
    angle_PK = _angles(positions_P, width, base)
    sines_and_cosines = np.sin(angle_PK), np.cos(angle_PK)
    if check_bool("interleaved", interleaved):
        return np.stack(sines_and_cosines, axis=-1).reshape(len(angle_PK), 2 * angle_PK.shape[1]).astype(np.float32)
    return np.concatenate(sines_and_cosines, axis=-1).astype(np.float32)


def learned(table: np.ndarray, positions: Any) -> np.ndarray:
    """Rows of a learned table (L, D): the first ``positions`` rows, or the rows that integers [P] name."""
    table = check_float32("table", table, "(L, D)")
    positions_P = _checked_integers(positions)
    if len(positions_P) and int(positions_P.max()) >= len(table):
        raise InputError(f"positions: expected 0 to {len(table) - 1}, the table's, got {int(positions_P.max())}")
    return table[positions_P]


def add_positions(x: np.ndarray, positions_TD: np.ndarray) -> np.ndarray:
    """x (B, T, D) plus a vector for each position, (T, D)."""
    x, positions_TD = _checked_vectors(x, positions_TD)
    if x.shape[2] != positions_TD.shape[1]:
        raise InputError(f"positions: expected a width of {x.shape[2]} as x has, got {positions_TD.shape[1]}")
    return x + positions_TD


def concatenate_positions(x: np.ndarray, positions_TE: np.ndarray) -> np.ndarray:
    """x (B, T, D), each position followed by its vector (T, E): (B, T, D + E)."""
    x, positions_TE = _checked_vectors(x, positions_TE)
    return np.concatenate([x, np.broadcast_to(positions_TE, (len(x), *positions_TE.shape))], axis=2)


def _checked_vectors(x: np.ndarray, positions_TD: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    x, positions_TD = check_float32("x", x, "(B, T, D)"), check_float32("positions", positions_TD, "(T, D)")
    if x.shape[1] != len(positions_TD):
        raise InputError(f"positions: expected {x.shape[1]}, one for each of x's, got {len(positions_TD)}")
    return x, positions_TD


def rotary(
    x: np.ndarray,
    positions: Any = None,
    *,
    width: int | None = None,
    interleaved: bool = False,
    base: float = 10000.0,
    device: str = "cpu",
) -> np.ndarray:
    """Queries or keys (B, T, H, K), or (B, T, K), with pairs of values rotated by the position's angles (Su 2021).

    positions    integers [T]; None: 0, 1, ...
    width        how many first values of a head are rotated, an even number; None: all K
    interleaved  adjacent values are a pair, as in the paper; else values k and k + width / 2, as in GPT-NeoX and Llama
    """
    x = check_float32("x", x, "(B, T, K)", "(B, T, H, K)")
    B, T, K = x.shape[0], x.shape[1], x.shape[-1]
    rotated_width = _even_width("width", K if width is None else width)
    if rotated_width > K:
        raise InputError(f"width: expected at most {K}, the head's width, got {rotated_width}")
    positions_T = np.arange(T) if positions is None else _checked_integers(positions, -(1 << 40))
    if len(positions_T) != T:
        raise InputError(f"positions: expected {T}, one for each of x's, got {len(positions_T)}")
    angle_TK = _angles(positions_T, rotated_width, base)
    ops = backend(device)
    rows_NE = ops.as_rows(x.reshape(B * T, math.prod(x.shape[2:])).copy())
    table_rows_N = np.tile(np.arange(T, dtype=np.int32), B)
    tables = np.cos(angle_TK).astype(np.float32), np.sin(angle_TK).astype(np.float32)
    ops.rotate(rows_NE, table_rows_N, *tables, 0, rows_NE.shape[1] // K, K, check_bool("interleaved", interleaved))
    return np.asarray(rows_NE).reshape(x.shape)


def alibi_slopes(heads: int) -> np.ndarray:
    """ALiBi's slopes for any number of heads (Press 2022, section 3): float32 (H,)."""
    heads = check_count("heads", heads)
    if heads > MAX_HEADS:
        raise InputError(f"heads: expected at most {MAX_HEADS}, got {heads}")
    return slopes_of(heads).astype(np.float32)


def alibi_bias(heads: int, queries: int, keys: int, *, offset: int = 0, symmetric: bool = False) -> np.ndarray:
    """ALiBi (Press 2022): slope[h] (s - t - offset), a bias of scores, float32 (H, T, S).

    symmetric  -slope[h] |s - t - offset| instead, for keys on both sides
    """
    slopes_H, distance_L = alibi_slopes(heads), _distances(heads, queries, keys, offset)
    if check_bool("symmetric", symmetric):
        distance_L = -np.abs(distance_L)
    return _bias_at_distances(slopes_H[:, None] * distance_L.astype(np.float32), int(queries), int(keys))


def t5_bias(
    table: np.ndarray, queries: int, keys: int, *, bidirectional: bool = True, max_distance: int = 128, offset: int = 0
) -> np.ndarray:
    """T5's relative positions (Raffel 2020, section 2.1): a bias of scores, float32 (H, T, S).

    table          learned, (buckets, H): half of the buckets are for one distance each, all others grow wider and wider
    bidirectional  whether half of the buckets are for later keys
    max_distance   keys at this distance or farther are in the last bucket
    """
    table = check_float32("table", table, "(buckets, H)")
    least_buckets = 4 if check_bool("bidirectional", bidirectional) else 2
    buckets, exact_buckets = len(table), len(table) // least_buckets
    max_distance = check_count("max_distance", max_distance)
    if exact_buckets < 1 or max_distance <= exact_buckets:
        expected = f"{least_buckets} buckets or more, fewer exact ones than {max_distance}"
        raise InputError(f"table: expected {expected}, got {buckets}")
    distance_L = _distances(table.shape[1], queries, keys, offset)
    bucket_L = relative_buckets(distance_L, buckets, max_distance, bidirectional)
    return _bias_at_distances(np.ascontiguousarray(table[bucket_L].T), int(queries), int(keys))


def _distances(heads: int, queries: Any, keys: Any, offset: Any) -> np.ndarray:
    """All distances s - t - offset of a key from a query, ascending: from the last query and the first key on.

    InputError where a bias for so many heads, queries and keys is too large.
    """
    sizes = {"queries": queries, "keys": keys}
    T, S = (int(check_integers(name, count, (), 0, MAX_POSITIONS)) for name, count in sizes.items())
    if heads * max(T * S, T + S) > MAX_NUMBERS:
        raise InputError(f"queries: expected at most 2**32 numbers, got {heads} heads, {T} queries and {S} keys")
    return np.arange(1 - T, max(S, 1)) - int(check_integers("offset", offset, (), -(1 << 40), 1 << 40))


def _bias_at_distances(bias_HL: np.ndarray, queries: int, keys: int) -> np.ndarray:
    """The bias (H, T, S) whose value at each of ``_distances`` is in ``bias_HL``: a query's row is a window of it."""
    if queries == 0 or keys == 0:
        return np.empty((len(bias_HL), queries, keys), np.float32)
    windows_HTS = np.lib.stride_tricks.sliding_window_view(bias_HL, keys, axis=1)[:, ::-1]
    return np.ascontiguousarray(windows_HTS)
