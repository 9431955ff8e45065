"""Register tiles: the inner loop of every matrix product, as LLVM vector IR.

A tile holds rows x (groups * vectors) accumulators in registers and adds ``steps`` outer products to them::

    c[i, :] (+)= sum over p of a[i, p] * b[p, :]

in one of the precisions of ``fastattn.simd.arithmetic``. Each element is summed over p in order, so its bits do not
depend on the tile it falls into. Written with the operands that its loop keeps in registers: rows of A are broadcast,
B is read in vectors.
"""

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from fastattn.simd.arithmetic import FLOAT32, Arithmetic, arithmetic_for
from fastattn.simd.emit import I64, Emitter
from fastattn.simd.target import TARGET, Target

PRECISIONS = {types.float32: "float32", types.uint16: "bfloat16", types.int8: "int8"}


def emit_sums(
    emitter: Emitter, arithmetic: Arithmetic, a_rows, b_groups, b_step, steps, starts, vectors: int, ahead=None
) -> list:
    """The loop over the inner dimension: ``starts``, row by row, plus the products; the same list at its end.

    ahead  an address and how many bytes it moves a step: memory that is asked for meanwhile.
    """
    builder, lanes = emitter.builder, emitter.target.lanes
    b_vector = lanes * arithmetic.group * arithmetic.b_bytes
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
        for j in range(vectors)
    ]
    if ahead is not None:
        emitter.prefetch(builder.add(ahead[0], builder.mul(step, ahead[1])))
    a_offset = builder.mul(step, I64(arithmetic.group * arithmetic.a_bytes))
    new: list[ir.Value] = []
    for row in a_rows:
        spread = arithmetic.spread(emitter, builder.add(row, a_offset))
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
    return results


def emit_tile(emitter: Emitter, rows: int, vectors: int, accumulate: bool, arguments) -> None:
    """Emit one float32 tile. arguments: the i64 values of make_tile's signature."""
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

    a        first row of A; a_row from row to row; its elements are adjacent.
    b        first row of B; b_step from row to row.
    steps    the length of the sums; 0 leaves c at zero (or as it is, when it accumulates).
    c        written (read first when ``accumulate``); rows c_row apart, ``vectors`` vectors each.
    """

    @intrinsic
    def tile(typing_context, a, a_row, b, b_step, steps, c, c_row):
        def generate(context, builder, kind, arguments):
            def emit(emitter, *values):
                emit_tile(emitter, rows, vectors, accumulate, values)

            name = f"fastattn.tile_{rows}_{vectors}_{'sums' if accumulate else 'zero'}"
            Emitter(builder, TARGET).call_once(name, arguments, emit)
            return context.get_dummy_value()

        return types.void(*[types.intp] * 7), generate

    return tile


def emit_linear_tile(emitter: Emitter, arithmetic: Arithmetic, rows: int, vectors: int, groups: int, arguments) -> None:
    """Emit one tile of a linear layer. arguments: the i64 values of make_linear_tile's signature.

    vectors  of each of the ``groups`` panels, the first ones.

    Float sums start from bias + residual. Integer ones start from ``correction``; in the end they are taken times
    their row's and their column's factor, and bias and residual are added.
    """
    builder, lanes = emitter.builder, emitter.target.lanes
    (
        a, a_row, row_factor, b, b_group, ahead, ahead_step, steps, c, c_row,
        bias, column_factor, correction, residual, residual_row,
    ) = arguments  # fmt: skip
    columns = [I64(n * lanes * 4) for n in range(groups * vectors)]
    a_rows, c_rows, residual_rows = (
        [builder.add(start, builder.mul(row, I64(i))) for i in range(rows)]
        for start, row in ((a, a_row), (c, c_row), (residual, residual_row))
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
    # several panels at once are bound by memory already
    asked = (ahead, ahead_step) if groups == 1 else None
    sums = emit_sums(emitter, arithmetic, a_rows, b_groups, b_step, steps, starts, vectors, asked)
    if arithmetic.integer:
        biases, factors = line(bias), line(column_factor)
        for i in range(rows):
            factor = emitter.splat(emitter.load_scalar(builder.add(row_factor, I64(i * 4))))
            residuals = line(residual_rows[i])
            for j in range(len(columns)):
                n = i * len(columns) + j
                value = emitter.fma(
                    builder.sitofp(sums[n], emitter.vector), emitter.multiply(factor, factors[j]), biases[j]
                )
                sums[n] = emitter.add(value, residuals[j])
    for i, row in enumerate(c_rows):
        for j, column in enumerate(columns):
            emitter.store(sums[i * len(columns) + j], builder.add(row, column))


def make_linear_tile(rows: int, groups: int = 1, vectors: int = TARGET.vectors):
    """The intrinsic ``tile(panels, ...)`` of a linear layer in the precision of ``panels``, an array of packed weights.

    The other arguments are addresses, or strides in bytes:
    a, a_row          rows as ``stage_rows`` leaves them.
    row_factor        float32 a row, integer arithmetic only, like column_factor and correction (int32).
    b, b_group        a panel, and the distance to the next of ``groups`` panels.
    ahead, ahead_step what to bring into the second cache meanwhile, and its bytes a step; one panel only.
    steps             of the inner dimension, ``arithmetic.group`` values each.
    c, c_row          written: groups * vectors vectors of float32 a row.
    bias, column_factor, correction    a row of groups * vectors vectors.
    residual          rows like c's, residual_row bytes apart; 0 bytes repeat one row.
    """

    @intrinsic
    def tile(
        typing_context, panels, a, a_row, row_factor, b, b_group, ahead, ahead_step, steps, c, c_row,
        bias, column_factor, correction, residual, residual_row,
    ):  # fmt: skip
        arithmetic = arithmetic_for(PRECISIONS[panels.dtype])

        def generate(context, builder, kind, arguments):
            def emit(emitter, *values):
                emit_linear_tile(emitter, arithmetic, rows, vectors, groups, values)

            name = f"fastattn.linear_{arithmetic.name}_{arithmetic.b_bytes}_{rows}_{groups}_{vectors}"
            Emitter(builder, TARGET).call_once(name, arguments[1:], emit)
            return context.get_dummy_value()

        return types.void(panels, *[types.intp] * 15), generate

    return tile


def tile_assembly(target: Target, triple: str, cpu: str, features: str, precision: str = "float32") -> str:
    """Assembly of the full tile for a CPU that need not be this one: what it compiles to is seen, not run."""
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    module = ir.Module("tile")
    module.triple = triple
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [I64] * 15), "tile")
    builder = ir.IRBuilder(function.append_basic_block())
    arithmetic = arithmetic_for(precision, target)
    emit_linear_tile(Emitter(builder, target), arithmetic, target.rows, target.vectors, 1, function.args)
    builder.ret_void()
    machine = llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, features=features, opt=3)
    return machine.emit_assembly(llvm.parse_assembly(str(module)))
