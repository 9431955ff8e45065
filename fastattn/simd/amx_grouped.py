"""The tile of 16 rows and weights in groups, in Intel's tile registers (AMX).

A group's 32 inputs are 8 steps: 32 bytes of 16 staged rows are one register, 8 steps of 16 columns another. Sums of a
group are exact and are added by the operations of fastattn.simd.grouped, so results have the bits of its tiles.

What is stored takes long to be loaded by the other kind of register. So a turn of the loop spreads the weights of the
group three ahead, multiplies the group two ahead, and adds the sums of its own group; two scratches of each take turns.

Time beside tiles of vectors, one Emerald Rapids core, 32 rows of 576 x 1536, in L2: 0.70 with 4 bits, 0.63 with 8; 0.80
where a turn multiplies the next group, from weights that it spreads itself. Two sets of registers that take turns too:
0.65, and 1.05 of the time of a prompt. The registers alone take 0.8 of a turn, the additions alone 0.65.
"""

from llvmlite import ir
from numba import types

from fastattn.simd.amx import I8, configure, emit_instruction, emit_move
from fastattn.simd.arguments import GROUP_INPUTS, LINE, STAGED_GROUP, TILE_BYTES, TILE_ROWS
from fastattn.simd.emit import I64, Emitter
from fastattn.simd.grouped import GROUPED_TILE, NUMBERS, add_group, prefetch_group, product_for
from fastattn.simd.vector import as_array_routine, as_intrinsic

STEPS = GROUP_INPUTS // 4
SUMS, ROWS, WEIGHTS = range(3)  # registers
SUMS_BYTES, WEIGHTS_BYTES = TILE_ROWS * TILE_BYTES, STEPS * TILE_BYTES


@as_intrinsic(types.void)
def configure_grouped_tiles(emitter: Emitter):
    """Prepare this thread's registers for ``make_amx_grouped_tile``."""
    rows = TILE_ROWS | TILE_ROWS << 8 | STEPS << 16
    row_bytes = TILE_BYTES | GROUP_INPUTS << 16 | TILE_BYTES << 32
    configure(emitter, I64(rows), [I64(row_bytes), I64(0)])


def make_amx_grouped_tile():
    """``make_grouped_tile`` of TILE_ROWS rows and one vector of columns."""
    product = product_for()

    def emit(numbers, emitter, staged, panel, groups, out, affine, residual):
        builder = emitter.builder
        with builder.goto_entry_block():
            scratch = builder.alloca(ir.ArrayType(I8, 2 * (SUMS_BYTES + WEIGHTS_BYTES)))
        scratch.align = LINE
        all_sums = builder.ptrtoint(scratch, I64)
        all_weights, last = builder.add(all_sums, I64(2 * SUMS_BYTES)), builder.sub(groups, I64(1))
        staged_rows, residual_rows, out_rows = (
            emitter.row_addresses(part.address, part.distance, TILE_ROWS) for part in (staged, residual, out)
        )

        def scratch_of(first, group, size):
            return builder.add(first, builder.mul(builder.and_(group, I64(1)), I64(size)))

        def ahead(group, count):
            """The group ``count`` groups on; where there is none, the last one again."""
            later = builder.add(group, I64(count))
            return builder.select(builder.icmp_signed("<", later, last), later, last)

        def spread(group):
            """Write the weights of a group to their scratch, a byte each."""
            prefetch_group(emitter, numbers, panel, group, 1)
            words = builder.add(panel.numbers, builder.mul(group, I64(numbers.group)))
            weights = scratch_of(all_weights, group, WEIGHTS_BYTES)
            for n in range(numbers.words):
                vector = emitter.read(builder.add(words, I64(4 * n * emitter.target.columns)), emitter.integers)
                for _, step, operand in numbers.split(product, emitter, n, vector):
                    emitter.store(operand, builder.add(weights, I64(step * TILE_BYTES)))

        def multiply(group):
            rows = builder.add(staged.address, builder.mul(group, I64(STAGED_GROUP)))
            emit_move(emitter, "load", ROWS, rows, staged.distance)
            emit_move(emitter, "load", WEIGHTS, scratch_of(all_weights, group, WEIGHTS_BYTES), I64(TILE_BYTES))
            emit_instruction(emitter, "zero", I8(SUMS))
            emit_instruction(emitter, "signed rows", I8(SUMS), I8(ROWS), I8(WEIGHTS))

        def store(group):
            emit_move(emitter, "store", SUMS, scratch_of(all_sums, group, SUMS_BYTES), I64(TILE_BYTES))

        def add(group, values):
            multiply(ahead(group, 2))
            spread(ahead(group, 3))
            sums, skip = scratch_of(all_sums, group, SUMS_BYTES), builder.mul(group, I64(STAGED_GROUP))
            scale, minimum = numbers.scales(emitter, panel, 0, group)
            new_values = []
            for i, (row, value) in enumerate(zip(staged_rows, values)):
                total = emitter.load_integers(builder.add(sums, I64(i * TILE_BYTES)))
                new_values.append(add_group(emitter, builder.add(row, skip), total, scale, minimum, value))
            store(ahead(group, 2))
            return new_values

        spread(I64(0))
        for n in range(2):
            spread(ahead(I64(0), n + 1))
            multiply(ahead(I64(0), n))
            store(ahead(I64(0), n))
        bias = emitter.load(affine.bias)
        values = emitter.loop(groups, 1, [emitter.add(bias, emitter.load(row)) for row in residual_rows], add)
        for value, row in zip(values, out_rows):
            emitter.store(value, row)

    return as_array_routine("amx_grouped", GROUPED_TILE, lambda weights: NUMBERS[weights.dtype])(emit)
