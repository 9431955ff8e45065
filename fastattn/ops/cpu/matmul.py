"""Linear layers: weights packed into panels of NR columns; y = activation(x W' + b) * multiply + residual."""

import math
from dataclasses import dataclass, field

import numpy as np

from fastattn.kernels.arguments import ACTIVATION_CODES, MR, NR, PACKED_COLUMNS, Blocks, LinearArrays
from fastattn.runtime.arena import empty, make_scratch_parts
from fastattn.runtime.handle import kernel_named
from fastattn.runtime.threads import current_threads
from fastattn.simd.arguments import (
    LINE,
    PACKED_GROUP,
    PACKED_GROUP_8,
    STAGED_GROUP,
    STAGED_ROWS,
    STAGED_START,
    format_for,
    staged_block,
    step_block,
)
from fastattn.simd.target import LANES
from fastattn.spec.quantized import GROUP_INPUTS, Int4Tensor, QuantizedTensor, Tensor, as_float32
from fastattn.spec.rounding import bfloat16_bits, quantize, quantize_groups, round_groups
from fastattn.system.records import lazy

# (bytes of a value, what a row's bytes are a multiple of), by the type of the panels; rows of float32 stay as they are.
_FORMS = {
    char: (format_for(precision).a_bytes, staged_block(precision))
    for char, precision in (("H", "bfloat16"), ("b", "int8"))
}


