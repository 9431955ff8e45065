"""The expressions of a user's function, rewritten as calls of operations, and the values of their names."""

import ast
import copy
import math
from functools import reduce
from inspect import CO_VARARGS, CO_VARKEYWORDS
from types import FunctionType, ModuleType
from typing import Any, NoReturn

import numpy as np

from fastattn.errors import InputError
from fastattn.simd.operations import MOST_EXPONENT
from fastattn.user_functions.source import Captured, Path, follow, unwrapped

# Operation of simd/operations.py -> the functions of Python, math and NumPy that become this operation
_NAMES: dict[str, tuple[Any, ...]] = {
    "exp": (math.exp, np.exp),
    "exp2": (getattr(math, "exp2", None), np.exp2),
    "log": (math.log, np.log),
    "log2": (math.log2, np.log2),
    "tanh": (math.tanh, np.tanh),
    "erf": (math.erf,),
    "sqrt": (math.sqrt, np.sqrt),
    "power": (math.pow, np.power, pow),
    "floor_whole": (math.floor,),
    "ceil_whole": (math.ceil,),
    "round": (np.rint, np.round, np.around),
    "round_whole": (round,),
    "is_nan": (math.isnan, np.isnan),
    "absolute": (abs, np.abs, np.fabs, math.fabs),
    "maximum": (max, np.maximum, np.fmax),
    "minimum": (min, np.minimum, np.fmin),
    "to_float": (float, np.float32, np.float64),
    "to_whole": (int, np.int32, np.int64, math.trunc),
    "truth": (bool, np.bool_),
    "bit_and": (np.bitwise_and,),
    "bit_or": (np.bitwise_or,),
    "bit_xor": (np.bitwise_xor,),
    "shift_left": (np.left_shift,),
    "shift_right": (np.right_shift,),
}
_SAME = (  # NumPy's names of the same operations
    "floor", "ceil", "clip", "where", "add", "subtract", "multiply", "divide", "floor_divide", "remainder", "negative",
    "less", "less_equal", "greater", "greater_equal", "equal", "not_equal", "invert", "logical_and", "logical_or",
    "logical_xor", "logical_not",
)  # fmt: skip
_NAMES |= {name: (getattr(np, name),) for name in _SAME}
# By identity: not every function can be hashed or compared.
KNOWN = {id(function): name for name, functions in _NAMES.items() for function in functions if function is not None}
ARITY = dict.fromkeys(KNOWN.values(), 2) | dict.fromkeys(
    (
        "exp", "exp2", "log", "log2", "tanh", "erf", "sqrt", "floor", "ceil", "floor_whole", "ceil_whole", "round",
        "round_whole", "is_nan", "absolute", "to_float", "to_whole", "truth", "negative", "invert", "logical_not",
    ),
    1,
) | {"where": 3, "clip": 3}  # fmt: skip


_BINARY = {
    ast.Add: "add", ast.Sub: "subtract", ast.Mult: "multiply", ast.Div: "divide", ast.FloorDiv: "floor_divide",
    ast.Mod: "remainder", ast.Pow: "power", ast.BitAnd: "bit_and", ast.BitOr: "bit_or", ast.BitXor: "bit_xor",
    ast.LShift: "shift_left", ast.RShift: "shift_right",
}  # fmt: skip
_UNARY = {ast.USub: "negative", ast.Invert: "invert", ast.Not: "logical_not"}
_COMPARED = {
    ast.Lt: "less", ast.LtE: "less_equal", ast.Gt: "greater", ast.GtE: "greater_equal", ast.Eq: "equal",
    ast.NotEq: "not_equal",
}  # fmt: skip
_SYMBOLS = {"MatMult": "@", "Is": "is", "IsNot": "is not"}


class Parts:
    """What a plan depends on: the code of the user's functions, and other values, modules and functions themselves."""

    def __init__(self) -> None:
        self.functions: list[tuple[Path, Any]] = []
        self.constants: list[tuple[Path, Any]] = []
        self.stack: list[Any] = []


