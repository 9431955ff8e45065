"""Register tiles: the inner loop of every matrix product, as LLVM vector IR.

A tile holds rows x (groups * vectors) accumulators in registers and adds ``steps`` outer products to them::

    c[i, :] (+)= sum over p of a[i, p] * b[p, :]

in one of the precisions of ``fastattn.simd.arithmetic``. Each element is summed over p in order, so its bits do not
depend on the tile it falls into. The loop broadcasts elements of A and reads B in vectors.
"""

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from fastattn.simd.arithmetic import FLOAT32, Arithmetic, arithmetic_for
from fastattn.simd.emit import I64, Emitter, nested
from fastattn.simd.target import TARGET, Target
from fastattn.simd.vector import make_routine

PRECISIONS = {types.float32: "float32", types.uint16: "bfloat16", types.int8: "int8"}


def emit_sums(
    emitter: Emitter, arithmetic: Arithmetic, a_rows, b_groups, b_step, steps, starts, vectors: int, ahead=None
) -> list:
    """Emit the loop over the inner dimension; returns ``starts``, row by row, plus the products.

    ahead  (address, bytes a step) of memory to prefetch meanwhile.
    """
    builder, lanes = emitter.builder, emitter.target.lanes
    b_vector = lanes * arithmetic.group * arithmetic.b_bytes // arithmetic.rows
    if arithmetic.rows == 2:
        across, count = len(b_groups) * vectors, len(starts)
        starts = _to_blocks(emitter, starts, across)
    entry = builder.block
    loop = builder.append_basic_block("tile.step")
    done = builder.append_basic_block("tile.done")
    builder.cbranch(builder.icmp_signed(">", steps, I64(0)), loop, done)

    builder.position_at_end(loop)
    step = builder.phi(I64)
    step.add_incoming(I64(0), entry)
    b_offset = builder.phi(I64)
    b_offset.add_incoming(I64(0), entry)
    sums = [builder.phi(start.type) for start in starts]
    operands = [
        arithmetic.operand(emitter, builder.add(group, builder.add(b_offset, I64(j * b_vector))))
        for group in b_groups
        for j in range(vectors * arithmetic.rows)
    ]
    if ahead is not None:
        emitter.prefetch(builder.add(ahead[0], builder.mul(step, ahead[1])))
    a_offset = builder.mul(step, I64(arithmetic.group * arithmetic.a_bytes))
    new: list[ir.Value] = []
    for first in range(0, len(a_rows), arithmetic.rows):
        # beside an odd row stands the row itself
        at = [builder.add(row, a_offset) for row in a_rows[first : first + arithmetic.rows]] * arithmetic.rows
        spread = arithmetic.spread(emitter, *at[: arithmetic.rows])
        for operand in operands:
            new.append(arithmetic.add(emitter, spread, operand, sums[len(new)]))
    following = builder.add(step, I64(1))
    step.add_incoming(following, loop)
    b_offset.add_incoming(builder.add(b_offset, b_step), loop)
    for phi, start, value in zip(sums, starts, new, strict=True):
        phi.add_incoming(start, entry)
        phi.add_incoming(value, loop)
    builder.cbranch(builder.icmp_signed("<", following, steps), loop, done)

    builder.position_at_end(done)
    results = []
    for start, value in zip(starts, new, strict=True):
        phi = builder.phi(start.type)
        phi.add_incoming(start, entry)
        phi.add_incoming(value, loop)
        results.append(phi)
    return results if arithmetic.rows == 1 else _to_rows(emitter, results, across)[:count]


def _to_blocks(emitter: Emitter, sums: list, across: int) -> list:
    """Sums row by row, ``across`` vectors each, as blocks of two rows: of the first vectors of both rows, and so on."""
    blocks = []
    for first in range(0, len(sums), 2 * across):
        upper, lower = sums[first : first + across], sums[first + across : first + 2 * across]
        for pair in zip(upper, lower or upper, strict=True):
            blocks += _exchange_halves(emitter, *pair)
    return blocks


