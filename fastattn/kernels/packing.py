"""Linear weights in the layout of the products: panels of NR columns, converted and transposed in one pass.

In float32 a panel takes NR rows of weights by blocks of COLUMNS: the block is converted into a scratch in L1 and
transposed from there, so that a quantized weight never exists as float32 anywhere but in its panel. In the narrow
precisions a step's values of one column lie side by side, as the dot product of fastattn.simd.arithmetic reads them.
"""

import math
from dataclasses import dataclass, field

import numpy as np
from numba import prange

from fastattn.lazy import lazy
from fastattn.quantized import QuantizedTensor, Tensor
from fastattn.rounding import bfloat16_bits, quantize
from fastattn.runtime.jit import kernel
from fastattn.runtime.parts import make_scratch_parts, take_part
from fastattn.simd import amx
from fastattn.simd.arithmetic import arithmetic_for
from fastattn.simd.rows import transpose
from fastattn.simd.target import LANES, TARGET

NR = TARGET.columns
COLUMNS = 128  # a multiple of LANES; NR rows of them are 8 KB


@dataclass(frozen=True, eq=False)
class PackedLinear:
    """Weights and bias of a linear layer in the product's layout.

    panels_PSN   [panels, steps, group * NR] of float32, uint16 (the bits of bfloat16) or int8: a step takes ``group``
                 values of the inner dimension, a column's side by side; zeros beyond ``outputs`` and ``inputs``. See
                 packed_steps.
    bias         float32 [panels * NR]; -inf past ``outputs``, which a softmax over whole panels ignores.
    factors      int8 only: float32 [panels * NR], the scale of a column's integers.
    corrections  int8 only: int32 [panels * NR], minus the offset of staged rows times a column's sum.
    input_scale  int8 only: float32 [1], the static scale that turns rows into int8; 0: 127 / max |x| of each row.
    input_factors  int8 only: float32 [inputs, padded to whole vectors with ones], which multiply rows before that;
                 [0]: none.
    """

    outputs: int
    inputs: int
    panels_PSN: np.ndarray
    bias: np.ndarray
    factors: np.ndarray = field(default_factory=lambda: np.empty(0, np.float32))
    corrections: np.ndarray = field(default_factory=lambda: np.empty(0, np.int32))
    input_scale: np.ndarray = field(default_factory=lambda: np.empty(0, np.float32))
    input_factors: np.ndarray = field(default_factory=lambda: np.empty(0, np.float32))

    @lazy
    def staging(self) -> tuple[np.ndarray, np.ndarray]:
        """(input_scale, input_factors), for ``stage_rows``."""
        return self.input_scale, self.input_factors

    @lazy
    def affine(self) -> tuple[np.ndarray, ...]:
        """(bias, factors, corrections) for a tile's sums, then the two of ``staging``."""
        return self.bias, self.factors, self.corrections, *self.staging

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays that a file stores."""
        return {
            "panels_PSN": self.panels_PSN,
            "bias": self.bias,
            "factors": self.factors,
            "corrections": self.corrections,
            "input_scale": self.input_scale,
            "input_factors": self.input_factors,
        }


def pack_linear(weight_FD: Tensor, bias_F: np.ndarray | None = None, precision: str = "float32") -> PackedLinear:
    """Pack float32 or quantized weights [outputs, inputs] and bias [outputs] (none: zero); see spec.PRECISIONS.

    int8 keeps quantized weights as they are; others are quantized here.
    """
    outputs, inputs = weight_FD.shape
    panels = -(-outputs // NR)
    bias = np.full(panels * NR, -np.inf, np.float32)
    bias[:outputs] = 0 if bias_F is None else bias_F
    panels_PSN, *rest = _PACK[precision](weight_FD, panels)
    return PackedLinear(outputs, inputs, panels_PSN, bias, *rest)


def packed_layout(precision: str) -> str:
    """The name of ``pack_linear``'s layout on this CPU in this precision."""
    arithmetic = arithmetic_for(precision)
    blocks = f"-{amx.STEPS}" if precision in TARGET.tiles else ""
    return f"{precision}-{NR}-{arithmetic.group}-{arithmetic.offset}{blocks}"