class Expressions:
    """Rewrites the expressions of the function at ``path``, and adds what they need to ``rewritten`` and ``parts``.

    overridden  the names of parameters that are passed though they have defaults
    """

    def __init__(self, rewritten: Any, function: FunctionType, path: Path, parts: Parts, overridden: frozenset[str]):
        self.rewritten, self.function, self.path, self.parts = rewritten, function, path, parts
        self.file, self.code = rewritten.file, function.__code__
        count = self.code.co_argcount + self.code.co_kwonlyargcount
        self.defaults = {name: step for name, step in defaults_of(function).items() if name not in overridden}
        self.parameters = [name for name in self.code.co_varnames[:count] if name not in self.defaults]
        self.own = set(self.parameters)
        self.line = self.code.co_firstlineno

    def rewrite(self, function: FunctionType, path: Path, overridden: frozenset[str]) -> Any:
        """The Rewritten of a function whose call passes these parameters in place of their defaults."""
        raise NotImplementedError

    def refuse(self, node: ast.AST, what: str, instead: str = "") -> NoReturn:
        line, name = getattr(node, "lineno", self.line), self.rewritten.function_name
        fault = f"{what}, which is not supported here{instead and f': {instead}'}"
        raise InputError(f"{self.file}:{line}: {name} has {fault}")

    def value(self, node: ast.expr) -> ast.expr:
        rewritten = self.make_value(node)
        return ast.fix_missing_locations(ast.copy_location(rewritten, node))

    def make_value(self, node: ast.expr) -> ast.expr:
        if isinstance(node, ast.Constant):
            return self.constant(node)
        if isinstance(node, ast.BinOp):
            written = constant_power(node)
            if written is not None:
                return written
            return self.binary(node, node.op, self.value(node.left), self.value(node.right), node.right)
        if isinstance(node, ast.UnaryOp):
            if isinstance(node.op, ast.UAdd):
                return self.value(node.operand)
            if isinstance(node.operand, ast.Constant) and isinstance(node.op, ast.USub):
                return ast.UnaryOp(ast.USub(), self.value(node.operand))
            return self.call(_UNARY[type(node.op)], self.value(node.operand))
        if isinstance(node, ast.BoolOp):
            return self.chained(
                "and" if isinstance(node.op, ast.And) else "or", [self.value(operand) for operand in node.values]
            )
        if isinstance(node, ast.Compare):
            return self.comparison(node)
        if isinstance(node, ast.IfExp):
            return self.call("where", *map(self.value, (node.test, node.body, node.orelse)))
        if isinstance(node, ast.Call):
            return self.call_expression(node)
        if isinstance(node, ast.Subscript):
            return self.subscript(node)
        if isinstance(node, (ast.Name, ast.Attribute)):
            return self.name(node)
        return self.refuse(node, kind_name(type(node).__name__))

    def call(self, name: str, *operands: ast.expr) -> ast.Call:
        return ast.Call(ast.Name(f"_{name}", ast.Load()), list(operands), [])

    def chained(self, name: str, values: list[ast.expr]) -> ast.expr:
        return reduce(lambda result, value: ast.copy_location(self.call(name, result, value), value), values)

    def constant(self, node: ast.Constant) -> ast.expr:
        if not isinstance(node.value, (bool, int, float)):
            self.refuse(node, f"the constant {node.value!r}")
        if isinstance(node.value, int) and node.value >= 2**63:
            self.refuse(node, "a number of more than 64 bits")
        return copy.copy(node)

    def binary(self, node: ast.AST, op: ast.operator, first: ast.expr, second: ast.expr, written: ast.expr) -> ast.expr:
        if type(op) not in _BINARY:
            self.refuse(node, f"the operator {_SYMBOLS[type(op).__name__]}")
        if isinstance(op, ast.Pow):
            return self.power(first, second, constant_number(written))
        return self.call(_BINARY[type(op)], first, second)

    def power(self, base: ast.expr, exponent: ast.expr, number: float | None) -> ast.expr:
        """Multiplications where the exponent is a small literal whole number; ``number`` is the literal, if any."""
        if number is None or number != int(number) or not 1 <= abs(number) <= MOST_EXPONENT:
            return self.call("sqrt", base) if number == 0.5 else self.call("power", base, exponent)
        if isinstance(number, float) and number > 0:
            base = self.call("to_float", base)
        result = base if abs(number) == 1 else self.call(f"power_{abs(int(number))}", base)
        return result if number > 0 else self.call("divide", ast.Constant(1.0), result)

    def comparison(self, node: ast.Compare) -> ast.expr:
        operands = [node.left, *node.comparators]
        parts: list[ast.expr] = []
        for op, left, right in zip(node.ops, operands, operands[1:]):
            if isinstance(op, (ast.In, ast.NotIn)):
                parts.append(self.membership(node, left, right, isinstance(op, ast.NotIn)))
            elif type(op) not in _COMPARED:
                self.refuse(node, f"the operator {_SYMBOLS[type(op).__name__]}")
            else:
                comparison = self.call(_COMPARED[type(op)], self.value(left), self.value(right))
                parts.append(ast.copy_location(comparison, left))
        return self.chained("logical_and", parts)

    def membership(self, node: ast.AST, left: ast.expr, right: ast.expr, negated: bool) -> ast.expr:
        """``left in (1, 3)``, or ``not in``."""
        if not isinstance(right, (ast.Tuple, ast.List, ast.Set)) or not right.elts:
            self.refuse(node, "an in", "write it out, x in (1, 3)")
        equal: list[ast.expr] = [
            ast.copy_location(self.call("equal", self.value(left), self.value(element)), left) for element in right.elts
        ]
        is_element = self.chained("logical_or", equal)
        return ast.copy_location(self.call("logical_not", is_element), left) if negated else is_element

    def subscript(self, node: ast.Subscript) -> ast.expr:
        array = node.value
        if isinstance(array, ast.Attribute) and array.attr == "shape":
            return self.call("extent", self.value(array.value), self.value(node.slice))
        index = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if not index:  # [()] of an array without axes: a number
            return self.value(array)
        if any(isinstance(axis, ast.Slice) for axis in index):
            self.refuse(node, "a slice")
        return self.call("look_up", self.value(array), *map(self.value, index))

    def call_expression(self, node: ast.Call) -> ast.expr:
        starred = any(isinstance(argument, ast.Starred) for argument in node.args)
        if starred or any(keyword.arg is None for keyword in node.keywords):
            self.refuse(node, "a call with * or **")
        function, path = self.find(node.func)
        text = ast.unparse(node.func)
        name = KNOWN.get(id(function))
        if name is None and isinstance(unwrapped(function), FunctionType):
            return self.function_call(node, unwrapped(function), path)
        self.parts.constants.append((path, function))
        infinite = constant_float(node) if name == "to_float" else None
        if infinite is not None:
            return ast.Constant(infinite)
        if node.keywords:
            self.refuse(node, f"a call of {text} with names of arguments", "give them in order")
        values = [self.value(argument) for argument in node.args]
        if function is len and len(values) == 1:
            return self.call("extent", values[0], ast.Constant(0))
        if name is None:
            return self.scalar_call(node, function, text, values)
        if name in ("maximum", "minimum") and function in (max, min) and len(values) > 2:
            return self.chained(name, values)
        if len(values) != ARITY[name]:
            self.refuse(node, f"a call of {text} with {len(values)} arguments")
        if name == "clip":
            return self.call("minimum", ast.copy_location(self.call("maximum", *values[:2]), node), values[2])
        return self.call(name, *values)

    def scalar_call(self, node: ast.Call, function: Any, text: str, values: list[ast.expr]) -> ast.expr:
        """The call of a function of NumPy or math that is no operation: Numba may know it for scalars."""
        home = "numpy" if isinstance(function, np.ufunc) else getattr(function, "__module__", None)
        if not isinstance(function, np.ufunc) and (home != "math" or isinstance(function, type)):
            name = str(getattr(function, "__name__", ""))
            is_operation = id(getattr(np, name, None)) in KNOWN and function is not getattr(np, name)
            self.refuse(node, f"a call of {text}", f"write np.{name}" if is_operation else "")
        name = f"_p{len(self.rewritten.scalar_functions)}"
        self.rewritten.scalar_functions[name] = f"{home}.{function.__name__}", function
        scalars = [self.call("scalar", value) for value in values]
        return ast.Call(ast.Name(name, ast.Load()), list(scalars), [])

    def function_call(self, node: ast.Call, function: FunctionType, path: Path) -> ast.expr:
        arguments = self.bound_arguments(node, function)
        overridden = frozenset(arguments) & defaults_of(function).keys()
        calls = self.rewritten.calls
        key = next((name for name, call in calls.items() if (call.path, call.overridden) == (path, overridden)), None)
        if key is None:
            key = f"_f{len(calls)}"
            calls[key] = self.rewrite(function, path, overridden)
        values = [*arguments.values(), *map(self.parameter, self.rewritten.calls[key].captured)]
        return ast.Call(ast.Name(key, ast.Load()), values, [])

    def bound_arguments(self, node: ast.Call, function: FunctionType) -> dict[str, ast.expr]:
        """The arguments of a call by name, in the order of the parameters, without those that take their defaults."""
        code = function.__code__
        if code.co_posonlyargcount or code.co_flags & (CO_VARARGS | CO_VARKEYWORDS):
            self.refuse(node, f"a call of {function.__name__}, which takes / or *")
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        arguments = dict(zip(names[: code.co_argcount], node.args))
        arguments |= {str(keyword.arg): keyword.value for keyword in node.keywords}
        required = set(names) - defaults_of(function).keys()
        if not required <= arguments.keys() <= set(names) or len(arguments) != len(node.args) + len(node.keywords):
            self.refuse(node, f"a call of {function.__name__} with other arguments than {', '.join(names)}")
        return {name: self.value(arguments[name]) for name in names if name in arguments}

    def name(self, node: ast.Name | ast.Attribute) -> ast.expr:
        if isinstance(node, ast.Name) and node.id in self.own:
            return ast.Name(f"v_{node.id}", ast.Load())
        value, path = self.find(node)
        if isinstance(value, (FunctionType, ModuleType, type)) or callable(value):
            self.refuse(node, f"{ast.unparse(node)} as a value")
        return self.parameter(Captured(path, ast.unparse(node), f"{self.file}:{node.lineno}"))

    def parameter(self, captured: Captured) -> ast.expr:
        paths = [variable.path for variable in self.rewritten.captured]
        if captured.path not in paths:
            self.rewritten.captured.append(captured)
            paths.append(captured.path)
        return ast.Name(f"_c{paths.index(captured.path)}", ast.Load())

    def value_of_name(self, node: ast.expr) -> Any:
        """The value of a name outside the function, which the plan does not depend on."""
        return self.find(node)[0] if isinstance(node, (ast.Name, ast.Attribute)) else None

    def find(self, node: ast.expr) -> tuple[Any, Path]:
        """(value, path) of a variable outside the function, or of a module's attribute."""
        if isinstance(node, ast.Attribute):
            value, path = self.find(node.value)
            if not isinstance(value, ModuleType):
                self.refuse(node, f"the attribute {ast.unparse(node)}", "give its value a name outside the function")
            self.parts.constants.append((path, value))
            if not hasattr(value, node.attr):
                raise InputError(f"{self.file}:{node.lineno}: module {value.__name__} has no {node.attr}")
            return getattr(value, node.attr), (*path, ("attribute", node.attr))
        if not isinstance(node, ast.Name) or node.id in self.own:
            self.refuse(node, f"{ast.unparse(node)} used as a function or a module", "numbers have no methods")
        return self.outer_variable(node)

    def outer_variable(self, node: ast.Name) -> tuple[Any, Path]:
        if node.id in self.defaults:
            step = self.defaults[node.id]
        elif node.id in self.code.co_freevars:
            step = "cell", self.code.co_freevars.index(node.id)
        else:
            step = "global", node.id
        try:
            return follow(self.function, (step,)), (*self.path, step)
        except (LookupError, ValueError):
            raise InputError(f"{self.file}:{node.lineno}: the name {node.id} is not defined") from None


