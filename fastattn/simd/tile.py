"""Register tiles: the inner loop of every matrix product, as LLVM vector IR.

A tile holds rows x (groups * vectors) accumulators in registers and adds ``steps`` outer products to them::

    c[i, :] (+)= sum over p of a[i, p] * b[p, :]

in one of the precisions of ``fastattn.simd.arithmetic``. Each element is a sum over p in order, so its bits do not
depend on its tile. The loop broadcasts elements of A and reads B in vectors.

Dot products with selected rows of weights read LANES rows of B along their whole length, a vector of each at a time,
with the same arithmetic: all words of such a vector belong to one row, those of a tile's vector to a column each. A sum
stays in lanes until the end, so integer sums equal a tile's, and float sums differ only in their order, which depends
on the width alone.

The functions at the end write float32 as operands of the target's arithmetic.
"""

from llvmlite import ir
from numba import types

from fastattn.simd.arguments import LINE, Affine, LinearTile, Panels, Rows, StagedRow, StagedRows
from fastattn.simd.arithmetic import Arithmetic, arithmetic_for
from fastattn.simd.emit import I64, Emitter
from fastattn.simd.rows import emit_lane_sums, emit_row_address
from fastattn.simd.target import LANES, TARGET
from fastattn.simd.vector import VECTOR, as_array_routine, as_intrinsic, as_routine

GROUPED = {types.uint8: "int4", types.int16: "int8_groups"}  # see fastattn.simd.grouped
PRECISIONS = {types.float32: "float32", types.uint16: "bfloat16", types.int8: "int8"} | GROUPED
LINEAR_TILE = StagedRows, Panels, None, Rows, Affine, Rows  # classes of the fields of LinearTile
INT8, BFLOAT16 = arithmetic_for("int8"), arithmetic_for("bfloat16")
STREAM_AHEAD = 4096  # 1 KB is slower, 16 KB no faster
INT8_BYTES, BFLOAT16_BYTES = INT8.a_bytes, BFLOAT16.a_bytes  # bytes of one staged value


def arithmetic_of(weights) -> Arithmetic:
    """The target's arithmetic for the Numba type of an array of weights."""
    return arithmetic_for(PRECISIONS[weights.dtype])


def emit_sums(
    emitter: Emitter, arithmetic: Arithmetic, a_rows, b_groups, b_step, steps, starts, vectors: int, ahead=None
) -> list:
    """Emit the loop over the inner dimension; returns ``starts``, row by row, plus the products.

    ahead  (address, bytes a step) of memory that the loop prefetches, a line a step; all lines of constant bytes.
    """
    builder, lanes = emitter.builder, emitter.target.lanes
    b_vector = lanes * arithmetic.group * arithmetic.b_bytes // arithmetic.rows
    if arithmetic.rows == 2:
        row_vectors, count = len(b_groups) * vectors, len(starts)
        starts = _to_blocks(emitter, starts, row_vectors)

    def add(step, values):
        b_offset, *sums = values
        operands = [
            arithmetic.operand(emitter, builder.add(group, builder.add(b_offset, I64(j * b_vector))))
            for group in b_groups
            for j in range(vectors * arithmetic.rows)
        ]
        if ahead is not None:
            address, bytes_a_step = ahead
            first_line = builder.add(address, builder.mul(step, bytes_a_step))
            for skip in range(0, bytes_a_step.constant if isinstance(bytes_a_step, ir.Constant) else 1, LINE):
                emitter.prefetch(builder.add(first_line, I64(skip)))
        a_offset = builder.mul(step, I64(arithmetic.group * arithmetic.a_bytes))
        new_sums = []
        for first in range(0, len(a_rows), arithmetic.rows):
            # of an odd number of rows the last one is taken twice
            words = [builder.add(row, a_offset) for row in a_rows[first : first + arithmetic.rows]] * arithmetic.rows
            spread = arithmetic.spread(emitter, *words[: arithmetic.rows])
            for operand in operands:
                new_sums.append(arithmetic.add(emitter, spread, operand, sums[len(new_sums)]))
        return [builder.add(b_offset, b_step), *new_sums]

    _, *results = emitter.loop(steps, 1, [I64(0), *starts], add)
    return results if arithmetic.rows == 1 else _to_rows(emitter, results, row_vectors)[:count]


def _to_blocks(emitter: Emitter, sums: list, row_vectors: int) -> list:
    """Turn sums that go row by row, ``row_vectors`` vectors each, into blocks of two rows, vector by vector."""
    blocks = []
    for first in range(0, len(sums), 2 * row_vectors):
        upper, lower = sums[first : first + row_vectors], sums[first + row_vectors : first + 2 * row_vectors]
        for pair in zip(upper, lower or upper, strict=True):
            blocks += _exchange_halves(emitter, *pair)
    return blocks


