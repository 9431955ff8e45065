"""One step of a register tile: a word of A times vectors of packed B, in three precisions.

An Arithmetic is a format, how the inner dimension is grouped in memory, and the instruction that multiplies. The choice
for a precision depends on the features that are compiled for; all choices for one precision sum the same products:
integers exactly, bfloat16 in another order if the CPU has no dot product.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass

from llvmlite import ir

from fastattn.simd.emit import F32, I32, I64, Emitter
from fastattn.simd.formats import FORMATS, Format
from fastattn.simd.target import TARGET, Target

I8, I16 = ir.IntType(8), ir.IntType(16)


class BFloat(ir.types.Type):
    """LLVM's bfloat, which llvmlite does not name."""

    def __str__(self) -> str:
        return "bfloat"

    _to_string = __str__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BFloat)

    def __hash__(self) -> int:
        return hash(BFloat)


@dataclass(frozen=True)
class Arithmetic(Format):
    """One way to multiply: its operands' format, and the instructions.

    spread     (emitter, address) -> A's operand of ``add``: the word at the address in every lane.
    abreast    (emitter, address) -> A's operand of ``add``: LANES adjacent words, one in each lane.
    operand    (emitter, address) -> B's operand of ``add``: LANES words.
    add        (emitter, operand of A, operand of B, sums) -> the sums plus the products.
    """

    spread: Callable
    abreast: Callable
    operand: Callable
    add: Callable


def _vector(emitter: Emitter, element, per_lane: int):
    return ir.VectorType(element, emitter.target.lanes * per_lane)


def _load(emitter: Emitter, address, kind):
    value = emitter.builder.load(emitter.pointer(address, kind))
    value.align = 1
    return value


def _spread_word(emitter: Emitter, address):
    """The 32-bit word at an address in every lane, as integers."""
    builder = emitter.builder
    undefined = ir.Constant(emitter.integers, ir.Undefined)
    one = builder.insert_element(undefined, _load(emitter, address, I32), I32(0))
    return builder.shuffle_vector(one, undefined, ir.Constant(emitter.integers, [0] * emitter.target.lanes))


def _spread_float(emitter: Emitter, address):
    return emitter.splat(_load(emitter, address, F32))


def _words(emitter: Emitter, address):
    return _load(emitter, address, emitter.integers)


# float32, and bfloat16 widened to it: a step of bfloat16 is two of float32
def _add_float32(emitter: Emitter, spread, operand, total):
    return emitter.fma(spread, operand, total)


def _spread_two(emitter: Emitter, address):
    return _spread_float(emitter, address), _spread_float(emitter, emitter.builder.add(address, I64(4)))


def _two_abreast(emitter: Emitter, address):
    """(even, odd): the floats of two vectors at even and at odd indices."""
    lanes = emitter.target.lanes
    first, second = (emitter.load(emitter.builder.add(address, I64(skip))) for skip in (0, 4 * lanes))
    orders = (ir.Constant(emitter.integers, list(range(start, 2 * lanes, 2))) for start in (0, 1))
    return tuple(emitter.builder.shuffle_vector(first, second, order) for order in orders)


def _widen_two(emitter: Emitter, address):
    builder, words = emitter.builder, _words(emitter, address)
    low = builder.shl(words, emitter.integer(16))
    high = builder.and_(words, emitter.integer(-65536))
    return builder.bitcast(low, emitter.vector), builder.bitcast(high, emitter.vector)


def _add_two(emitter: Emitter, spread, operand, total):
    return emitter.fma(spread[1], operand[1], emitter.fma(spread[0], operand[0], total))


def _add_bfloat16(emitter: Emitter, spread, operand, total):
    kind, bits = _vector(emitter, BFloat(), 2), emitter.target.lanes * 32
    values = (emitter.builder.bitcast(v, kind) for v in (spread, operand))
    return emitter.call(f"llvm.x86.avx512bf16.dpbf16ps.{bits}", emitter.vector, total, *values)


def _add_unsigned_dot(emitter: Emitter, spread, operand, total):
    """vpdpbusd: four products of an unsigned byte of A and a signed byte of B."""
    kind, bits = _vector(emitter, I8, 4), emitter.target.lanes * 32
    values = (emitter.builder.bitcast(v, kind) for v in (spread, operand))
    return emitter.call(f"llvm.x86.avx512.vpdpbusd.{bits}", emitter.integers, total, *values)


def _add_signed_dot(emitter: Emitter, spread, operand, total):
    kind = _vector(emitter, I8, 4)
    lanes = emitter.target.lanes
    values = (emitter.builder.bitcast(v, kind) for v in (spread, operand))
    name = f"llvm.aarch64.neon.sdot.v{lanes}i32.v{lanes * 4}i8"
    return emitter.call(name, emitter.integers, total, *values)


def _widen_pairs(emitter: Emitter, address):
    """Pairs of int8, widened to int16: they cannot saturate, and one widening serves all rows of a tile."""
    stored = _load(emitter, address, _vector(emitter, I8, 2))
    return emitter.builder.sext(stored, _vector(emitter, I16, 2))


MADD = {4: "llvm.x86.sse2.pmadd.wd", 8: "llvm.x86.avx2.pmadd.wd", 16: "llvm.x86.avx512.pmaddw.d.512"}


def _add_pairs(emitter: Emitter, spread, operand, total):
    """pmaddwd: two products of int16, and their sum."""
    value = emitter.builder.bitcast(spread, _vector(emitter, I16, 2))
    both = emitter.call(MADD[emitter.target.lanes], emitter.integers, value, operand)
    return emitter.builder.add(total, both)


def _add_widened(emitter: Emitter, spread, operand, total):
    """Two products of int16, where no instruction does both."""
    builder, lanes = emitter.builder, emitter.target.lanes
    value = builder.bitcast(spread, _vector(emitter, I16, 2))
    product = builder.mul(*(builder.sext(v, _vector(emitter, I32, 2)) for v in (value, operand)))
    halves = (
        builder.shuffle_vector(product, product, ir.Constant(emitter.integers, list(range(first, 2 * lanes, 2))))
        for first in (0, 1)
    )
    for half in halves:
        total = builder.add(total, half)
    return total


def _arithmetic(
    precision: str, name: str, spread: Callable, abreast: Callable, operand: Callable, add: Callable
) -> Arithmetic:
    """The format of that precision and name with its instructions."""
    form = asdict(FORMATS[precision][name])
    return Arithmetic(**form, spread=spread, abreast=abreast, operand=operand, add=add)


FLOAT32 = _arithmetic("float32", "float32", _spread_float, Emitter.load, Emitter.load, _add_float32)
INT8 = {
    "vnni": _arithmetic("int8", "vnni", _spread_word, _words, _words, _add_unsigned_dot),
    "sdot": _arithmetic("int8", "sdot", _spread_word, _words, _words, _add_signed_dot),
    "pairs": _arithmetic("int8", "pairs", _spread_word, _words, _widen_pairs, _add_pairs),
    "widened": _arithmetic("int8", "widened", _spread_word, _words, _widen_pairs, _add_widened),
}
BFLOAT16 = {
    "dot": _arithmetic("bfloat16", "dot", _spread_word, _words, _words, _add_bfloat16),
    "widened": _arithmetic("bfloat16", "widened", _spread_two, _two_abreast, _widen_two, _add_two),
}


def arithmetic_for(precision: str, target: Target = TARGET) -> Arithmetic:
    """The arithmetic of ``target`` for "float32", "bfloat16" or "int8"."""
    if precision == "float32":
        return FLOAT32
    return INT8[target.int8] if precision == "int8" else BFLOAT16[target.bfloat16]
