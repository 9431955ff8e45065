"""Intel's tile registers (AMX): their instructions, as calls that LLVM knows, and the tile of a linear layer in them.

Eight registers hold up to 16 rows of 64 bytes each; a thread first loads a configuration of these numbers. An
instruction multiplies 16 rows of A, of 16 words each, by 16 steps of B, of 16 columns each, into 16 x 16 sums; a word
is a step of a column: four int8 or two bfloat16. Constants name the registers; LLVM allots none by itself.

A tile is at most 32 rows times a panel. It loads staged rows and panels as they lie: 64 bytes of 16 rows are one
register, 16 steps of 16 of a panel's columns another. Two registers of rows meet two of columns, so four loads serve
four products; a panel's third column of registers goes alone, and up to 16 rows go alone with all three. The sums go to
a scratch of 6 KB in L1, where the tile adds bias, factors and residual.

Sums of int8 are exact, so they have the bits of any other instruction. Sums of bfloat16 have an order of their own, of
blocks of 32 values, whatever the number of rows. Rows of a register do not mix, so any bytes may follow the last row.

No gain on an Emerald Rapids core, shares of the time at 384 rows of 384 to 1,536 inputs: no prefetching 1.06 to 1.14,
prefetching of outputs before they are written 1.0 to 1.1, staged rows an odd number of lines apart 0.93 to 1.13, huge
pages 0.97 to 1.0. Outputs of 32 rows made beside the products of the next 32: int8 0.92 to 1.03, bfloat16 0.87 to 0.89,
for 80 more lines. The same layout in C takes 0.65 of the time, without staging; half of what it adds to the bare
products is writing outputs.

Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2: LDTILECFG, TDPBUSD, TDPBSUD, TDPBF16PS.
"""

from llvmlite import ir
from numba import types

from fastattn.simd.arguments import LINE, TILE_BYTES, TILE_ROWS, TILE_STEPS, LinearTile, Rows
from fastattn.simd.arithmetic import Arithmetic
from fastattn.simd.emit import I64, Emitter
from fastattn.simd.rows import prefetch_lines
from fastattn.simd.target import TARGET
from fastattn.simd.tile import LINEAR_TILE, add_affine, arithmetic_of
from fastattn.simd.vector import as_array_routine, as_intrinsic

SUMS, FULL_HEIGHT = 4, 5  # the number of registers of sums; the first register that always has TILE_ROWS rows
MOST_ROWS = 2 * TILE_ROWS

# Tests replace these to run tiles on CPUs without them.
INSTRUCTIONS = {
    "configure": "llvm.x86.ldtilecfg",
    "release": "llvm.x86.tilerelease",
    "zero": "llvm.x86.tilezero",
    "load": "llvm.x86.tileloadd64",
    "store": "llvm.x86.tilestored64",
    "int8": "llvm.x86.tdpbusd",
    "signed rows": "llvm.x86.tdpbsud",
    "bfloat16": "llvm.x86.tdpbf16ps",
}
I8 = ir.IntType(8)


def emit_instruction(emitter: Emitter, instruction: str, *arguments) -> None:
    emitter.call(INSTRUCTIONS[instruction], ir.VoidType(), *arguments)


def configure(emitter: Emitter, row_counts, row_bytes) -> None:
    """Give each register a number of rows, 1 to TILE_ROWS, and of bytes a row; 0 and 0 where it is not used.

    row_counts  the eight numbers of rows, 8 bits each, in an i64
    row_bytes   the eight numbers of bytes, 16 bits each, in two i64
    """
    builder = emitter.builder
    with builder.goto_entry_block():
        configuration = builder.alloca(ir.ArrayType(I64, 8))
    configuration.align = 8
    # byte 0: the palette; from byte 16 on the bytes of a row; from byte 48 on the rows
    for n, word in enumerate([I64(1), I64(0), *row_bytes, I64(0), I64(0), row_counts, I64(0)]):
        builder.store(word, builder.gep(configuration, [I64(0), I64(n)]))
    emit_instruction(emitter, "configure", builder.bitcast(configuration, I8.as_pointer()))


def configure_rows(emitter: Emitter, rows) -> None:
    """Give the registers before FULL_HEIGHT ``rows`` rows (i64), 1 to TILE_ROWS, and the others TILE_ROWS."""
    low, high = sum(1 << 8 * n for n in range(FULL_HEIGHT)), sum(TILE_ROWS << 8 * n for n in range(FULL_HEIGHT, 8))
    row_bytes = I64(sum(TILE_BYTES << 16 * n for n in range(4)))
    configure(emitter, emitter.builder.add(emitter.builder.mul(rows, I64(low)), I64(high)), [row_bytes] * 2)


def release(emitter: Emitter) -> None:
    """Empty the registers, so that the system need not save them for this thread."""
    emit_instruction(emitter, "release")


configure_tiles, release_tiles = as_intrinsic(types.void, types.intp)(configure_rows), as_intrinsic(types.void)(release)


def emit_move(emitter: Emitter, instruction: str, register: int, address, distance) -> None:
    """Load or store the rows at an address, ``distance`` bytes apart."""
    emit_instruction(emitter, instruction, I8(register), emitter.pointer(address, I8), distance)


