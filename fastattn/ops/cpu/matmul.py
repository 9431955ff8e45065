"""Linear layers: weights packed into panels of NR columns; y = activation(x W' + b) * multiply + residual."""

import math
from dataclasses import field, replace
from typing import Any

import numpy as np

from fastattn.kernels.arguments import ACTIVATION_CODES, MR, NR, PACKED_COLUMNS, Blocks, LinearArrays
from fastattn.ops.cpu.absent import NO_FLOATS
from fastattn.runtime.arena import empty, make_scratch_parts
from fastattn.runtime.handle import kernel_named
from fastattn.runtime.threads import current_threads, use_threads
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
from fastattn.spec.quantized import GROUP_INPUTS, Int4Tensor, QuantizedTensor, Tensor, as_float32, unread
from fastattn.spec.rounding import bfloat16_bits, quantize, quantize_groups, round_groups
from fastattn.system.records import dataclass, lazy
from fastattn.system.worker_threads import map_in_threads

# By the panels' dtype: (bytes of a staged value, the block of bytes to which rows are padded); not for float32.
_STAGED_LAYOUTS = {
    char: (format_for(precision).a_bytes, staged_block(precision))
    for char, precision in (("H", "bfloat16"), ("b", "int8"))
}


def scratch_bytes(weights: np.ndarray, width: int, rows: int) -> int:
    """Bytes for ``rows`` rows of ``width`` values and their factors, staged for weights of the dtype of ``weights``."""
    if weights.dtype.char in "Bh":
        return rows * width // GROUP_INPUTS * STAGED_GROUP + LINE - 1
    if weights.dtype.char not in _STAGED_LAYOUTS:
        return 0
    (size, block), padded_rows = _STAGED_LAYOUTS[weights.dtype.char], -(-rows // STAGED_ROWS) * STAGED_ROWS
    return padded_rows * (-(-width * size // block) * block + 4) + STAGED_START - 1


_interleave, _pack = kernel_named("packing", "_interleave"), kernel_named("packing", "_pack")


@dataclass(frozen=True, eq=False)
class PackedLinear:
    """Weights and bias of a linear layer in the product's layout.

    panels_PSN   [panels, steps, group * NR] of float32, uint16 (the bits of bfloat16) or int8: a step has ``group``
                 values of the inner dimension for each column, side by side; zeros beyond ``outputs`` and ``inputs``.
                 Tile registers need whole blocks of steps.
                 int4: uint8 [panels, groups, NR * 20]; int8_groups: int16 [panels, groups, NR * 17]: see
                 fastattn.simd.grouped.
    bias         float32 [panels * NR]; -inf past ``outputs``, so that a softmax over whole panels ignores them.
    factors      int8 only: float32 [panels * NR], the scale of a column's integers.
    corrections  int8 only: int32 [panels * NR], minus the offset of staged rows times a column's sum.
    input_scale  int8 only: float32 [1], the static scale that turns rows into int8; 0: 127 / max |x| of each row.
    input_factors  int8 only: float32 [inputs, padded to whole vectors with ones], which multiply rows before they
                 become int8; [0]: none.
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
        """All arrays but the panels."""
        return LinearArrays(self.bias, self.factors, self.corrections, self.input_scale, self.input_factors)

    @lazy
    def patch_panels(self) -> np.ndarray:
        """The panels of the 16 products of a 3x3 convolution in float32 (fastattn.simd.convolution)."""
        taps_43 = np.array([[2, 0, 0], [1, 1, 1], [1, -1, 1], [0, 0, 2]]) / 2
        panels, _, columns = self.panels_PSN.shape
        weight_PYXCN = self.panels_PSN.reshape(panels, 3, 3, -1, columns)
        products_IJPCN = np.einsum("iy,jx,pyxcn->ijpcn", taps_43, taps_43, weight_PYXCN, optimize=True)
        patches_PCN = empty_on_lines((16 * panels, products_IJPCN.shape[3], columns), np.dtype(np.float32))
        patches_PCN[...] = products_IJPCN.reshape(patches_PCN.shape)
        return patches_PCN

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays that a file stores."""
        return {"panels_PSN": self.panels_PSN, **self.kernel_arrays._asdict()}


def pack_linear(weight_FD: Tensor, bias_F: np.ndarray | None = None, precision: str = "float32") -> PackedLinear:
    tensor, (outputs, inputs) = unread(weight_FD), weight_FD.shape
    packed = _empty_linear(outputs, inputs, precision)
    packed.bias[:] = -np.inf
    packed.bias[:outputs] = 0 if bias_F is None else bias_F
    packed.panels_PSN[outputs // NR :] = 0  # the columns beyond the outputs

    def pack(rows: tuple[int, int]) -> PackedLinear:
        first, last = rows
        panels = slice(first // NR, -(-last // NR))
        columns = slice(panels.start * NR, panels.stop * NR)
        fields: dict[str, Any] = {
            name: array[columns] for name, array in packed.arrays().items() if array.shape == packed.bias.shape
        }
        views = replace(packed, outputs=last - first, panels_PSN=packed.panels_PSN[panels], **fields)
        with use_threads(1):
            layer = _PACKERS[precision](tensor.read(first, last), views)
        tensor.forget(first, last)
        return layer

    layers = map_in_threads(pack, tensor.row_ranges(NR), current_threads())  # each over a range of outputs
    if not layers:
        return packed
    return replace(packed, input_scale=layers[0].input_scale, input_factors=layers[0].input_factors)


def _empty_linear(outputs: int, inputs: int, precision: str) -> PackedLinear:
    """A layer whose panels and bias have arbitrary values."""
    types = {"float32": "f4", "bfloat16": "u2", "int8": "i1", "int4": "u1", "int8_groups": "i2"}
    shapes = packed_shapes(outputs, inputs, precision, balanced=False)
    panels_PSN = empty_on_lines(shapes["panels_PSN"], np.dtype(types[precision]))
    factors, corrections = (np.zeros(shapes["factors"], dtype) for dtype in (np.float32, np.int32))
    return PackedLinear(outputs, inputs, panels_PSN, np.empty(shapes["bias"], np.float32), factors, corrections)


def packed_layout(precision: str) -> str:
    """The name of ``pack_linear``'s layout on this CPU in this precision."""
    if precision in ("int4", "int8_groups"):  # some layers of such a model are in int8
        return f"int4-{NR}-groups-{packed_layout('int8')}"
    staged, block = format_for(precision), step_block(precision)
    return f"{precision}-{NR}-{staged.group}-{staged.offset}{f'-{block}' if block > 1 else ''}"


def packed_shapes(outputs: int, inputs: int, precision: str, balanced: bool) -> dict[str, tuple[int, ...]]:
    panels = -(-outputs // NR)
    columns = (panels * NR,)
    int8_columns = columns if precision == "int8" else (0,)
    if precision in ("int4", "int8_groups"):
        steps, step = inputs // GROUP_INPUTS, NR * (PACKED_GROUP if precision == "int4" else PACKED_GROUP_8 // 2)
    else:
        step, block = format_for(precision).group * NR, step_block(precision)
        steps = -(-inputs // (format_for(precision).group * block)) * block
    return {
        "panels_PSN": (panels, steps, step),
        "bias": columns,
        "factors": int8_columns,
        "corrections": int8_columns,
        "input_scale": (1,) if precision == "int8" else (0,),
        "input_factors": (_padded_inputs(inputs),) if balanced else (0,),
    }


def packed_of(outputs: int, inputs: int, arrays: dict[str, np.ndarray]) -> PackedLinear:
    return PackedLinear(outputs, inputs, **arrays)


def _padded_inputs(inputs: int) -> int:
    """``inputs`` rounded up to whole vectors of staged int8, each of which is several vectors of float32."""
    size = LANES * format_for("int8").group
    return -(-inputs // size) * size


def as_int8(weight_FD: Tensor) -> QuantizedTensor:
    return weight_FD if isinstance(weight_FD, QuantizedTensor) else quantize(as_float32(weight_FD), "a linear layer")


def _pack_float32(weight_FD: Tensor, packed: PackedLinear) -> PackedLinear:
    blocks_TJC = make_scratch_parts(len(packed.panels_PSN), NR, PACKED_COLUMNS, dtype=np.float32)
    if isinstance(weight_FD, QuantizedTensor) and weight_FD.input_factors_D is None:
        _pack(weight_FD.values_FD, weight_FD.multipliers_F, blocks_TJC, packed.panels_PSN)
    else:
        values_FD = np.ascontiguousarray(as_float32(weight_FD))
        _pack(values_FD, np.ones(packed.outputs, np.float32), blocks_TJC, packed.panels_PSN)
    return packed


def _pack_bfloat16(weight_FD: Tensor, packed: PackedLinear) -> PackedLinear:
    sums = np.empty(len(packed.bias), np.int32)
    _interleave(bfloat16_bits(as_float32(weight_FD)), format_for("bfloat16").group, packed.panels_PSN, sums)
    return packed


def _pack_int8(weight_FD: Tensor, packed: PackedLinear) -> PackedLinear:
    staged, quantized = format_for("int8"), as_int8(weight_FD)
    _interleave(quantized.values_FD, staged.group, packed.panels_PSN, packed.corrections)
    packed.corrections[:] *= np.int32(-staged.offset)
    packed.factors[: packed.outputs] = quantized.multipliers_F
    input_scale = np.array([quantized.input_scale or 0], np.float32)
    input_factors = np.empty(0, np.float32)
    if quantized.input_factors_D is not None:
        input_factors = np.ones(_padded_inputs(packed.inputs), np.float32)
        input_factors[: packed.inputs] = quantized.input_factors_D
    return replace(packed, input_scale=input_scale, input_factors=input_factors)


def _pack_int4(weight_FD: Tensor, packed: PackedLinear) -> PackedLinear:
    if not isinstance(weight_FD, Int4Tensor):
        weight_FD = quantize_groups(as_float32(weight_FD), "a linear layer")
    weight_FD = weight_FD.half()
    (F, G), panels_PSN = weight_FD.scales_FG.shape, packed.panels_PSN
    first = 0
    for array, width in ((weight_FD.values_FE, 4), (weight_FD.scales_FG, 2), (weight_FD.minima_FG, 2)):
        words_FGW = np.ascontiguousarray(array).view(f"u{width}").reshape(F, G, -1)
        stop = first + words_FGW.shape[2] * NR * width
        words_PGWN = panels_PSN[..., first:stop].view(f"u{width}").reshape(len(panels_PSN), G, -1, NR)
        _put_columns(words_FGW, words_PGWN)
        first = stop
    return packed


def _put_columns(rows_FGW: np.ndarray, panels_PGWN: np.ndarray) -> None:
    """Write row f to column f % NR of panel f // NR."""
    for column in range(NR):
        rows = rows_FGW[column::NR]
        panels_PGWN[: len(rows), ..., column] = rows


def _pack_int8_groups(weight_FD: Tensor, packed: PackedLinear) -> PackedLinear:
    values_FD, scales_FG = round_groups(as_float32(weight_FD), "a linear layer")
    values_PSN4, scales_PGN = grouped_parts(packed.panels_PSN)
    words_FS = (values_FD.view(np.uint8) ^ np.uint8(128)).view(np.uint32)
    _put_columns(words_FS, values_PSN4.view(np.uint32)[..., 0])
    _put_columns(scales_FG.view(np.int16), scales_PGN)
    return packed


def grouped_parts(panels_PSN: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(uint8 values [panels, words, NR, 4], float16 scales [panels, groups, NR], as int16), views of int8_groups."""
    panels, groups, _ = panels_PSN.shape
    values_PN, scales_PN = np.split(panels_PSN.reshape(panels, -1), [groups * NR * GROUP_INPUTS // 2], axis=1)
    return values_PN.view(np.uint8).reshape(panels, -1, NR, 4), scales_PN.reshape(panels, groups, NR)


_PACKERS = {
    "float32": _pack_float32, "bfloat16": _pack_bfloat16, "int8": _pack_int8, "int4": _pack_int4,
    "int8_groups": _pack_int8_groups,
}  # fmt: skip


def empty_on_lines(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array of arbitrary values, C-contiguous, that starts at a cache line, as a tile register's rows should."""
    size = math.prod(shape) * dtype.itemsize
    memory = np.empty(size + LINE - 1, np.uint8)
    first = -memory.ctypes.data % LINE
    return memory[first : first + size].view(dtype).reshape(shape)


_linear, _gated = kernel_named("matmul", "_linear"), kernel_named("matmul", "_gated")

# Rows that a task multiplies by all its panels: 48 rows of 384 to 2,048 floats and their results fit into L2 together
# with a panel. With 96 rows products with an activation are 4% slower, with 24 no faster.
ROW_BLOCK = 48
SMALL_BYTES = 1 << 18  # of weights that one thread finishes before a second one has started: 10 us
_NO_SCRATCH = np.empty((1, 0), np.uint8)


def blocks_for(rows: int, packed: PackedLinear) -> tuple[Blocks, int]:
    """(Blocks, the number of threads): tasks of whole tiles, at least one for each thread that is worth starting."""
    is_small = packed.panels_PSN.nbytes * (rows + MR) <= SMALL_BYTES * MR
    if is_small and rows <= ROW_BLOCK:
        return Blocks(rows, 1), 1
    panels, threads = packed.panels_PSN.shape[0], 1 if is_small else current_threads()
    row_blocks = -(-rows // ROW_BLOCK)
    row_block = -(-rows // row_blocks)
    row_block = -(-row_block // MR) * MR
    column_blocks = 1 if row_blocks >= 4 * threads else min(threads, panels)
    return Blocks(row_block, column_blocks), min(threads, row_blocks * column_blocks)


def _blocks_and_scratch(rows: int, packed: PackedLinear, products: int) -> tuple[Blocks, np.ndarray]:
    """(Blocks, scratch of each thread) for ``products`` products of the same rows."""
    blocks, threads = blocks_for(rows, packed)
    size = products * scratch_bytes(packed.panels_PSN, packed.inputs, blocks.rows)
    return blocks, empty((threads, size), np.uint8) if size or threads > 1 else _NO_SCRATCH


def linear(
    x_ND: np.ndarray,
    packed: PackedLinear,
    activation: str = "none",
    residual_NF: np.ndarray | None = None,
    multiply_NF: np.ndarray | None = None,
) -> np.ndarray:
    N = x_ND.shape[0]
    y_NF = empty((N, packed.outputs))
    if N:
        blocks, scratch_PB = _blocks_and_scratch(N, packed, 1)
        _linear(
            x_ND, packed.panels_PSN, packed.kernel_arrays, ACTIVATION_CODES[activation],
            NO_FLOATS[2] if multiply_NF is None else multiply_NF, NO_FLOATS[2] if residual_NF is None else residual_NF,
            blocks, scratch_PB, y_NF,
        )  # fmt: skip
    return y_NF


def gated(x_ND: np.ndarray, packed: PackedLinear, gate: PackedLinear, activation: str = "none") -> np.ndarray:
    N = x_ND.shape[0]
    y_NF = empty((N, packed.outputs))
    if N:
        blocks, scratch_PB = _blocks_and_scratch(N, packed, 2)
        _gated(
            x_ND, packed.panels_PSN, packed.kernel_arrays, gate.panels_PSN, gate.kernel_arrays,
            ACTIVATION_CODES[activation], blocks, scratch_PB, y_NF,
        )  # fmt: skip
    return y_NF
