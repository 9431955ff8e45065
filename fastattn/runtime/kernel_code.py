"""From a kernel's Python function to machine code that needs no Numba when it is called.

The machine code is the kernel and a wrapper, which unpacks the arguments of a call from Python and shares the tasks
among threads.
"""

import functools
import hashlib
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.np.arrayobj import populate_array
from numba.np.numpy_support import from_dtype

from fastattn.runtime import machine_code as layout
from fastattn.runtime.code_cache import Code
from fastattn.runtime.internals import call_compiled, compile_helper, empty_module, object_file, target_context
from fastattn.runtime.loop import cut_loop
from fastattn.runtime.pool_code import I64, share, word
from fastattn.runtime.threads import READY


def compile_kernel(function: Callable, name: str, key: str, classes: list[type]) -> Code:
    """Compile a kernel for arguments of this key (``signature_of``): a wrapper, and ``entry(arguments, first, end)``.

    entry  does the tasks from ``first`` to ``end`` with the arguments at an address; returns the number of all tasks
    Raises Numba's errors where the kernel cannot be compiled.
    """
    expected = argument_types(key, classes)
    result = _compile(_compile_cut_loop(function), types.int64, types.int64, *(argument.type for argument in expected))
    share_result = _compile(share, *[types.int64] * 5)
    context, module, exports = target_context(), empty_module(name), _symbols(name, key, "wrapper", "entry")
    arguments_type = ir.LiteralStructType([context.get_value_type(argument.type) for argument in expected])
    entry = _emit_entry(module, exports["entry"], result, arguments_type)
    run = functools.partial(_emit_tasks, share_result, entry, arguments_type)
    emit_wrapper(context, module, exports["wrapper"], expected, run)
    return _code(module, [result, share_result], exports)


def compile_function(function: Callable, name: str, count: int) -> Code:
    """Compile a function of ``count`` int64, two or more: a wrapper, and "plain", a C function that gives an int64."""
    result = _compile(compile_helper(function), *[types.int64] * count)
    context, module = target_context(), empty_module(name)
    exports = _symbols(name, str(count), "wrapper", "plain")
    plain = ir.Function(module, ir.FunctionType(I64, [I64] * count), exports["plain"])
    builder = ir.IRBuilder(plain.append_basic_block())
    builder.ret(call_compiled(builder, result, list(plain.args), types.int64))
    integers = [ArgumentType("I", types.int64)] * (count - 2)
    emit_wrapper(context, module, exports["wrapper"], integers, functools.partial(_emit_function, plain))
    return _code(module, [result], exports)


@functools.cache
def _compile_cut_loop(function: Callable) -> Any:
    return compile_helper(cut_loop(function))


def _compile(helper: Any, *argument_types: Any) -> Any:
    helper.compile(argument_types)
    return helper.overloads[argument_types]


def _symbols(name: str, key: str, *roles: str) -> dict[str, str]:
    """Role -> symbol, which differs for every kernel and every key."""
    digest = hashlib.sha256(key.encode()).hexdigest()[:16]
    return {role: f"fastattn.{name}.{digest}.{role}" for role in roles}


def _code(module: Any, results: list, exports: dict[str, str]) -> Code:
    object_code, needs = object_file(module, [result.library for result in results], list(exports.values()))
    return Code(exports, needs, object_code)


def _emit_entry(module: Any, name: str, result: Any, arguments_type: Any) -> Any:
    """Emit ``entry``, of the same type for all kernels, which takes the arguments as a structure in memory."""
    entry = ir.Function(module, ir.FunctionType(I64, [I64] * 3), name)
    entry.attributes.add("noinline")  # the wrapper calls it in several places
    builder = ir.IRBuilder(entry.append_basic_block())
    address, first, end = entry.args
    stored = builder.load(builder.inttoptr(address, arguments_type.as_pointer()))
    arguments = [builder.extract_value(stored, i) for i in range(len(arguments_type.elements))]
    builder.ret(call_compiled(builder, result, [first, end, *arguments], types.int64))
    return entry


I8, I32, VOID, DOUBLE = ir.IntType(8), ir.IntType(32), ir.VoidType(), ir.DoubleType()
WRAPPER = ir.FunctionType(I64, [I64, I64, I64])  # (self, address of the arguments, their number) -> object


