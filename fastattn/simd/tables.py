"""Arrays in which a compiled function looks numbers up, with an index for each axis, in lanes or not.

A negative index counts from the end, as in Python. An index outside an axis reads the nearest element, so no lane reads
memory outside the array.
"""

from typing import NamedTuple

from llvmlite import ir
from numba import types
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import lower_builtin

from fastattn.simd.emit import F32, I32, I64, suffix
from fastattn.simd.lanes import FALL, IN_LANES, INTEGERS, LONG, LONGS, MASK, RUNS, LaneEmitter, clip, is_truth, is_whole
from fastattn.simd.operations import FAILURES, name_of
from fastattn.simd.ranges import IN_RANGES, RANGE, TRUTH, unknown_value
from fastattn.simd.target import LANES
from fastattn.simd.vector import VECTOR, register_form

I8 = ir.IntType(8)


class ElementType(NamedTuple):
    """A number in a table: its LLVM type and bytes in memory, its Numba types as a scalar and in lanes.

    range_type  the type of an element at a range of indices, for which nothing is read
    """

    memory: ir.Type
    bytes: int
    scalar: types.Type
    lanes: types.Type
    range_type: types.Type | None


ELEMENTS = {
    "float32": ElementType(F32, 4, types.float32, VECTOR, None),
    "int32": ElementType(I32, 4, types.int64, INTEGERS, RANGE),
    "int64": ElementType(I64, 8, LONG, LONGS, RANGE),
    "bool": ElementType(I8, 1, types.boolean, MASK, TRUTH),
}


class Table(types.Type):
    """A C-contiguous array of float32, int32, int64 or bool, as its address and shape.

    Where an axis is empty, all axes are, and yet one element lies at the address.
    """

    def __init__(self, element: str, ndim: int):
        super().__init__(name=f"{element} table of {ndim}")
        self.element, self.ndim = element, ndim
        self.words = f"an array of {ndim} axes"

    @property
    def key(self):
        return self.element, self.ndim


register_form(Table, lambda table: ir.ArrayType(I64, 1 + table.ndim))


def look_up(table, *index):
    """The element at an index for each axis; with fewer indices, which are scalars, the table of all further axes."""
    raise NotImplementedError("look_up is for compiled code")


def extent(table, axis):
    """The length of an axis."""
    raise NotImplementedError("extent is for compiled code")


@infer_global(look_up)
class _LookUp(AbstractTemplate):
    def generic(self, args, kws):
        table, *index = map(types.unliteral, args)
        result = _result_type(table, index)
        if result is None:
            FAILURES.append(_fault(table, index))
            return None
        return signature(result, table, *index)


def _result_type(table, index):
    if not isinstance(table, Table) or not 0 < len(index) <= table.ndim:
        return None
    if not all(is_whole(type_) or is_truth(type_) or type_ == RANGE for type_ in index):
        return None
    in_lanes, element = any(type_ in IN_LANES for type_ in index), ELEMENTS[table.element]
    if any(type_ in IN_RANGES for type_ in index):
        return element.range_type if len(index) == table.ndim else None
    if len(index) < table.ndim:
        return None if in_lanes else Table(table.element, table.ndim - len(index))
    return element.lanes if in_lanes else element.scalar


def _fault(table, index) -> str:
    if not isinstance(table, Table):
        return f"only an array can be indexed, not {name_of(table)}"
    if len(index) > table.ndim:
        return f"{len(index)} indices for {table.words}"
    return f"{table.words} has no index of {' and '.join(map(name_of, index))}"


@infer_global(extent)
class _Extent(AbstractTemplate):
    def generic(self, args, kws):
        table, axis = args
        if not isinstance(table, Table) or not isinstance(axis, types.Integer):
            FAILURES.append(f"only an array has a shape, not {name_of(table)}")
            return None
        return signature(types.int64, table, types.int64)


@lower_builtin(extent, Table, types.int64)
def _lower_extent(context, builder, signature, values):
    (table, axis), (type_, _) = values, signature.args
    ndim = type_.ndim
    axis = builder.select(builder.icmp_signed("<", axis, I64(0)), builder.add(axis, I64(ndim)), axis)
    axis = clip(builder, axis, I64(0), I64(ndim - 1))
    result = builder.extract_value(table, 1)
    for n in range(1, ndim):
        is_axis = builder.icmp_signed("==", axis, I64(n))
        result = builder.select(is_axis, builder.extract_value(table, 1 + n), result)
    return result


@lower_builtin(look_up, types.VarArg(types.Any))
def _lower_look_up(context, builder, signature, values):
    (table, *index), (address_and_shape, *numbers) = signature.args, values
    result = signature.return_type
    if result in IN_RANGES:
        return unknown_value(result)
    emitter, pairs = _LookUpEmitter(builder, table, address_and_shape), list(zip(numbers, index))
    if isinstance(result, Table):
        return emitter.sub_table(pairs)
    if result not in IN_LANES:
        return emitter.scalar(pairs)
    if index[-1] in RUNS and not any(type_ in IN_LANES for type_ in index[:-1]):
        return emitter.run(pairs)
    return emitter.lanes(pairs)


