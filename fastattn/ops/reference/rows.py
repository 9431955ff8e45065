"""Operations on whole rows: embeddings, rotary positions, pooling, plain arithmetic; the host's memory and threads."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np

from fastattn.ops.reference.matmul import ReferenceLinear
from fastattn.spec.quantized import QuantizedTensor
from fastattn.system.cpus import usable_cpus


def free_memory() -> int | None:
    """None: rows lie in the host's memory."""
    return None


def use_threads(count: int) -> AbstractContextManager[None]:
    """Does nothing: NumPy chooses the threads of its matrix products."""
    return nullcontext()


def current_threads() -> int:
    """1: only NumPy's matrix products use more threads."""
    return 1


def thread_limit() -> int:
    """The number of threads that this process may use."""
    return usable_cpus().threads


def empty(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array of NaN, which reveals values that are read before they are written."""
    return np.full(shape, np.nan, dtype)


def as_rows(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x)


def take_rows(x_ND: np.ndarray, rows_R: np.ndarray) -> np.ndarray:
    return np.take(x_ND, rows_R, axis=0)


def concatenate_rows(parts: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate(parts)


def add_rows(x_ND: np.ndarray, y_ND: np.ndarray) -> np.ndarray:
    return np.add(x_ND, y_ND)


def scale_rows(x_ND: np.ndarray, factor: float) -> np.ndarray:
    return np.multiply(x_ND, factor, dtype=x_ND.dtype)


def average_heads(weights: np.ndarray, heads: int) -> np.ndarray:
    return sum(weights[:, h] for h in range(heads)) / weights.dtype.type(heads)


def neighbours(x_ND: np.ndarray, starts_B1: np.ndarray, before: int, after: int) -> np.ndarray:
    parts = [np.empty((0, (before + 1 + after) * x_ND.shape[1]), x_ND.dtype)]
    for start, end in zip(starts_B1, starts_B1[1:]):
        padded_MD = np.pad(x_ND[start:end], ((before, after), (0, 0)))
        parts.append(np.concatenate([padded_MD[m : m + end - start] for m in range(before + 1 + after)], axis=1))
    return np.concatenate(parts)


def embed(
    ids_N: np.ndarray,
    table: np.ndarray | QuantizedTensor | ReferenceLinear,
    scale: float = 1.0,
    positions_N: np.ndarray | None = None,
    position_table_PD: np.ndarray | None = None,
) -> np.ndarray:
    if isinstance(table, QuantizedTensor):
        x_ND = QuantizedTensor(table.values_FD[ids_N], table.multipliers_F[ids_N]).float32()
    else:
        x_ND = (table.weight_FD if isinstance(table, ReferenceLinear) else table)[ids_N]
    x_ND[ids_N < 0] = 0
    if scale != 1.0:
        x_ND *= scale
    if position_table_PD is not None:
        x_ND += position_table_PD[positions_N]
    return x_ND


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
    half = cos_PK2.shape[1]
    heads_NHK = x_NE[:, column : column + heads * head_width].reshape(len(x_NE), heads, head_width)
    if interleaved:
        first_NHP, second_NHP = heads_NHK[..., 0 : 2 * half : 2], heads_NHK[..., 1 : 2 * half : 2]
    else:
        first_NHP, second_NHP = heads_NHK[..., :half], heads_NHK[..., half : 2 * half]
    cos_N1P, sin_N1P = cos_PK2[positions_N, None], sin_PK2[positions_N, None]
    turned_NHP = first_NHP * cos_N1P - second_NHP * sin_N1P
    second_NHP[...] = second_NHP * cos_N1P + first_NHP * sin_N1P
    first_NHP[...] = turned_NHP


# By pooling mode: a function of T, the rows of a sentence, and S, those that are skipped, to weights of T - S rows.
_POOLING_WEIGHTS: dict[str, Callable[[int, int], np.ndarray]] = {
    "cls": lambda T, S: np.arange(S, T) == S,
    "mean": lambda T, S: np.full(T - S, 1 / (T - S)),
    "mean_sqrt_len": lambda T, S: np.full(T - S, 1 / np.sqrt(T - S)),
    "mean_sqrt_len_tokens": lambda T, S: np.full(T - S, 1 / np.sqrt(T - S)),
    "weightedmean": lambda T, S: np.arange(S + 1, T + 1) / np.arange(S + 1, T + 1).sum(),
    "lasttoken": lambda T, S: np.arange(S, T) == T - 1,
}


def pool(rows_ND: np.ndarray, starts_B1: np.ndarray, modes: Sequence[str], skip: int = 0) -> np.ndarray:
    pooled_BMD = np.zeros((len(starts_B1) - 1, len(modes), rows_ND.shape[1]), rows_ND.dtype)
    for b, m in np.ndindex(pooled_BMD.shape[:2]):
        rows_TD = rows_ND[starts_B1[b] : starts_B1[b + 1]]
        if len(rows_TD) > skip and modes[m] == "max":
            pooled_BMD[b, m] = rows_TD[skip:].max(axis=0)
        elif len(rows_TD) > skip:
            pooled_BMD[b, m] = _POOLING_WEIGHTS[modes[m]](len(rows_TD), skip).astype(rows_ND.dtype) @ rows_TD[skip:]
    return pooled_BMD.reshape(len(pooled_BMD), len(modes) * rows_ND.shape[1])
