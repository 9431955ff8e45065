"""The Numba type of a user's function, and the variants in which kernels call it.

A variant is the rewritten source compiled for one set of types: keys in lanes, one key, or ranges of queries and keys.
The types of the captured values decide which variants exist. The type's name includes those types, so it need not name
the variants, and cached code of a kernel is found without compiling any.
"""

import ast
import ctypes
import math
import os
import re
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

import numpy as np
from numba import types
from numba.core import errors
from numba.core.compiler_lock import global_compiler_lock
from numba.extending import NativeValue, intrinsic, typeof_impl, unbox

from fastattn.arguments.attention import ALL, NONE, SOME
from fastattn.errors import InputError
from fastattn.runtime.jit import inner
from fastattn.simd.arguments import LOG2_E
from fastattn.simd.attention import store_byte
from fastattn.simd.emit import F32, I64
from fastattn.simd.lanes import LONG, RAMP, keep_bytes, ramp
from fastattn.simd.memory import load, load_scalar, store, store_scalar
from fastattn.simd.operations import FAILURES, OPERATIONS, name_of, result_of
from fastattn.simd.ranges import RANGE, TRUTH, make_range, truth_bits
from fastattn.simd.tables import Table, extent, look_up
from fastattn.simd.target import LANES
from fastattn.simd.vector import VECTOR, register_form, splat
from fastattn.system.records import lazy
from fastattn.user_functions.rewrite import NewSource

_I = types.int64
# Kind of function -> the types of its parameters in each variant
_PARAMETERS: dict[str, dict[str, tuple]] = {
    "score_mod": {"lanes": (VECTOR, _I, _I, _I, RAMP), "scalar": (types.float32, _I, _I, _I, _I)},
    "mask_mod": {"lanes": (_I, _I, _I, RAMP), "scalar": (_I,) * 4, "ranges": (_I, _I, RANGE, RANGE)},
}
_NUMBERS = {"bool": types.boolean, "int": types.int64, "long": LONG, "float": types.float32}
_LOG2_E, _LN_2 = np.float32(LOG2_E), np.float32(math.log(2))
_as_float_lanes, _as_truth_lanes = OPERATIONS["floats_in_lanes"], OPERATIONS["truths_in_lanes"]
_as_float, _as_truth = OPERATIONS["to_float"], OPERATIONS["truth"]


class Variants:
    """The variants of a user's function: why one is lacking, and the compiled function."""

    def __init__(self, kind: str, new_source: NewSource, captured_types: tuple):
        self.kind, self.new_source, self.captured_types = kind, new_source, captured_types
        self._reasons: dict[str, str] = {}

    def __getstate__(self) -> dict[str, Any]:
        """The state without compiled code: Numba's own cache pickles the types of arguments."""
        return {"kind": self.kind, "new_source": self.new_source, "captured_types": self.captured_types, "_reasons": {}}

    @lazy
    def compiled(self) -> Any:
        """The compiled function for kernels, in the variants that ``why_not`` allows."""
        return compile_source(self.new_source)

    def why_not(self, variant: str) -> str:
        """Why there is no "lanes", "scalar" or "ranges" variant, in one line; "" if there is."""
        if variant not in self._reasons:
            parameters = _PARAMETERS[self.kind].get(variant)
            with global_compiler_lock:
                self._reasons[variant] = self._compile(parameters) if parameters else "of masks only"
        return self._reasons[variant]

    def _compile(self, parameters: tuple) -> str:
        """Compile the variant with these parameters; the reason in one line where that is impossible, else ""."""
        argument_types = (*parameters, *self.captured_types)
        FAILURES.clear()
        try:
            self.compiled.compile(argument_types)
        except errors.NumbaError as error:
            return _reason(self.new_source, error)
        result = self.compiled.overloads[argument_types].signature.return_type
        if parameters[-1] == RANGE:
            is_valid = result in (TRUTH, types.boolean)
        else:
            is_valid = result_of("truth" if self.kind == "mask_mod" else "to_float", result)
        return "" if is_valid else f"{self.new_source.location}: it returns {name_of(result)}"

    def best_variant(self) -> str:
        """ "lanes", or else "scalar"; InputError if there is neither."""
        if not self.why_not("lanes"):
            return "lanes"
        if reason := self.why_not("scalar"):
            raise InputError(f"{self.kind}: {reason}")
        return "scalar"


