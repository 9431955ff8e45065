"""Matrix products with packed weights: y = activation(x W' + b) * multiply + residual; see ``kernels/matmul.py``."""

import numpy as np

from fastattn.kernels.arguments import Blocks
from fastattn.kernels.constants import ACTIVATION_CODES, MR
from fastattn.ops.cpu.packing import PackedLinear
from fastattn.ops.cpu.staging import scratch_bytes
from fastattn.runtime.arena import empty
from fastattn.runtime.handle import kernel_named
from fastattn.runtime.threads import current_threads

_linear, _gated = kernel_named("matmul", "_linear"), kernel_named("matmul", "_gated")

# Rows that one task takes through all its panels: 48 rows of 384 to 2,048 floats, and what they become, stay in L2
# beside a panel. With 96 rows products with an activation are 4% slower, with 24 no faster.
ROW_BLOCK = 48
# Bytes of weights that one thread finishes before another would have started: 10 us.
SMALL = 1 << 18
_NONE = np.empty((0, 0), np.float32)
_NO_SCRATCH = np.empty((1, 0), np.uint8)


def blocks_for(rows: int, packed: PackedLinear) -> tuple[Blocks, int]:
    """(Blocks, parts): full tiles a task, and at least one task a thread that is worth it."""
    small = packed.panels_PSN.nbytes * (rows + MR) <= SMALL * MR
    if small and rows <= ROW_BLOCK:
        return Blocks(rows, 1), 1
    panels, threads = packed.panels_PSN.shape[0], 1 if small else current_threads()
    row_blocks = -(-rows // ROW_BLOCK)
    row_block = -(-rows // row_blocks)
    row_block = -(-row_block // MR) * MR
    column_blocks = 1 if row_blocks >= 4 * threads else min(threads, panels)
    return Blocks(row_block, column_blocks), min(threads, row_blocks * column_blocks)


def _cut(rows: int, packed: PackedLinear, products: int) -> tuple[Blocks, np.ndarray]:
    """(Blocks, scratch of each part) of so many products of the same rows."""
    blocks, parts = blocks_for(rows, packed)
    size = products * scratch_bytes(packed.panels_PSN, packed.inputs, blocks.rows)
    return blocks, empty((parts, size), np.uint8) if size or parts > 1 else _NO_SCRATCH


def linear(
    x_ND: np.ndarray,
    packed: PackedLinear,
    activation: str = "none",
    residual_NF: np.ndarray | None = None,
    multiply_NF: np.ndarray | None = None,
) -> np.ndarray:
    """activation(x W' + b) * multiply + residual, float32 [N, outputs]; the inputs are float32 and C-contiguous.

    The residual is added last.
    """
    N = x_ND.shape[0]
    y_NF = empty((N, packed.outputs))
    if N:
        blocks, scratch_PB = _cut(N, packed, 1)
        _linear(
            x_ND, packed.panels_PSN, packed.kernel_arrays, ACTIVATION_CODES[activation],
            _NONE if multiply_NF is None else multiply_NF, _NONE if residual_NF is None else residual_NF,
            blocks, scratch_PB, y_NF,
        )  # fmt: skip
    return y_NF


def gated(x_ND: np.ndarray, packed: PackedLinear, gate: PackedLinear, activation: str = "none") -> np.ndarray:
    """activation(x W' + b) * (x V' + c), float32 [N, outputs] (Shazeer 2020): V and c are the gate's, of W's size and
    precision. The bits are those of two products."""
    N = x_ND.shape[0]
    y_NF = empty((N, packed.outputs))
    if N:
        blocks, scratch_PB = _cut(N, packed, 2)
        _gated(
            x_ND, packed.panels_PSN, packed.kernel_arrays, gate.panels_PSN, gate.kernel_arrays,
            ACTIVATION_CODES[activation], blocks, scratch_PB, y_NF,
        )  # fmt: skip
    return y_NF
