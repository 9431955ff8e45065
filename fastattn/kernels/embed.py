"""Embedding rows, scaled, plus their positions: one pass over the output."""

import numpy as np
from numba import prange

from fastattn.kernels.norm import ROW_BLOCK
from fastattn.kernels.packing import NR, PackedLinear
from fastattn.quantized import QuantizedTensor, Tensor
from fastattn.runtime.jit import kernel
from fastattn.simd.rows import prefetch_row_far
from fastattn.simd.target import LANES
from fastattn.simd.vector import fma, load_part, splat, store_part

_NO_TABLE, _NO_POSITIONS = np.empty((0, 0), np.float32), np.empty(0, np.int32)
_NO_MULTIPLIERS = np.empty(0, np.float32)
AHEAD = 4  # rows: words lie anywhere in a table that is larger than all caches


@kernel
def _embed(ids_N, table, as_it_is, multipliers_V, scale, positions_N, position_table_PD, x_ND):
    """table: [V / panel, D / group, panel, group], float32 or int8, read down a column of a panel; both 1: of rows.

    as_it_is  the rows are float32, each in one piece
    """
    D, panel, group, row_bytes = x_ND.shape[1], table.shape[2], table.shape[3], table.strides[0]
    positions, x = position_table_PD.ctypes.data, x_ND.ctypes.data
    has_positions, has_multipliers = positions_N.size > 0, multipliers_V.size > 0
    for block in prange(0, -(-len(ids_N) // ROW_BLOCK)):
        zero, factor = splat(np.float32(0)), splat(np.float32(scale))
        for n in range(block * ROW_BLOCK, min((block + 1) * ROW_BLOCK, len(ids_N))):
            word, source = ids_N[n], x + n * D * 4
            if as_it_is:
                source = table.ctypes.data + word * row_bytes
                following = table.ctypes.data + ids_N[min(n + AHEAD, len(ids_N) - 1)] * row_bytes
                prefetch_row_far(following, D * 4)
            elif word >= 0:
                # multiplied by itself first, as the table would have been, then by the scale
                multiplier = multipliers_V[word] if has_multipliers else np.float32(1)
                column_SG, x_D = table[word // panel, :, word % panel], x_ND[n]
                for d in range(0, D, group):
                    step_G = column_SG[d // group]
                    for g in range(min(group, D - d)):
                        x_D[d + g] = np.float32(step_G[g]) * multiplier
            for d in range(0, D, LANES):
                value, place = zero, x + (n * D + d) * 4
                if has_positions:
                    value = load_part(positions + (positions_N[n] * D + d) * 4, D - d, zero)
                if word >= 0:
                    value = fma(load_part(source + d * 4, D - d, zero), factor, value)
                store_part(value, place, D - d)


def embed(
    ids_N: np.ndarray,
    table: Tensor | PackedLinear,
    scale: float = 1.0,
    positions_N: np.ndarray | None = None,
    position_table_PD: np.ndarray | None = None,
) -> np.ndarray:
    """table[ids] * scale + position_table[positions], float32 [N, D]; the id -1 stands for a row of zeros.

    table           [V, D], or the packed weights, float32 or int8, of the linear layer that is tied to it: reading a
                    column of those costs microseconds a token, a second copy V D numbers
    ids, positions  int32; the caller has checked that they are inside their tables
    """
    multipliers_V = _NO_MULTIPLIERS
    if isinstance(table, PackedLinear):
        panels, steps, _ = table.panels_PSN.shape
        stored = table.panels_PSN.reshape(panels, steps, NR, -1)
        multipliers_V, width = table.factors, table.inputs
    elif isinstance(table, QuantizedTensor):
        stored, multipliers_V, width = table.values_FD[:, :, None, None], table.multipliers_F, table.shape[1]
    else:
        stored, width = table[:, :, None, None], table.shape[1]
    x_ND = np.empty((len(ids_N), width), np.float32)
    if position_table_PD is None or positions_N is None:
        positions_N, position_table_PD = _NO_POSITIONS, _NO_TABLE
    as_it_is = isinstance(table, np.ndarray) and table.dtype == np.float32 and table.strides[1] == 4
    _embed(ids_N, stored, as_it_is, multipliers_V, float(scale), positions_N, position_table_PD, x_ND)
    return x_ND