@intrinsic
def captured_of(typing_context, function):
    """The captured values of a function, in a compiled loop."""

    def generate(context, builder, signature, arguments):
        (address,) = arguments
        pairs = zip(function.variants.captured_types, function.offsets)
        values = [_load(context, builder, type_, builder.add(address, I64(offset))) for type_, offset in pairs]
        return context.make_tuple(builder, signature.return_type, values)

    return types.Tuple(function.variants.captured_types)(function), generate


def _load(context, builder, type_, address):
    stored_type = F32 if type_ == types.float32 else I64
    if isinstance(type_, Table):
        stored_type = context.get_value_type(type_)
    value = builder.load(builder.inttoptr(address, stored_type.as_pointer()))
    value.align = 8
    return builder.icmp_unsigned("!=", value, I64(0)) if type_ == types.boolean else value


class UserFunctionType(types.Type):
    """A user's function by its content: source, constants, and the types of its captured values.

    A value of the type is an address, behind which the captured values lie at these ``offsets``, in bytes.
    """

    def __init__(self, digest: str, variants: Variants, offsets: tuple[int, ...]):
        super().__init__(name=f"Function({digest})")
        self.variants, self.offsets = variants, offsets

    # Implementations for kernels/attention/masks.py that call the function: loops over a row's keys, a tile's state.

    def modify_loop(self) -> Callable:
        """The implementation of ``modify_scores``."""
        call = self.variants.compiled

        def in_lanes(function, score, b, h, t, s, count):
            captured, ln_2, log2_e = captured_of(function), splat(_LN_2), splat(_LOG2_E)
            for k in range(0, count, LANES):
                changed = call(load(score + k * 4) * ln_2, b, h, t, ramp(s + k), *captured)
                store(_as_float_lanes(changed) * log2_e, score + k * 4)

        def one_by_one(function, score, b, h, t, s, count):
            captured = captured_of(function)
            for k in range(count):
                changed = call(load_scalar(score + k * 4) * _LN_2, b, h, t, s + k, *captured)
                store_scalar(_as_float(changed) * _LOG2_E, score + k * 4)

        return in_lanes if self.variants.best_variant() == "lanes" else one_by_one

    def write_loop(self) -> Callable:
        """The implementation of ``write_seen``."""
        call = self.variants.compiled

        def in_lanes(function, target, b, h, t, s, count):
            captured = captured_of(function)
            for k in range(0, count, LANES):
                keep_bytes(_as_truth_lanes(call(b, h, t, ramp(s + k), *captured)), target + k, count - k)

        def one_by_one(function, target, b, h, t, s, count):
            captured = captured_of(function)
            for k in range(count):
                if not _as_truth(call(b, h, t, s + k, *captured)):
                    store_byte(0, target + k)

        return in_lanes if self.variants.best_variant() == "lanes" else one_by_one

    def state_of_ranges(self) -> Callable:
        """The implementation of ``tile_state``."""
        if self.variants.why_not("ranges"):
            return lambda function, b, h, t_first, t_last, s_first, s_last: SOME
        call = self.variants.compiled

        def state(function, b, h, t_first, t_last, s_first, s_last):
            queries, keys = make_range(t_first, t_last), make_range(s_first, s_last)
            possible_truths = truth_bits(call(b, h, queries, keys, *captured_of(function)))
            return SOME if possible_truths == 3 else (ALL if possible_truths == 1 else NONE)

        return state


class Handle:
    """A function with its present captured values, for a kernel; subclasses are ctypes arrays that hold the values.

    Each content has a subclass: Numba tells the type of a buffer by its Python class, in a tenth of a microsecond.
    """

    _numba_type_: UserFunctionType
    address: int
    captured: Any  # the captured values: they keep arrays alive whose addresses the handle holds


