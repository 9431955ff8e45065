"""One step of a register tile: a word of A times vectors of packed B, in three precisions.

An Arithmetic has the form of the operands in memory and the instructions that multiply them. The target's features
choose the Arithmetic of a precision. All choices for a precision sum the same products: integers exactly; bfloat16, if
the CPU has an instruction for it, in another order, and on Arm with another rounding.
"""

from collections.abc import Callable
from dataclasses import astuple, dataclass
from typing import Any

from llvmlite import ir

from fastattn.simd.arguments import FORMATS, Format
from fastattn.simd.emit import F32, I32, I64, BFloat, Emitter
from fastattn.simd.target import TARGET, Target

I8, I16 = ir.IntType(8), ir.IntType(16)
MADD = {4: "llvm.x86.sse2.pmadd.wd", 8: "llvm.x86.avx2.pmadd.wd", 16: "llvm.x86.avx512.pmaddw.d.512"}


@dataclass(frozen=True)
class Arithmetic(Format):
    """One way to multiply: its operands' format, and the instructions.

    spread      (emitter, address of each row) -> A's operand of ``add``: the word at the address in every lane.
    adjacent    (emitter, address) -> A's operand of ``add``: LANES adjacent words, one in each lane.
    operand     (emitter, address) -> B's operand of ``add``: LANES words.
    add         (emitter, operand of A, operand of B, sums) -> the sums plus the products.
    rows        of A in one operand of ``add``: 2 if the instruction multiplies matrices. The sums are then blocks of 2
                rows by LANES / 2 columns, and an operand of B has LANES / 2 columns.
    single_row  the arithmetic of one row of A and unpacked rows of B, if ``rows`` is 2.
    """

    spread: Callable
    adjacent: Callable
    operand: Callable
    add: Callable
    rows: int = 1
    single_row: "Arithmetic | None" = None


def _vector(emitter: Emitter, element, per_lane: int):
    return ir.VectorType(element, emitter.target.lanes * per_lane)


def _spread_word(emitter: Emitter, address):
    """The 32-bit word at an address in every lane, as integers."""
    return emitter.splat(emitter.read(address, I32, 1))


def _spread_float(emitter: Emitter, address):
    value = emitter.read(address, F32, 1)
    if emitter.target.by_lane:
        # without the fence LLVM loads and duplicates in one instruction, which takes the multiply-adds' units: a tile's
        # step then takes 15.5 cycles of a Neoverse N1 instead of 12 (8.4 of a V1 instead of 6, by LLVM's models)
        value = emitter.call("llvm.arithmetic.fence.f32", F32, value)
    return emitter.splat(value)


def load_words(emitter: Emitter, address):
    """LANES 32-bit words at any address, as integers."""
    return emitter.read(address, emitter.integers, 1)


def _spread_pair(emitter: Emitter, pair):
    """Each of two numbers in every lane."""
    return [emitter.pick(pair, [n] * emitter.target.lanes) for n in (0, 1)]


# bfloat16 widened to float32: a step of bfloat16 is two of float32
def _spread_two(emitter: Emitter, address):
    if emitter.target.by_lane:
        return _spread_pair(emitter, emitter.read(address, ir.VectorType(F32, 2), 1))
    return _spread_float(emitter, address), _spread_float(emitter, emitter.builder.add(address, I64(4)))


def _two_adjacent(emitter: Emitter, address):
    """(even, odd): the floats of two vectors at even and at odd indices."""
    lanes = emitter.target.lanes
    first, second = (emitter.load(emitter.builder.add(address, I64(skip))) for skip in (0, 4 * lanes))
    return [emitter.pick(first, range(start, 2 * lanes, 2), second) for start in (0, 1)]


def _widened_halves(emitter: Emitter, words):
    """The two bfloat16 of each word, widened."""
    builder = emitter.builder
    low = builder.shl(words, emitter.integer(16))
    high = builder.and_(words, emitter.integer(-65536))
    return builder.bitcast(low, emitter.vector), builder.bitcast(high, emitter.vector)


def _widen_two(emitter: Emitter, address):
    return _widened_halves(emitter, load_words(emitter, address))


def _spread_narrow(emitter: Emitter, address):
    return _widened_halves(emitter, _spread_word(emitter, address))


def add_pairwise(emitter: Emitter, spread, operand, total):
    """The sums plus the products of two pairs of float32 vectors, one pair after the other."""
    for pair in zip(spread, operand):
        total = emitter.fma(*pair, total)
    return total


def _by_instruction(name: str, element: ir.Type) -> Callable:
    """``add`` by an instruction on vectors of ``element``; ``name`` may contain {}, the number of the sums' bits."""
    per_lane = 2 if isinstance(element, BFloat) else 4

    def add(emitter: Emitter, spread, operand, total):
        values = (emitter.builder.bitcast(value, _vector(emitter, element, per_lane)) for value in (spread, operand))
        return emitter.call(f"llvm.{name.format(emitter.target.lanes * 32)}", total.type, total, *values)

    return add


def _split_pairs(emitter: Emitter, pairs):
    """A vector of pairs with all first values before all second values."""
    lanes = emitter.target.lanes
    return emitter.pick(pairs, [n for first in (0, 1) for n in range(first, 2 * lanes, 2)])


def _spread_split(emitter: Emitter, address):
    return _spread_pair(emitter, emitter.read(address, ir.VectorType(I16, 2), 1))


def _adjacent_split(emitter: Emitter, address):
    return _halves(emitter, _split_pairs(emitter, emitter.read(address, _vector(emitter, I16, 2), 1)))


