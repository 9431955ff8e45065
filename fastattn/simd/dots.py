"""Dot products with selected rows of a weight matrix, as LLVM vector IR.

LANES rows of B are read along their whole length, a vector of each at a time, with the arithmetic of a register tile:
the words of a vector belong to one row here, not to one column each. A sum is kept in lanes until the end, so integer
sums equal a tile's, and float sums differ only in their order, which depends on the width only.
"""

from fastattn.simd.arguments import Affine, Rows, StagedRow
from fastattn.simd.arithmetic import Arithmetic
from fastattn.simd.emit import I64, Emitter
from fastattn.simd.rows import emit_lane_sums, emit_row_address
from fastattn.simd.target import LANES
from fastattn.simd.tile import arithmetic_of
from fastattn.simd.vector import make_array_routine


def _emit_linear_dots(arithmetic: Arithmetic, emitter: Emitter, row, rows, index, out, affine) -> None:
    """See ``linear_dots``."""
    builder = emitter.builder
    rows_at = [emit_row_address(emitter, rows.address, rows.distance, index, I64(4 * j)) for j in range(LANES)]
    zero = emitter.integer(0) if arithmetic.integer else emitter.constant(0.0)

    def add(offset, sums):
        a_offset = builder.mul(offset, I64(arithmetic.a_bytes // arithmetic.b_bytes))
        part = arithmetic.abreast(emitter, builder.add(row.address, a_offset))
        operands = [arithmetic.operand(emitter, builder.add(address, offset)) for address in rows_at]
        return [arithmetic.add(emitter, part, operand, total) for operand, total in zip(operands, sums)]

    step = LANES * arithmetic.group * arithmetic.b_bytes
    sums = emitter.loop(rows.distance, step, [zero] * LANES, add)
    if arithmetic.integer:
        total = builder.add(emit_lane_sums(emitter, sums, builder.add), emitter.load_integers(affine.corrections))
        factor = emitter.splat(emitter.load_scalar(row.factor))
        factors = emitter.multiply(factor, emitter.load(affine.factors))
        value = emitter.fma(builder.sitofp(total, emitter.vector), factors, emitter.load(affine.bias))
    else:
        value = emitter.add(emit_lane_sums(emitter, sums, emitter.add), emitter.load(affine.bias))
    emitter.store(value, out)


def _arithmetic_of_rows(weights) -> Arithmetic:
    arithmetic = arithmetic_of(weights)
    return arithmetic.alone or arithmetic


# linear_dots(weights, row, rows, index, out, affine): LANES outputs of a linear layer for one row, in the precision of
# ``weights``, an array of rows.
#   row     a StagedRow
#   rows    Rows of the weights, whole vectors of LANES steps each
#   index   address of LANES int32: the rows' numbers
#   out     address of a vector of float32, written
#   affine  Affine: of a vector each, of the outputs in ``index``
linear_dots = make_array_routine(
    "linear_dots", [StagedRow, Rows, None, None, Affine], _arithmetic_of_rows, _emit_linear_dots
)
