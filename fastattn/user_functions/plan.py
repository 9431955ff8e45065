"""Compiles users' functions: from Python to a handle for kernels, whose Numba type names the function's content.

Each call passes the variables that a function reads beside its parameters, so that changed values count at once and
compile nothing. A function is rewritten once: its code leads to the plan again, which serves every function of that
code that calls the same functions.
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
from fastattn.user_functions.rewrite import Parts, Rewritten
from fastattn.user_functions.source import (
    ABSENT,
    follow,
    location_of,
    packing_of,
    type_name_of,
    unwrapped,
    value_of,
    words_of,
)

# Kind of function -> its parameters
PARAMETERS = {"score_mod": "score, b, h, t, s", "mask_mod": "b, h, t, s"}


class Plan:
    """A rewritten function, and its Numba types for the types of captured values so far."""

    def __init__(self, function: FunctionType, kind: str):
        self.kind, self.parts = kind, Parts()
        try:
            self.rewritten = Rewritten(function, (), self.parts)
        except RecursionError:
            raise InputError(f"{location_of(function.__code__)} is too deeply nested") from None
        self.parts.stack.clear()
        self.text = f"{kind}\n{self.rewritten.text()}"
        self.types: dict[tuple[str, ...], tuple[type[Handle], struct.Struct]] = {}

    def fits(self, function: FunctionType) -> bool:
        """Whether the plan serves this function: it calls functions of the same code, and reads the same constants."""
        functions, constants = self.parts.functions, self.parts.constants
        with suppress(*ABSENT):
            return all(unwrapped(follow(function, path)).__code__ is code for path, code in functions) and all(
                follow(function, path) is value for path, value in constants
            )
        return False

    def bind(self, function: FunctionType) -> Handle:
        """The function's handle with its present captured values; InputError if one cannot be passed."""
        captured = [type_name_of(variable, value_of(function, variable)) for variable in self.rewritten.captured]
        values = [value for _, value in captured]
        class_, packing = self.typed(tuple(name for name, _ in captured))
        handle: Any = class_()
        packing.pack_into(handle, 0, *(word for value in values for word in words_of(value)))
        handle.address, handle.arrays = ctypes.addressof(handle), values
        return handle

    def typed(self, names: tuple[str, ...]) -> tuple[type[Handle], struct.Struct]:
        """(class of handles for captured values of these types, how the values are packed)."""
        if names not in self.types:
            digest = hashlib.sha256(f"{self.text}\n{names}".encode()).hexdigest()[:24]
            packing, offsets = packing_of(names)
            variants = Variants(self.kind, self.rewritten, tuple(map(type_of, names)))
            self.types[names] = handle_class(digest, variants, tuple(offsets), packing.size), packing
        return self.types[names]


_MOST_PLANS = 8  # of one code


@lru_cache(1000)
def _plans_of(code: CodeType, file: str, kind: str) -> list[Plan]:
    return []


def python_function(function: Any, kind: str) -> FunctionType:
    """The Python function of a plain or compiled function; InputError for other values and other parameters."""
    function = unwrapped(function)
    if not isinstance(function, FunctionType):
        raise InputError(f"{kind}: expected a function ({PARAMETERS[kind]}), got a {type(function).__name__}")
    code, expected = function.__code__, PARAMETERS[kind]
    needed = code.co_kwonlyargcount > len(function.__kwdefaults__ or ())
    if (
        _required_count(function) != len(expected.split(", "))
        or needed
        or code.co_flags & (CO_VARARGS | CO_VARKEYWORDS)
    ):
        count = code.co_argcount + code.co_kwonlyargcount
        count += bool(code.co_flags & CO_VARARGS) + bool(code.co_flags & CO_VARKEYWORDS)
        parameters = ", ".join(code.co_varnames[:count]) or "no parameters"
        raise InputError(f"{kind}: expected a function of {expected}, got {location_of(code)} of {parameters}")
    return function


def _required_count(function: FunctionType) -> int:
    code, defaults = function.__code__, function.__defaults__ or ()
    return code.co_argcount + code.co_kwonlyargcount - len(defaults) - len(function.__kwdefaults__ or ())


def plan_of(function: FunctionType, kind: str) -> Plan:
    plans = _plans_of(function.__code__, function.__code__.co_filename, kind)
    for plan in plans:
        if plan.fits(function):
            return plan
    plan = with_large_stack(lambda: Plan(function, kind))
    plans.insert(0, plan)
    del plans[_MOST_PLANS:]
    return plan


def compile_function(function: Any, kind: str) -> Handle:
    """The handle by which kernels take a ``score_mod(score, b, h, t, s)`` or ``mask_mod(b, h, t, s)``, by ``kind``.

    It holds the present captured values, and is made anew for every call. InputError for a function that cannot be
    compiled: here for what it does; from the kernel that first takes it for types that do not go together.
    """
    python = python_function(function, kind)
    with _naming_kind(kind):
        return plan_of(python, kind).bind(python)


def explain_function(function: Any) -> str:
    """How a score_mod or mask_mod (its parameters say which) is compiled: "vectorised", or "scalar: " and the reason.

    A vectorised function computes several keys at once, as fast as built-in scores and masks; a scalar function takes
    several times as long. InputError for other functions, and for a function that cannot be compiled.
    """
    plain_function = unwrapped(function)
    count = _required_count(plain_function) if isinstance(plain_function, FunctionType) else 0
    kind = "mask_mod" if count == 4 else "score_mod"
    python = python_function(function, kind)
    with _naming_kind(kind):
        plan = plan_of(python, kind)
        variants = plan.bind(python)._numba_type_.variants
        best = with_large_stack(variants.best)
    return "vectorised" if best == "lanes" else f"scalar: {variants.why_not('lanes')}"


@contextmanager
def _naming_kind(kind: str) -> Iterator[None]:
    try:
        yield
    except InputError as error:
        raise InputError(f"{kind}: {error}") from None
