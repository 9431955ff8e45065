"""The tile of a linear layer in Intel's tile registers: 32 rows at most times a panel, as fastattn.simd.tile's.

Staged rows and panels are read as they lie: 64 bytes of 16 rows are one register, 16 steps of 16 of a panel's columns
another. Two registers of rows meet two of columns, so that four loads serve four products; a panel's third column of
registers goes alone, and so do up to 16 rows, with all three. The sums are stored to a scratch of 6 KB in L1, where
bias, factors and residual are added.

Sums of int8 are exact, so they have the bits of any other instruction. Those of bfloat16 have an order of their own, of
blocks of 32 values, whatever the number of rows. Rows of a register do not mix: what lies behind the last row may be
anything.
"""

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from fastattn.simd.amx import SUMS, configure, load, multiply, release, store, zero
from fastattn.simd.arithmetic import Arithmetic, arithmetic_for
from fastattn.simd.constants import LINE, TILE_BYTES, TILE_ROWS, TILE_STEPS
from fastattn.simd.emit import I64, Emitter, nested
from fastattn.simd.target import TARGET, Target
from fastattn.simd.tile import LINEAR_TILE, PRECISIONS, add_affine, addresses
from fastattn.simd.vector import make_intrinsic

MOST_ROWS = 2 * TILE_ROWS


def prefetch_lines(emitter: Emitter, address, size) -> None:
    """Prefetch ``size`` bytes (i64) from an address on, into L2."""

    def prefetch(offset, _):
        emitter.prefetch(emitter.builder.add(address, offset))
        return []

    emitter.loop(size, LINE, [], prefetch)


def emit_products(emitter: Emitter, precision: str, rows: int, columns: list[int], operands, blocks, sums, ahead):
    """Emit one pass: ``rows`` registers of rows times some columns of registers, to ``sums``, (address, row).

    operands  (a, a_row, b, b_step): addresses and distances
    ahead     (address, bytes a block) of what is prefetched meanwhile, or None
    """
    builder, (a, a_row, b, b_step) = emitter.builder, operands
    pairs = [(i, j) for i in range(rows) for j in range(len(columns))]
    for n in range(len(pairs)):
        zero(emitter, n)

    def multiply_block(block, _):
        at, below = builder.mul(block, I64(TILE_BYTES)), builder.mul(block, builder.mul(b_step, I64(TILE_STEPS)))
        for i in range(rows):
            first = builder.mul(a_row, I64(i * TILE_ROWS))
            load(emitter, SUMS + i, builder.add(builder.add(a, first), at), a_row)
        for j, column in enumerate(columns):
            place = builder.add(builder.add(b, I64(column * TILE_BYTES)), below)
            load(emitter, SUMS + rows + j, place, b_step)
        for n, (i, j) in enumerate(pairs):
            multiply(emitter, precision, n, SUMS + i, SUMS + rows + j)
        if ahead is not None:
            prefetch_lines(emitter, builder.add(ahead[0], builder.mul(block, ahead[1])), ahead[1])
        return []

    emitter.loop(blocks, 1, [], multiply_block)
    for n, (i, j) in enumerate(pairs):
        skip = builder.add(builder.mul(sums[1], I64(i * TILE_ROWS)), I64(columns[j] * TILE_BYTES))
        store(emitter, n, builder.add(sums[0], skip), sums[1])


def emit_amx_linear_tile(emitter: Emitter, arithmetic: Arithmetic, vectors: int, left, arguments) -> None:
    """Emit the tile of at most ``left`` (i64) rows. arguments: those of emit_linear_tile, with one panel."""
    builder, precision = emitter.builder, "int8" if arithmetic.integer else "bfloat16"
    (a, a_row, row_factor), (b, _, ahead, ahead_step), steps, out, affine, residual = arguments
    with builder.goto_entry_block():
        scratch = builder.alloca(ir.ArrayType(ir.IntType(8), MOST_ROWS * vectors * TILE_BYTES))
    scratch.align = LINE
    sums = builder.ptrtoint(scratch, I64), I64(vectors * TILE_BYTES)
    operands = a, a_row, b, I64(emitter.target.columns * arithmetic.group * arithmetic.b_bytes)
    blocks, asked = builder.udiv(steps, I64(TILE_STEPS)), (ahead, builder.mul(ahead_step, I64(TILE_STEPS)))
    columns = list(range(vectors))
    with builder.if_else(builder.icmp_signed(">", left, I64(TILE_ROWS))) as (many, few):
        with many:
            emit_products(emitter, precision, 2, columns[:2], operands, blocks, sums, asked)
            if vectors > 2:
                emit_products(emitter, precision, 2, columns[2:], operands, blocks, sums, None)
        with few:
            emit_products(emitter, precision, 1, columns, operands, blocks, sums, asked)
    whole = builder.icmp_signed(">", left, I64(MOST_ROWS))
    rows = builder.select(whole, I64(MOST_ROWS), left)
    emitter.loop(rows, 1, [], _make_row(emitter, arithmetic, vectors, sums, row_factor, out, affine, residual))