def _to_rows(emitter: Emitter, blocks: list, row_vectors: int) -> list:
    """The reverse of ``_to_blocks``, for an even number of rows."""
    rows: list = []
    for first in range(0, len(blocks), 2 * row_vectors):
        pairs = (_exchange_halves(emitter, *blocks[n : n + 2]) for n in range(first, first + 2 * row_vectors, 2))
        for row in zip(*pairs, strict=True):
            rows += row
    return rows


def _exchange_halves(emitter: Emitter, first, second) -> list:
    """(the lower halves of both vectors as one, the upper halves of both)."""
    lanes = emitter.target.lanes
    lower = [n + skip for skip in (0, lanes) for n in range(lanes // 2)]
    return [emitter.pick(first, order, second) for order in (lower, [n + lanes // 2 for n in lower])]


def make_tile(rows: int, vectors: int = TARGET.vectors, accumulate: bool = False, precision: str = "float32"):
    """The intrinsic ``tile(a, a_row, b, b_step, steps, c, c_row)`` of addresses and strides in bytes.

    a      first row of A; rows a_row apart; elements of a row are adjacent.
    b      first row of B; rows b_step apart.
    steps  the length of the sums; 0 sets c to zero (or leaves it if ``accumulate``).
    c      float32, written, or added to if ``accumulate``; rows c_row apart, ``vectors`` vectors each.
    """
    arithmetic = arithmetic_for(precision)

    def emit(emitter, a, a_row, b, b_step, steps, c, c_row):
        a_rows, c_rows = emitter.row_addresses(a, a_row, rows), emitter.row_addresses(c, c_row, rows)
        columns = [I64(j * emitter.target.lanes * 4) for j in range(vectors)]
        targets = [emitter.builder.add(row, column) for row in c_rows for column in columns]
        starts = [emitter.load(target) if accumulate else emitter.constant(0.0) for target in targets]
        for value, target in zip(emit_sums(emitter, arithmetic, a_rows, [b], b_step, steps, starts, vectors), targets):
            emitter.store(value, target)

    name = f"tile_{rows}_{vectors}_{'sums' if accumulate else 'zero'}_{precision}"
    return as_routine(name, *[types.intp] * 7)(emit)


def emit_linear_tile(
    emitter: Emitter, arithmetic: Arithmetic, rows: int, groups: int, vectors: int, alone: bool, tile: LinearTile
) -> None:
    """Emit one tile of a linear layer, of the first ``vectors`` vectors of each of ``groups`` panels.

    Float sums start from bias + residual. Integer sums start from ``corrections``; at the end the tile multiplies them
    by their row's and their column's factor and adds bias and residual. ``tile`` is a LinearTile.
    """
    builder, panels, affine = emitter.builder, tile.panels, tile.affine
    columns = [I64(n * emitter.target.lanes * 4) for n in range(groups * vectors)]
    a_rows = emitter.row_addresses(tile.rows.address, tile.rows.distance, rows)
    c_rows = emitter.row_addresses(tile.out.address, tile.out.distance, rows)
    residual_rows = emitter.row_addresses(tile.residual.address, tile.residual.distance, rows)
    b_groups = emitter.row_addresses(panels.address, panels.distance, groups)
    b_step = I64(emitter.target.columns * arithmetic.group * arithmetic.b_bytes)

    def line(address, load=emitter.load):
        return [load(builder.add(address, column)) for column in columns]

    if arithmetic.integer:
        starts = line(affine.corrections, emitter.load_integers) * rows
    else:
        biases = line(affine.bias)
        starts = [emitter.add(v, r) for row in residual_rows for v, r in zip(biases, line(row))]
    # no prefetch for several panels at once, which memory bounds already
    ahead = (panels.ahead, panels.ahead_step) if groups == 1 else None
    if alone:
        ahead = builder.add(panels.address, I64(STREAM_AHEAD)), b_step
    sums = emit_sums(emitter, arithmetic, a_rows, b_groups, b_step, tile.steps, starts, vectors, ahead)
    by_rows = [sums[n : n + len(columns)] for n in range(0, len(sums), len(columns))]
    if arithmetic.integer:
        biases, factors = line(affine.bias), line(affine.factors)
        for i, row in enumerate(residual_rows):
            factor = emitter.splat(emitter.load_scalar(builder.add(tile.rows.factors, I64(i * 4))))
            by_rows[i] = add_affine(emitter, by_rows[i], factor, factors, biases, line(row))
    for row, values in zip(c_rows, by_rows):
        for column, value in zip(columns, values):
            emitter.store(value, builder.add(row, column))


def add_affine(emitter: Emitter, sums, factor, factors, biases, residuals) -> list:
    """The outputs of every integer tile: a row's sums times their factors, plus bias and residual."""
    values = []
    for total, scale, bias, residual in zip(sums, factors, biases, residuals, strict=True):
        scaled = emitter.fma(emitter.builder.sitofp(total, emitter.vector), emitter.multiply(factor, scale), bias)
        values.append(emitter.add(scaled, residual))
    return values


def make_linear_tile(rows: int, groups: int = 1, vectors: int = TARGET.vectors, alone: bool = False):
    """The intrinsic ``tile(weights, rows, panels, steps, out, affine, residual)`` of a linear layer.

    weights   an array of packed weights, for its dtype only.
    rows      StagedRows.
    panels    Panels: the first of ``groups``.
    steps     of the inner dimension, ``arithmetic.group`` values each.
    out       Rows, written: groups * vectors vectors of float32 each.
    affine    Affine: rows of groups * vectors vectors.
    residual  Rows like those of out.
    A tile ``alone`` meets its panel first, and prefetches what it will read STREAM_AHEAD bytes on.
    """

    def emit(arithmetic, emitter, *values):
        emit_linear_tile(emitter, arithmetic, rows, groups, vectors, alone, LinearTile(*values))

    name = f"linear_{rows}_{groups}_{vectors}{'_alone' if alone else ''}"
    return as_array_routine(name, LINEAR_TILE, arithmetic_of)(emit)


@as_array_routine("linear_dots", [StagedRow, Rows, None, None, Affine], arithmetic_of)
def linear_dots(arithmetic: Arithmetic, emitter: Emitter, row, rows, index, out, affine) -> None:
    """LANES outputs of a linear layer for one row, in the precision of the weights.

    row     a StagedRow
    rows    Rows of the weights, whole vectors of LANES steps each
    index   address of LANES int32: the rows' numbers
    out     address of a vector of float32, written
    affine  Affine: of a vector each, of the outputs in ``index``
    """
    builder, arithmetic = emitter.builder, arithmetic.single_row or arithmetic
    weight_rows = [emit_row_address(emitter, rows.address, rows.distance, index, I64(4 * j)) for j in range(LANES)]
    zero = emitter.integer(0) if arithmetic.integer else emitter.constant(0.0)

    def add(offset, sums):
        a_offset = builder.mul(offset, I64(arithmetic.a_bytes // arithmetic.b_bytes))
        words = arithmetic.adjacent(emitter, builder.add(row.address, a_offset))
        operands = [arithmetic.operand(emitter, builder.add(weight_row, offset)) for weight_row in weight_rows]
        return [arithmetic.add(emitter, words, operand, total) for operand, total in zip(operands, sums)]

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


@as_intrinsic(types.void, VECTOR, types.intp)
def store_int8(emitter: Emitter, value, address):
    """Write the nearest integers as int8 operands."""
    integers = emitter.builder.add(emitter.round_to_integers(value), emitter.integer(INT8.offset))
    emitter.store_narrow(integers, address, 8 * INT8_BYTES)


@as_intrinsic(types.void, VECTOR, types.intp)
def store_bfloat16(emitter: Emitter, value, address):
    """Write the nearest bfloat16 operands."""
    if BFLOAT16_BYTES == 4:
        emitter.store(emitter.round_to_bfloat16(value), address)
    else:
        emitter.store(emitter.bfloat16_operands(value), address, 2)


@as_intrinsic(VECTOR, VECTOR, VECTOR)
def pair_bfloat16(emitter: Emitter, first, second):
    """The nearest bfloat16 of two vectors, a pair in each lane."""
    low, high = (emitter.bfloat16_operands(value) for value in (first, second))
    lanes = emitter.target.lanes
    pairs = emitter.pick(low, [n + skip for n in range(lanes) for skip in (0, lanes)], high)
    return emitter.builder.bitcast(pairs, emitter.vector)


@as_intrinsic(types.void, VECTOR, types.intp, types.intp)
def store_first_bfloat16(emitter: Emitter, value, address, count):
    """Write the first ``count`` lanes as the nearest bfloat16."""
    emitter.store_first(emitter.bfloat16_bits(value), address, count, 2)


@as_intrinsic(types.void, VECTOR, types.intp, types.intp)
def store_first_int8(emitter: Emitter, value, address, count):
    """Write the first ``count`` lanes as the nearest integers, int8."""
    kind = ir.VectorType(ir.IntType(8), emitter.target.lanes)
    emitter.store_first(emitter.builder.trunc(emitter.round_to_integers(value), kind), address, count, 1)


@as_intrinsic(VECTOR, VECTOR)
def nearest_bfloat16(emitter: Emitter, value):
    """The nearest bfloat16, as float32."""
    return emitter.builder.bitcast(emitter.round_to_bfloat16(value), emitter.vector)


store_first_float16 = as_intrinsic(types.void, VECTOR, types.intp, types.intp)(Emitter.store_first_float16)
