"""The source of a Python function as a syntax tree, found by its compiled code.

A file may have changed since it was loaded, and a line may hold several lambdas, so a tree is believed only if it
compiles to the function's own code.
"""

import ast
import copy
import linecache
from collections.abc import Iterator
from functools import lru_cache
from types import CodeType, FunctionType
from typing import TypeAlias

from fastattn.errors import InputError

Definition: TypeAlias = ast.FunctionDef | ast.Lambda


def location_of(code: CodeType) -> str:
    """A function's name, file and line, for messages."""
    return f"{code.co_name} ({code.co_filename}:{code.co_firstlineno})"


def definition_of(function: FunctionType) -> Definition:
    """The tree of a function's definition; InputError if its source cannot be read. Not to be changed."""
    code = function.__code__
    linecache.checkcache(code.co_filename)
    text = "".join(linecache.getlines(code.co_filename, function.__globals__))
    if not text:
        raise InputError(
            f"{location_of(code)}: its source cannot be read; define it in a file or a notebook (Python's prompt "
            "keeps none before 3.13)"
        )
    return _find(code, code.co_filename, text)


@lru_cache(1000)
def _find(code: CodeType, file: str, text: str) -> Definition:
    """The definition with this code in the text. ``file`` is part of the key: codes of different files may be equal."""
    definitions, imports = _read(text)
    for node in definitions:
        if _first_line(node) == code.co_firstlineno and _is_code_of(node, code, imports):
            return node
    raise InputError(f"{location_of(code)}: its source has changed since it was loaded, or is no plain function")


@lru_cache(8)
def _read(text: str) -> tuple[list[Definition], list[ast.stmt]]:
    """A file's functions, and the imports of the module itself: Python compiles what they name differently."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return [], []
    definitions = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.Lambda))]
    return definitions, list(_imports(tree))


def _imports(node: ast.AST) -> Iterator[ast.stmt]:
    for inside in ast.iter_child_nodes(node):
        if isinstance(inside, ast.Import) or (isinstance(inside, ast.ImportFrom) and inside.module != "__future__"):
            yield inside
        elif isinstance(inside, (ast.stmt, ast.ExceptHandler)) and not isinstance(inside, _SCOPES):
            yield from _imports(inside)


_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def _first_line(node: Definition) -> int:
    decorators = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


def _is_code_of(node: Definition, code: CodeType, imports: list[ast.stmt]) -> bool:
    if getattr(node, "name", "<lambda>") != code.co_name:
        return False
    bare = copy.deepcopy(node.args)
    bare.defaults, bare.kw_defaults = [], [None] * len(bare.kwonlyargs)
    for argument in ast.walk(bare):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    inside: ast.stmt
    if isinstance(node, ast.Lambda):
        inside = ast.Return(ast.Lambda(bare, node.body))
    else:
        # by another name: its own would be a variable of the function around it
        inside = function_of("inside", bare, node.body)
    outer_arguments = ast.arguments(
        posonlyargs=[], args=[ast.arg(name) for name in code.co_freevars], kwonlyargs=[], kw_defaults=[], defaults=[]
    )
    outer = function_of("around", outer_arguments, [inside])
    module = ast.fix_missing_locations(ast.Module([*imports, outer], []))
    try:
        compiled = compile(module, "<around>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    (around,) = _codes_in(compiled)
    return any(_content(found) == _content(code) for found in _codes_in(around))


def function_of(name: str, arguments: ast.arguments, body: list[ast.stmt]) -> ast.FunctionDef:
    """A definition's tree, whose fields depend on Python's version."""
    definition = ast.parse(f"def {name}(): pass").body[0]
    assert isinstance(definition, ast.FunctionDef)
    definition.args, definition.body = arguments, body
    return definition


def _codes_in(code: CodeType) -> list[CodeType]:
    return [constant for constant in code.co_consts if isinstance(constant, CodeType)]


def _content(code: CodeType) -> tuple:
    constants = [
        _content(value) if isinstance(value, CodeType) else (type(value), repr(value)) for value in code.co_consts
    ]
    names = code.co_names, code.co_varnames, code.co_freevars
    return code.co_code, constants, names, code.co_argcount, code.co_kwonlyargcount
