"""Register tiles: the inner loop of every matrix product, as LLVM vector IR.

A tile holds rows x (groups * vectors) accumulators in registers and adds ``steps`` outer products to them::

    c[i, :] (+)= sum over p of a[i, p] * b[p, :]

Each element is summed over p in order by one fused multiply-add a step, so its bits do not depend on the tile it
falls into. Written with the operands that its loop keeps in registers: rows of A are broadcast, B is read in vectors.
"""

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from fastattn.simd.emit import F32, I64, Emitter
from fastattn.simd.target import TARGET, Target


def call_tile(builder: ir.IRBuilder, rows: int, vectors: int, groups: int, start: str, arguments) -> None:
    """Call the function that is one tile; see emit_tile."""

    def emit(emitter, *values):
        emit_tile(emitter, rows, vectors, groups, start, values)

    Emitter(builder, TARGET).call_once(f"fastattn.tile_{rows}_{vectors}_{groups}_{start}", arguments, emit)


def emit_tile(emitter: Emitter, rows: int, vectors: int, groups: int, start: str, arguments) -> None:
    """Emit one tile. arguments: the i64 values of make_tile's signature; start: zero, the sums in c, or a bias row."""
    builder, lanes = emitter.builder, emitter.target.lanes
    a, a_row, b, b_step, b_group, steps, c, c_row, *rest = arguments
    columns = [(g, j) for g in range(groups) for j in range(vectors)]

    def c_address(i, g, j):
        offset = builder.add(builder.mul(c_row, I64(i)), I64((g * vectors + j) * lanes * 4))
        return builder.add(c, offset)

    a_rows = [builder.add(a, builder.mul(a_row, I64(i))) for i in range(rows)]
    b_groups = [builder.add(b, builder.mul(b_group, I64(g))) for g in range(groups)]
    if start == "sums":
        starts = [emitter.load(c_address(i, g, j)) for i in range(rows) for g, j in columns]
    elif start == "bias":
        bias, residual, residual_row = rest
        offsets = [I64(n * lanes * 4) for n in range(len(columns))]
        row_addresses = [builder.add(residual, builder.mul(residual_row, I64(i))) for i in range(rows)]
        biases = [emitter.load(builder.add(bias, offset)) for offset in offsets]
        starts = [
            emitter.add(value, emitter.load(builder.add(row, offset)))
            for row in row_addresses
            for value, offset in zip(biases, offsets, strict=True)
        ]
    else:
        starts = [emitter.constant(0.0)] * (rows * len(columns))

    entry = builder.block
    loop = builder.append_basic_block("tile.step")
    done = builder.append_basic_block("tile.done")
    builder.cbranch(builder.icmp_signed(">", steps, I64(0)), loop, done)

    builder.position_at_end(loop)
    step = builder.phi(I64)
    step.add_incoming(I64(0), entry)
    b_offset = builder.phi(I64)
    b_offset.add_incoming(I64(0), entry)
    sums = [builder.phi(emitter.vector) for _ in starts]
    operands = [emitter.load(builder.add(b_groups[g], builder.add(b_offset, I64(j * lanes * 4)))) for g, j in columns]
    new: list[ir.Value] = []
    for i in range(rows):
        scalar = builder.load(emitter.pointer(builder.add(a_rows[i], builder.mul(step, I64(4))), F32))
        scalar.align = 4
        spread = emitter.splat(scalar)
        for operand in operands:
            new.append(emitter.fma(spread, operand, sums[len(new)]))
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
        phi = builder.phi(emitter.vector)
        phi.add_incoming(start, entry)
        phi.add_incoming(value, loop)
        results.append(phi)
    for n, (i, (g, j)) in enumerate((i, column) for i in range(rows) for column in columns):
        emitter.store(results[n], c_address(i, g, j))


def make_tile(rows: int, vectors: int = TARGET.vectors, groups: int = 1, accumulate: bool = False):
    """The intrinsic ``tile(a, a_row, b, b_step, b_group, steps, c, c_row)``; all are addresses or strides in bytes.

    a        first row of A; a_row from row to row; its elements are adjacent.
    b        first row of B; b_step from row to row, b_group from one group of ``vectors`` vectors to the next.
    steps    the length of the sums; 0 leaves c at zero (or as it is, when it accumulates).
    c        written (read first when ``accumulate``); rows c_row apart, groups * vectors vectors each.
    """
    start = "sums" if accumulate else "zero"

    @intrinsic
    def tile(typing_context, a, a_row, b, b_step, b_group, steps, c, c_row):
        def generate(context, builder, kind, arguments):
            call_tile(builder, rows, vectors, groups, start, arguments)
            return context.get_dummy_value()

        return types.void(*[types.intp] * 8), generate

    return tile


def make_biased_tile(rows: int, groups: int = 1):
    """make_tile with three more arguments, ``bias, residual, residual_row``: its sums start from bias + residual.

    bias      a row of groups * vectors vectors.
    residual  rows like c's, residual_row bytes apart; 0 bytes repeat one row.
    """

    @intrinsic
    def tile(typing_context, a, a_row, b, b_step, b_group, steps, c, c_row, bias, residual, residual_row):
        def generate(context, builder, kind, arguments):
            call_tile(builder, rows, TARGET.vectors, groups, "bias", arguments)
            return context.get_dummy_value()

        return types.void(*[types.intp] * 11), generate

    return tile


def tile_assembly(target: Target, triple: str, cpu: str, features: str) -> str:
    """Assembly of the full tile for a CPU that need not be this one: what it compiles to is seen, not run."""
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    module = ir.Module("tile")
    module.triple = triple
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [I64] * 8), "tile")
    builder = ir.IRBuilder(function.append_basic_block())
    emit_tile(Emitter(builder, target), target.rows, target.vectors, 1, "sums", function.args)
    builder.ret_void()
    machine = llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, features=features, opt=3)
    return machine.emit_assembly(llvm.parse_assembly(str(module)))
