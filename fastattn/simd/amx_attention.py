"""Attention's products in tile registers: one register of 16 rows times packed panels, in bfloat16.

A panel has PANEL columns, two registers of them: 16 steps of two values take 2 KB. Four registers of sums, of two
panels, share a load of the rows. A register that loads what vectors have just stored waits until it reaches L1, so the
exponentials of 32 keys are taken while the registers multiply those of the 32 keys before.

One Emerald Rapids core, ns for 16 scores of heads of width 32 and 64, 512 keys: 17.4 and 31.4 in float32, 8.9 and 13.3
here, of which the exponentials take 4.3. Shares of the time without: the exponentials beside the products 1.0 to 1.09;
two panels at once 1.0; exponentials of fewer terms 1.06; panels packed in float32 first 1.0 to 1.2.
"""

from llvmlite import ir
from numba import types

from fastattn.simd.amx import FULL_HEIGHT, I8, SUMS, emit_instruction, emit_move
from fastattn.simd.arguments import LINE, SIZE, TILE_BYTES, TILE_ROWS, TILE_STEPS
from fastattn.simd.elementary import exp2
from fastattn.simd.emit import I64, Emitter
from fastattn.simd.target import LANES
from fastattn.simd.vector import as_routine

PANEL = 2 * TILE_ROWS