class ArgumentType(NamedTuple):
    """An argument's type, read from the text of ``signature_of``.

    kind       "array", "tuple", "object", or the letter of a number or None
    type       Numba's type
    number     NumPy's number of an array's dtype
    items      the types in a tuple
    has_class  whether the wrapper's table has the class of the tuple or object
    """

    kind: str
    type: types.Type
    number: int = 0
    items: tuple["ArgumentType", ...] = ()
    has_class: bool = False


_SCALARS = {"I": types.int64, "B": types.boolean, "D": types.float64, "F": types.float32, "Z": types.none}
_TOKEN = re.compile(r"<[^>]*>|[^,()]*\(|[,)]|[^,()]+")


def argument_types(key: str, classes: list[type]) -> list[ArgumentType]:
    """The types of a call's arguments; ``classes`` are the classes that the key names, in order."""
    return _read_types(iter(_TOKEN.findall(key + ")")), iter(classes))


def _read_types(tokens: Iterator[str], classes: Iterator[type]) -> list[ArgumentType]:
    expected: list[ArgumentType] = []
    for token in tokens:
        if token == ")":
            break
        if token.endswith("("):
            class_ = next(classes) if len(token) > 1 else None
            items = tuple(_read_types(tokens, classes))
            item_types = [item.type for item in items]
            type_ = types.BaseTuple.from_types(item_types, class_) if class_ else types.Tuple(tuple(item_types))
            expected.append(ArgumentType("tuple", type_, items=items, has_class=class_ is not None))
        elif token[0] == "<":
            expected.append(ArgumentType("object", next(classes)._numba_type_, has_class=True))  # type: ignore[attr-defined]
        elif token in _SCALARS:
            expected.append(ArgumentType(token, _SCALARS[token]))
        elif token != ",":
            dtype = np.dtype(token[0])
            type_ = types.Array(from_dtype(dtype), int(token[1:-1]), token[-1].upper(), aligned=token[-1].isupper())
            expected.append(ArgumentType("array", type_, dtype.num))
    return expected


