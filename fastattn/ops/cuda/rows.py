"""Operations on whole rows, a block a row: copies, sums, neighbours, embeddings, rotary positions, pooling."""

from collections.abc import Callable, Sequence
from functools import cache, wraps
from typing import Any

import numpy as np
from numba import cuda, float32

from fastattn.errors import InputError
from fastattn.ops import reference
from fastattn.ops.cuda import card
from fastattn.ops.cuda.card import THREADS, device
from fastattn.ops.cuda.matmul import CardLinear, nearest_bfloat16
from fastattn.spec.quantized import QuantizedTensor


@cache
def _copy(rounds: bool) -> Any:
    """The kernel that copies numbers, or rounds the bits of float32 to the nearest bfloat16."""
    convert = nearest_bfloat16 if rounds else device(lambda x: x)

    @card.kernel_of(rounds)
    def copy(x_ND, sources_R, first_column, y_ND, targets_R, first):
        """Copy row sources[r] of x (-1: zeros) to row targets[r] of y; without these lists, row r to row first + r."""
        r = cuda.blockIdx.x
        source = sources_R[r] if len(sources_R) > 0 else r
        target = targets_R[r] if len(targets_R) > 0 else first + r
        for d in range(cuda.threadIdx.x, x_ND.shape[1] - first_column, THREADS):
            if source >= 0:
                y_ND[target, d] = convert(x_ND[source, first_column + d])
            else:
                y_ND[target, d] = 0

    return copy


def copy_rows(x_ND: np.ndarray, rows_R: np.ndarray | None, y_ND: np.ndarray, first: int = 0) -> None:
    """Copy the rows ``rows_R`` of x, or for None all rows, to the rows of y from ``first`` on."""
    count, sources_R = len(x_ND) if rows_R is None else len(rows_R), card.optional(rows_R, 1, np.int64)
    card.launch(_copy(False), count, card.upload(x_ND), sources_R, 0, y_ND, card.no_array(1, np.int64), first)


def write_rows(
    table_ME: np.ndarray, rows_N: np.ndarray, values_NE: np.ndarray, first_column: int, head_width: int = 0
) -> None:
    table_ME, values_NE, rounds = card.upload(table_ME), card.upload(values_NE), table_ME.dtype == np.uint16
    if rounds:
        values_NE = values_NE.view(np.uint32)
    elif table_ME.dtype == np.int16:
        table_ME = table_ME.view(np.float16)  # the kernel's store rounds
    arguments = values_NE, card.no_array(1, np.int64), first_column, table_ME, card.upload(rows_N), 0
    card.launch(_copy(rounds), len(values_NE), *arguments)


def take_rows(x_ND: np.ndarray, rows_R: np.ndarray) -> np.ndarray:
    y_RD = card.empty((len(rows_R), x_ND.shape[1]), x_ND.dtype)
    copy_rows(x_ND, rows_R, y_RD)
    return y_RD


def concatenate_rows(parts: Sequence[np.ndarray]) -> np.ndarray:
    first_ND, *other_parts = parts
    if not other_parts:
        return first_ND
    starts = np.cumsum([0, *map(len, parts)])
    y_ND = card.empty((int(starts[-1]), first_ND.shape[1]), first_ND.dtype)
    for start, part in zip(starts, parts):
        copy_rows(part, None, y_ND, int(start))
    return y_ND


@card.kernel
def _add_scaled(x_ND, factor, addend_ND, y_ND):
    n, t = cuda.blockIdx.x, cuda.threadIdx.x
    for d in range(t, x_ND.shape[1], THREADS):
        value = x_ND[n, d] * factor
        if len(addend_ND) > 0:
            value += addend_ND[n, d]
        y_ND[n, d] = value


def add_rows(x_ND: np.ndarray, y_ND: np.ndarray) -> np.ndarray:
    sum_ND = card.empty(x_ND.shape, np.float32)
    card.launch(_add_scaled, len(x_ND), card.upload(x_ND), np.float32(1), card.upload(y_ND), sum_ND)
    return sum_ND


def scale_rows(x_ND: np.ndarray, factor: float) -> np.ndarray:
    y_ND = card.empty(x_ND.shape, np.float32)
    card.launch(_add_scaled, len(x_ND), card.upload(x_ND), np.float32(factor), card.no_array(2), y_ND)
    return y_ND


def neighbours(x_ND: np.ndarray, starts_B1: np.ndarray, before: int, after: int) -> np.ndarray:
    sources_NM = np.arange(len(x_ND))[:, None] + np.arange(-before, after + 1)
    firsts_N1, stops_N1 = (np.repeat(ends_B, np.diff(starts_B1))[:, None] for ends_B in (starts_B1[:-1], starts_B1[1:]))
    sources_NM[(sources_NM < firsts_N1) | (sources_NM >= stops_N1)] = -1
    return take_rows(x_ND, sources_NM.reshape(-1)).reshape(len(x_ND), (before + 1 + after) * x_ND.shape[1])


@card.kernel
def _embed(ids_N, table_VD, multipliers_V, scale, positions_N, position_table_PD, x_ND):
    n, t = cuda.blockIdx.x, cuda.threadIdx.x
    token = ids_N[n]
    for d in range(t, x_ND.shape[1], THREADS):
        value = float32(0)
        if token >= 0:
            value = float32(table_VD[token, d])
            if len(multipliers_V) > 0:
                value *= multipliers_V[token]
            value *= scale
        if len(position_table_PD) > 0:
            value += position_table_PD[positions_N[n], d]
        x_ND[n, d] = value