def _halves(emitter: Emitter, pairs):
    """The lower and the upper half of a vector of two numbers a lane."""
    lanes = emitter.target.lanes
    return [emitter.pick(pairs, range(first, first + lanes)) for first in (0, lanes)]


def _widen_split(emitter: Emitter, address):
    return _split_pairs(emitter, _widen_pairs(emitter, address))


def _add_long(emitter: Emitter, spread, operand, total):
    """smlal and smlal2: products of the lower halves of vectors of int16, and of the upper halves."""
    for halves in zip(spread, _halves(emitter, operand), strict=True):
        product = emitter.builder.mul(*(emitter.builder.sext(half, emitter.integers) for half in halves))
        total = emitter.builder.add(total, product)
    return total


def _spread_two_rows(emitter: Emitter, first, second):
    """8 bytes of each of two rows."""
    builder, kind = emitter.builder, ir.VectorType(I64, 2)
    value = ir.Constant(kind, ir.Undefined)
    for lane, address in enumerate((first, second)):
        value = builder.insert_element(value, emitter.read(address, I64, 1), I32(lane))
    return builder.bitcast(value, emitter.integers)


def _widen_pairs(emitter: Emitter, address):
    """Pairs of int8, widened to int16: they cannot saturate, and one widening serves all rows of a tile."""
    stored = emitter.read(address, _vector(emitter, I8, 2), 1)
    return emitter.builder.sext(stored, _vector(emitter, I16, 2))


def _add_pairs(emitter: Emitter, spread, operand, total):
    """pmaddwd: two products of int16, and their sum."""
    value = emitter.builder.bitcast(spread, _vector(emitter, I16, 2))
    both = emitter.call(MADD[emitter.target.lanes], emitter.integers, value, operand)
    return emitter.builder.add(total, both)


def _add_widened(emitter: Emitter, spread, operand, total):
    """Two products of int16, without an instruction that computes both."""
    builder, lanes = emitter.builder, emitter.target.lanes
    value = builder.bitcast(spread, _vector(emitter, I16, 2))
    product = builder.mul(*(builder.sext(v, _vector(emitter, I32, 2)) for v in (value, operand)))
    for first in (0, 1):
        total = builder.add(total, emitter.pick(product, range(first, 2 * lanes, 2)))
    return total


def _arithmetic(precision: str, name: str, *instructions: Any) -> Arithmetic:
    """The Arithmetic of a format and its instructions."""
    return Arithmetic(*astuple(FORMATS[precision][name]), *instructions)


FLOAT32 = _arithmetic("float32", "float32", _spread_float, Emitter.load, Emitter.load, Emitter.fma)

# the sum of four products of a word's bytes: by vpdpbusd of A's unsigned bytes and B's signed ones
add_unsigned = _by_instruction("x86.avx512.vpdpbusd.{}", I8)
add_signed = _by_instruction("aarch64.neon.sdot.v4i32.v16i8", I8)
# 2 rows of 8 bytes times 2 columns of 8
_add_matrices = _by_instruction("aarch64.neon.smmla.v4i32.v16i8", I8)
_SDOT = _arithmetic("int8", "sdot", _spread_word, load_words, load_words, add_signed)
INT8 = {
    "vnni": _arithmetic("int8", "vnni", _spread_word, load_words, load_words, add_unsigned),
    "sdot": _SDOT,
    "smmla": _arithmetic("int8", "smmla", _spread_two_rows, load_words, load_words, _add_matrices, 2, _SDOT),
    "smlal": _arithmetic("int8", "smlal", _spread_split, _adjacent_split, _widen_split, _add_long),
    "pairs": _arithmetic("int8", "pairs", _spread_word, load_words, _widen_pairs, _add_pairs),
    "widened": _arithmetic("int8", "widened", _spread_word, load_words, _widen_pairs, _add_widened),
}

# the sum of two products of a word's halves; by bfmmla 2 rows of 4 times 2 columns of 4, in two steps of two
_add_halves = _by_instruction("x86.avx512bf16.dpbf16ps.{}", BFloat())
# Unless a process requests another mode from Linux, Arm's instructions for bfloat16 round each sum to odd and replace
# subnormal numbers by zeros: an addition is up to 1 ulp of float32 off, without bias, a multiply-add 1/2 ulp.
_add_arm_halves = _by_instruction("aarch64.neon.bfdot.v4f32.v8bf16", BFloat())
_add_arm_matrices = _by_instruction("aarch64.neon.bfmmla", BFloat())
_BFDOT = _arithmetic("bfloat16", "bfdot", _spread_word, load_words, load_words, _add_arm_halves)
BFLOAT16 = {
    "dot": _arithmetic("bfloat16", "dot", _spread_word, load_words, load_words, _add_halves),
    "bfmmla": _arithmetic("bfloat16", "bfmmla", _spread_two_rows, load_words, load_words, _add_arm_matrices, 2, _BFDOT),
    "widened": _arithmetic("bfloat16", "widened", _spread_two, _two_adjacent, _widen_two, add_pairwise),
    # rows are staged for tile registers; dot products with single rows of weights read them too, and widen them
    "tiles": _arithmetic("bfloat16", "tiles", _spread_narrow, _widen_two, _widen_two, add_pairwise),
}


def arithmetic_for(precision: str, target: Target = TARGET) -> Arithmetic:
    """The arithmetic of ``target`` for "float32", "bfloat16" or "int8"."""
    if precision == "float32":
        return FLOAT32
    return INT8[target.int8] if precision == "int8" else BFLOAT16[target.bfloat16]
