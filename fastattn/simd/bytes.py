"""Rows of bytes that say which keys are seen: copied, looked through, and applied to scores.

Addresses are plain integers, and nothing is checked, as in vector.py.
"""

from llvmlite import ir
from numba import types

from fastattn.simd.constants import SIZE
from fastattn.simd.emit import I64, Emitter
from fastattn.simd.target import LANES
from fastattn.simd.vector import as_intrinsic

_I, _BYTE = types.intp, ir.IntType(8)
_BYTES = ir.VectorType(_BYTE, LANES)


@as_intrinsic(_I, _I)
def load_byte(emitter: Emitter, address):
    """The byte at an address."""
    return emitter.builder.zext(emitter.read(address, _BYTE, 1), I64)


@as_intrinsic(types.void, _I, _I)
def store_byte(emitter: Emitter, value, address):
    """Write the low byte of an integer."""
    emitter.store(emitter.builder.trunc(value, _BYTE), address, 1)


@as_intrinsic(types.void, _I, _I, _I)
def fill_bytes(emitter: Emitter, byte, target, count):
    """``byte`` to ``count`` bytes, or up to a multiple of LANES."""
    builder = emitter.builder
    value = emitter.splat(builder.trunc(byte, _BYTE))

    def fill(offset):
        emitter.store(value, builder.add(target, offset), 1)

    emitter.each(count, LANES, fill)


@as_intrinsic(types.void, _I, _I, _I)
def copy_bytes(emitter: Emitter, source, target, count):
    """Copy ``count`` bytes from one address to another.

    The last LANES bytes are copied whole, over some that have been, so that none beyond ``count`` is read.
    """
    builder = emitter.builder
    last = builder.sub(count, I64(LANES))

    def copy(offset, kind):
        emitter.store(emitter.read(builder.add(source, offset), kind, 1), builder.add(target, offset), 1)

    def copy_vector(offset):
        copy(builder.select(builder.icmp_signed("<", offset, last), offset, last), _BYTES)

    many = builder.icmp_signed(">=", count, I64(LANES))
    emitter.each(builder.select(many, count, I64(0)), LANES, copy_vector)
    emitter.each(builder.select(many, I64(0), count), 1, lambda offset: copy(offset, _BYTE))


@as_intrinsic(types.void, _I, _I, _I)
def hide_unseen(emitter: Emitter, score, seen, size):
    """Set to -inf the scores, ``size`` bytes of whole vectors, whose byte is 0."""
    builder = emitter.builder
    hidden, none_of_them = emitter.constant(float("-inf")), ir.Constant(_BYTES, [0] * LANES)

    def hide(offset):
        place = builder.add(score, offset)
        flags = emitter.read(builder.add(seen, builder.lshr(offset, I64(2))), _BYTES, 1)
        mask = builder.icmp_unsigned("!=", flags, none_of_them)
        emitter.store(builder.select(mask, emitter.load(place), hidden), place)

    emitter.each(size, SIZE, hide)


def make_any_byte(rows: int, columns: int):
    """The intrinsic ``any_byte(address, row)``: whether any of ``columns`` bytes of so many rows, ``row`` bytes apart,
    is not 0."""
    kind, number = ir.VectorType(_BYTE, columns), ir.IntType(8 * columns)

    @as_intrinsic(types.boolean, _I, _I)
    def any_byte(emitter: Emitter, address, row):
        builder = emitter.builder
        value = emitter.read(address, kind, 1)
        for n in range(1, rows):
            value = builder.or_(value, emitter.read(builder.add(address, builder.mul(row, I64(n))), kind, 1))
        return builder.icmp_unsigned("!=", builder.bitcast(value, number), number(0))

    return any_byte
