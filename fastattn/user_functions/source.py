"""The source of a user's function as a syntax tree, and the variables that the function captures.

A file may have changed since it was loaded, and a line may hold several lambdas, so a tree counts only if it compiles
to the function's own code.

A path leads from a function to a captured value: by cells, globals, defaults and attributes of modules, also of the
functions that the function calls. A path keeps no value alive.
"""

import ast
import builtins
import copy
import linecache
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from fastattn.errors import InputError, described

Definition: TypeAlias = ast.FunctionDef | ast.Lambda


def location_of(code: CodeType) -> str:
    return f"{code.co_name} ({code.co_filename}:{code.co_firstlineno})"


def definition_of(function: FunctionType) -> Definition:
    """The tree of a function's definition, which is shared: callers must not change it. InputError without a source."""
    code = function.__code__
    linecache.checkcache(code.co_filename)
    text = "".join(linecache.getlines(code.co_filename, function.__globals__))
    if not text:
        hint = "define it in a file or a notebook (Python's prompt keeps none before 3.13)"
        raise InputError(f"{location_of(code)}: its source cannot be read; {hint}")
    return _find_definition(code, code.co_filename, text)


@lru_cache(1000)
def _find_definition(code: CodeType, file: str, text: str) -> Definition:
    """The definition in ``text`` with this code. ``file`` is for the cache: codes of different files may be equal."""
    definitions, imports = _parse(text)
    for node in definitions:
        first_line = min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", []))])
        if first_line == code.co_firstlineno and _compiles_to(node, code, imports):
            return node
    raise InputError(f"{location_of(code)}: its source has changed since it was loaded, or is no plain function")


@lru_cache(8)
def _parse(text: str) -> tuple[list[Definition], list[ast.stmt]]:
    """(function definitions, import statements) of a file: Python compiles the use of an imported name differently."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return [], []
    definitions = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.Lambda))]
    return definitions, list(_imports(tree))


def _imports(node: ast.AST) -> Iterator[ast.stmt]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import) or (isinstance(child, ast.ImportFrom) and child.module != "__future__"):
            yield child
        elif isinstance(child, (ast.stmt, ast.ExceptHandler)) and not isinstance(child, _SCOPES):
            yield from _imports(child)


_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def _compiles_to(node: Definition, code: CodeType, imports: list[ast.stmt]) -> bool:
    if getattr(node, "name", "<lambda>") != code.co_name:
        return False
    parameters = copy.deepcopy(node.args)  # without defaults and annotations, which are no part of the code
    parameters.defaults, parameters.kw_defaults = [], [None] * len(parameters.kwonlyargs)
    for argument in ast.walk(parameters):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    inner: ast.stmt
    if isinstance(node, ast.Lambda):
        inner = ast.Return(ast.Lambda(parameters, node.body))
    else:
        # Under another name: the function's own name would become a variable of the outer function.
        inner = function_of("inside", (), node.body)
        inner.args = parameters
    try:
        outer = function_of("around", code.co_freevars, [inner])
        module = ast.fix_missing_locations(ast.Module([*imports, outer], []))
        compiled = compile(module, "<around>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    (outer_code,) = _codes_in(compiled)
    return any(_content(candidate) == _content(code) for candidate in _codes_in(outer_code))


def function_of(name: str, parameters: Iterable[str], body: list[ast.stmt]) -> ast.FunctionDef:
    """The tree of a definition; its fields depend on Python's version."""
    definition = ast.parse(f"def {name}({', '.join(parameters)}): pass").body[0]
    assert isinstance(definition, ast.FunctionDef)
    definition.body = body
    return definition


def _codes_in(code: CodeType) -> list[CodeType]:
    return [constant for constant in code.co_consts if isinstance(constant, CodeType)]


def _content(code: CodeType) -> tuple:
    """What equal functions have in common, to be compared: no line numbers, no names of files."""
    constants = [
        _content(value) if isinstance(value, CodeType) else (type(value), repr(value)) for value in code.co_consts
    ]
    names = code.co_names, code.co_varnames, code.co_freevars
    return code.co_code, constants, names, code.co_argcount, code.co_kwonlyargcount


Path: TypeAlias = tuple[tuple[str, Any], ...]


class Capture(NamedTuple):
    """A variable that each call of the function passes: its path, name and the location where it is read."""

    path: Path
    name: str
    location: str


def unwrap(value: Any) -> Any:
    """The Python function of a compiled function; any other value itself."""
    function = getattr(value, "py_func", None)
    return function if isinstance(function, FunctionType) else value


LOOKUP_ERRORS = LookupError, AttributeError, ValueError