def defaults_of(function: FunctionType) -> dict[str, tuple[str, Any]]:
    """Parameter with a default -> the step of a path to the default, which is captured if no argument is passed."""
    code, values = function.__code__, function.__defaults__ or ()
    first = code.co_argcount - len(values)
    steps: dict[str, tuple[str, Any]] = {code.co_varnames[first + i]: ("default", i) for i in range(len(values))}
    return steps | {name: ("keyword default", name) for name in function.__kwdefaults__ or ()}


def constant_number(node: ast.expr) -> float | None:
    """A literal finite number, with its sign; None for any other expression."""
    inside = node.operand if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) else node
    number = inside.value if isinstance(inside, ast.Constant) else None
    if isinstance(number, bool) or not isinstance(number, (int, float)) or number > 1e300:
        return None
    return number if inside is node else -number


def constant_float(node: ast.Call) -> float | None:
    """The value of float("inf") and the like; None for any other call."""
    text = node.args[0].value if len(node.args) == 1 and isinstance(node.args[0], ast.Constant) else None
    try:
        return float(text) if isinstance(text, str) and not node.keywords else None
    except ValueError:
        return None


def constant_power(node: ast.BinOp) -> ast.expr | None:
    """2**20 and the like as a whole number, if it fits in 64 bits."""
    base, exponent = constant_number(node.left), constant_number(node.right)
    if not isinstance(node.op, ast.Pow) or not isinstance(base, int) or not isinstance(exponent, int):
        return None
    if not 0 <= exponent < 64 or abs(base**exponent) >= 2**63:
        return None
    constant = ast.Constant(abs(base**exponent))
    return ast.UnaryOp(ast.USub(), constant) if base**exponent < 0 else constant


_KIND_NAMES = {
    "Expr": "statement without effect", "JoinedStr": "string", "FunctionDef": "function inside it", "NamedExpr": ":=",
    "ListComp": "comprehension", "GeneratorExp": "comprehension", "For": "for with else", "While": "while with else",
}  # fmt: skip


def kind_name(kind: str) -> str:
    words = _KIND_NAMES.get(kind, kind.lower())
    return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"
