"""From a kernel's source to machine code that needs no Numba when it is called."""

import functools
import hashlib
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types

from fastattn.runtime.code_cache import Code
from fastattn.runtime.internals import call_compiled, compile_helper, empty_module, object_file, target_context
from fastattn.runtime.loop import cut_loop
from fastattn.runtime.pool_code import I64, share
from fastattn.runtime.wrapper_code import ArgumentType, argument_types, emit_plain, emit_shared, emit_wrapper


def compile_kernel(function: Callable, name: str, key: str, classes: list[type]) -> Code:
    """A kernel for arguments of this key (``signature_of``): its wrapper, and ``entry(arguments, first, end)``.

    entry  does the tasks from first to end with the arguments at an address, and returns how many tasks there are.
    Raises Numba's errors where it cannot be compiled.
    """
    expected = argument_types(key, classes)
    result = _compiled(_cut(function), types.int64, types.int64, *(one.type for one in expected))
    sharing = _compiled(share, *[types.int64] * 5)
    context, module, exports = target_context(), empty_module(name), _symbols(name, key, "wrapper", "entry")
    kinds = ir.LiteralStructType([context.get_value_type(one.type) for one in expected])
    entry = _emit_entry(module, exports["entry"], result, kinds)
    emit_wrapper(context, module, exports["wrapper"], expected, emit_shared(sharing, entry, kinds))
    return _code(module, [result, sharing], exports)


def compile_function(function: Callable, name: str, count: int) -> Code:
    """A function of ``count`` int64, two at least: its wrapper, and "plain", a function of C that returns an int64."""
    result = _compiled(compile_helper(function), *[types.int64] * count)
    context, module = target_context(), empty_module(name)
    exports = _symbols(name, str(count), "wrapper", "plain")
    plain = ir.Function(module, ir.FunctionType(I64, [I64] * count), exports["plain"])
    builder = ir.IRBuilder(plain.append_basic_block())
    builder.ret(call_compiled(builder, result, list(plain.args), types.int64))
    integers = [ArgumentType("I", types.int64)] * (count - 2)
    emit_wrapper(context, module, exports["wrapper"], integers, emit_plain(plain))
    return _code(module, [result], exports)


@functools.cache
def _cut(function: Callable) -> Any:
    return compile_helper(cut_loop(function))


def _compiled(helper: Any, *kinds: Any) -> Any:
    helper.compile(kinds)
    return helper.overloads[kinds]


def _symbols(name: str, key: str, *roles: str) -> dict[str, str]:
    """Role -> symbol, of no other kernel's or types'."""
    own = hashlib.sha256(key.encode()).hexdigest()[:16]
    return {role: f"fastattn.{name}.{own}.{role}" for role in roles}


def _code(module: Any, results: list, exports: dict[str, str]) -> Code:
    object_code, needs = object_file(module, [result.library for result in results], list(exports.values()))
    return Code(exports, needs, object_code)


def _emit_entry(module: Any, name: str, result: Any, arguments_type: Any) -> Any:
    """The tasks as a function of one type for all kernels, with its arguments as a structure in memory."""
    entry = ir.Function(module, ir.FunctionType(I64, [I64] * 3), name)
    entry.attributes.add("noinline")  # it is called in several places
    builder = ir.IRBuilder(entry.append_basic_block())
    address, first, end = entry.args
    stored = builder.load(builder.inttoptr(address, arguments_type.as_pointer()))
    arguments = [builder.extract_value(stored, i) for i in range(len(arguments_type.elements))]
    builder.ret(call_compiled(builder, result, [first, end, *arguments], types.int64))
    return entry