def embed(
    ids_N: np.ndarray,
    table: Any,
    scale: float = 1.0,
    positions_N: np.ndarray | None = None,
    position_table_PD: np.ndarray | None = None,
) -> np.ndarray:
    if isinstance(table, CardLinear):
        table_VD, multipliers_V, width = table.stored_FE, table.weights.factors_F, table.inputs
    elif isinstance(table, QuantizedTensor):
        table_VD, multipliers_V, width = table.values_FD, table.multipliers_F, table.shape[1]
    else:
        table_VD, multipliers_V, width = table, None, table.shape[1]
    x_ND = card.empty((len(ids_N), width), np.float32)
    tables = card.parameter(table_VD), card.parameter(multipliers_V)
    positions = card.optional(positions_N, 1, np.int32), card.parameter(position_table_PD, 2)
    card.launch(_embed, len(ids_N), card.upload(ids_N), *tables, np.float32(scale), *positions, x_ND)
    return x_ND


@card.kernel
def _rotate(x_NE, positions_N, cos_PK2, sin_PK2, column, heads, head_width, interleaved):
    """A block turns a row; a thread turns every THREADS-th pair of values of all heads."""
    n, t = cuda.blockIdx.x, cuda.threadIdx.x
    p, half = positions_N[n], cos_PK2.shape[1]
    for pair in range(t, heads * half, THREADS):
        h, k = pair // half, pair % half
        first = column + h * head_width + (2 * k if interleaved else k)
        second = first + (1 if interleaved else half)
        a, b = x_NE[n, first], x_NE[n, second]
        x_NE[n, first] = a * cos_PK2[p, k] - b * sin_PK2[p, k]
        x_NE[n, second] = b * cos_PK2[p, k] + a * sin_PK2[p, k]


def rotate(
    x_NE: np.ndarray,
    positions_N: np.ndarray,
    cos_PK2: np.ndarray,
    sin_PK2: np.ndarray,
    column: int,
    heads: int,
    head_width: int,
    interleaved: bool,
) -> None:
    arrays = card.upload(x_NE), card.upload(positions_N), card.parameter(cos_PK2), card.parameter(sin_PK2)
    card.launch(_rotate, len(x_NE), *arrays, column, heads, head_width, interleaved)


EQUAL, BY_POSITION, GREATEST = range(3)  # weights of rows in a pooling; GREATEST: maxima instead of sums


@card.kernel
def _pool(rows_ND, spans_B3, divisors_B, weighing, column, pooled_BE):
    """A thread pools a column. spans_B3: the first pooled row, the stop, and the sentence's first row."""
    b, t = cuda.blockIdx.x, cuda.threadIdx.x
    first, stop = spans_B3[b, 0], spans_B3[b, 1]
    for d in range(t, rows_ND.shape[1], THREADS):
        total = rows_ND[first, d] if weighing == GREATEST and first < stop else float32(0)
        for n in range(first, stop):
            value = rows_ND[n, d]
            if weighing != GREATEST:
                total += value * float32(n - spans_B3[b, 2] + 1) if weighing == BY_POSITION else value
            elif value > total or value != value:  # NaN stays
                total = value
        pooled_BE[b, column + d] = total / divisors_B[b]


def pool(rows_ND: np.ndarray, starts_B1: np.ndarray, modes: Sequence[str], skip: int = 0) -> np.ndarray:
    starts_B, ends_B, width = starts_B1[:-1], starts_B1[1:], rows_ND.shape[1]
    firsts_B = np.minimum(starts_B + skip, ends_B)
    counts_B = np.maximum(ends_B - firsts_B, 1)
    roots_B, ones_B = np.sqrt(counts_B), np.ones(len(starts_B))
    weights_B = counts_B * (counts_B + 2 * skip + 1) / 2  # the sum of skip + 1 to skip + counts
    poolings = {
        "cls": (firsts_B, np.minimum(firsts_B + 1, ends_B), EQUAL, ones_B),
        "max": (firsts_B, ends_B, GREATEST, ones_B),
        "mean": (firsts_B, ends_B, EQUAL, counts_B),
        "mean_sqrt_len": (firsts_B, ends_B, EQUAL, roots_B),
        "mean_sqrt_len_tokens": (firsts_B, ends_B, EQUAL, roots_B),
        "weightedmean": (firsts_B, ends_B, BY_POSITION, weights_B),
        "lasttoken": (np.maximum(ends_B - 1, firsts_B), ends_B, EQUAL, ones_B),
    }
    rows_ND = card.upload(rows_ND)
    pooled_BE = card.empty((len(starts_B), width * len(modes)), np.float32)
    for m, mode in enumerate(modes):
        begins_B, stops_B, weighing, divisors_B = poolings[mode]
        spans_B3 = card.upload(np.stack([begins_B, stops_B, starts_B], axis=1))
        divisors_B = card.upload(divisors_B.astype(np.float32))
        card.launch(_pool, len(starts_B), rows_ND, spans_B3, divisors_B, weighing, m * width, pooled_BE)
    return pooled_BE


def _refusal(operation: Callable) -> Callable:
    """A function in place of an operation on images, which only the CPU has; it raises InputError."""

    @wraps(operation)
    def refuse(*_: Any, **__: Any) -> None:
        raise InputError('images are computed on device "cpu" alone')

    return refuse


convolve, convolve_depthwise = _refusal(reference.convolve), _refusal(reference.convolve_depthwise)
pool_windows, pool_areas = _refusal(reference.pool_windows), _refusal(reference.pool_areas)
sample_pixels, gate_pixels = _refusal(reference.sample_pixels), _refusal(reference.gate_pixels)
