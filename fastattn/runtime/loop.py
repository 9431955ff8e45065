"""A kernel's shared loop: ``for i in prange(0, tasks)``, the last statement of an ordinary Numba kernel.

Numba's parallel compiler takes the function as it is. Threads of the pool call a second function, of the same source,
that does a range of tasks. ``cut_loop`` makes that function when the kernel is compiled, not for cached code.
"""

import ast
import inspect
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

import numba

from fastattn.errors import warn_once
from fastattn.runtime.code_cache import code_digest
from fastattn.runtime.threads import setting

# The options of numba.njit for all compiled code.
FLAGS = {"error_model": "numpy", "nogil": True, "boundscheck": False}
# What Numba must not make parallel beside the loop: one thread computes these as quickly.
_NOT_PARALLEL = "comprehension", "fusion", "inplace_binop", "numpy", "reduction", "setitem", "stencil"
_FIRST, _END, _TASKS = "_first_task", "_end_task", "_tasks"


def check_loop(function: Callable) -> None:
    """Raise TypeError for a function that can have no shared loop; ``cut_loop`` checks the loop itself later."""
    if "prange" not in function.__code__.co_names:
        raise _loop_error(function, "is without one")
    if function.__code__.co_freevars:
        raise TypeError(f"{_location(function)}: expected a kernel that uses no variables of a function around it")


def cut_loop(function: Callable) -> Callable:
    """The kernel as ``cut(first, end, *arguments)``, which does the tasks from ``first`` to ``end``, if they exist.

    ``cut`` returns the number of all tasks. Lines and names are the kernel's own. TypeError unless the last statement
    is ``for i in prange(0, tasks)``, with the only ``prange``.
    """
    lines, start = inspect.getsourcelines(function)
    tree = ast.parse("\n" * (start - 1) + inspect.cleandoc("\n" + "".join(lines)))
    definition = tree.body[0]
    assert isinstance(definition, ast.FunctionDef)
    loop = definition.body[-1]
    call = loop.iter if isinstance(loop, ast.For) and not loop.orelse else None
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "prange"):
        raise _loop_error(function, f"ends in line {loop.lineno}, which is none")
    assert isinstance(loop, ast.For)
    if len(call.args) != 2 or not isinstance(call.args[0], ast.Constant) or call.args[0].value != 0:
        # With one argument Numba's index is unsigned, and makes a float64 with an int64.
        raise _loop_error(function, f"has prange({', '.join(map(ast.unparse, call.args))}) in line {loop.lineno}")
    if sum(isinstance(node, ast.Name) and node.id == "prange" for node in ast.walk(definition)) > 1:
        raise _loop_error(function, "has more than one")

    definition.decorator_list = []
    definition.args.args[:0] = [ast.arg(_FIRST), ast.arg(_END)]
    count = ast.Assign([ast.Name(_TASKS, ast.Store())], call.args[1])
    loop.iter = ast.parse(f"range({_FIRST}, {_END} if {_END} < {_TASKS} else {_TASKS})", mode="eval").body
    definition.body[-1:] = [count, loop, ast.Return(ast.Name(_TASKS, ast.Load()))]
    for node in (*definition.args.args[:2], count, *ast.walk(loop.iter), *ast.walk(definition.body[-1])):
        ast.copy_location(node, loop)
    ast.fix_missing_locations(tree)
    module = compile(tree, function.__code__.co_filename, "exec", dont_inherit=True)
    (code,) = (constant for constant in module.co_consts if isinstance(constant, CodeType))
    cut = FunctionType(code, function.__globals__, function.__name__)
    cut.__qualname__ = function.__qualname__
    return cut


def compile_by_numba(function: Callable) -> Any:
    """A kernel compiled by Numba's public interface alone, in Numba's own code cache.

    That cache's key is a function's file and name, so the name gets the digest of all sources.
    """
    warn_once(f"{setting.pool_obstacle}: kernels are compiled, kept and shared among threads by Numba itself")
    function.__qualname__ = f"{function.__name__}_{code_digest()}"
    parallel = {"prange": True, **dict.fromkeys(_NOT_PARALLEL, False)}
    return numba.njit(parallel=parallel, cache=True, **FLAGS)(function)


def _location(function: Callable) -> str:
    return f"{function.__code__.co_filename}:{function.__code__.co_firstlineno}: kernel {function.__name__}"


def _loop_error(function: Callable, fault: str) -> TypeError:
    return TypeError(f"{_location(function)}: expected one loop over prange(0, tasks), its last statement; it {fault}")
