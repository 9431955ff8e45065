"""Embedding rows, scaled, plus their positions."""

import numpy as np

from fastattn.ops.reference.packing import ReferenceLinear
from fastattn.spec.quantized import QuantizedTensor, Tensor


def embed(
    ids_N: np.ndarray,
    table: Tensor | ReferenceLinear,
    scale: float = 1.0,
    positions_N: np.ndarray | None = None,
    position_table_PD: np.ndarray | None = None,
) -> np.ndarray:
    """table[ids] * scale + position_table[positions]; the id -1 gives a row of zeros.

    table  [V, D], or the linear layer that shares its weights.
    """
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
