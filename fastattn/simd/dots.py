"""Dot products with selected rows of a weight matrix, as LLVM vector IR.

LANES rows of B are read along their whole length, a vector of each at a time, with the arithmetic of a register tile:
the words of a vector belong to one row here, not to one column each. A sum is kept in lanes until the end, so integer
sums equal a tile's, and float sums differ only in their order, which depends on the width only.
"""

from numba import types
from numba.extending import intrinsic

from fastattn.simd.arithmetic import Arithmetic, arithmetic_for
from fastattn.simd.emit import I64, Emitter
from fastattn.simd.rows import emit_lane_sums, emit_row_address
from fastattn.simd.target import LANES, TARGET
from fastattn.simd.tile import PRECISIONS, addresses


def emit_linear_dots(emitter: Emitter, arithmetic: Arithmetic, arguments) -> None:
    """Emit LANES outputs of a linear layer. arguments: those of ``linear_dots`` as i64 values or tuples of them."""
    builder = emitter.builder
    (a, row_factor), (rows, row_bytes), index, out, (bias, column_factor, correction) = arguments
    rows_at = [emit_row_address(emitter, rows, row_bytes, index, I64(4 * j)) for j in range(LANES)]
    zero = emitter.integer(0) if arithmetic.integer else emitter.constant(0.0)

    def add(offset, sums):
        a_offset = builder.mul(offset, I64(arithmetic.a_bytes // arithmetic.b_bytes))
        part = arithmetic.abreast(emitter, builder.add(a, a_offset))
        operands = [arithmetic.operand(emitter, builder.add(row, offset)) for row in rows_at]
        return [arithmetic.add(emitter, part, operand, total) for operand, total in zip(operands, sums)]

    step = LANES * arithmetic.group * arithmetic.b_bytes
    sums = emitter.loop(row_bytes, step, [zero] * LANES, add)
    if arithmetic.integer:
        total = builder.add(emit_lane_sums(emitter, sums, builder.add), emitter.load_integers(correction))
        factor = emitter.splat(emitter.load_scalar(row_factor))
        factors = emitter.multiply(factor, emitter.load(column_factor))
        value = emitter.fma(builder.sitofp(total, emitter.vector), factors, emitter.load(bias))
    else:
        value = emitter.add(emit_lane_sums(emitter, sums, emitter.add), emitter.load(bias))
    emitter.store(value, out)


@intrinsic
def linear_dots(typing_context, weights, row, rows, index, out, affine):
    """LANES outputs of a linear layer for one row, in the precision of ``weights``, an array of rows.

    The other arguments are addresses and a distance in bytes:
    row       (address, factor): a row staged by ``stage_rows``; the factor for integers only.
    rows      (address, distance): row 0 of the weights, and the distance between rows: whole vectors of LANES steps.
    index     LANES int32: the rows' numbers.
    out       a vector of float32, written.
    affine    (bias, factors, corrections): a vector each, of the outputs in ``index``.
    """
    arithmetic = arithmetic_for(PRECISIONS[weights.dtype])
    arithmetic = arithmetic.alone or arithmetic

    def generate(context, builder, kind, arguments):
        def emit(emitter, *values):
            emit_linear_dots(emitter, arithmetic, values)

        name = f"fastattn.dots_{arithmetic.name}_{arithmetic.b_bytes}"
        Emitter(builder, TARGET).call_once(name, arguments[1:], emit)
        return context.get_dummy_value()

    return types.void(weights, *addresses((2, 2, 0, 0, 3))), generate
