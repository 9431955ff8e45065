"""Operations on whole rows: embeddings, rotary positions, pooling, and what NumPy computes as fast as a kernel.

``POOLINGS`` are those of sentence-transformers (Reimers and Gurevych 2019, section 3). Each takes rows_TD and ``skip``,
the number of first rows (of a prompt) to leave out, and returns a vector of D.
"""

from collections.abc import Callable, Sequence

import numpy as np

from fastattn.kernels.arguments import NR
from fastattn.ops.cpu.absent import NO_FLOATS, NO_INTS
from fastattn.ops.cpu.matmul import PackedLinear, grouped_parts
from fastattn.runtime import arena
from fastattn.runtime.handle import kernel_named
from fastattn.runtime.recording import unrecordable
from fastattn.spec.quantized import QuantizedTensor


def free_memory() -> int | None:
    """None: rows lie in the host's memory."""
    return None


def empty(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    return np.empty(shape, dtype)


def as_rows(x: np.ndarray) -> np.ndarray:
    return np.require(x, requirements=["C", "A"])


def take_rows(x_ND: np.ndarray, rows_R: np.ndarray) -> np.ndarray:
    if arena.state.program is not None and len(rows_R) == 1:
        return x_ND[rows_R[0] :][:1]
    unrecordable()
    return x_ND[rows_R]


def concatenate_rows(parts: Sequence[np.ndarray]) -> np.ndarray:
    first_ND, *other_parts = parts
    if not other_parts:
        return first_ND
    unrecordable()
    return np.concatenate(parts)


_add = kernel_named("rows", "_add")


def add_rows(x_ND: np.ndarray, y_ND: np.ndarray) -> np.ndarray:
    z_ND = arena.empty(x_ND.shape)
    _add(x_ND, y_ND, z_ND)
    return z_ND


def scale_rows(x_ND: np.ndarray, factor: float) -> np.ndarray:
    unrecordable()
    return x_ND * x_ND.dtype.type(factor)


def average_heads(weights: np.ndarray, heads: int) -> np.ndarray:
    unrecordable()
    return weights[:, :heads].mean(axis=1)


def neighbours(x_ND: np.ndarray, starts_B1: np.ndarray, before: int, after: int) -> np.ndarray:
    unrecordable()
    N, D = x_ND.shape
    window_NMD = np.zeros((N, before + 1 + after, D), x_ND.dtype)
    for m, distance in enumerate(range(-before, after + 1)):
        if abs(distance) < N:
            window_NMD[max(-distance, 0) : N - max(distance, 0), m] = x_ND[max(distance, 0) : N + min(distance, 0)]
    position_N = np.arange(N) - np.repeat(starts_B1[:-1], np.diff(starts_B1))
    lengths_N = np.repeat(np.diff(starts_B1), np.diff(starts_B1))
    neighbours_NM = position_N[:, None] + np.arange(-before, after + 1)
    window_NMD[(neighbours_NM < 0) | (neighbours_NM >= lengths_N[:, None])] = 0
    return window_NMD.reshape(N, (before + 1 + after) * D)


_embed = kernel_named("rows", "_embed")
_NO_SCALES = np.empty((0, 0, 0), np.int16)


def embed(
    ids_N: np.ndarray,
    table: np.ndarray | QuantizedTensor | PackedLinear,
    scale: float = 1.0,
    positions_N: np.ndarray | None = None,
    position_table_PD: np.ndarray | None = None,
) -> np.ndarray:
    multipliers_V, scales_PGN = NO_FLOATS[1], _NO_SCALES
    if isinstance(table, PackedLinear) and table.panels_PSN.dtype == np.int16:
        stored, scales_PGN, width = *grouped_parts(table.panels_PSN), table.inputs
    elif isinstance(table, PackedLinear):
        panels, steps, _ = table.panels_PSN.shape
        stored = table.panels_PSN.reshape(panels, steps, NR, -1)
        multipliers_V, width = table.factors, table.inputs
    elif isinstance(table, QuantizedTensor):
        stored, multipliers_V, width = table.values_FD[:, :, None, None], table.multipliers_F, table.shape[1]
    else:
        stored, width = table[:, :, None, None], table.shape[1]
    x_ND = arena.empty((len(ids_N), width))
    if position_table_PD is None or positions_N is None:
        positions_N, position_table_PD = NO_INTS, NO_FLOATS[2]
    is_plain = isinstance(table, np.ndarray) and table.dtype == np.float32 and table.strides[1] == 4
    _embed(ids_N, stored, is_plain, multipliers_V, scales_PGN, float(scale), positions_N, position_table_PD, x_ND)
    return x_ND


turn_halves, turn_neighbours = kernel_named("rows", "turn_halves"), kernel_named("rows", "turn_neighbours")


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
    turn = turn_neighbours if interleaved else turn_halves
    turn(x_NE, positions_N, cos_PK2, sin_PK2, column, heads, head_width)


def _mean_sqrt_len(rows_TD: np.ndarray, skip: int) -> np.ndarray:
    return rows_TD[skip:].sum(axis=0) / rows_TD.dtype.type(np.sqrt(len(rows_TD) - skip))


def _weighted_mean(rows_TD: np.ndarray, skip: int) -> np.ndarray:
    # Muennighoff 2022, equation 2: a row's weight is its position in the sentence, the prompt's rows included.
    weights_T = np.arange(skip + 1, len(rows_TD) + 1).astype(rows_TD.dtype)
    return (rows_TD[skip:] * weights_T[:, None]).sum(axis=0) / weights_T.sum()


POOLINGS: dict[str, Callable[[np.ndarray, int], np.ndarray]] = {
    "cls": lambda rows_TD, skip: rows_TD[skip],
    "max": lambda rows_TD, skip: rows_TD[skip:].max(axis=0),
    "mean": lambda rows_TD, skip: rows_TD[skip:].mean(axis=0),
    "mean_sqrt_len": _mean_sqrt_len,
    "mean_sqrt_len_tokens": _mean_sqrt_len,  # the name in sentence-transformers' files
    "weightedmean": _weighted_mean,
    "lasttoken": lambda rows_TD, skip: rows_TD[-1],
}


def pool(rows_ND: np.ndarray, starts_B1: np.ndarray, modes: Sequence[str], skip: int = 0) -> np.ndarray:
    width = rows_ND.shape[1]
    pooled_BE = np.zeros((len(starts_B1) - 1, width * len(modes)), rows_ND.dtype)
    for b in range(len(pooled_BE)):
        rows_TD = rows_ND[starts_B1[b] : starts_B1[b + 1]]
        if len(rows_TD) > skip:
            for m, mode in enumerate(modes):
                pooled_BE[b, m * width : (m + 1) * width] = POOLINGS[mode](rows_TD, skip)
    return pooled_BE