def _emit_block(emitter: Emitter, columns: int, a, a_row, b, panel, block) -> None:
    """Add a block of TILE_STEPS steps to the first ``columns`` registers; ``a`` is the block's address, b the first's.

    panel  bytes from panel to panel
    """
    builder, step = emitter.builder, I64(PANEL * 4)
    first = builder.add(b, builder.mul(block, builder.mul(step, I64(TILE_STEPS))))
    emit_move(emitter, "load", SUMS, a, a_row)
    for j in range(columns):
        register, skip = FULL_HEIGHT + j % (8 - FULL_HEIGHT), builder.mul(panel, I64(j // 2))
        emit_move(emitter, "load", register, builder.add(builder.add(first, skip), I64(j % 2 * TILE_BYTES)), step)
        emit_instruction(emitter, "bfloat16", I8(j), I8(SUMS), I8(register))


def _move_sums(emitter: Emitter, instruction: str, columns: int, c, c_row) -> None:
    for j in range(columns):
        emit_move(emitter, instruction, j, emitter.builder.add(c, I64(j * TILE_BYTES)), c_row)


def _for_panels(emitter: Emitter, start, stop, multiply) -> None:
    """``multiply(first column, columns of registers)`` of pairs of panels, and of the last one of an odd number."""
    builder = emitter.builder
    count = builder.sub(stop, start)
    pairs = builder.and_(count, I64(-2 * PANEL))
    emitter.for_each(pairs, 2 * PANEL, lambda skip: multiply(builder.add(start, skip), 4))
    emitter.for_each(builder.sub(count, pairs), PANEL, lambda _: multiply(builder.add(start, pairs), 2))


@as_routine("amx_scores", *[types.intp] * 8)
def amx_scores(emitter: Emitter, query, query_row, keys, panel, steps, count, score, score_row):
    """Write the scores of TILE_ROWS rows and ``count`` packed keys, whole panels that lie ``panel`` bytes apart.

    steps  of two inner values, whole blocks of TILE_STEPS
    """
    builder = emitter.builder

    def multiply(first, columns):
        b = builder.add(keys, builder.mul(builder.udiv(first, I64(PANEL)), panel))
        for j in range(columns):
            emit_instruction(emitter, "zero", I8(j))

        def add(block):
            a = builder.add(query, builder.mul(block, I64(TILE_BYTES)))
            _emit_block(emitter, columns, a, query_row, b, panel, block)

        emitter.for_each(builder.udiv(steps, I64(TILE_STEPS)), 1, add)
        _move_sums(emitter, "store", columns, builder.add(score, builder.mul(first, I64(4))), score_row)

    _for_panels(emitter, I64(0), count, multiply)


def _emit_weights(emitter: Emitter, score, score_row, rows, shift, total, target) -> None:
    """Write 2**(score - shift) of rows and PANEL keys as adjacent rows of bfloat16, and add them to the totals."""
    builder = emitter.builder
    addresses = emitter.row_addresses(score, score_row, TILE_ROWS)

    def weigh(first: int, stop: int):
        for n in range(first, stop):
            total_at = builder.add(total, I64(n * SIZE))
            subtrahend = emitter.splat(emitter.load_scalar(builder.add(shift, I64(n * 4))))
            scores = [emitter.load(builder.add(addresses[n], I64(skip))) for skip in (0, SIZE)]
            weights = [exp2(emitter, emitter.subtract(score, subtrahend), rough=True) for score in scores]
            low, high = (emitter.bfloat16_operands(weight) for weight in weights)
            halves = emitter.pick(low, range(2 * LANES), high)
            emitter.store(halves, builder.add(target, I64(n * TILE_BYTES)), 2)
            emitter.store(emitter.add(emitter.add(emitter.load(total_at), weights[0]), weights[1]), total_at)

    with builder.if_then(builder.icmp_signed(">", rows, I64(TILE_ROWS // 2))):
        weigh(TILE_ROWS // 2, TILE_ROWS)
    weigh(0, TILE_ROWS // 2)


def make_amx_values(most_keys: int, row_bytes: int):
    """The intrinsic ``values(score, rows, keys, shift, total, values, columns, sums)``.

    sums += 2**(score - shift) values, for 8 or 16 ``rows`` and ``keys`` keys, whole panels. The weights
    2**(score - shift) are added to ``total``, a vector a row, and rounded to bfloat16.

    score   rows that lie ``row_bytes`` apart
    values  packed panels with room for ``most_keys`` keys, of ``columns`` columns in all
    sums    TILE_ROWS rows of ``columns`` floats; those after ``rows`` get any numbers
    """

    def emit(emitter: Emitter, score, rows, keys, shift, total, values, columns, sums):
        builder, score_row, panel = emitter.builder, I64(row_bytes), I64(most_keys * PANEL * 2)
        sums_row = builder.mul(columns, I64(4))
        with builder.goto_entry_block():
            scratch = builder.alloca(ir.ArrayType(I8, most_keys * 2 * TILE_ROWS))
        scratch.align = LINE
        weights, last = builder.ptrtoint(scratch, I64), builder.sub(builder.udiv(keys, I64(PANEL)), I64(1))
        # all weights are kept only for columns beyond the first panels; else two blocks in turn stay in L1
        kept = builder.select(builder.icmp_signed(">", columns, I64(2 * PANEL)), I64(-1), I64(1))

        def place(block):
            return builder.add(weights, builder.mul(builder.and_(block, kept), I64(TILE_ROWS * TILE_BYTES)))

        def weigh(block):
            first = builder.add(score, builder.mul(block, I64(PANEL * 4)))
            arguments = first, score_row, rows, shift, total, place(block)
            emitter.call_once("fastattn.amx_weights", arguments, _emit_weights)

        def multiply(first, count: int, weighs: bool = False):
            c = builder.add(sums, builder.mul(first, I64(4)))
            b = builder.add(values, builder.mul(builder.udiv(first, I64(PANEL)), panel))

            def add(block):
                _emit_block(emitter, count, place(block), I64(TILE_BYTES), b, panel, block)

            def weigh_and_add(block):
                weigh(builder.add(block, I64(1)))
                add(block)

            _move_sums(emitter, "load", count, c, sums_row)
            emitter.for_each(last, 1, weigh_and_add if weighs else add)
            add(last)
            _move_sums(emitter, "store", count, c, sums_row)

        weigh(I64(0))
        with builder.if_else(builder.icmp_signed("==", columns, I64(PANEL))) as (one, several):
            with one:
                multiply(I64(0), 2, weighs=True)
            with several:
                multiply(I64(0), 4, weighs=True)
                _for_panels(emitter, I64(2 * PANEL), columns, multiply)

    return as_routine(f"amx_values_{most_keys}", *[types.intp] * 8)(emit)