def follow(function: FunctionType, path: Path) -> Any:
    """The present value at the path from ``function``; one of LOOKUP_ERRORS where there is none."""
    value: Any = function
    for kind, key in path:
        if kind == "attribute":
            value = getattr(value, key)
            continue
        value = unwrap(value)
        if kind == "cell":
            value = value.__closure__[key].cell_contents
        elif kind == "default":
            value = value.__defaults__[key]
        elif kind == "keyword default":
            value = value.__kwdefaults__[key]
        else:
            value = value.__globals__[key] if key in value.__globals__ else builtins.__dict__[key]
    return value


def value_of(function: FunctionType, captured: Capture) -> Any:
    """The present value of a captured variable; InputError where the variable is gone."""
    try:
        return follow(function, captured.path)
    except LOOKUP_ERRORS:
        raise InputError(f"{captured.location}: the name {captured.name} is not defined") from None


# Name of a number's type, see ``type_name_of`` -> how struct packs the number.
_NUMBER_FORMATS = {"bool": "q", "int": "q", "long": "q", "float": "fxxxx"}


def type_name_of(captured: Capture, value: Any) -> tuple[str, Any]:
    """(name of type, value to pack): "bool", "int", "long" beyond 32 bits, "float", or a table's, such as "int32 2"."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if isinstance(value, (bool, np.bool_)):
        return "bool", int(value)
    if isinstance(value, (int, np.integer)):
        if not -(2**63) <= value < 2**63:
            raise InputError(f"{captured.location}: {captured.name} should fit in 64 bits, got {described(value)}")
        return "int" if -(2**31) <= value < 2**31 else "long", int(value)
    if isinstance(value, (float, np.floating)):
        return "float", float(np.clip(value, -_MAX_FLOAT32, _MAX_FLOAT32)) if np.isfinite(value) else float(value)
    if isinstance(value, (tuple, list)) and len(value):
        with suppress(ValueError, OverflowError):
            value = np.asarray(value)
    if isinstance(value, np.ndarray):
        table = _as_table(value)
        if table is not None:
            if fault := _rounding_fault(value, table):
                raise InputError(f"{captured.location}: {captured.name} has {fault}")
            return f"{_TABLE_TYPES[table.dtype]} {table.ndim}", table
    got = f"an array of {value.dtype}" if isinstance(value, np.ndarray) else f"a {type(value).__name__}"
    expected = f"{captured.name} to be a number, an array of numbers or a function"
    hint = "; pass its .numpy()" if hasattr(value, "numpy") else ""
    raise InputError(f"{captured.location}: expected {expected}, got {got}{hint}")


_MAX_FLOAT32 = 3.4028234663852886e38
_TABLE_TYPES = {np.dtype(name): name for name in ("float32", "int32", "int64", "bool")}


def _as_table(array: np.ndarray) -> np.ndarray | None:
    """The array as a C-contiguous table of float32, int32, int64 or bool; None for other dtypes.

    An array that is such a table is returned itself, so that its changes count. An empty array becomes empty along all
    axes, with one zero in its memory.
    """
    if array.dtype in _TABLE_TYPES and array.size and array.flags.c_contiguous and array.flags.aligned:
        return array
    kind, size = array.dtype.kind, array.dtype.itemsize
    if kind not in "fiub":
        return None
    integer_type = "int32" if size < 4 or (kind, size) == ("i", 4) else "int64"
    dtype = np.dtype({"f": "float32", "b": "bool"}.get(kind, integer_type))
    if not array.size:
        return np.zeros((1,) * array.ndim, dtype)[(slice(0),) * array.ndim]
    with np.errstate(over="ignore"):
        return np.require(array, dtype, ["C", "A"])


def _rounding_fault(array: np.ndarray, table: np.ndarray) -> str:
    """The fault of a table that cannot represent the numbers of its array; "" if floats are only rounded."""
    if array.dtype.kind == "u" and array.itemsize == 8 and (table < 0).any():
        return "numbers from 2**63 on; to tell whether they are equal, pass .view(np.int64)"
    # The sum of squares is a quick test: below 2**48 no number is beyond 2**24.
    if array.dtype.kind == "f" and array.itemsize > 4 and not np.vdot(table, table) < 2.0**48:
        with np.errstate(all="ignore"):
            if ((np.abs(table - array) >= 1) & (np.abs(array) < 2.0**53)).any():
                return "numbers beyond 2**24, which float32 rounds; pass int64, or float32 if that will do"
    return ""


def packing_for(names: tuple[str, ...]) -> tuple[struct.Struct, list[int]]:
    """(the struct that packs values of these types, the offset of each in bytes)."""
    offsets, format_ = [], "<"
    for name in names:
        offsets.append(struct.calcsize(format_))
        format_ += _NUMBER_FORMATS.get(name) or f"{1 + int(name.split()[1])}q"
    return struct.Struct(format_), offsets


def words_of(value: Any) -> tuple:
    """The packed words of a value: an array's address and shape, or the value itself."""
    if isinstance(value, np.ndarray):
        return value.__array_interface__["data"][0], *value.shape
    return (value,)