class _Unpacker:
    """Emits code that takes Python objects apart, and branches to ``mismatch`` where an object has another type."""

    def __init__(self, context: Any, builder: Any, table: Any):
        self.context, self.builder, self.table = context, builder, table
        self.mismatch = builder.append_basic_block("wrong")
        self.next_class = len(layout.FUNCTIONS) + len(layout.OBJECTS)  # its number in the table

    def load(self, address: Any, offset: int = 0, type_: Any = I64) -> Any:
        address = self.builder.add(address, I64(offset)) if offset else address
        return self.builder.load(self.builder.inttoptr(address, type_.as_pointer()))

    def table_word(self, number: int) -> Any:
        return self.load(self.table, 8 * number)

    def address_of(self, value: Any) -> Any:
        return self.table_word(len(layout.FUNCTIONS) + layout.OBJECTS.index(value))

    def call(self, name: str, *arguments: Any, returns: Any = I64) -> Any:
        function_type = ir.FunctionType(returns, [argument.type for argument in arguments])
        address = self.table_word(layout.FUNCTIONS.index(name))
        return self.builder.call(self.builder.inttoptr(address, function_type.as_pointer()), arguments)

    def equal(self, first: Any, second: Any) -> Any:
        return self.builder.icmp_signed("==", first, second if isinstance(second, ir.Value) else first.type(second))

    def require(self, condition: Any) -> None:
        match = self.builder.append_basic_block("fits")
        self.builder.cbranch(condition, match, self.mismatch)
        self.builder.position_at_end(match)

    def is_subclass(self, kind: Any, class_: Any) -> Any:
        """Whether the Python type at ``kind`` is ``class_`` or a subclass."""
        base = self.address_of(class_)
        result = cgutils.alloca_once_value(self.builder, ir.IntType(1)(1))
        with self.builder.if_then(self.builder.not_(self.equal(kind, base)), likely=False):
            answer = self.call("PyType_IsSubtype", kind, base, returns=I32)
            self.builder.store(self.builder.icmp_signed("!=", answer, I32(0)), result)
        return self.builder.load(result)

    def check_number(self, value: Any) -> Any:
        """A number that a function of Python returned; a mismatch if the number is -1 because of an error."""
        failed = cgutils.alloca_once_value(self.builder, ir.IntType(1)(0))
        with self.builder.if_then(self.equal(value, -1), likely=False):
            error = self.builder.icmp_signed("!=", self.call("PyErr_Occurred"), I64(0))
            with self.builder.if_then(error):
                self.call("PyErr_Clear", returns=VOID)
                self.builder.store(ir.IntType(1)(1), failed)
        self.require(self.builder.not_(self.builder.load(failed)))
        return value

    def unpack_integer(self, value: Any, kind: Any) -> Any:
        number = cgutils.alloca_once_value(self.builder, I64(0))
        with self.builder.if_else(self.equal(kind, self.address_of(int))) as (plain, index):
            with plain:
                self.builder.store(self.call("PyLong_AsLongLong", value), number)
            with index:
                self.require(self.builder.not_(self.equal(kind, self.address_of(bool))))
                self.builder.store(self.call("PyNumber_AsSsize_t", value, self.address_of(OverflowError)), number)
        return self.check_number(self.builder.load(number))

    def unpack(self, expected: ArgumentType, value: Any) -> Any:
        """The Python object at ``value`` as Numba represents the expected type."""
        builder, kind = self.builder, self.load(value, layout.TYPE)
        if expected.kind == "I":
            return self.unpack_integer(value, kind)
        if expected.kind == "B":
            self.require(
                builder.or_(self.equal(kind, self.address_of(bool)), self.equal(kind, self.address_of(np.bool_)))
            )
            return builder.icmp_signed("!=", self.call("PyObject_IsTrue", value, returns=I32), I32(0))
        if expected.kind == "D":
            self.require(self.is_subclass(kind, float))
            return self.call("PyFloat_AsDouble", value, returns=DOUBLE)
        if expected.kind == "F":
            self.require(self.equal(kind, self.address_of(np.float32)))
            return builder.fptrunc(self.call("PyFloat_AsDouble", value, returns=DOUBLE), ir.FloatType())
        if expected.kind == "Z":
            self.require(self.equal(value, self.address_of(None)))
            return self.context.get_dummy_value()
        if expected.has_class:
            self.require(self.equal(kind, self.table_word(self.next_class)))
            self.next_class += 1
        unpackers = {"tuple": self.unpack_tuple, "object": self.unpack_address, "array": self.unpack_array}
        return unpackers[expected.kind](expected, value, kind)

    def unpack_address(self, expected: ArgumentType, value: Any, kind: Any) -> Any:
        """The attribute ``address`` of an object with a Numba type of its own."""
        name = self.context.insert_const_string(self.builder.module, "address")
        attribute = self.call("PyObject_GetAttrString", value, self.builder.ptrtoint(name, I64))
        number = self.call("PyLong_AsLongLong", attribute)
        self.call("Py_DecRef", attribute, returns=VOID)
        return number

    def unpack_tuple(self, expected: ArgumentType, value: Any, kind: Any) -> Any:
        if not expected.has_class:
            self.require(self.equal(kind, self.address_of(tuple)))
        self.require(self.equal(self.call("PyTuple_Size", value), len(expected.items)))
        places = enumerate(expected.items)
        items = [self.unpack(item, self.call("PyTuple_GetItem", value, I64(i))) for i, item in places]
        return self.context.make_tuple(self.builder, expected.type, items)

    def unpack_array(self, expected: ArgumentType, value: Any, kind: Any) -> Any:
        array_type: Any = expected.type
        self.require(self.is_subclass(kind, np.ndarray))
        dtype = self.load(value, layout.DTYPE)
        self.require(self.equal(self.load(dtype, layout.TYPE_NUMBER, I32), expected.number))
        self.require(self.builder.not_(self.equal(self.load(dtype, layout.BYTE_ORDER, I8), ord(">"))))
        self.require(self.equal(self.load(value, layout.NDIM, I32), array_type.ndim))
        expected_flags = layout.C_CONTIGUOUS * (array_type.layout == "C") | layout.ALIGNED * array_type.aligned
        flags = self.builder.and_(self.load(value, layout.ARRAY_FLAGS, I32), I32(layout.C_CONTIGUOUS | layout.ALIGNED))
        self.require(self.equal(flags, expected_flags))
        array = self.context.make_array(array_type)(self.context, self.builder)
        shape, strides = (
            [self.load(address, 8 * axis) for axis in range(array_type.ndim)]
            for address in (self.load(value, layout.SHAPE), self.load(value, layout.STRIDES))
        )
        count: Any = I64(1)
        for extent in shape:
            count = self.builder.mul(count, extent)
        data = self.builder.inttoptr(self.load(value, layout.DATA), array.data.type)
        itemsize = self.context.get_abi_sizeof(self.context.get_data_type(array_type.dtype))
        populate_array(array, data, shape, strides, I64(itemsize), None)
        return array._getvalue()


