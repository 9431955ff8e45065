"""Embedding rows, scaled, plus their positions."""

import numpy as np

from fastattn.kernels.constants import NR
from fastattn.ops.cpu.packing import PackedLinear
from fastattn.runtime.arena import empty
from fastattn.runtime.handle import kernel_named
from fastattn.spec.quantized import QuantizedTensor, Tensor

_embed = kernel_named("embed", "_embed")

_NO_TABLE, _NO_POSITIONS = np.empty((0, 0), np.float32), np.empty(0, np.int32)
_NO_MULTIPLIERS = np.empty(0, np.float32)


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
    x_ND = empty((len(ids_N), width))
    if position_table_PD is None or positions_N is None:
        positions_N, position_table_PD = _NO_POSITIONS, _NO_TABLE
    as_it_is = isinstance(table, np.ndarray) and table.dtype == np.float32 and table.strides[1] == 4
    _embed(ids_N, stored, as_it_is, multipliers_V, float(scale), positions_N, position_table_PD, x_ND)
    return x_ND