def _make_row(emitter: Emitter, arithmetic: Arithmetic, vectors: int, sums, row_factor, out, affine, residual):
    """Make the body of the loop over rows, which makes outputs of their sums."""
    builder = emitter.builder
    columns = [I64(n * TILE_BYTES) for n in range(vectors)]

    def line(address, read=emitter.load):
        return [read(builder.add(address, column)) for column in columns]

    biases = line(affine[0])
    factors, corrections = (line(affine[1]), line(affine[2], emitter.load_integers)) if arithmetic.integer else ([], [])

    def row(i, _):
        at, place, beside = (builder.add(start, builder.mul(i, step)) for start, step in (sums, out, residual))
        if arithmetic.integer:
            totals = [builder.add(*pair) for pair in zip(line(at, emitter.load_integers), corrections)]
            factor = emitter.splat(emitter.load_scalar(builder.add(row_factor, builder.mul(i, I64(4)))))
            values = add_affine(emitter, totals, factor, factors, biases, line(beside))
        else:
            values = [emitter.add(*pair) for pair in zip(line(at), biases)]
            values = [emitter.add(*pair) for pair in zip(values, line(beside))]
        for column, value in zip(columns, values, strict=True):
            emitter.store(value, builder.add(place, column))
        return []

    return row


def make_amx_linear_tile(vectors: int = TARGET.vectors):
    """The intrinsic ``tile(panels, left, rows_at, panel, steps, out, affine, residual)``.

    left      rows that there are; the first 32 at most are taken.
    steps     of the inner dimension, whole blocks of TILE_STEPS.
    The others are make_linear_tile's; the registers have been configured for the task's rows, 16 at most. Staged rows
    are of whole blocks; rows that fill a register of the configured height can be read.
    """

    @intrinsic
    def tile(typing_context, panels, left, rows_at, panel, steps, out, affine, residual):
        arithmetic = arithmetic_for(PRECISIONS[panels.dtype])

        def generate(context, builder, kind, arguments):
            def emit(emitter, left, *values):
                emit_amx_linear_tile(emitter, arithmetic, vectors, left, values)

            name = f"fastattn.amx_linear_{arithmetic.name}_{vectors}"
            Emitter(builder, TARGET).call_once(name, arguments[1:], emit)
            return context.get_dummy_value()

        return types.void(panels, types.intp, *addresses(LINEAR_TILE)), generate

    return tile


configure_tiles = make_intrinsic(
    "configure_tiles", types.void, (types.intp,), configure, "Give registers of rows that many rows, 1 to 16."
)
release_tiles = make_intrinsic("release_tiles", types.void, (), release, "Leave the tile registers empty.")


def amx_assembly(target: Target, cpu: str, precision: str) -> str:
    """Assembly of the tile for any x86-64 CPU that has it, to be read, not run."""
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    module = ir.Module("tile")
    module.triple = triple = "x86_64-unknown-linux-gnu"
    numbers = sum(n or 1 for n in LINEAR_TILE)
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [I64] * (1 + numbers)), "tile")
    builder = ir.IRBuilder(function.append_basic_block())
    left, *arguments = function.args
    arithmetic = arithmetic_for(precision, target)
    emit_amx_linear_tile(Emitter(builder, target), arithmetic, target.vectors, left, nested(arguments, LINEAR_TILE))
    builder.ret_void()
    machine = llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, features="", opt=3)
    code = llvm.parse_assembly(str(module))
    return machine.emit_assembly(code)