class _LookUpEmitter:
    """Emits look-ups in a table; ``pairs`` are the value and the Numba type of each index."""

    def __init__(self, builder: ir.IRBuilder, table: Table, value):
        self.builder, element = builder, ELEMENTS[table.element]
        self.memory, self.bytes = element.memory, element.bytes
        self.address = builder.extract_value(value, 0)
        self.shape = [builder.extract_value(value, 1 + n) for n in range(table.ndim)]

    def _index_inside(self, e: LaneEmitter, value, type_, length):
        """The index, counted from the start and moved into the axis."""
        b, i = self.builder, e.as_wholes(value, type_)
        if e.bits == 32:  # an int32 index reaches no further
            length = b.trunc(clip(b, length, I64(0), I64(2**31 - 1)), I32)
        n = e.splat(length)
        i = b.select(b.icmp_signed("<", i, e.whole(0)), b.add(i, n), i)
        i = b.select(b.icmp_signed("<", i, n), i, b.sub(n, e.whole(1)))
        # the last step is for an empty axis: index 0 is that of the one element at the table's address
        return b.select(b.icmp_signed("<", i, e.whole(0)), e.whole(0), i)

    def _scalar_offset(self, pairs):
        """The number of elements before that at the scalar indices, which belong to the first axes."""
        b, e, offset = self.builder, LaneEmitter(self.builder, False), I64(0)
        for axis, length in enumerate(self.shape):
            offset = b.mul(offset, length)
            if axis < len(pairs):
                offset = b.add(offset, e.result(self._index_inside(e, *pairs[axis], length)))
        return offset

    def _address(self, offset):
        return self.builder.add(self.address, self.builder.mul(offset, I64(self.bytes)))

    def _load(self, address, type_):
        value = self.builder.load(self.builder.inttoptr(address, type_.as_pointer()))
        value.align = self.bytes
        # no code writes to tables meanwhile, so LLVM may read an element once for all lanes
        value.set_metadata("invariant.load", self.builder.module.add_metadata([]))
        return value

    def sub_table(self, pairs):
        b = self.builder
        shape = self.shape[len(pairs) :]
        result = ir.Constant(ir.ArrayType(I64, 1 + len(shape)), ir.Undefined)
        for n, value in enumerate([self._address(self._scalar_offset(pairs)), *shape]):
            result = b.insert_value(result, value, n)
        return result

    def scalar(self, pairs):
        value = self._load(self._address(self._scalar_offset(pairs)), self.memory)
        if self.memory == I32:
            return self.builder.sext(value, I64)
        return self.builder.icmp_unsigned("!=", value, I8(0)) if self.memory == I8 else value

    def _as_lanes(self, value):
        """Elements in lanes, in the form that Numba's types have."""
        if self.memory == I8:
            return self.builder.icmp_unsigned("!=", value, ir.Constant(value.type, [0] * LANES))
        return value

    def run(self, pairs):
        """The elements at a run of positions in the last axis, by one load where the run is wholly inside."""
        b, (start, type_), length = self.builder, pairs[-1], self.shape[-1]
        if type_ == FALL:
            start = b.sub(start, I64(LANES - 1))
        last = b.sub(length, I64(LANES))
        inside = b.and_(b.icmp_signed(">=", start, I64(0)), b.icmp_signed("<=", start, last))
        with b.if_else(inside, likely=True) as (whole, part):
            with whole:
                address = self._address(b.add(self._scalar_offset(pairs[:-1]), start))
                loaded = self._load(address, ir.VectorType(self.memory, LANES))
                if type_ == FALL:
                    loaded = LaneEmitter(b, True).pick(loaded, range(LANES)[::-1])
                after_load = b.block
            with part:
                gathered, after_gather = self._gather(pairs), b.block
        value = b.phi(loaded.type)
        value.add_incoming(loaded, after_load)
        value.add_incoming(gathered, after_gather)
        return self._as_lanes(value)

    def lanes(self, pairs):
        return self._as_lanes(self._gather(pairs))

    def _gather(self, pairs):
        b, e = self.builder, LaneEmitter(self.builder, True)
        longs = ir.VectorType(I64, LANES)
        offset = ir.Constant(longs, [0] * LANES)
        for (value, type_), length in zip(pairs, self.shape):
            if type_ in RUNS:
                clipped = clip(b, value, I64(-(2**31) + LANES), I64(2**31 - LANES))
                index = b.sext(self._index_inside(e, clipped, type_, length), longs)
            elif type_ in IN_LANES:
                index = b.sext(self._index_inside(LaneEmitter(b, True, type_ == LONGS), value, type_, length), longs)
            else:
                scalar = LaneEmitter(b, False)
                index = e.splat(scalar.result(self._index_inside(scalar, value, type_, length)))
            offset = b.add(b.mul(offset, e.splat(length)), index)
        addresses = b.add(e.splat(self.address), b.mul(offset, ir.Constant(longs, [self.bytes] * LANES)))
        pointers = b.inttoptr(addresses, ir.VectorType(self.memory.as_pointer(), LANES))
        type_ = ir.VectorType(self.memory, LANES)
        all_lanes, undefined = e.truth(True), ir.Constant(type_, ir.Undefined)
        name = f"llvm.masked.gather.v{LANES}{suffix(self.memory)}.v{LANES}p0"
        return e.call(name, type_, pointers, I32(self.bytes), all_lanes, undefined)
