"""Embedding rows, scaled, plus their positions: one pass over the output."""

import numpy as np
from numba import prange

from fastattn.kernels.jit import kernel
from fastattn.kernels.norm import load_part, store_part
from fastattn.simd.target import LANES
from fastattn.simd.vector import fma, splat

_NO_TABLE, _NO_POSITIONS = np.empty((0, 0), np.float32), np.empty(0, np.int32)


@kernel
def _embed(ids_N, table_VD, scale, positions_N, position_table_PD, x_ND):
    N, D = x_ND.shape
    table, positions, x = table_VD.ctypes.data, position_table_PD.ctypes.data, x_ND.ctypes.data
    has_positions = positions_N.size > 0
    for n in prange(N):
        zero, factor = splat(np.float32(0)), splat(np.float32(scale))
        for d in range(0, D, LANES):
            value = zero
            if has_positions:
                value = load_part(positions + (positions_N[n] * D + d) * 4, D - d, zero)
            if ids_N[n] >= 0:
                value = fma(load_part(table + (ids_N[n] * D + d) * 4, D - d, zero), factor, value)
            store_part(value, x + (n * D + d) * 4, D - d)


def embed(
    ids_N: np.ndarray,
    table_VD: np.ndarray,
    scale: float = 1.0,
    positions_N: np.ndarray | None = None,
    position_table_PD: np.ndarray | None = None,
) -> np.ndarray:
    """table[ids] * scale + position_table[positions], float32 [N, D]; the id -1 stands for a row of zeros.

    ids, positions  int32; the caller has checked that they are inside their tables.
    """
    x_ND = np.empty((len(ids_N), table_VD.shape[1]), np.float32)
    if position_table_PD is None:
        _embed(ids_N, table_VD, float(scale), _NO_POSITIONS, _NO_TABLE, x_ND)
    else:
        _embed(ids_N, table_VD, float(scale), positions_N, position_table_PD, x_ND)
    return x_ND