def emit_products(emitter: Emitter, precision: str, rows: int, columns: list[int], operands, blocks, sums, ahead):
    """Emit one pass: ``rows`` registers of rows times some of a panel's columns of registers.

    operands  (a, a_row, b, b_step): addresses and distances
    sums      (address, bytes from row to row), written
    ahead     (address, bytes a block) of the memory that the pass prefetches

    The instruction sums products of bfloat16 in float32 from zero, even and odd values apart; then it adds both sums to
    each other and to the accumulator. Subnormal numbers count as zero.
    """
    builder, (a, a_row, b, b_step), (first_sum, sums_row) = emitter.builder, operands, sums
    pairs = [(i, j) for i in range(rows) for j in range(len(columns))]
    for n in range(len(pairs)):
        emit_instruction(emitter, "zero", I8(n))

    def multiply_block(block):
        skip, b_skip = builder.mul(block, I64(TILE_BYTES)), builder.mul(block, builder.mul(b_step, I64(TILE_STEPS)))
        for i in range(rows):
            first = builder.mul(a_row, I64(i * TILE_ROWS))
            emit_move(emitter, "load", SUMS + i, builder.add(builder.add(a, first), skip), a_row)
        for j, column in enumerate(columns):
            b_address = builder.add(builder.add(b, I64(column * TILE_BYTES)), b_skip)
            emit_move(emitter, "load", SUMS + rows + j, b_address, b_step)
        for n, (i, j) in enumerate(pairs):
            emit_instruction(emitter, precision, I8(n), I8(SUMS + i), I8(SUMS + rows + j))
        address, size = ahead
        prefetch_lines(emitter, builder.add(address, builder.mul(block, size)), size)

    emitter.for_each(blocks, 1, multiply_block)
    for n, (i, j) in enumerate(pairs):
        skip = builder.add(builder.mul(sums_row, I64(i * TILE_ROWS)), I64(columns[j] * TILE_BYTES))
        emit_move(emitter, "store", n, builder.add(first_sum, skip), sums_row)


def emit_amx_linear_tile(emitter: Emitter, arithmetic: Arithmetic, vectors: int, remaining, tile: LinearTile) -> None:
    """Emit the tile of at most ``remaining`` (i64) rows, with one panel."""
    builder, precision, panels = emitter.builder, "int8" if arithmetic.integer else "bfloat16", tile.panels
    with builder.goto_entry_block():
        scratch = builder.alloca(ir.ArrayType(ir.IntType(8), MOST_ROWS * vectors * TILE_BYTES))
    scratch.align = LINE
    sums = Rows(builder.ptrtoint(scratch, I64), I64(vectors * TILE_BYTES))
    b_step = I64(emitter.target.columns * arithmetic.group * arithmetic.b_bytes)
    operands = tile.rows.address, tile.rows.distance, panels.address, b_step
    blocks = builder.udiv(tile.steps, I64(TILE_STEPS))
    size = builder.mul(panels.ahead_step, I64(TILE_STEPS))
    columns, passes = list(range(vectors)), -(-vectors // 2)
    share = builder.and_(builder.add(builder.udiv(size, I64(passes)), I64(LINE - 1)), I64(-LINE))  # of a pass's block
    with builder.if_else(builder.icmp_signed(">", remaining, I64(TILE_ROWS))) as (many, few):
        with many:
            for n in range(passes):  # a pass that prefetches all waits for memory: 5% more time with 20 to 28 rows
                ahead = builder.add(panels.ahead, builder.mul(blocks, builder.mul(share, I64(n))))
                emit_products(emitter, precision, 2, columns[2 * n : 2 * n + 2], operands, blocks, sums, (ahead, share))
        with few:
            emit_products(emitter, precision, 1, columns, operands, blocks, sums, (panels.ahead, size))
    rows = builder.select(builder.icmp_signed(">", remaining, I64(MOST_ROWS)), I64(MOST_ROWS), remaining)
    skips = [I64(n * TILE_BYTES) for n in range(vectors)]

    def line(address, read=emitter.load):
        return [read(builder.add(address, skip)) for skip in skips]

    biases, factors, corrections = line(tile.affine.bias), [], []
    if arithmetic.integer:
        factors, corrections = line(tile.affine.factors), line(tile.affine.corrections, emitter.load_integers)

    def finish_row(i):
        sums_at, out_at, residual_at = (
            builder.add(start, builder.mul(i, step)) for start, step in (sums, tile.out, tile.residual)
        )
        if arithmetic.integer:
            totals = [builder.add(*pair) for pair in zip(line(sums_at, emitter.load_integers), corrections)]
            factor = emitter.splat(emitter.load_scalar(builder.add(tile.rows.factors, builder.mul(i, I64(4)))))
            values = add_affine(emitter, totals, factor, factors, biases, line(residual_at))
        else:
            values = [emitter.add(*pair) for pair in zip(line(sums_at), biases)]
            values = [emitter.add(*pair) for pair in zip(values, line(residual_at))]
        for skip, value in zip(skips, values, strict=True):
            emitter.store(value, builder.add(out_at, skip))

    emitter.for_each(rows, 1, finish_row)


def make_amx_linear_tile(vectors: int = TARGET.vectors):
    """The intrinsic ``tile(weights, remaining, rows, panels, steps, out, affine, residual)``.

    remaining  the number of rows, of which the tile takes at most the first 32.
    steps      of the inner dimension, whole blocks of TILE_STEPS.
    The other arguments are make_linear_tile's. The registers are configured for the task's rows, at most 16. Staged
    rows have whole blocks, and the tile may read as many rows as fill a register of the configured height.
    """

    def emit(arithmetic, emitter, remaining, *values):
        emit_amx_linear_tile(emitter, arithmetic, vectors, remaining, LinearTile(*values))

    return as_array_routine(f"amx_linear_{vectors}", (None, *LINEAR_TILE), arithmetic_of)(emit)
