"""Rows of bytes that say which keys are seen: copied, looked through, and applied to scores.

Addresses are plain integers, and nothing is checked, as in vector.py.
"""

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from fastattn.simd.constants import SIZE
from fastattn.simd.emit import I32, I64, Emitter
from fastattn.simd.target import LANES, TARGET
from fastattn.simd.vector import make_intrinsic

_BYTE = ir.IntType(8)
_BYTES = ir.VectorType(_BYTE, LANES)


def _load(emitter: Emitter, address, kind=_BYTES):
    value = emitter.builder.load(emitter.pointer(address, kind))
    value.align = 1
    return value


def _store(emitter: Emitter, value, address):
    emitter.builder.store(value, emitter.pointer(address, value.type)).align = 1


def _fill_bytes(emitter: Emitter, byte, target, count):
    builder = emitter.builder
    one = builder.insert_element(ir.Constant(_BYTES, ir.Undefined), builder.trunc(byte, _BYTE), I32(0))
    value = builder.shuffle_vector(one, one, ir.Constant(emitter.integers, [0] * LANES))

    def fill(offset, none):
        _store(emitter, value, builder.add(target, offset))
        return none

    emitter.loop(count, LANES, [], fill)


def _copy_bytes(emitter: Emitter, source, target, count):
    """The last LANES bytes are copied whole, over some that have been, so that none beyond ``count`` is read."""
    builder = emitter.builder
    last = builder.sub(count, I64(LANES))

    def copy(offset, none):
        at = builder.select(builder.icmp_signed("<", offset, last), offset, last)
        _store(emitter, _load(emitter, builder.add(source, at)), builder.add(target, at))
        return none

    def copy_one(offset, none):
        _store(emitter, _load(emitter, builder.add(source, offset), _BYTE), builder.add(target, offset))
        return none

    many = builder.icmp_signed(">=", count, I64(LANES))
    emitter.loop(builder.select(many, count, I64(0)), LANES, [], copy)
    emitter.loop(builder.select(many, I64(0), count), 1, [], copy_one)


def _hide_unseen(emitter: Emitter, score, seen, size):
    builder = emitter.builder
    hidden, none_of_them = emitter.constant(float("-inf")), ir.Constant(_BYTES, [0] * LANES)

    def hide(offset, none):
        place = builder.add(score, offset)
        mask = builder.icmp_unsigned(
            "!=", _load(emitter, builder.add(seen, builder.lshr(offset, I64(2)))), none_of_them
        )
        emitter.store(builder.select(mask, emitter.load(place), hidden), place)
        return none

    emitter.loop(size, SIZE, [], hide)


load_byte = make_intrinsic(
    "load_byte",
    types.intp,
    (types.intp,),
    lambda e, a: e.builder.zext(_load(e, a, _BYTE), I64),
    "The byte at an address.",
)
store_byte = make_intrinsic(
    "store_byte",
    types.void,
    (types.intp, types.intp),
    lambda e, value, a: _store(e, e.builder.trunc(value, _BYTE), a),
    "Write the low byte of an integer.",
)
fill_bytes = make_intrinsic(
    "fill_bytes",
    types.void,
    (types.intp,) * 3,
    _fill_bytes,
    "``byte`` to ``count`` bytes, or up to a multiple of LANES.",
)
copy_bytes = make_intrinsic(
    "copy_bytes", types.void, (types.intp,) * 3, _copy_bytes, "Copy ``count`` bytes from one address to another."
)
hide_unseen = make_intrinsic(
    "hide_unseen",
    types.void,
    (types.intp,) * 3,
    _hide_unseen,
    "Set to -inf the scores, ``size`` bytes of whole vectors, whose byte is 0.",
)


def make_any_byte(rows: int, columns: int):
    """The intrinsic ``any_byte(address, row)``: whether any of ``columns`` bytes of so many rows, ``row`` bytes apart,
    is not 0."""
    kind = ir.VectorType(_BYTE, columns)

    @intrinsic
    def any_byte(typing_context, address, row):
        def generate(context, builder, signature, arguments):
            emitter = Emitter(builder, TARGET)
            address, row = arguments
            value = _load(emitter, address, kind)
            for n in range(1, rows):
                value = builder.or_(value, _load(emitter, builder.add(address, builder.mul(row, I64(n))), kind))
            bits = builder.bitcast(value, ir.IntType(8 * columns))
            return builder.icmp_unsigned("!=", bits, ir.IntType(8 * columns)(0))

        return types.boolean(types.intp, types.intp), generate

    return any_byte
