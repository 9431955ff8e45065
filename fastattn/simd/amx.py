"""Intel's tile registers (AMX): their instructions, as calls that LLVM knows.

Eight registers hold up to 16 rows of 64 bytes each, as a configuration says that a thread loads first. An instruction
multiplies 16 rows of A, of 16 words each, by 16 steps of B, of 16 columns each, into 16 x 16 sums; a word is a step of
a column: four int8 or two bfloat16. Registers are named by constants, and LLVM allots none by itself.

Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2: LDTILECFG, TDPBUSD, TDPBF16PS.
"""

from llvmlite import ir

from fastattn.simd.constants import TILE_BYTES, TILE_ROWS
from fastattn.simd.emit import I64, Emitter

SUMS, REST = 4, 5  # the first register after those of sums; the first that always has TILE_ROWS rows

# What test code replaces to run tiles where there are none.
INSTRUCTIONS = {
    "configure": "llvm.x86.ldtilecfg",
    "release": "llvm.x86.tilerelease",
    "zero": "llvm.x86.tilezero",
    "load": "llvm.x86.tileloadd64",
    "store": "llvm.x86.tilestored64",
    "int8": "llvm.x86.tdpbusd",
    "bfloat16": "llvm.x86.tdpbf16ps",
}
_I8, _VOID = ir.IntType(8), ir.VoidType()


def _emit(emitter: Emitter, instruction: str, *arguments) -> None:
    emitter.call(INSTRUCTIONS[instruction], _VOID, *arguments)


def configure(emitter: Emitter, rows) -> None:
    """Give the registers before REST ``rows`` rows (i64), 1 to TILE_ROWS, and the others TILE_ROWS."""
    builder = emitter.builder
    with builder.goto_entry_block():
        place = builder.alloca(ir.ArrayType(I64, 8))
    place.align = 8
    same, rest = sum(1 << 8 * n for n in range(REST)), sum(TILE_ROWS << 8 * n for n in range(REST, 8))
    by_register = builder.or_(builder.mul(rows, I64(same)), I64(rest))
    wide = I64(sum(TILE_BYTES << 16 * n for n in range(4)))
    # byte 0: the palette; from 16 on 16 bits a register, the bytes of a row; from 48 on 8 bits each, the rows
    for n, word in enumerate([I64(1), I64(0), wide, wide, I64(0), I64(0), by_register, I64(0)]):
        builder.store(word, builder.gep(place, [I64(0), I64(n)]))
    _emit(emitter, "configure", builder.bitcast(place, _I8.as_pointer()))


def release(emitter: Emitter) -> None:
    """Leave the registers empty, so that the system need not keep them for this thread."""
    _emit(emitter, "release")


def zero(emitter: Emitter, register: int) -> None:
    _emit(emitter, "zero", _I8(register))


def load(emitter: Emitter, register: int, address, distance) -> None:
    """The rows at an address, ``distance`` bytes apart."""
    _emit(emitter, "load", _I8(register), emitter.pointer(address, _I8), distance)


def store(emitter: Emitter, register: int, address, distance) -> None:
    _emit(emitter, "store", _I8(register), emitter.pointer(address, _I8), distance)


def multiply(emitter: Emitter, precision: str, sums: int, a: int, b: int) -> None:
    """Add the products of two registers to a third's sums: of unsigned by signed bytes, or of bfloat16.

    Those of bfloat16 are summed in float32 from zero, even and odd values apart, then both are added to each other and
    to the sum; numbers too small to be normal count as zero.
    """
    _emit(emitter, precision, _I8(sums), _I8(a), _I8(b))
