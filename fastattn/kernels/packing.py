"""Both operands of a product in the form that a register tile multiplies: packed weights, and rows of A.

One pass converts and transposes weights into panels of NR columns. In float32 it takes NR rows of weights in blocks of
PACKED_COLUMNS, converts each block into a scratch in L1 and transposes it from there, so a quantized weight exists as
float32 in its panel alone. In the narrow precisions a step's values of one column lie side by side, as the dot product
of fastattn.simd.arithmetic reads them.

Rows of A are staged as they are, rounded to bfloat16, or quantized to int8. int8 is symmetric with one scale a row:
127 / max |x|, from a first pass over the row, which fits in L1, so that the second pass is free; or a static scale that
the weights bring. Weights may also bring factors that balance the columns first. Either way a row's integers depend on
the row alone. Where the instruction takes unsigned bytes, 128 is added, and packed weights hold the correction. For
weights in groups each group of inputs has its own scale: see fastattn.simd.grouped.
"""

import numpy as np
from numba import prange

from fastattn.kernels.arguments import NR, PACKED_COLUMNS
from fastattn.runtime.jit import inner, inner_overload, kernel, take_part
from fastattn.simd.arguments import (
    GROUP_INPUTS,
    LINE,
    STAGED_GROUP,
    STAGED_ROWS,
    STAGED_START,
    Affine,
    Rows,
    StagedRows,
    staged_block,
)
from fastattn.simd.grouped import stage_groups
from fastattn.simd.memory import address, load, load_first, store_scalar
from fastattn.simd.rows import transpose
from fastattn.simd.target import LANES
from fastattn.simd.tile import BFLOAT16_BYTES, GROUPED, INT8_BYTES, PRECISIONS, store_bfloat16, store_int8
from fastattn.simd.vector import absolute, fma, larger_magnitude, largest_magnitude, maximum, minimum, splat, sum_lanes

INT8_BLOCK, BFLOAT16_BLOCK = staged_block("int8"), staged_block("bfloat16")


@kernel
def _interleave(values_FD, group, panels_PSN, sums):
    """Panels of int8 or uint16 values; sums[f]: the sum of row f, which only int8 needs."""
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
    """values_FD: float32 or int8; a product with the factor 1 changes no float32.

    blocks_TJC  scratch of each part: [parts, NR, PACKED_COLUMNS]
    """
    F, D = values_FD.shape
    for part in prange(0, len(blocks_TJC)):
        block, first_panel, end = take_part(blocks_TJC, part, len(panels_PDN))
        block_JC = blocks_TJC[part]
        for p in range(first_panel, end):
            panel = panels_PDN.ctypes.data + p * D * NR * 4
            outputs = min(NR, F - p * NR)
            block_JC[outputs:] = 0
            for first in range(0, D, PACKED_COLUMNS):
                columns = min(PACKED_COLUMNS, D - first)
                for j in range(outputs):
                    # arrays of one axis, so that LLVM sees that their strides are one
                    source_C, target_C = values_FD[p * NR + j, first : first + columns], block_JC[j]
                    factor = factors_F[p * NR + j]
                    for c in range(columns):
                        target_C[c] = np.float32(source_C[c]) * factor
                whole = columns // LANES * LANES
                for c in range(0, whole, LANES):
                    for j in range(0, NR, LANES):
                        square, target = block + (j * PACKED_COLUMNS + c) * 4, panel + ((first + c) * NR + j) * 4
                        transpose(square, PACKED_COLUMNS * 4, LANES, LANES, target, NR * 4)
                for c in range(whole, columns):
                    for j in range(NR):
                        panels_PDN[p, first + c, j] = block_JC[j, c]


@inner
def balance(value, factors, d):
    """The value of the columns from ``d`` on, times their factors; ``factors`` is an address or None."""
    if factors is None:
        return value
    return value * load(factors + d * 4)


@inner
def quantize_row(x, column_factors, width, staged):
    """Round ``width`` floats to int8 operands, padded to whole vectors; returns the value of one integer step.

    column_factors  address of factors that multiply the row first, in whole vectors; or None
    Returns NaN if the row has a NaN, so that its products are NaN.
    """
    zero = splat(np.float32(0))
    whole = width - width % LANES
    peaks = zero
    for d in range(0, whole, LANES):
        peaks = larger_magnitude(absolute(balance(load(x + d * 4), column_factors, d)), peaks)
    if whole < width:
        last = load_first(x + whole * 4, width - whole, zero)
        peaks = larger_magnitude(absolute(balance(last, column_factors, whole)), peaks)
    peak = largest_magnitude(peaks)
    factor = splat(np.float32(127) / peak if peak > 0 else np.float32(0))
    for d in range(0, whole, LANES):
        store_int8(balance(load(x + d * 4), column_factors, d) * factor, staged + d * INT8_BYTES)
    if whole < width:
        last = load_first(x + whole * 4, width - whole, zero)
        store_int8(balance(last, column_factors, whole) * factor, staged + whole * INT8_BYTES)
    return peak / np.float32(127)


