"""Embedding rows, scaled, plus their positions: one pass over the output."""

import numpy as np
from numba import prange

from fastattn.kernels.jit import kernel
from fastattn.kernels.matmul import PackedLinear
from fastattn.kernels.norm import load_part, store_part
from fastattn.simd.target import LANES
from fastattn.simd.vector import fma, splat

_NO_TABLE, _NO_POSITIONS = np.empty((0, 0), np.float32), np.empty(0, np.int32)


@kernel
def _embed(ids_N, table, panel, scale, positions_N, position_table_PD, x_ND):
    """table: [V / panel, D, panel], read as rows where panel is 1 and down a column of a panel else."""
    N, D = x_ND.shape
    rows, positions, x = table.ctypes.data, position_table_PD.ctypes.data, x_ND.ctypes.data
    has_positions = positions_N.size > 0
    for n in prange(N):
        zero, factor = splat(np.float32(0)), splat(np.float32(scale))
        word = ids_N[n]
        row = rows
        column_array = np.empty(D if panel > 1 else 0, np.float32)
        if word >= 0 and panel > 1:
            for d in range(D):
                column_array[d] = table[word // panel, d, word % panel]
            row = column_array.ctypes.data
        elif word >= 0:
            row = rows + word * D * 4
        for d in range(0, D, LANES):
            value = zero
            if has_positions:
                value = load_part(positions + (positions_N[n] * D + d) * 4, D - d, zero)
            if word >= 0:
                value = fma(load_part(row + d * 4, D - d, zero), factor, value)
            store_part(value, x + (n * D + d) * 4, D - d)


def embed(
    ids_N: np.ndarray,
    table: np.ndarray | PackedLinear,
    scale: float = 1.0,
    positions_N: np.ndarray | None = None,
    position_table_PD: np.ndarray | None = None,
) -> np.ndarray:
    """table[ids] * scale + position_table[positions], float32 [N, D]; the id -1 stands for a row of zeros.

    table           [V, D], or the packed weights of the linear layer that is tied to it: reading a column of those
                    costs microseconds a token, a second copy 4 V D bytes
    ids, positions  int32; the caller has checked that they are inside their tables
    """
    stored = table.panels_PDN if isinstance(table, PackedLinear) else table[:, :, None]
    x_ND = np.empty((len(ids_N), stored.shape[1]), np.float32)
    if position_table_PD is None or positions_N is None:
        positions_N, position_table_PD = _NO_POSITIONS, _NO_TABLE
    _embed(ids_N, stored, stored.shape[2], float(scale), positions_N, position_table_PD, x_ND)
    return x_ND
