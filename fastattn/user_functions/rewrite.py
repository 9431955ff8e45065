"""A user's function as source that Numba compiles for lanes, for scalars and for ranges alike.

Operators and known functions become operations (simd/operations.py); ``and``, ``or``, ``not``, ``x if c else y`` and
chained comparisons become operations without branches. Variables that the function or the functions that it calls read
beside their parameters become parameters. Branches become choices between values: both sides are computed, which is
harmless, since nothing in such a function raises or has effects. Other Python is refused, with its line.
"""

import ast
import copy
import math
from collections.abc import Set
from functools import reduce
from inspect import CO_VARARGS, CO_VARKEYWORDS
from types import FunctionType, ModuleType
from typing import Any, NoReturn

import numpy as np

from fastattn.errors import InputError
from fastattn.simd.operations import MOST_EXPONENT
from fastattn.user_functions.source import Capture, Path, definition_of, follow, function_of, location_of, unwrap

# Operation of simd/operations.py -> the functions of Python, math and NumPy that become the operation
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
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
for _name in ("exp", "exp2", "log", "log2", "tanh", "erf", "sqrt"):
    _FUNCTIONS[_name] = getattr(math, _name, None), getattr(np, _name, None)  # before Python 3.11 math has no exp2
_SAME_NAMES = (  # operations that NumPy's functions have as names
    "floor", "ceil", "clip", "where", "add", "subtract", "multiply", "divide", "floor_divide", "remainder", "negative",
    "less", "less_equal", "greater", "greater_equal", "equal", "not_equal", "invert", "logical_and", "logical_or",
    "logical_xor", "logical_not",
)  # fmt: skip
_FUNCTIONS |= {name: (getattr(np, name),) for name in _SAME_NAMES}
# id of a function -> its operation: not every function can be hashed or compared.
OPERATION_OF = {id(item): name for name, items in _FUNCTIONS.items() for item in items if item is not None}
ARITY = dict.fromkeys(OPERATION_OF.values(), 2) | dict.fromkeys(
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
_COMPARISON = {
    ast.Lt: "less", ast.LtE: "less_equal", ast.Gt: "greater", ast.GtE: "greater_equal", ast.Eq: "equal",
    ast.NotEq: "not_equal",
}  # fmt: skip
_SYMBOLS = {"MatMult": "@", "Is": "is", "IsNot": "is not"}


class PlanInputs:
    """What a plan depends on: the code of users' functions, and constants, such as modules and libraries' functions."""

    def __init__(self) -> None:
        self.functions: list[tuple[Path, Any]] = []
        self.constants: list[tuple[Path, Any]] = []
        self.stack: list[Any] = []  # functions that are being rewritten, each called by the one before


class NewSource:
    """A function's new source, and what the source needs.

    definition        the source's tree; the parameters are the function's own, then the captured variables
    calls             name in the source -> the NewSource of a function that it calls
    scalar_functions  name in the source -> (name, function) of NumPy or math, which Numba compiles for scalars
    captured          the captured variables, in the order of their parameters
    branch_reason     why the source has branches; "" if it has none
    overrides         names of parameters that are passed though they have defaults
    """

    def __init__(self, function: FunctionType, path: Path, inputs: PlanInputs, overrides: Set[str] = frozenset()):
        self.function_name, self.file = function.__name__, function.__code__.co_filename
        self.location, self.path, self.overrides = location_of(function.__code__), path, overrides
        self.calls: dict[str, NewSource] = {}
        self.scalar_functions: dict[str, tuple[str, Any]] = {}
        self.captured: list[Capture] = []
        self.branch_reason = ""
        inputs.functions.append((path, function.__code__))
        self.definition = _Rewriter(self, function, path, inputs, overrides).definition()

    def text(self) -> str:
        """All that the compiled code depends on, as text without line numbers."""
        calls = "".join(f"{name}:\n{call.text()}\n" for name, call in self.calls.items())
        scalar_functions = "".join(f"{name}: {called}\n" for name, (called, _) in self.scalar_functions.items())
        return f"{calls}{scalar_functions}{ast.unparse(self.definition)}"


class _Rewriter:
    """Rewrites nodes of the function at ``path``, and adds what the function needs to ``new_source`` and ``inputs``."""

    def __init__(
        self, new_source: NewSource, function: FunctionType, path: Path, inputs: PlanInputs, overrides: Set[str]
    ):
        self.new_source, self.function, self.path, self.inputs = new_source, function, path, inputs
        self.file, self.code = new_source.file, function.__code__
        count = self.code.co_argcount + self.code.co_kwonlyargcount
        self.defaults = {name: step for name, step in defaults_of(function).items() if name not in overrides}
        self.parameters = [name for name in self.code.co_varnames[:count] if name not in self.defaults]
        self.local_names = set(self.parameters)
        self.line = self.code.co_firstlineno

    def definition(self) -> ast.FunctionDef:
        if any(function is self.function for function in self.inputs.stack):
            raise InputError(f"{self.new_source.location}: it calls itself")
        self.inputs.stack.append(self.function)
        source = definition_of(self.function)
        self.local_names |= {n.id for n in ast.walk(source) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        if isinstance(source, ast.Lambda):
            body: list[ast.stmt] = [ast.copy_location(ast.Return(self.value(source.body)), source.body)]
        else:
            body = self.statements(source.body)
        parameters = [f"v_{name}" for name in self.parameters]
        body = self.without_branches(body, parameters, source)
        parameters += [f"_c{i}" for i in range(len(self.new_source.captured))]
        result = function_of("user_function", parameters, body)
        self.inputs.stack.pop()
        return ast.fix_missing_locations(ast.copy_location(result, source))

    def without_branches(self, body: list[ast.stmt], parameters: list[str], source: ast.AST) -> list[ast.stmt]:
        if not body:
            self.refuse(source, "a function without a return")
        try:
            return straighten(body, parameters)
        except HasBranches as reason:
            self.new_source.branch_reason = str(reason)
            if not _always_returns(body):
                self.refuse(body[-1], "a path without a return")
            return [_ScalarConditions().visit(statement) for statement in body]

    def statements(self, body: list[ast.stmt]) -> list[ast.stmt]:
        pairs = [(statement, node) for node in body for statement in self.statement(node)]
        return [ast.fix_missing_locations(ast.copy_location(statement, node)) for statement, node in pairs]

    def statement(self, node: ast.stmt) -> list[ast.stmt]:
        if isinstance(node, ast.Return):
            if node.value is None:
                self.refuse(node, "a return without a value")
            return [ast.Return(self.value(node.value))]
        if isinstance(node, ast.Assign):
            first, *copies = [self.target(target) for target in node.targets]
            assignments: list[ast.stmt] = [ast.Assign([first], self.value(node.value))]
            return assignments + [ast.Assign([copy_target], ast.Name(first.id, ast.Load())) for copy_target in copies]
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            return [ast.Assign([self.target(node.target)], self.value(node.value))]
        if isinstance(node, ast.AugAssign):
            target = self.target(node.target)
            old = ast.copy_location(ast.Name(target.id, ast.Load()), node)
            return [ast.Assign([target], self.binary(node, node.op, old, self.value(node.value), node.value))]
        if isinstance(node, ast.If):
            return [ast.If(self.value(node.test), self.block(node.body), self.block(node.orelse))]
        if isinstance(node, ast.While) and not node.orelse:
            return [ast.While(self.value(node.test), self.block(node.body), [])]
        if isinstance(node, ast.For) and not node.orelse:
            return [ast.For(self.target(node.target), self.range_call(node.iter), self.block(node.body), [])]
        if isinstance(node, (ast.Pass, ast.Break, ast.Continue)):
            return [copy.copy(node)]
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            return []  # a docstring
        return self.refuse(node, construct_name(type(node).__name__))

    def block(self, body: list[ast.stmt]) -> list[ast.stmt]:
        return self.statements(body) or [ast.Pass()]

    def target(self, node: ast.expr) -> ast.Name:
        if not isinstance(node, ast.Name):
            self.refuse(node, "an assignment to something other than a variable", "assign one at a time")
        if node.id in self.defaults:
            self.refuse(node, f"an assignment to {node.id}, a parameter with a default")
        return ast.copy_location(ast.Name(f"v_{node.id}", ast.Store()), node)

    def range_call(self, node: ast.expr) -> ast.expr:
        """``range`` of whole numbers, which never raises, since its step is a literal number other than 0."""
        if not (isinstance(node, ast.Call) and self.value_of_name(node.func) is range and not node.keywords):
            self.refuse(node, "a loop over something other than a range")
        numbers = [self.value(argument) for argument in node.args]
        step = constant_number(node.args[2]) if len(numbers) == 3 else 1
        if not 1 <= len(numbers) <= 3 or type(step) is not int or step == 0:
            self.refuse(node, "a range whose step is no number other than 0")
        bounds = [self.call("count", number) for number in numbers[:2]]
        return ast.Call(ast.Name("_range", ast.Load()), bounds + copy.deepcopy(node.args[2:]), [])

    def refuse(self, node: ast.AST, construct: str, hint: str = "") -> NoReturn:
        line, name = getattr(node, "lineno", self.line), self.new_source.function_name
        fault = f"{construct}, which is not supported here{hint and f': {hint}'}"
        raise InputError(f"{self.file}:{line}: {name} has {fault}")

    def value(self, node: ast.expr) -> ast.expr:
        value = self.make_value(node)
        return ast.fix_missing_locations(ast.copy_location(value, node))

    def make_value(self, node: ast.expr) -> ast.expr:
        if isinstance(node, ast.Constant):
            return self.constant(node)
        if isinstance(node, ast.BinOp):
            if (constant := constant_power(node)) is not None:
                return constant
            return self.binary(node, node.op, self.value(node.left), self.value(node.right), node.right)
        if isinstance(node, ast.UnaryOp):
            if isinstance(node.op, ast.UAdd):
                return self.value(node.operand)
            if isinstance(node.operand, ast.Constant) and isinstance(node.op, ast.USub):
                return ast.UnaryOp(ast.USub(), self.value(node.operand))
            return self.call(_UNARY[type(node.op)], self.value(node.operand))
        if isinstance(node, ast.BoolOp):
            return self.chain("and" if isinstance(node.op, ast.And) else "or", list(map(self.value, node.values)))
        if isinstance(node, ast.Compare):
            return self.comparison(node)
        if isinstance(node, ast.IfExp):
            return self.call("where", *map(self.value, (node.test, node.body, node.orelse)))
        if isinstance(node, ast.Call):
            return self.call_expression(node)
        if isinstance(node, ast.Subscript):
            return self.subscript(node)
        if isinstance(node, (ast.Name, ast.Attribute)):
            return self.variable(node)
        return self.refuse(node, construct_name(type(node).__name__))

    def call(self, name: str, *operands: ast.expr) -> ast.Call:
        return ast.Call(ast.Name(f"_{name}", ast.Load()), list(operands), [])

    def chain(self, name: str, values: list[ast.expr]) -> ast.expr:
        return reduce(lambda result, value: ast.copy_location(self.call(name, result, value), value), values)

    def constant(self, node: ast.Constant) -> ast.expr:
        if not isinstance(node.value, (bool, int, float)):
            self.refuse(node, f"the constant {node.value!r}")
        if isinstance(node.value, int) and node.value >= 2**63:
            self.refuse(node, "a number of more than 64 bits")
        return copy.copy(node)

    def binary(self, node: ast.AST, op: ast.operator, first: ast.expr, second: ast.expr, source: ast.expr) -> ast.expr:
        if type(op) not in _BINARY:
            self.refuse(node, f"the operator {_SYMBOLS[type(op).__name__]}")
        if isinstance(op, ast.Pow):  # ``source`` is the second operand before it was rewritten
            return self.power(first, second, constant_number(source))
        return self.call(_BINARY[type(op)], first, second)

    def power(self, base: ast.expr, exponent: ast.expr, number: float | None) -> ast.expr:
        """A power, as multiplications for small whole numbers; ``number``: the exponent if it is a literal number."""
        if number is None or number != int(number) or not 1 <= abs(number) <= MOST_EXPONENT:
            return self.call("sqrt", base) if number == 0.5 else self.call("power", base, exponent)
        if isinstance(number, float) and number > 0:
            base = self.call("to_float", base)
        result = base if abs(number) == 1 else self.call(f"power_{abs(int(number))}", base)
        return result if number > 0 else self.call("divide", ast.Constant(1.0), result)

    def comparison(self, node: ast.Compare) -> ast.expr:
        operands = [node.left, *node.comparators]
        comparisons: list[ast.expr] = []
        for op, left, right in zip(node.ops, operands, operands[1:]):
            if isinstance(op, (ast.In, ast.NotIn)):
                comparisons.append(self.membership(node, left, right, isinstance(op, ast.NotIn)))
            elif type(op) not in _COMPARISON:
                self.refuse(node, f"the operator {_SYMBOLS[type(op).__name__]}")
            else:
                comparison = self.call(_COMPARISON[type(op)], self.value(left), self.value(right))
                comparisons.append(ast.copy_location(comparison, left))
        return self.chain("logical_and", comparisons)

    def membership(self, node: ast.AST, left: ast.expr, right: ast.expr, negated: bool) -> ast.expr:
        """``left in (1, 3)``, or ``not in``."""
        if not isinstance(right, (ast.Tuple, ast.List, ast.Set)) or not right.elts:
            self.refuse(node, "an in", "write it out, x in (1, 3)")
        comparisons: list[ast.expr] = [
            ast.copy_location(self.call("equal", self.value(left), self.value(element)), left) for element in right.elts
        ]
        is_element = self.chain("logical_or", comparisons)
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
        text, name = ast.unparse(node.func), OPERATION_OF.get(id(function))
        if name is None and isinstance(unwrap(function), FunctionType):
            return self.function_call(node, unwrap(function), path)
        self.inputs.constants.append((path, function))
        if name == "to_float" and (number := constant_float(node)) is not None:
            return ast.Constant(number)
        if node.keywords:
            self.refuse(node, f"a call of {text} with names of arguments", "give them in order")
        values = list(map(self.value, node.args))
        if function is len and len(values) == 1:
            return self.call("extent", values[0], ast.Constant(0))
        if name is None:
            return self.scalar_call(node, function, text, values)
        if name in ("maximum", "minimum") and function in (max, min) and len(values) > 2:
            return self.chain(name, values)
        if len(values) != ARITY[name]:
            self.refuse(node, f"a call of {text} with {len(values)} arguments")
        if name == "clip":
            return self.call("minimum", ast.copy_location(self.call("maximum", *values[:2]), node), values[2])
        return self.call(name, *values)

    def scalar_call(self, node: ast.Call, function: Any, text: str, values: list[ast.expr]) -> ast.expr:
        """The call of a function of NumPy or math that is no operation: Numba may compile it for scalars."""
        module = "numpy" if isinstance(function, np.ufunc) else getattr(function, "__module__", None)
        if not isinstance(function, np.ufunc) and (module != "math" or isinstance(function, type)):
            name = str(getattr(function, "__name__", ""))
            is_operation = id(getattr(np, name, None)) in OPERATION_OF and function is not getattr(np, name)
            self.refuse(node, f"a call of {text}", f"write np.{name}" if is_operation else "")
        name = f"_p{len(self.new_source.scalar_functions)}"
        self.new_source.scalar_functions[name] = f"{module}.{function.__name__}", function
        scalars = [self.call("scalar", value) for value in values]
        return ast.Call(ast.Name(name, ast.Load()), list(scalars), [])

    def function_call(self, node: ast.Call, function: FunctionType, path: Path) -> ast.expr:
        arguments = self.bound_arguments(node, function)
        overrides = frozenset(arguments) & defaults_of(function).keys()
        calls = self.new_source.calls
        key = next((name for name, call in calls.items() if (call.path, call.overrides) == (path, overrides)), None)
        if key is None:
            key = f"_f{len(calls)}"
            calls[key] = NewSource(function, path, self.inputs, overrides)
        values = [*arguments.values(), *map(self.parameter, self.new_source.calls[key].captured)]
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

    def variable(self, node: ast.Name | ast.Attribute) -> ast.expr:
        if isinstance(node, ast.Name) and node.id in self.local_names:
            return ast.Name(f"v_{node.id}", ast.Load())
        value, path = self.find(node)
        if isinstance(value, (FunctionType, ModuleType, type)) or callable(value):
            self.refuse(node, f"{ast.unparse(node)} as a value")
        return self.parameter(Capture(path, ast.unparse(node), f"{self.file}:{node.lineno}"))

    def parameter(self, captured: Capture) -> ast.expr:
        paths = [variable.path for variable in self.new_source.captured]
        if captured.path not in paths:
            self.new_source.captured.append(captured)
            paths.append(captured.path)
        return ast.Name(f"_c{paths.index(captured.path)}", ast.Load())

    def value_of_name(self, node: ast.expr) -> Any:
        """The value of a variable outside the function; None for other expressions."""
        return self.find(node)[0] if isinstance(node, (ast.Name, ast.Attribute)) else None

    def find(self, node: ast.expr) -> tuple[Any, Path]:
        """(value, path) of a variable outside the function, or of a module's attribute."""
        if isinstance(node, ast.Attribute):
            value, path = self.find(node.value)
            if not isinstance(value, ModuleType):
                self.refuse(node, f"the attribute {ast.unparse(node)}", "give its value a name outside the function")
            self.inputs.constants.append((path, value))
            if not hasattr(value, node.attr):
                raise InputError(f"{self.file}:{node.lineno}: module {value.__name__} has no {node.attr}")
            return getattr(value, node.attr), (*path, ("attribute", node.attr))
        if not isinstance(node, ast.Name) or node.id in self.local_names:
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
    literal = node.operand if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) else node
    number = literal.value if isinstance(literal, ast.Constant) else None
    if isinstance(number, bool) or not isinstance(number, (int, float)) or number > 1e300:
        return None
    return number if literal is node else -number


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


_CONSTRUCT_NAMES = {
    "Expr": "statement without effect", "JoinedStr": "string", "FunctionDef": "function inside it", "NamedExpr": ":=",
    "ListComp": "comprehension", "GeneratorExp": "comprehension", "For": "for with else", "While": "while with else",
}  # fmt: skip


def construct_name(node_class: str) -> str:
    words = _CONSTRUCT_NAMES.get(node_class, node_class.lower())
    return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"


def _always_returns(body: list[ast.stmt]) -> bool:
    """Whether every path through a block ends in a return; the path out of an endless loop does not."""
    last = body[-1] if body else None
    if isinstance(last, ast.If):
        return _always_returns(last.body) and _always_returns(last.orelse)
    return isinstance(last, ast.Return)


class _ScalarConditions(ast.NodeTransformer):
    """Turns the conditions of the branches that a source keeps into scalars."""

    def visit_If(self, node: Any) -> Any:
        self.generic_visit(node)
        call = ast.Call(ast.Name("_decide", ast.Load()), [node.test], [])
        node.test = ast.fix_missing_locations(ast.copy_location(call, node.test))
        return node

    visit_While = visit_If


MAX_VALUES = 200  # assignments in place of branches


class HasBranches(Exception):
    """A function cannot do without branches, because of loops or paths without a value; the message says where."""


def straighten(body: list[ast.stmt], parameters: list[str]) -> list[ast.stmt]:
    """Rewrite a body as assignments, each to a new name, and one ``return``; HasBranches where that is impossible."""
    straightener = _Straightener()
    result = straightener.convert(body, {name: name for name in parameters})
    if result is None:
        raise HasBranches(f"line {body[-1].lineno}: a path without a return")
    return [*straightener.assignments, ast.copy_location(ast.Return(result), result)]


class _Straightener:
    """Collects ``assignments`` that replace the statements of a body; a branch becomes choices between values."""

    def __init__(self) -> None:
        self.assignments: list[ast.stmt] = []

    def convert(self, body: list[ast.stmt], names: dict[str, str]) -> ast.expr | None:
        """The value that the body returns; None without a return. ``names``: variable -> name of its present value."""
        for n, statement in enumerate(body):
            if isinstance(statement, ast.Return):
                assert statement.value is not None
                return self.with_present_names(statement.value, names)
            if isinstance(statement, ast.Assign):
                (target,) = statement.targets
                assert isinstance(target, ast.Name)
                names[target.id] = self.assign(target.id, self.with_present_names(statement.value, names))
            elif isinstance(statement, ast.If):
                result = self.convert_if(statement, body[n + 1 :], names)
                if result is not None:
                    return result
            elif not isinstance(statement, ast.Pass):
                raise HasBranches(f"line {statement.lineno}: a loop")
        return None

    def convert_if(self, statement: ast.If, following: list[ast.stmt], names: dict[str, str]) -> ast.expr | None:
        if len(self.assignments) > MAX_VALUES:
            raise HasBranches(f"line {statement.lineno}: too many branches with a return")
        test = self.assign("test", self.with_present_names(statement.test, names))
        then_names, else_names = dict(names), dict(names)
        if not (_has_return(statement.body) or _has_return(statement.orelse)):
            self.convert(statement.body, then_names)
            self.convert(statement.orelse, else_names)
            self.merge(statement, test, names, then_names, else_names)
            return None
        # Each side continues with its own copy of the statements behind the ``if``.
        first = self.convert([*statement.body, *following], then_names)
        second = self.convert([*statement.orelse, *following], else_names)
        if first is None or second is None:
            raise HasBranches(f"line {statement.lineno}: a path without a return")
        return self.choice(statement, test, first, second)

    def merge(self, statement: ast.If, test: str, names: dict[str, str], *sides: dict[str, str]) -> None:
        then_names, else_names = sides
        for name in {**then_names, **else_names}:
            if name not in then_names or name not in else_names:
                names.pop(name, None)
            elif then_names[name] != else_names[name]:
                values = (ast.Name(side[name], ast.Load()) for side in sides)
                names[name] = self.assign(name, self.choice(statement, test, *values))

    def choice(self, statement: ast.If, test: str, first: ast.expr, second: ast.expr) -> ast.expr:
        operands: list[ast.expr] = [ast.Name(test, ast.Load()), first, second]
        call = ast.Call(ast.Name("_where", ast.Load()), operands, [])
        return ast.fix_missing_locations(ast.copy_location(call, statement.test))

    def assign(self, name: str, value: ast.expr) -> str:
        target = f"{name}_{len(self.assignments)}_"
        assignment = ast.Assign([ast.Name(target, ast.Store())], value)
        self.assignments.append(ast.fix_missing_locations(ast.copy_location(assignment, value)))
        return target

    def with_present_names(self, value: ast.expr, names: dict[str, str]) -> ast.expr:
        return _VariableRenamer(names).visit(copy.deepcopy(value))


def _has_return(body: list[ast.stmt]) -> bool:
    return any(isinstance(node, ast.Return) for statement in body for node in ast.walk(statement))


class _VariableRenamer(ast.NodeTransformer):
    def __init__(self, names: dict[str, str]):
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        if node.id.startswith("_"):  # a name of fastattn, not of the user's function
            return node
        if node.id not in self.names:
            raise HasBranches(f"line {node.lineno}: {node.id} may have no value")
        return ast.copy_location(ast.Name(self.names[node.id], node.ctx), node)