def scratch_bytes(weights: np.ndarray, width: int, rows: int) -> int:
    """Bytes for ``rows`` rows of that width and their factors, staged for weights of that type."""
    if weights.dtype.char in "Bh":
        return rows * width // GROUP_INPUTS * STAGED_GROUP + LINE - 1
    if weights.dtype.char not in _FORMS:
        return 0
    (size, block), room = _FORMS[weights.dtype.char], -(-rows // STAGED_ROWS) * STAGED_ROWS
    return room * (-(-width * size // block) * block + 4) + STAGED_START - 1


_interleave, _pack = kernel_named("packing", "_interleave"), kernel_named("packing", "_pack")


@dataclass(frozen=True, eq=False)
class PackedLinear:
    """Weights and bias of a linear layer in the product's layout.

    panels_PSN   [panels, steps, group * NR] of float32, uint16 (the bits of bfloat16) or int8: a step takes ``group``
                 values of the inner dimension, a column's side by side; zeros beyond ``outputs`` and ``inputs``.
                 Tile registers need whole blocks of steps.
                 int4: uint8 [panels, groups, NR * 20]; int8_groups: int16 [panels, groups, NR * 17]: see
                 fastattn.simd.grouped.
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
    def kernel_arrays(self) -> LinearArrays:
        """The arrays beside the panels."""
        return LinearArrays(self.bias, self.factors, self.corrections, self.input_scale, self.input_factors)

    @lazy
    def patch_panels(self) -> np.ndarray:
        """Of a 3x3 convolution in float32: the panels of its 16 products (fastattn.simd.winograd)."""
        taps_43 = np.array([[2, 0, 0], [1, 1, 1], [1, -1, 1], [0, 0, 2]]) / 2
        panels, _, columns = self.panels_PSN.shape
        weight_PYXCN = self.panels_PSN.reshape(panels, 3, 3, -1, columns)
        found = np.einsum("iy,jx,pyxcn->ijpcn", taps_43, taps_43, weight_PYXCN, optimize=True)
        patches_PCN = empty_on_lines((16 * panels, found.shape[3], columns), np.dtype(np.float32))
        patches_PCN[...] = found.reshape(patches_PCN.shape)
        return patches_PCN

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays that a file stores."""
        return {"panels_PSN": self.panels_PSN, **self.kernel_arrays._asdict()}


def pack_linear(weight_FD: Tensor, bias_F: np.ndarray | None = None, precision: str = "float32") -> PackedLinear:
    """Pack float32 or quantized weights [outputs, inputs] and bias [outputs] (none: zero); see spec.PRECISIONS.

    int8 and int4 keep quantized weights of their kind as they are; others are quantized here. int4 and int8_groups need
    whole groups of 32 inputs.
    """
    outputs, inputs = weight_FD.shape
    panels = -(-outputs // NR)
    bias = np.full(panels * NR, -np.inf, np.float32)
    bias[:outputs] = 0 if bias_F is None else bias_F
    panels_PSN, *rest = _PACK[precision](weight_FD, panels)
    return PackedLinear(outputs, inputs, panels_PSN, bias, *rest)


def packed_layout(precision: str) -> str:
    """The name of ``pack_linear``'s layout on this CPU in this precision."""
    if precision in ("int4", "int8_groups"):  # with some layers in int8
        return f"int4-{NR}-groups-{packed_layout('int8')}"
    form, block = format_for(precision), step_block(precision)
    return f"{precision}-{NR}-{form.group}-{form.offset}{f'-{block}' if block > 1 else ''}"


def packed_steps(inputs: int, precision: str) -> int:
    """The steps of a panel."""
    block = step_block(precision)
    return -(-inputs // (format_for(precision).group * block)) * block


def packed_shapes(outputs: int, inputs: int, precision: str, balanced: bool) -> dict[str, tuple[int, ...]]:
    """The shapes of a PackedLinear's arrays; ``balanced``: with input factors."""
    panels = -(-outputs // NR)
    columns = (panels * NR,)
    int8_columns = columns if precision == "int8" else (0,)
    if precision in ("int4", "int8_groups"):
        steps, step = inputs // GROUP_INPUTS, NR * (PACKED_GROUP if precision == "int4" else PACKED_GROUP_8 // 2)
    else:
        steps, step = packed_steps(inputs, precision), format_for(precision).group * NR
    return {
        "panels_PSN": (panels, steps, step),
        "bias": columns,
        "factors": int8_columns,
        "corrections": int8_columns,
        "input_scale": (1,) if precision == "int8" else (0,),
        "input_factors": (_whole(inputs),) if balanced else (0,),
    }


def packed_of(outputs: int, inputs: int, arrays: dict[str, np.ndarray]) -> PackedLinear:
    """The PackedLinear whose ``arrays`` were these."""
    return PackedLinear(outputs, inputs, **arrays)


def _whole(inputs: int) -> int:
    """``inputs`` in vectors of staged int8, each of which holds whole vectors of float32."""
    size = LANES * format_for("int8").group
    return -(-inputs // size) * size


def as_int8(weight_FD: Tensor) -> QuantizedTensor:
    return weight_FD if isinstance(weight_FD, QuantizedTensor) else quantize(as_float32(weight_FD), "a linear layer")


def _pack_float32(weight_FD: Tensor, panels: int) -> tuple:
    outputs, inputs = weight_FD.shape
    panels_PDN = np.empty((panels, inputs, NR), np.float32)
    blocks_TJC = make_scratch_parts(panels, NR, PACKED_COLUMNS, dtype=np.float32)
    if isinstance(weight_FD, QuantizedTensor) and weight_FD.input_factors_D is None:
        _pack(weight_FD.values_FD, weight_FD.multipliers_F, blocks_TJC, panels_PDN)
    else:
        values_FD = np.ascontiguousarray(as_float32(weight_FD))
        _pack(values_FD, np.ones(outputs, np.float32), blocks_TJC, panels_PDN)
    return (panels_PDN,)


def _pack_bfloat16(weight_FD: Tensor, panels: int) -> tuple:
    return _interleaved(bfloat16_bits(as_float32(weight_FD)), panels, "bfloat16")[:1]


def _pack_int8(weight_FD: Tensor, panels: int) -> tuple:
    form, quantized = format_for("int8"), as_int8(weight_FD)
    panels_PSN, sums = _interleaved(quantized.values_FD, panels, "int8")
    factors = np.zeros(panels * NR, np.float32)
    factors[: len(quantized.multipliers_F)] = quantized.multipliers_F
    input_scale = np.array([quantized.input_scale or 0], np.float32)
    input_factors = np.empty(0, np.float32)
    if quantized.input_factors_D is not None:
        input_factors = np.ones(_whole(weight_FD.shape[1]), np.float32)
        input_factors[: weight_FD.shape[1]] = quantized.input_factors_D
    return panels_PSN, factors, sums * np.int32(-form.offset), input_scale, input_factors


def _pack_int4(weight_FD: Tensor, panels: int) -> tuple:
    if not isinstance(weight_FD, Int4Tensor):
        weight_FD = quantize_groups(as_float32(weight_FD), "a linear layer")
    F, G = weight_FD.scales_FG.shape
    panels_PSN = empty_on_lines((panels, G, NR * PACKED_GROUP), np.dtype(np.uint8))
    panels_PSN[F // NR :] = 0  # what lies beyond the outputs
    first = 0
    for array, width in ((weight_FD.values_FE, 4), (weight_FD.scales_FG, 2), (weight_FD.minima_FG, 2)):
        words_FGW = np.ascontiguousarray(array).view(f"u{width}").reshape(F, G, -1)
        size = words_FGW.shape[2] * NR * width
        _put_columns(words_FGW, panels_PSN[..., first : first + size].view(f"u{width}").reshape(panels, G, -1, NR))
        first += size
    return (panels_PSN,)


def _put_columns(rows_FGW: np.ndarray, panels_PGWN: np.ndarray) -> None:
    for column in range(NR):
        rows = rows_FGW[column::NR]
        panels_PGWN[: len(rows), ..., column] = rows


def _pack_int8_groups(weight_FD: Tensor, panels: int) -> tuple:
    values_FD, scales_FG = round_groups(as_float32(weight_FD), "a linear layer")
    panels_PSN = empty_on_lines((panels, scales_FG.shape[1], NR * PACKED_GROUP_8 // 2), np.dtype(np.int16))
    panels_PSN[len(values_FD) // NR :] = 0  # what lies beyond the outputs
    values_PSN4, scales_PGN = grouped_parts(panels_PSN)
    words_FS = (values_FD.view(np.uint8) ^ np.uint8(128)).view(np.uint32)
    _put_columns(words_FS, values_PSN4.view(np.uint32)[..., 0])
    _put_columns(scales_FG.view(np.int16), scales_PGN)
    return (panels_PSN,)


def grouped_parts(panels_PSN: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(uint8 values [panels, words, NR, 4], float16 scales [panels, groups, NR], as int16), views of int8_groups."""
    panels, groups, _ = panels_PSN.shape
    values_PN, scales_PN = np.split(panels_PSN.reshape(panels, -1), [groups * NR * GROUP_INPUTS // 2], axis=1)
    return values_PN.view(np.uint8).reshape(panels, -1, NR, 4), scales_PN.reshape(panels, groups, NR)


_PACK = {
    "float32": _pack_float32, "bfloat16": _pack_bfloat16, "int8": _pack_int8, "int4": _pack_int4,
    "int8_groups": _pack_int8_groups,
}  # fmt: skip


def _interleaved(values_FD: np.ndarray, panels: int, precision: str) -> tuple[np.ndarray, np.ndarray]:
    group, steps = format_for(precision).group, packed_steps(values_FD.shape[1], precision)
    panels_PSN = empty_on_lines((panels, steps, group * NR), values_FD.dtype)
    sums = np.zeros(panels * NR, np.int32)
    _interleave(values_FD, group, panels_PSN, sums)
    return panels_PSN, sums


def empty_on_lines(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array, C-contiguous and of any values, that starts at a cache line: a row of a tile register is then one."""
    size = math.prod(shape) * dtype.itemsize
    room = np.empty(size + LINE - 1, np.uint8)
    first = -room.ctypes.data % LINE
    return room[first : first + size].view(dtype).reshape(shape)


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