def emit_wrapper(context: Any, module: Any, name: str, expected: list[ArgumentType], run: Callable) -> None:
    """Emit a kernel's wrapper, a function of type WRAPPER that Python calls with (pool, threads, *arguments).

    The wrapper has all tasks done by at most ``threads`` threads, and returns 0. If that takes more helpers than the
    pool at the address ``pool`` has, the wrapper does nothing and returns the number of helpers; for arguments of other
    types it returns MISMATCH. With ``threads`` 0 it only writes the arguments as a structure to the address ``pool``,
    unless that is 0, and returns the structure's size. It finds Python's functions in the table of ``machine_code``.

    run  run(builder, pool, threads, values, unpacker) emits the work, and returns the value that the wrapper returns
    """
    wrapper = ir.Function(module, WRAPPER, name)
    # Python unwinds a daemon thread that takes the GIL again while the process ends.
    wrapper.attributes.add("uwtable")
    builder = ir.IRBuilder(wrapper.append_basic_block())
    table = builder.add(wrapper.args[0], I64(layout.TABLE))
    unpacker = _Unpacker(context, builder, table)
    unpacker.require(unpacker.equal(wrapper.args[2], 2 + len(expected)))

    def argument(n: int) -> Any:
        return unpacker.load(wrapper.args[1], 8 * n)

    pool, threads = (unpacker.unpack(ArgumentType("I", types.int64), argument(n)) for n in range(2))
    values = [unpacker.unpack(kind, argument(2 + n)) for n, kind in enumerate(expected)]
    result = run(builder, pool, threads, values, unpacker)
    builder.ret(unpacker.call("PyLong_FromLongLong", result))
    builder.position_at_end(unpacker.mismatch)
    builder.ret(unpacker.call("PyLong_FromLongLong", I64(layout.MISMATCH)))


def _emit_tasks(
    share_result: Any, entry: Any, struct_type: Any, builder: Any, pool: Any, threads: Any, values: list, unpacker: Any
) -> Any:
    """``run`` of ``emit_wrapper`` for a kernel: calls the compiled ``pool_code.share``, which calls ``entry``."""
    arguments: Any = ir.Constant(struct_type, ir.Undefined)
    for n, value in enumerate(values):
        arguments = builder.insert_value(arguments, value, n)
    address = builder.ptrtoint(cgutils.alloca_once_value(builder, arguments), I64)
    result = cgutils.alloca_once_value(builder, unpacker.context.get_constant(types.int64, 0))
    size = I64(unpacker.context.get_abi_sizeof(struct_type))
    with builder.if_else(builder.icmp_signed("==", threads, I64(0))) as (packing, running):
        with packing:
            with builder.if_then(builder.icmp_signed("!=", pool, I64(0))):
                builder.store(arguments, builder.inttoptr(pool, struct_type.as_pointer()))
            builder.store(size, result)
        with running:
            state = unpacker.call("PyEval_SaveThread")
            ready = builder.load_atomic(word(builder, builder.add(pool, I64(READY))), "seq_cst", 8)
            arguments_of_share = [pool, threads, ready, builder.ptrtoint(entry, I64), address]
            builder.store(call_compiled(builder, share_result, arguments_of_share, types.int64), result)
            unpacker.call("PyEval_RestoreThread", state, returns=VOID)
    return builder.load(result)


def _emit_function(function: Any, builder: Any, pool: Any, threads: Any, values: list, unpacker: _Unpacker) -> Any:
    """``run`` of ``emit_wrapper`` for a function of integers, whose first two are ``pool`` and ``threads``."""
    state = unpacker.call("PyEval_SaveThread")
    result = builder.call(function, [pool, threads, *values])
    unpacker.call("PyEval_RestoreThread", state, returns=VOID)
    return result
