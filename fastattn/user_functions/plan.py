"""Compiles a user's function: from Python to a handle for kernels, whose Numba type is named by a hash of the content.

Each call passes the present values of the captured variables, which a function reads beside its parameters; a changed
value compiles nothing. A plan is kept by the code of its function, and serves other functions of the same code that
call the same functions.
"""

import ctypes
import hashlib
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from inspect import CO_VARARGS, CO_VARKEYWORDS
from types import CodeType, FunctionType
from typing import Any

from fastattn.errors import InputError
from fastattn.runtime.compiling import with_large_stack
from fastattn.user_functions.function_type import Handle, Variants, handle_class, type_of
from fastattn.user_functions.rewrite import NewSource, PlanInputs
from fastattn.user_functions.source import (
    LOOKUP_ERRORS,
    follow,
    location_of,
    packing_for,
    type_name_of,
    unwrap,
    value_of,
    words_of,
)

# Kind of function -> its parameters
PARAMETERS = {"score_mod": "score, b, h, t, s", "mask_mod": "b, h, t, s"}


class Plan:
    """A rewritten function, and classes of handles: one for each combination of types that captured values have had."""

    def __init__(self, function: FunctionType, kind: str):
        self.kind, self.inputs = kind, PlanInputs()
        try:
            self.new_source = NewSource(function, (), self.inputs)
        except RecursionError:
            raise InputError(f"{location_of(function.__code__)} is too deeply nested") from None
        self.inputs.stack.clear()
        self.text = f"{kind}\n{self.new_source.text()}"
        self.handle_classes: dict[tuple[str, ...], tuple[type[Handle], struct.Struct]] = {}

    def serves(self, function: FunctionType) -> bool:
        """Whether this function, of the plan's code, calls functions of the same code and reads the same constants."""
        functions, constants = self.inputs.functions, self.inputs.constants
        with suppress(*LOOKUP_ERRORS):
            return all(unwrap(follow(function, path)).__code__ is code for path, code in functions) and all(
                follow(function, path) is value for path, value in constants
            )
        return False

    def bind(self, function: FunctionType) -> Handle:
        """The function's handle with the present captured values; InputError for a value that cannot be passed."""
        captured = [type_name_of(variable, value_of(function, variable)) for variable in self.new_source.captured]
        values = [value for _, value in captured]
        class_, packing = self.handle_class_for(tuple(name for name, _ in captured))
        handle: Any = class_()
        packing.pack_into(handle, 0, *(word for value in values for word in words_of(value)))
        handle.address, handle.captured = ctypes.addressof(handle), values
        return handle

    def handle_class_for(self, names: tuple[str, ...]) -> tuple[type[Handle], struct.Struct]:
        """(class of handles for captured values of these types, the struct that packs the values)."""
        if names not in self.handle_classes:
            digest = hashlib.sha256(f"{self.text}\n{names}".encode()).hexdigest()[:24]
            packing, offsets = packing_for(names)
            variants = Variants(self.kind, self.new_source, tuple(map(type_of, names)))
            self.handle_classes[names] = handle_class(digest, variants, tuple(offsets), packing.size), packing
        return self.handle_classes[names]


_MAX_PLANS = 8  # for functions of one code


@lru_cache(1000)
def _plans_of(code: CodeType, file: str, kind: str) -> list[Plan]:
    """The plans for functions of one code, newest first; ``plan_of`` adds them."""
    return []


def python_function(function: Any, kind: str) -> FunctionType:
    """The Python function of a plain or compiled function; InputError for anything else, or other parameters."""
    function = unwrap(function)
    if not isinstance(function, FunctionType):
        raise InputError(f"{kind}: expected a function ({PARAMETERS[kind]}), got a {type(function).__name__}")
    code, expected = function.__code__, PARAMETERS[kind]
    needs_keyword = code.co_kwonlyargcount > len(function.__kwdefaults__ or ())
    is_variadic = code.co_flags & (CO_VARARGS | CO_VARKEYWORDS)
    if needs_keyword or is_variadic or _required_count(function) != len(expected.split(", ")):
        count = code.co_argcount + code.co_kwonlyargcount
        count += bool(code.co_flags & CO_VARARGS) + bool(code.co_flags & CO_VARKEYWORDS)
        parameters = ", ".join(code.co_varnames[:count]) or "no parameters"
        raise InputError(f"{kind}: expected a function of {expected}, got {location_of(code)} of {parameters}")
    return function


def _required_count(function: FunctionType) -> int:
    code, defaults = function.__code__, function.__defaults__ or ()
    return code.co_argcount + code.co_kwonlyargcount - len(defaults) - len(function.__kwdefaults__ or ())


def plan_of(function: FunctionType, kind: str) -> Plan:
    """The plan that serves the function, or a new one."""
    plans = _plans_of(function.__code__, function.__code__.co_filename, kind)
    for plan in plans:
        if plan.serves(function):
            return plan
    plan = with_large_stack(lambda: Plan(function, kind))
    plans.insert(0, plan)
    del plans[_MAX_PLANS:]
    return plan


def compile_function(function: Any, kind: str) -> Handle:
    """The handle that kernels take for a ``score_mod(score, b, h, t, s)`` or a ``mask_mod(b, h, t, s)``: the ``kind``.

    The handle holds the present captured values; every call of attention makes a new one. InputError for unsupported
    Python; where types do not go together, the first kernel that takes the handle raises it.
    """
    python = python_function(function, kind)
    with _with_kind_in_errors(kind):
        return plan_of(python, kind).bind(python)


def explain_function(function: Any) -> str:
    """How a score_mod or mask_mod (by its parameters) is compiled: "vectorised", or "scalar: " and the reason.

    A vectorised function computes several keys at once, as fast as built-in scores and masks; a scalar function takes
    several times as long. InputError for other functions, and for a function that cannot be compiled.
    """
    plain_function = unwrap(function)
    is_mask = isinstance(plain_function, FunctionType) and _required_count(plain_function) == 4
    kind = "mask_mod" if is_mask else "score_mod"
    python = python_function(function, kind)
    with _with_kind_in_errors(kind):
        plan = plan_of(python, kind)
        variants = plan.bind(python)._numba_type_.variants
        variant = with_large_stack(variants.best_variant)
    return "vectorised" if variant == "lanes" else f"scalar: {variants.why_not('lanes')}"


@contextmanager
def _with_kind_in_errors(kind: str) -> Iterator[None]:
    try:
        yield
    except InputError as error:
        raise InputError(f"{kind}: {error}") from None
