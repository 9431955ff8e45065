"""Linear weights in the layout of the products: panels of NR columns, converted and transposed in one pass.

A panel takes NR rows of weights by blocks of COLUMNS: the block is converted to float32 into a scratch in L1 and
transposed from there, so that a quantised weight never exists as float32 anywhere but in its panel.
"""

import numpy as np
from numba import prange

from fastattn.kernels.jit import kernel
from fastattn.simd.rows import transpose
from fastattn.simd.target import LANES, TARGET
from fastattn.spec import QuantizedTensor, Tensor

NR = TARGET.columns
COLUMNS = 128  # a multiple of LANES; NR rows of them are 8 KB


class PackedLinear:
    """Weights and bias of a linear layer in the product's layout.

    panels_PDN  float32 [panels, inputs, NR], columns past ``outputs`` zero.
    bias        float32 [panels * NR]; -inf past ``outputs``, which a softmax over whole panels ignores.
    """

    def __init__(self, panels_PDN: np.ndarray, bias: np.ndarray, outputs: int):
        self.panels_PDN = panels_PDN
        self.bias = bias
        self.outputs = outputs
        self.inputs = panels_PDN.shape[1]


def pack_linear(weight_FD: Tensor, bias_F: np.ndarray | None = None) -> PackedLinear:
    """Pack float32 or quantised weights [outputs, inputs] and bias [outputs] (none: zero)."""
    outputs, inputs = weight_FD.shape
    panels = -(-outputs // NR)
    panels_PDN = np.empty((panels, inputs, NR), np.float32)
    if isinstance(weight_FD, QuantizedTensor):
        _pack(weight_FD.values_FD, weight_FD.multipliers_F, panels_PDN)
    else:
        _pack(np.ascontiguousarray(weight_FD, np.float32), np.ones(outputs, np.float32), panels_PDN)
    bias = np.full(panels * NR, -np.inf, np.float32)
    bias[:outputs] = 0 if bias_F is None else bias_F
    return PackedLinear(panels_PDN, bias, outputs)


@kernel
def _pack(values_FD, factors_F, panels_PDN):
    """values_FD: float32 or int8, each a form of its own; a product with the factor 1 changes no float32."""
    F, D = values_FD.shape
    for p in prange(panels_PDN.shape[0]):
        block_JC = np.zeros((NR, COLUMNS), np.float32)
        block, panel = block_JC.ctypes.data, panels_PDN.ctypes.data + p * D * NR * 4
        for first in range(0, D, COLUMNS):
            columns = min(COLUMNS, D - first)
            for j in range(min(NR, F - p * NR)):
                # as vectors of their own LLVM sees that their strides are one
                source_C, target_C = values_FD[p * NR + j, first : first + columns], block_JC[j]
                factor = factors_F[p * NR + j]
                for c in range(columns):
                    target_C[c] = np.float32(source_C[c]) * factor
            whole = columns // LANES * LANES
            for c in range(0, whole, LANES):
                for j in range(0, NR, LANES):
                    square, place = block + (j * COLUMNS + c) * 4, panel + ((first + c) * NR + j) * 4
                    transpose(square, COLUMNS * 4, LANES, LANES, place, NR * 4)
            for c in range(whole, columns):
                for j in range(NR):
                    panels_PDN[p, first + c, j] = block_JC[j, c]
