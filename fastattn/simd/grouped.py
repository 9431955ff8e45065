"""Products with 4-bit or 8-bit weights in groups of 32 inputs: staged rows, and the tile.

A staged row has for each group 32 int8, multiples of the step ``peak / 127`` of the group; the step as float32; and the
step times the sum of the int8, which multiplies a weight's minimum. A panel holds group after group, in the order in
which a tile reads memory: 4 vectors of words for all the panel's columns, then the group's scales and minima. Byte i of
word w of a column holds the inputs 4 w + i and 16 + 4 w + i, so the low halves of a vector's bytes are one operand of
the instruction that multiplies bytes by fours, and the high halves another. With 8 bits a group has 8 vectors of words:
byte i of word w is the weight of input 4 w + i plus 128. The scales then lie behind all groups, and a minimum, -128
times the scale, is not stored.

The sum of a group is exact in int32, by any instruction: at most 32 * 255 * 127. Then each output adds, group after
group, minimum * (step * sum of the row) and (sum * scale) * step, by the same operations in every tile, so its bits
depend on its row alone. Of a group's twelve operations, eight are products.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from llvmlite import ir
from numba import types

from fastattn.simd.arguments import GROUP_INPUTS, LINE, PACKED_GROUP, SIZE, STAGED_GROUP, GroupedPanel
from fastattn.simd.arithmetic import I8, I16, MADD, add_signed, add_unsigned
from fastattn.simd.emit import F32, I32, I64, Emitter
from fastattn.simd.target import PREFETCHES_STREAMS, TARGET, Target
from fastattn.simd.tile import LINEAR_TILE, STREAM_AHEAD
from fastattn.simd.vector import as_array_routine, as_intrinsic

WORDS = GROUP_INPUTS // 8  # vectors of words of a group, half a byte an input
GROUPED_TILE = LINEAR_TILE[0], GroupedPanel, *LINEAR_TILE[2:]
LOW, HIGH = 0, 4  # bits below each half of a byte
MADD_BYTES = {8: "llvm.x86.avx2.pmadd.ub.sw", 16: "llvm.x86.avx512.pmaddubs.w.512"}


class NibbleProduct(NamedTuple):
    """How an instruction multiplies bytes of weights by a row's int8: bytes below 16 alone, unless ``whole_bytes``.

    zero    (emitter) -> empty sums
    add     (emitter, LANES words of weights, the row's word, i32, sums) -> the sums plus the products
    total   (emitter, sums) -> int32 of each lane
    """

    zero: Callable
    add: Callable
    total: Callable
    whole_bytes: bool = False


def _zero(emitter: Emitter):
    return emitter.integer(0)


def _zero_halves(emitter: Emitter):
    return ir.Constant(ir.VectorType(I16, 2 * emitter.target.lanes), [0] * 2 * emitter.target.lanes)


def _as_bytes(emitter: Emitter, words):
    return emitter.builder.bitcast(words, ir.VectorType(I8, 4 * emitter.target.lanes))


def _add_byte_pairs(emitter: Emitter, words, word, sums):
    """vpmaddubsw, two products and their sum: in a group 16 products of 15 * 127 at most fit an int16."""
    name = MADD_BYTES[emitter.target.lanes]
    values = (_as_bytes(emitter, value) for value in (words, emitter.splat(word)))
    return emitter.builder.add(sums, emitter.call(name, sums.type, *values))


def _add_even_and_odd(emitter: Emitter, words, word, sums):
    """Products of the even bytes and then of the odd bytes as int16; their sums fit as in ``_add_byte_pairs``."""
    b, row = emitter.builder, ir.VectorType(I16, 2)
    both = b.bitcast(word, row)
    eight, mask = ir.Constant(row, [8, 8]), emitter.integer(0x00FF00FF)
    even, odd = (words, b.ashr(b.shl(both, eight), eight)), (b.lshr(words, emitter.integer(8)), b.ashr(both, eight))
    for weights, values in (even, odd):
        spread = b.bitcast(emitter.splat(b.bitcast(values, I32)), sums.type)
        sums = b.add(sums, b.mul(b.bitcast(b.and_(weights, mask), sums.type), spread))
    return sums


def _total_of_pairs(emitter: Emitter, sums):
    ones = ir.Constant(sums.type, [1] * 2 * emitter.target.lanes)
    return emitter.call(MADD[emitter.target.lanes], emitter.integers, sums, ones)


def _total_of_halves(emitter: Emitter, sums):
    b, half = emitter.builder, emitter.integer(16)
    words = b.bitcast(sums, emitter.integers)
    return b.add(b.ashr(words, half), b.ashr(b.shl(words, half), half))


def _by_fours(add: Callable, whole_bytes: bool) -> NibbleProduct:
    """By an instruction that adds four products of bytes to each sum."""
    return NibbleProduct(
        _zero,
        lambda emitter, words, word, sums: add(emitter, words, emitter.splat(word), sums),
        lambda emitter, sums: sums,
        whole_bytes,
    )


def product_for(target: Target = TARGET) -> NibbleProduct:
    """The fastest of the target's instructions; all give the same sums."""
    if target.int8 == "vnni":
        return _by_fours(add_unsigned, True)
    if target.int8 in ("sdot", "smmla"):
        return _by_fours(add_signed, False)
    if target.int8 == "pairs" and target.lanes in MADD_BYTES:
        return NibbleProduct(_zero_halves, _add_byte_pairs, _total_of_pairs)
    return NibbleProduct(_zero_halves, _add_even_and_odd, _total_of_halves)


class GroupedNumbers(NamedTuple):
    """How a panel holds the numbers of a group.

    words   a group's vectors of words for LANES columns
    group   bytes of a group, of all columns
    split   (product, emitter, n, the n-th vector of words) -> [(LOW or HIGH, number of a row's word, operand that this
            word multiplies)]
    scales  (emitter, GroupedPanel, column, group) -> (scales, minima) of LANES columns
    """

    words: int
    group: int
    split: Callable
    scales: Callable


def _split_4_bits(product: NibbleProduct, emitter: Emitter, n: int, word) -> list:
    return [(LOW, n, _half_of(emitter, word, LOW)), (LOW, n + WORDS, _half_of(emitter, word, HIGH))]


def _scales_of_4_bits(emitter: Emitter, panel: GroupedPanel, column: int, group):
    columns = emitter.target.columns
    skip = emitter.builder.mul(group, I64(columns * PACKED_GROUP))
    return tuple(_read_float16(emitter, panel.halves, skip, n * columns + column) for n in range(2))


def _split_8_bits(product: NibbleProduct, emitter: Emitter, n: int, word) -> list:
    halves = (LOW, HIGH)
    return [(LOW, n, word)] if product.whole_bytes else [(half, n, _half_of(emitter, word, half)) for half in halves]


def _scales_of_8_bits(emitter: Emitter, panel: GroupedPanel, column: int, group):
    skip = emitter.builder.mul(group, I64(2 * emitter.target.columns))
    scale = _read_float16(emitter, panel.halves, skip, column)
    return scale, emitter.multiply(scale, emitter.constant(-128.0))


def _read_float16(emitter: Emitter, address, skip, column: int):
    first = emitter.builder.add(emitter.builder.add(address, skip), I64(2 * column))
    return emitter.widen_float16(emitter.read(first, emitter.halves, 2))


def _half_of(emitter: Emitter, word, half: int):
    """The four bits of each byte from bit ``half`` on."""
    b = emitter.builder
    return b.and_(b.lshr(word, emitter.integer(half)) if half else word, emitter.integer(0x0F0F0F0F))


# by the dtype of the panels
NUMBERS = {
    types.uint8: GroupedNumbers(WORDS, TARGET.columns * PACKED_GROUP, _split_4_bits, _scales_of_4_bits),
    types.int16: GroupedNumbers(2 * WORDS, TARGET.columns * GROUP_INPUTS, _split_8_bits, _scales_of_8_bits),
}


def add_group(emitter: Emitter, row, total, scale, minimum, value):
    """Add the int32 ``total`` of a group of a staged row, at the address ``row``, to the floats ``value``."""
    step, row_sum = (
        emitter.splat(emitter.load_scalar(emitter.builder.add(row, I64(GROUP_INPUTS + skip)))) for skip in (0, 4)
    )
    value = emitter.fma(minimum, row_sum, value)
    # not scale * step first: LLVM moves products to the group's start, where each takes a register, and spills
    return emitter.fma(emitter.multiply(emitter.builder.sitofp(total, emitter.vector), scale), step, value)


def prefetch_group(emitter: Emitter, numbers: GroupedNumbers, panel: GroupedPanel, group, blocks: int) -> None:
    """Prefetch the lines of a later group that a tile of ``blocks`` vectors reads: memory may take most of the time.

    A Zen 4 reads at 24 to 27 GB/s by itself, at 19 to 26 with this. The time of an Emerald Rapids core by rows, weights
    beyond L2: 4 bits 0.77 (1), 0.80 (2), 0.76 (4), 0.79 (8), 0.80 (12), 0.90 (32), 0.94 (64); 8 bits 0.90, 0.89, 0.81,
    0.79, 0.74, 0.82, 0.87. 2 KB ahead is slower, 16 KB no faster. If L2 holds the weights: 0.96 to 1.1, but 1.3 and
    1.15 with 8 bits and one or two rows, which happens in no model.
    """
    if not PREFETCHES_STREAMS:
        return
    vector = 4 * emitter.target.columns
    lines = range(0, numbers.group, LINE) if blocks > 1 else range(0, numbers.words * vector, vector)
    ahead = emitter.builder.add(panel.numbers, emitter.builder.mul(group, I64(numbers.group)))
    for skip in lines:
        emitter.prefetch(emitter.builder.add(ahead, I64(STREAM_AHEAD + skip)))


def make_grouped_tile(rows: int, blocks: int):
    """The intrinsic ``tile(weights, staged, panel, groups, out, affine, residual)``.

    staged  StagedRows, ``rows`` of them
    panel   GroupedPanel
    All other arguments are make_linear_tile's, of ``blocks`` vectors each.
    """
    product = product_for()

    def emit(numbers, emitter, staged, panel, groups, out, affine, residual):
        builder, lanes = emitter.builder, emitter.target.lanes
        columns = [I64(n * lanes * 4) for n in range(blocks)]
        a_rows = emitter.row_addresses(staged.address, staged.distance, rows)

        def vectors(address):
            return [emitter.load(builder.add(address, column)) for column in columns]

        def read_operands(n, block, group):
            start = builder.add(panel.numbers, builder.mul(group, I64(numbers.group)))
            words = builder.add(start, I64(4 * (n * emitter.target.columns + block * lanes)))
            return numbers.split(product, emitter, n, emitter.read(words, emitter.integers))

        def add_products(row, operands, sums):
            for half, n, operand in operands:
                word = emitter.read(builder.add(row, I64(4 * n)), I32)
                sums[half] = product.add(emitter, operand, word, sums.get(half, product.zero(emitter)))

        def add_floats(row, sums, scale, minimum, value):
            total = product.total(emitter, sums[LOW])
            if HIGH in sums:
                total = builder.add(total, builder.shl(product.total(emitter, sums[HIGH]), emitter.integer(HIGH)))
            return add_group(emitter, row, total, scale, minimum, value)

        def add_one(group, values):
            """Go word by word, so that a core reads memory in order.

            Going block by block gives a Zen 4 28 GB/s instead of 24 to 27 with 4 bits, 15 with 8.
            """
            prefetch_group(emitter, numbers, panel, group, blocks)
            row, sums = builder.add(a_rows[0], builder.mul(group, I64(STAGED_GROUP))), [{} for _ in range(blocks)]
            for n in range(numbers.words):
                for block in range(blocks):
                    add_products(row, read_operands(n, block, group), sums[block])
            scales = [numbers.scales(emitter, panel, block * lanes, group) for block in range(blocks)]
            return [add_floats(row, *terms) for terms in zip(sums, *zip(*scales), values)]

        def add(group, values):
            prefetch_group(emitter, numbers, panel, group, blocks)
            a_group = [builder.add(row, builder.mul(group, I64(STAGED_GROUP))) for row in a_rows]
            new_values = []
            for block in range(blocks):
                operands = [operand for n in range(numbers.words) for operand in read_operands(n, block, group)]
                scale, minimum = numbers.scales(emitter, panel, block * lanes, group)
                for row, value in zip(a_group, values[block * rows : (block + 1) * rows]):
                    sums: dict[int, Any] = {}
                    add_products(row, operands, sums)
                    new_values.append(add_floats(row, sums, scale, minimum, value))
            return new_values

        residual_rows = emitter.row_addresses(residual.address, residual.distance, rows)
        starts = [
            emitter.add(bias, addend)
            for column, bias in zip(columns, vectors(affine.bias))
            for addend in (emitter.load(builder.add(row, column)) for row in residual_rows)
        ]
        results = iter(emitter.loop(groups, 1, starts, add_one if rows == 1 else add))
        out_rows = emitter.row_addresses(out.address, out.distance, rows)
        for column in columns:
            for row in out_rows:
                emitter.store(next(results), builder.add(row, column))

    return as_array_routine(f"grouped_{rows}_{blocks}", GROUPED_TILE, lambda weights: NUMBERS[weights.dtype])(emit)


@as_intrinsic(types.float32, types.intp, types.intp)
def float16_of(emitter: Emitter, address, lane):
    """One of the LANES float16 at an address."""
    return emitter.builder.extract_element(emitter.widen_float16(emitter.read(address, emitter.halves, 2)), lane)


@as_intrinsic(types.void, types.intp, types.intp, types.intp)
def stage_groups(emitter: Emitter, x, groups, staged):
    """Round ``groups`` groups of 32 floats to int8; a group with a NaN or an infinity gives NaN."""
    b = emitter.builder

    def stage(group):
        source = b.add(x, b.mul(group, I64(4 * GROUP_INPUTS)))
        target = b.add(staged, b.mul(group, I64(STAGED_GROUP)))
        values = [emitter.load(b.add(source, I64(at))) for at in range(0, 4 * GROUP_INPUTS, SIZE)]
        peaks = emitter.absolute(values[0])
        for value in values[1:]:
            peaks = emitter.larger_magnitude(emitter.absolute(value), peaks)
        # as scalars: LLVM 22 takes wrong lanes if a sum of all lanes is spread again
        peak, total = emitter.fold(peaks, emitter.larger_magnitude), emitter.integer(0)
        step, inverse = emitter.divide(peak, F32(127.0)), emitter.divide(F32(127.0), peak)
        factor = emitter.splat(b.select(b.fcmp_unordered("une", peak, F32(0.0)), inverse, F32(0.0)))
        for n, value in enumerate(values):
            integers = emitter.round_to_integers(emitter.multiply(value, factor))
            emitter.store_narrow(integers, b.add(target, I64(n * SIZE // 4)), 8)
            # the byte that is stored, which differs from the integer of a NaN
            stored = b.ashr(b.shl(integers, emitter.integer(24)), emitter.integer(24))
            total = b.add(total, stored)
        row_sum = emitter.multiply(b.sitofp(emitter.fold(total, b.add), F32), step)
        for skip, number in enumerate((step, row_sum)):
            emitter.store(number, b.add(target, I64(GROUP_INPUTS + 4 * skip)))

    emitter.for_each(groups, 1, stage)