@inner
def store_cut(value, factor, staged):
    scaled = value * factor
    store_int8(minimum(maximum(scaled, splat(np.float32(-127))), splat(np.float32(127))), staged)


@inner
def quantize_row_by(scale, x, width, staged):
    """``quantize_row`` with a static scale: it clips values beyond +-127, and returns NaN for an infinity too."""
    zero, factor = splat(np.float32(0)), splat(scale)
    whole = width - width % LANES
    nan_lanes = zero  # 0, or NaN where a value is not finite
    for d in range(0, whole, LANES):
        value = load(x + d * 4)
        nan_lanes = fma(value, zero, nan_lanes)
        store_cut(value, factor, staged + d * INT8_BYTES)
    if whole < width:
        value = load_first(x + whole * 4, width - whole, zero)
        nan_lanes = fma(value, zero, nan_lanes)
        store_cut(value, factor, staged + whole * INT8_BYTES)
    return np.float32(1) / scale + sum_lanes(nan_lanes)


@inner
def whole_blocks(size, block):
    """The least multiple of ``block`` that is not less than ``size``."""
    return (size + block - 1) // block * block


@inner
def round_row(x, width, staged, row):
    """Round ``width`` floats to bfloat16 operands, and clear the bytes behind them, up to ``row`` bytes.

    Bytes that are not cleared may be NaN or infinity, whose products with the panel's zeros are NaN.
    """
    zero = splat(np.float32(0))
    whole = width - width % LANES
    for d in range(0, whole, LANES):
        store_bfloat16(load(x + d * 4), staged + d * BFLOAT16_BYTES)
    if whole < width:
        store_bfloat16(load_first(x + whole * 4, width - whole, zero), staged + whole * BFLOAT16_BYTES)
    if BFLOAT16_BLOCK > LANES * BFLOAT16_BYTES:
        for at in range(whole_blocks(width, LANES) * BFLOAT16_BYTES, row, LANES * BFLOAT16_BYTES):
            store_bfloat16(zero, staged + at)


@inner
def rows_from(rows, count):
    """The StagedRows from row ``count`` on."""
    return StagedRows(rows.address + count * rows.distance, rows.distance, rows.factors + count * 4)


@inner
def skip_columns(affine, skip):
    """The Affine of the outputs ``skip`` bytes on."""
    return Affine(affine.bias + skip, affine.factors + skip, affine.corrections + skip)


@inner
def skip_bytes(rows, skip):
    """Rows, from a column ``skip`` bytes on."""
    return Rows(rows.address + skip, rows.distance)


@inner
def affine_at(arrays):
    """The addresses of the LinearArrays by which sums become outputs."""
    return Affine(address(arrays.bias), address(arrays.factors), address(arrays.corrections))


@inner_overload
def stage_rows(weights, staging, x, count, width, scratch, room):
    """The StagedRows of ``count`` adjacent float32 rows from the address x on, for the precision of the weights.

    staging  the weights' LinearArrays
    scratch  the address of ``scratch_bytes`` for ``room`` rows of operands, then, in int8, for a factor a row
    """

    def unchanged(weights, staging, x, count, width, scratch, room):
        return StagedRows(x, width * 4, scratch)

    def bfloat16(weights, staging, x, count, width, scratch, room):
        row, first = whole_blocks(width * BFLOAT16_BYTES, BFLOAT16_BLOCK), whole_blocks(scratch, STAGED_START)
        for r in range(count):
            round_row(x + r * width * 4, width, first + r * row, row)
        return StagedRows(first, row, first)

    def int8(weights, staging, x, count, width, scratch, room):
        row, first = whole_blocks(width * INT8_BYTES, INT8_BLOCK), whole_blocks(scratch, STAGED_START)
        scale = staging.input_scale[0]
        factors = first + whole_blocks(room, STAGED_ROWS) * row
        for r in range(count):
            source, target = x + r * width * 4, first + r * row
            if scale > 0:
                factor = quantize_row_by(scale, source, width, target)
            elif staging.input_factors.size > 0:
                factor = quantize_row(source, staging.input_factors.ctypes.data, width, target)
            else:
                factor = quantize_row(source, None, width, target)
            store_scalar(factor, factors + r * 4)
        return StagedRows(first, row, factors)

    def grouped(weights, staging, x, count, width, scratch, room):
        groups, first = width // GROUP_INPUTS, whole_blocks(scratch, LINE)
        row = groups * STAGED_GROUP
        for r in range(count):
            stage_groups(x + r * width * 4, groups, first + r * row)
        return StagedRows(first, row, first)

    forms = {"float32": unchanged, "bfloat16": bfloat16, "int8": int8} | dict.fromkeys(GROUPED.values(), grouped)
    return forms[PRECISIONS[weights.dtype]]