def packed_steps(inputs: int, precision: str) -> int:
    """Steps of a panel: of whole blocks where tile registers multiply."""
    steps = -(-inputs // arithmetic_for(precision).group)
    return -(-steps // amx.STEPS) * amx.STEPS if precision in TARGET.tiles else steps


def packed_shapes(outputs: int, inputs: int, precision: str, balanced: bool) -> dict[str, tuple[int, ...]]:
    """The shapes of a PackedLinear's arrays; ``balanced``: with input factors."""
    group, panels = arithmetic_for(precision).group, -(-outputs // NR)
    steps = packed_steps(inputs, precision)
    columns = (panels * NR,)
    int8_columns = columns if precision == "int8" else (0,)
    return {
        "panels_PSN": (panels, steps, group * NR),
        "bias": columns,
        "factors": int8_columns,
        "corrections": int8_columns,
        "input_scale": (1,) if precision == "int8" else (0,),
        "input_factors": (_whole(inputs),) if balanced else (0,),
    }


def _whole(inputs: int) -> int:
    """``inputs`` in vectors of staged int8, each of which holds whole vectors of float32."""
    size = LANES * arithmetic_for("int8").group
    return -(-inputs // size) * size


def _float32(weight_FD: Tensor) -> np.ndarray:
    return weight_FD.float32() if isinstance(weight_FD, QuantizedTensor) else weight_FD


def _pack_float32(weight_FD: Tensor, panels: int) -> tuple:
    outputs, inputs = weight_FD.shape
    panels_PDN = np.empty((panels, inputs, NR), np.float32)
    blocks_TJC = make_scratch_parts(panels, NR, COLUMNS, dtype=np.float32)
    if isinstance(weight_FD, QuantizedTensor) and weight_FD.input_factors_D is None:
        _pack(weight_FD.values_FD, weight_FD.multipliers_F, blocks_TJC, panels_PDN)
    else:
        values_FD = np.ascontiguousarray(_float32(weight_FD), np.float32)
        _pack(values_FD, np.ones(outputs, np.float32), blocks_TJC, panels_PDN)
    return (panels_PDN,)


def _pack_bfloat16(weight_FD: Tensor, panels: int) -> tuple:
    return _interleaved(bfloat16_bits(_float32(weight_FD)), panels, "bfloat16")[:1]


def _pack_int8(weight_FD: Tensor, panels: int) -> tuple:
    arithmetic = arithmetic_for("int8")
    quantized = weight_FD if isinstance(weight_FD, QuantizedTensor) else quantize(weight_FD, "a linear layer")
    panels_PSN, sums = _interleaved(quantized.values_FD, panels, "int8")
    factors = np.zeros(panels * NR, np.float32)
    factors[: len(quantized.multipliers_F)] = quantized.multipliers_F
    input_scale = np.array([quantized.input_scale or 0], np.float32)
    input_factors = np.empty(0, np.float32)
    if quantized.input_factors_D is not None:
        input_factors = np.ones(_whole(weight_FD.shape[1]), np.float32)
        input_factors[: weight_FD.shape[1]] = quantized.input_factors_D
    return panels_PSN, factors, sums * np.int32(-arithmetic.offset), input_scale, input_factors


_PACK = {"float32": _pack_float32, "bfloat16": _pack_bfloat16, "int8": _pack_int8}


def _interleaved(values_FD: np.ndarray, panels: int, precision: str) -> tuple[np.ndarray, np.ndarray]:
    group, steps = arithmetic_for(precision).group, packed_steps(values_FD.shape[1], precision)
    panels_PSN = _empty_panels((panels, steps, group * NR), values_FD.dtype)
    sums = np.zeros(panels * NR, np.int32)
    _interleave(values_FD, group, panels_PSN, sums)
    return panels_PSN, sums


def _empty_panels(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Not cleared, on whole cache lines where tile registers read it: each of their rows is then one."""
    if not TARGET.tiles:
        return np.empty(shape, dtype)
    size = math.prod(shape) * dtype.itemsize
    room = np.empty(size + amx.BYTES - 1, np.uint8)
    first = -room.ctypes.data % amx.BYTES
    return room[first : first + size].view(dtype).reshape(shape)


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

    blocks_TJC  scratch of each part: [parts, NR, COLUMNS]
    """
    F, D = values_FD.shape
    for part in prange(0, len(blocks_TJC)):
        block, first_panel, end = take_part(blocks_TJC, part, len(panels_PDN))
        block_JC = blocks_TJC[part]
        for p in range(first_panel, end):
            panel = panels_PDN.ctypes.data + p * D * NR * 4
            inside = min(NR, F - p * NR)
            block_JC[inside:] = 0
            for first in range(0, D, COLUMNS):
                columns = min(COLUMNS, D - first)
                for j in range(inside):
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
