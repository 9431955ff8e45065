"""Linear weights in the layout of the products: panels of NR columns, converted and transposed in one pass.

In float32 a panel takes NR rows of weights by blocks of PACKED_COLUMNS: the block is converted into a scratch in L1 and
transposed from there, so that a quantized weight never exists as float32 anywhere but in its panel. In the narrow
precisions a step's values of one column lie side by side, as the dot product of fastattn.simd.arithmetic reads them.
"""

import numpy as np
from numba import prange

from fastattn.kernels.constants import NR, PACKED_COLUMNS
from fastattn.runtime.jit import kernel, take_part
from fastattn.simd.rows import transpose
from fastattn.simd.target import LANES


@kernel
def _interleave(values_FD, group, panels_PSN, sums):
    """Panels of int8 or uint16 values; sums[f]: of row f, which only int8 needs."""
    F, D = values_FD.shape
    steps = panels_PSN.shape[1]
    for p in prange(0, len(panels_PSN)):
        for j in range(NR):
            f = p * NR + j
            total = np.int32(0)
            for s in range(steps):
                for g in range(group):
                    d = s * group + g
                    if f < F and d < D:
                        panels_PSN[p, s, j * group + g] = values_FD[f, d]
                        total += np.int32(values_FD[f, d])
                    else:
                        panels_PSN[p, s, j * group + g] = 0
            sums[f] = total


@kernel
def _pack(values_FD, factors_F, blocks_TJC, panels_PDN):
    """values_FD: float32 or int8, each a form of its own; a product with the factor 1 changes no float32.

    blocks_TJC  scratch of each part: [parts, NR, PACKED_COLUMNS]
    """
    F, D = values_FD.shape
    for part in prange(0, len(blocks_TJC)):
        block, first_panel, end = take_part(blocks_TJC, part, len(panels_PDN))
        block_JC = blocks_TJC[part]
        for p in range(first_panel, end):
            panel = panels_PDN.ctypes.data + p * D * NR * 4
            inside = min(NR, F - p * NR)
            block_JC[inside:] = 0
            for first in range(0, D, PACKED_COLUMNS):
                columns = min(PACKED_COLUMNS, D - first)
                for j in range(inside):
                    # as vectors of their own LLVM sees that their strides are one
                    source_C, target_C = values_FD[p * NR + j, first : first + columns], block_JC[j]
                    factor = factors_F[p * NR + j]
                    for c in range(columns):
                        target_C[c] = np.float32(source_C[c]) * factor
                whole = columns // LANES * LANES
                for c in range(0, whole, LANES):
                    for j in range(0, NR, LANES):
                        square, place = block + (j * PACKED_COLUMNS + c) * 4, panel + ((first + c) * NR + j) * 4
                        transpose(square, PACKED_COLUMNS * 4, LANES, LANES, place, NR * 4)
                for c in range(whole, columns):
                    for j in range(NR):
                        panels_PDN[p, first + c, j] = block_JC[j, c]