# Digest -> the class of its handles. No class is ever deleted: Numba's keys are class addresses, and code stays loaded.
_classes: dict[str, type[Handle]] = {}
MAX_CLASSES = 1000  # each takes 0.2 MB, or 9 MB where this process compiles it


def handle_class(digest: str, variants: Variants, offsets: tuple[int, ...], size: int) -> type[Handle]:
    """The class of handles for functions of this content. ``size``: bytes of their captured values, a multiple of 8.

    InputError for more than MAX_CLASSES.
    """
    if digest not in _classes:
        if len(_classes) >= MAX_CLASSES:
            hint = "numbers that differ can be variables outside, for which nothing is compiled anew"
            raise InputError(f"expected at most {MAX_CLASSES} functions of different source in a process; {hint}")
        content = {"_numba_type_": UserFunctionType(digest, variants, offsets)}
        class_ = type("Handle", (Handle, ctypes.c_int64 * max(size // 8, 1)), content)
        _classes.setdefault(digest, class_)  # another thread may have been quicker
    return _classes[digest]


@typeof_impl.register(Handle)
def _typeof_handle(handle, context):
    return handle._numba_type_


def type_of(name: str) -> Any:
    """The Numba type of a captured value, by its name from ``type_name_of``."""
    if name in _NUMBERS:
        return _NUMBERS[name]
    element, ndim = name.split()
    return Table(element, int(ndim))


register_form(UserFunctionType, I64)


@unbox(UserFunctionType)
def _unbox_function(type_, value, c):
    address = c.pyapi.object_getattr_string(value, "address")
    native = c.pyapi.long_as_longlong(address)
    c.pyapi.decref(address)
    return NativeValue(native)


def compile_source(new_source: NewSource) -> Any:
    """Compile the rewritten function, and the functions that it calls, for kernels."""
    names: dict[str, Any] = {f"_{name}": operation for name, operation in OPERATIONS.items()}
    names |= {"_look_up": look_up, "_extent": extent, "_range": range, "__name__": __name__}
    names |= {name: compile_source(call) for name, call in new_source.calls.items()}
    names |= {name: function for name, (_, function) in new_source.scalar_functions.items()}
    module = ast.Module([new_source.definition], [])
    code = compile(module, new_source.file, "exec", dont_inherit=True)
    (function_code,) = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return inner(FunctionType(function_code, names, "user_function"))


_LOCATION = re.compile(r'File "([^"\n]*)", line (\d+)')


def _reason(new_source: NewSource, error: errors.NumbaError) -> str:
    """Why the function cannot be compiled, in one line, with the innermost location in the user's code."""
    fault = FAILURES[-1] if FAILURES else _numba_reason(new_source, error)
    if new_source.branch_reason and "if or while" in fault:
        fault = f"{fault} ({new_source.branch_reason})"
    files = {os.path.basename(source.file): source.file for source in _all_sources(new_source)}
    for file, line in _LOCATION.findall(str(error)):  # innermost first
        if os.path.basename(file) in files:
            return f"{files[os.path.basename(file)]}:{line}: {fault}"
    return f"{new_source.location}: {fault}"


def _numba_reason(new_source: NewSource, error: errors.NumbaError) -> str:
    """The reason for an error of Numba that no operation reported, in words for users."""
    for source in _all_sources(new_source):
        for name, (called, function) in source.scalar_functions.items():
            if f"'{name}'" in str(error) or f"Function({function!r})" in str(error):
                return f"a call of {called}, which is not supported here"
    if "unify" in str(error):
        return "a variable is of another kind on another path"
    return f"Numba cannot compile it ({type(error).__name__})"


def _all_sources(new_source: NewSource) -> list[NewSource]:
    """The source and those of all functions that it calls, directly or not."""
    return [new_source, *(callee for call in new_source.calls.values() for callee in _all_sources(call))]