def _to_rows(emitter: Emitter, blocks: list, across: int) -> list:
    """The sums of ``_to_blocks``, of an even number of rows."""
    rows: list = []
    for first in range(0, len(blocks), 2 * across):
        pairs = (_exchange_halves(emitter, *blocks[n : n + 2]) for n in range(first, first + 2 * across, 2))
        for row in zip(*pairs, strict=True):
            rows += row
    return rows


def _exchange_halves(emitter: Emitter, one, other) -> list:
    """Two vectors: the lower halves of both, and the upper halves of both."""
    lanes = emitter.target.lanes
    lower = [n + skip for skip in (0, lanes) for n in range(lanes // 2)]
    orders = (lower, [n + lanes // 2 for n in lower])
    return [emitter.builder.shuffle_vector(one, other, ir.Constant(emitter.integers, order)) for order in orders]


def emit_tile(emitter: Emitter, rows: int, vectors: int, accumulate: bool, arguments) -> None:
    """Emit one float32 tile. arguments: those of make_tile's intrinsic as i64 values."""
    builder, size = emitter.builder, emitter.target.lanes * 4
    a, a_row, b, b_step, steps, c, c_row = arguments
    a_rows, c_rows = (
        [builder.add(start, builder.mul(row, I64(i))) for i in range(rows)] for start, row in ((a, a_row), (c, c_row))
    )
    places = [builder.add(row, I64(j * size)) for row in c_rows for j in range(vectors)]
    starts = [emitter.load(place) if accumulate else emitter.constant(0.0) for place in places]
    for value, place in zip(emit_sums(emitter, FLOAT32, a_rows, [b], b_step, steps, starts, vectors), places):
        emitter.store(value, place)


def make_tile(rows: int, vectors: int = TARGET.vectors, accumulate: bool = False):
    """The intrinsic ``tile(a, a_row, b, b_step, steps, c, c_row)`` in float32; all are addresses or strides in bytes.

    a        first row of A; rows a_row apart; elements of a row are adjacent.
    b        first row of B; rows b_step apart.
    steps    the length of the sums; 0 sets c to zero (or leaves it if ``accumulate``).
    c        written (added to if ``accumulate``); rows c_row apart, ``vectors`` vectors each.
    """

    def emit(emitter, *values):
        emit_tile(emitter, rows, vectors, accumulate, values)

    name = f"tile_{rows}_{vectors}_{'sums' if accumulate else 'zero'}"
    return make_routine(name, (types.intp,) * 7, emit, "See make_tile.")


def emit_linear_tile(emitter: Emitter, arithmetic: Arithmetic, rows: int, groups: int, vectors: int, arguments) -> None:
    """Emit one tile of a linear layer. arguments: those of make_linear_tile's intrinsic, i64 values or tuples of them.

    vectors  how many of the first vectors of each of the ``groups`` panels.

    Float sums start from bias + residual. Integer sums start from ``corrections``; at the end they are multiplied by
    their row's and their column's factor, and bias and residual are added.
    """
    builder, lanes = emitter.builder, emitter.target.lanes
    (a, a_row, row_factor), (b, b_group, *asked), steps, out, (bias, column_factor, correction), residual = arguments
    columns = [I64(n * lanes * 4) for n in range(groups * vectors)]
    a_rows, c_rows, residual_rows = (
        [builder.add(start, builder.mul(row, I64(i))) for i in range(rows)]
        for start, row in ((a, a_row), out, residual)
    )
    b_groups = [builder.add(b, builder.mul(b_group, I64(g))) for g in range(groups)]
    b_step = I64(emitter.target.columns * arithmetic.group * arithmetic.b_bytes)

    def line(address, load=emitter.load):
        return [load(builder.add(address, column)) for column in columns]

    if arithmetic.integer:
        starts = line(correction, emitter.load_integers) * rows
    else:
        biases = line(bias)
        starts = [emitter.add(v, r) for row in residual_rows for v, r in zip(biases, line(row))]
    # several panels at once are already bound by memory
    ahead = asked if groups == 1 else None
    sums = emit_sums(emitter, arithmetic, a_rows, b_groups, b_step, steps, starts, vectors, ahead)
    by_rows = [sums[n : n + len(columns)] for n in range(0, len(sums), len(columns))]
    if arithmetic.integer:
        biases, factors = line(bias), line(column_factor)
        for i, row in enumerate(residual_rows):
            factor = emitter.splat(emitter.load_scalar(builder.add(row_factor, I64(i * 4))))
            by_rows[i] = add_affine(emitter, by_rows[i], factor, factors, biases, line(row))
    for row, values in zip(c_rows, by_rows):
        for column, value in zip(columns, values):
            emitter.store(value, builder.add(row, column))


def add_affine(emitter: Emitter, sums, factor, factors, biases, residuals) -> list:
    """A row's integer sums times their factors, plus bias and residual: the outputs of every tile of integers."""
    values = []
    for total, own, bias, residual in zip(sums, factors, biases, residuals, strict=True):
        scaled = emitter.fma(emitter.builder.sitofp(total, emitter.vector), emitter.multiply(factor, own), bias)
        values.append(emitter.add(scaled, residual))
    return values


# Tuple sizes of a linear tile's arguments after the array of weights; 0: a number without a tuple.
LINEAR_TILE = (3, 4, 0, 2, 3, 2)


def make_linear_tile(rows: int, groups: int = 1, vectors: int = TARGET.vectors):
    """The intrinsic ``tile(panels, rows_at, panel, steps, out, affine, residual)`` of a linear layer.

    panels    an array of packed weights, for its dtype only. The others are addresses, or strides in bytes:
    rows_at   (address, row, factors): rows staged by ``stage_rows``.
    panel     (address, distance, ahead, step): a panel, the distance between the ``groups`` panels; memory to
              prefetch into L2 meanwhile, and its bytes a step: if there is one panel only.
    steps     of the inner dimension, ``arithmetic.group`` values each.
    out       (address, row): written, groups * vectors vectors of float32 a row.
    affine    (bias, factors, corrections): a row of groups * vectors vectors each; the last two for integers only.
    residual  (address, row): rows like those of out; a stride of 0 repeats one row.
    """

    @intrinsic
    def tile(typing_context, panels, rows_at, panel, steps, out, affine, residual):
        arithmetic = arithmetic_for(PRECISIONS[panels.dtype])

        def generate(context, builder, kind, arguments):
            def emit(emitter, *values):
                emit_linear_tile(emitter, arithmetic, rows, groups, vectors, values)

            name = f"fastattn.linear_{arithmetic.name}_{arithmetic.b_bytes}_{rows}_{groups}_{vectors}"
            Emitter(builder, TARGET).call_once(name, arguments[1:], emit)
            return context.get_dummy_value()

        return types.void(panels, *addresses(LINEAR_TILE)), generate

    return tile


def addresses(sizes: tuple[int, ...]) -> list[types.Type]:
    """Numba types of arguments: tuples of these sizes of addresses or distances; 0: a number without a tuple."""
    return [types.UniTuple(types.intp, size) if size else types.intp for size in sizes]


def tile_assembly(target: Target, triple: str, cpu: str, features: str, precision: str = "float32") -> str:
    """Assembly of the full tile for any CPU, to be read, not run."""
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    module = ir.Module("tile")
    module.triple = triple
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [I64] * sum(n or 1 for n in LINEAR_TILE)), "tile")
    builder = ir.IRBuilder(function.append_basic_block())
    arithmetic, arguments = arithmetic_for(precision, target), nested(function.args, LINEAR_TILE)
    emit_linear_tile(Emitter(builder, target), arithmetic, target.rows, 1, target.vectors, arguments)
    builder.ret_void()
    machine = llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, features=features, opt=3)
    return machine.emit_assembly(llvm.parse_assembly(str(module)))
