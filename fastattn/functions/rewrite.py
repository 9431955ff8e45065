"""A user's function as source that Numba compiles for lanes, for scalars and for ranges alike.

Operators and known functions become operations (simd/operations.py), ``and``, ``or``, ``not``, ``x if c else y`` and
chained comparisons those that need no branch; what the function reads beside its parameters becomes parameters, and
so does what the functions read that it calls. The rest of Python is refused, with its line.
"""

import ast
import copy
from inspect import CO_VARARGS, CO_VARKEYWORDS
from types import FunctionType, ModuleType
from typing import Any, NoReturn

import numpy as np

from fastattn.errors import InputError
from fastattn.functions.captured import Captured, Path, follow, plain
from fastattn.functions.known import ARITY, KNOWN
from fastattn.functions.source import definition_of, function_of, place_of
from fastattn.functions.straight import NotStraight, straighten

_BINARY = {
    ast.Add: "add", ast.Sub: "subtract", ast.Mult: "multiply", ast.Div: "divide", ast.FloorDiv: "floor_divide",
    ast.Mod: "remainder", ast.Pow: "power", ast.BitAnd: "bit_and", ast.BitOr: "bit_or", ast.BitXor: "bit_xor",
}  # fmt: skip
_UNARY = {ast.USub: "negative", ast.Invert: "invert", ast.Not: "logical_not"}
_COMPARED = {
    ast.Lt: "less", ast.LtE: "less_equal", ast.Gt: "greater", ast.GtE: "greater_equal", ast.Eq: "equal",
    ast.NotEq: "not_equal",
}  # fmt: skip
_SYMBOLS = {
    "LShift": "<<",
    "RShift": ">>",
    "MatMult": "@",
    "In": "in",
    "NotIn": "not in",
    "Is": "is",
    "IsNot": "is not",
}
MOST_EXPONENT = 16  # of power_2 and so on


class Rewritten:
    """A function's new source, and what it needs.

    definition  its tree; the parameters are the function's own, then the captured ones
    calls       name in the source -> the Rewritten of a function that it calls
    passed      name in the source -> (name, function) of NumPy's or math's that is left to Numba, for scalars
    captured    what is read, in the order of the parameters
    not_straight  why branches are left in it; "" if there are none
    """

    def __init__(self, function: FunctionType, path: Path, parts: "Parts"):
        self.function_name, self.file = function.__name__, function.__code__.co_filename
        self.place, self.path = place_of(function.__code__), path
        self.calls: dict[str, Rewritten] = {}
        self.passed: dict[str, tuple[str, Any]] = {}
        self.captured: list[Captured] = []
        self.not_straight = ""
        parts.functions.append((path, function.__code__))
        self.definition = _Rewriter(self, function, path, parts).definition()

    def text(self) -> str:
        """All that its code depends on, without lines."""
        calls = "".join(f"{name}:\n{call.text()}\n" for name, call in self.calls.items())
        passed = "".join(f"{name}: {given}\n" for name, (given, _) in self.passed.items())
        return f"{calls}{passed}{ast.unparse(self.definition)}"


class Parts:
    """What a plan was made of, and holds only while it is so: functions by their code, known ones by themselves."""

    def __init__(self) -> None:
        self.functions: list[tuple[Path, Any]] = []
        self.constants: list[tuple[Path, Any]] = []
        self.stack: list[Any] = []


class _Rewriter:
    def __init__(self, rewritten: Rewritten, function: FunctionType, path: Path, parts: Parts):
        self.rewritten, self.function, self.path, self.parts = rewritten, function, path, parts
        self.file, self.code = rewritten.file, function.__code__
        count = self.code.co_argcount + self.code.co_kwonlyargcount
        self.defaults = _defaults(function)
        self.parameters = [name for name in self.code.co_varnames[:count] if name not in self.defaults]
        self.own = set(self.parameters)
        self.line = self.code.co_firstlineno

    def definition(self) -> ast.FunctionDef:
        if any(function is self.function for function in self.parts.stack):
            raise InputError(f"{self.rewritten.place}: it calls itself")
        self.parts.stack.append(self.function)
        source = definition_of(self.function)
        self.own |= {n.id for n in ast.walk(source) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        if isinstance(source, ast.Lambda):
            body: list[ast.stmt] = [ast.copy_location(ast.Return(self.value(source.body)), source.body)]
        else:
            body = [made for statement in source.body for made in self.statement(statement)]
        parameters = [f"v_{name}" for name in self.parameters]
        body = self.straight(body, parameters, source)
        parameters += [f"_c{i}" for i in range(len(self.rewritten.captured))]
        arguments = ast.arguments(
            posonlyargs=[], args=[ast.arg(name) for name in parameters], kwonlyargs=[], kw_defaults=[], defaults=[]
        )
        result = function_of("user_function", arguments, body)
        self.parts.stack.pop()
        return ast.fix_missing_locations(ast.copy_location(result, source))

    def straight(self, body: list[ast.stmt], parameters: list[str], source: ast.AST) -> list[ast.stmt]:
        if not body:
            self.refuse(source, "a function without a return")
        try:
            return straighten(body, parameters)
        except NotStraight as reason:
            self.rewritten.not_straight = str(reason)
            if not _returns(body):
                self.refuse(body[-1], "a path without a return")
            return [_Deciding().visit(statement) for statement in body]

    def refuse(self, node: ast.AST, what: str) -> NoReturn:
        line = getattr(node, "lineno", self.line)
        raise InputError(f"{self.file}:{line}: {self.rewritten.function_name} has {what}, which is not supported here")

    # Statements.

    def statement(self, node: ast.stmt) -> list[ast.stmt]:
        made = self.make_statement(node)
        return [ast.fix_missing_locations(ast.copy_location(one, node)) for one in made]

    def make_statement(self, node: ast.stmt) -> list[ast.stmt]:
        if isinstance(node, ast.Return):
            if node.value is None:
                self.refuse(node, "a return without a value")
            return [ast.Return(self.value(node.value))]
        if isinstance(node, ast.Assign):
            first, *others = [self.target(target) for target in node.targets]
            made: list[ast.stmt] = [ast.Assign([first], self.value(node.value))]
            return made + [ast.Assign([other], ast.Name(first.id, ast.Load())) for other in others]
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
            return [ast.For(self.target(node.target), self.steps(node.iter), self.block(node.body), [])]
        if isinstance(node, (ast.Pass, ast.Break, ast.Continue)):
            return [copy.copy(node)]
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            return []  # a docstring
        return self.refuse(node, _a(type(node).__name__))

    def block(self, body: list[ast.stmt]) -> list[ast.stmt]:
        return [made for statement in body for made in self.statement(statement)] or [ast.Pass()]

    def target(self, node: ast.expr) -> ast.Name:
        if not isinstance(node, ast.Name):
            self.refuse(node, "an assignment to something other than a variable")
        if node.id in self.defaults:
            self.refuse(node, f"an assignment to {node.id}, a parameter with a default")
        return ast.copy_location(ast.Name(f"v_{node.id}", ast.Store()), node)

    def steps(self, node: ast.expr) -> ast.expr:
        """``range`` of whole numbers, which never raises: its step is a number that is written out."""
        if not (isinstance(node, ast.Call) and self.named(node.func) is range and not node.keywords):
            self.refuse(node, "a loop over something other than a range")
        numbers = [self.value(one) for one in node.args]
        if not 1 <= len(numbers) <= 3 or (len(numbers) == 3 and not _is_step(node.args[2])):
            self.refuse(node, "a range whose step is no number other than 0")
        first = [self.call("count", number) for number in numbers[:2]]
        return ast.Call(ast.Name("_range", ast.Load()), first + copy.deepcopy(node.args[2:]), [])

    # Expressions.

    def value(self, node: ast.expr) -> ast.expr:
        made = self.make_value(node)
        return ast.fix_missing_locations(ast.copy_location(made, node))

    def make_value(self, node: ast.expr) -> ast.expr:
        if isinstance(node, ast.Constant):
            return self.constant(node)
        if isinstance(node, ast.BinOp):
            return self.binary(node, node.op, self.value(node.left), self.value(node.right), node.right)
        if isinstance(node, ast.UnaryOp):
            if isinstance(node.op, ast.UAdd):
                return self.value(node.operand)
            if isinstance(node.operand, ast.Constant) and isinstance(node.op, ast.USub):
                return ast.UnaryOp(ast.USub(), self.value(node.operand))
            return self.call(_UNARY[type(node.op)], self.value(node.operand))
        if isinstance(node, ast.BoolOp):
            name = "logical_and" if isinstance(node.op, ast.And) else "logical_or"
            return self.folded(name, [self.value(one) for one in node.values])
        if isinstance(node, ast.Compare):
            return self.compared(node)
        if isinstance(node, ast.IfExp):
            return self.call("where", *map(self.value, (node.test, node.body, node.orelse)))
        if isinstance(node, ast.Call):
            return self.called(node)
        if isinstance(node, ast.Subscript):
            return self.subscript(node)
        if isinstance(node, (ast.Name, ast.Attribute)):
            return self.name(node)
        return self.refuse(node, _a(type(node).__name__))

    def call(self, name: str, *operands: ast.expr) -> ast.Call:
        return ast.Call(ast.Name(f"_{name}", ast.Load()), list(operands), [])

    def folded(self, name: str, values: list[ast.expr]) -> ast.expr:
        result = values[0]
        for value in values[1:]:
            result = ast.copy_location(self.call(name, result, value), value)
        return result

    def constant(self, node: ast.Constant) -> ast.expr:
        if not isinstance(node.value, (bool, int, float)):
            self.refuse(node, f"the constant {node.value!r}")
        if isinstance(node.value, int) and node.value >= 2**63:
            self.refuse(node, "a number of more than 64 bits")
        return copy.copy(node)

    def binary(self, node: ast.AST, op: ast.operator, left: ast.expr, right: ast.expr, written: ast.expr) -> ast.expr:
        if type(op) not in _BINARY:
            self.refuse(node, f"the operator {_SYMBOLS[type(op).__name__]}")
        if isinstance(op, ast.Pow):
            return self.power(left, right, _number_of(written))
        return self.call(_BINARY[type(op)], left, right)

    def power(self, base: ast.expr, exponent: ast.expr, known: float | None) -> ast.expr:
        """Multiplications where the exponent is a small whole number that is written out, ``known``."""
        if known is None or known != int(known) or not 1 <= abs(known) <= MOST_EXPONENT:
            return self.call("sqrt", base) if known == 0.5 else self.call("power", base, exponent)
        if isinstance(known, float) and known > 0:
            base = self.call("to_float", base)
        result = base if abs(known) == 1 else self.call(f"power_{abs(int(known))}", base)
        return result if known > 0 else self.call("divide", ast.Constant(1.0), result)

    def compared(self, node: ast.Compare) -> ast.expr:
        values = [node.left, *node.comparators]
        parts: list[ast.expr] = []
        for op, left, right in zip(node.ops, values, values[1:]):
            if type(op) not in _COMPARED:
                self.refuse(node, f"the operator {_SYMBOLS[type(op).__name__]}")
            parts.append(ast.copy_location(self.call(_COMPARED[type(op)], self.value(left), self.value(right)), left))
        return self.folded("logical_and", parts)

    def subscript(self, node: ast.Subscript) -> ast.expr:
        inner = node.value
        if isinstance(inner, ast.Attribute) and inner.attr == "shape":
            return self.call("extent", self.value(inner.value), self.value(node.slice))
        index = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        for one in index:
            if isinstance(one, ast.Slice):
                self.refuse(node, "a slice")
        return self.call("look_up", self.value(inner), *map(self.value, index))

    def called(self, node: ast.Call) -> ast.expr:
        if any(isinstance(one, ast.Starred) for one in node.args) or any(one.arg is None for one in node.keywords):
            self.refuse(node, "a call with * or **")
        function, path = self.find(node.func)
        text = ast.unparse(node.func)
        if isinstance(plain(function), FunctionType):
            return self.own_call(node, plain(function), path)
        self.parts.constants.append((path, function))
        if node.keywords:
            self.refuse(node, f"a call of {text} with names of arguments")
        values = [self.value(one) for one in node.args]
        if function is len and len(values) == 1:
            return self.call("extent", values[0], ast.Constant(0))
        name = KNOWN.get(id(function))
        if name is None:
            return self.passed(node, function, text, values)
        if name in ("maximum", "minimum") and function in (max, min) and len(values) > 2:
            return self.folded(name, values)
        if len(values) != ARITY[name]:
            self.refuse(node, f"a call of {text} with {len(values)} arguments")
        return self.call(name, *values)

    def passed(self, node: ast.Call, function: Any, text: str, values: list[ast.expr]) -> ast.expr:
        """A function of NumPy's or math's that is no operation: Numba may know it, for scalars."""
        home = "numpy" if isinstance(function, np.ufunc) else getattr(function, "__module__", None)
        if not isinstance(function, np.ufunc) and (home != "math" or isinstance(function, type)):
            self.refuse(node, f"a call of {text}")
        name = f"_p{len(self.rewritten.passed)}"
        self.rewritten.passed[name] = f"{home}.{function.__name__}", function
        scalars = [self.call("scalar", value) for value in values]
        return ast.Call(ast.Name(name, ast.Load()), list(scalars), [])

    def own_call(self, node: ast.Call, function: FunctionType, path: Path) -> ast.expr:
        key = next((name for name, known in self.rewritten.calls.items() if known.path == path), None)
        if key is None:
            key = f"_f{len(self.rewritten.calls)}"
            self.rewritten.calls[key] = Rewritten(function, path, self.parts)
        values = self.bound(node, function)
        for captured in self.rewritten.calls[key].captured:
            values.append(self.parameter(captured))
        return ast.Call(ast.Name(key, ast.Load()), values, [])

    def bound(self, node: ast.Call, function: FunctionType) -> list[ast.expr]:
        """The arguments of a call in the order of the parameters."""
        code, given = function.__code__, {}
        if code.co_posonlyargcount or code.co_flags & (CO_VARARGS | CO_VARKEYWORDS):
            self.refuse(node, f"a call of {function.__name__}, which takes / or *")
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        for name, value in [*zip(names, node.args), *((str(one.arg), one.value) for one in node.keywords)]:
            given[name] = value
        wanted = [name for name in names if name not in _defaults(function)]
        if sorted(given) != sorted(wanted) or len(node.args) + len(node.keywords) != len(wanted):
            what = f"a call of {function.__name__} with other arguments than {', '.join(wanted)}"
            self.refuse(node, what)
        return [self.value(given[name]) for name in wanted]

    # Names.

    def name(self, node: ast.Name | ast.Attribute) -> ast.expr:
        if isinstance(node, ast.Name) and node.id in self.own:
            return ast.Name(f"v_{node.id}", ast.Load())
        value, path = self.find(node)
        if isinstance(value, (FunctionType, ModuleType, type)) or callable(value):
            self.refuse(node, f"{ast.unparse(node)} as a value")
        place = f"{self.file}:{node.lineno}"
        return self.parameter(Captured(path, ast.unparse(node), place))

    def parameter(self, captured: Captured) -> ast.expr:
        known = self.rewritten.captured
        for i, other in enumerate(known):
            if other.path == captured.path:
                return ast.Name(f"_c{i}", ast.Load())
        known.append(captured)
        return ast.Name(f"_c{len(known) - 1}", ast.Load())

    def named(self, node: ast.expr) -> Any:
        """The value of a name outside, of which no note is taken."""
        return self.find(node)[0] if isinstance(node, (ast.Name, ast.Attribute)) else None

    def find(self, node: ast.expr) -> tuple[Any, Path]:
        """(value, path) of a variable outside, or of a module's attribute."""
        if isinstance(node, ast.Attribute):
            value, path = self.find(node.value)
            if not isinstance(value, ModuleType):
                self.refuse(node, f"the attribute {ast.unparse(node)}")
            self.parts.constants.append((path, value))
            if not hasattr(value, node.attr):
                raise InputError(f"{self.file}:{node.lineno}: module {value.__name__} has no {node.attr}")
            return getattr(value, node.attr), (*path, ("attribute", node.attr))
        if not isinstance(node, ast.Name) or node.id in self.own:
            self.refuse(node, f"{ast.unparse(node)} used as a function or a module")
        return self.outside(node)

    def outside(self, node: ast.Name) -> tuple[Any, Path]:
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


def _defaults(function: FunctionType) -> dict[str, tuple[str, Any]]:
    """Parameter with a default -> the step to it: a variable that is captured, since none is given."""
    code, values = function.__code__, function.__defaults__ or ()
    first = code.co_argcount - len(values)
    steps: dict[str, tuple[str, Any]] = {code.co_varnames[first + i]: ("default", i) for i in range(len(values))}
    return steps | {name: ("keyword default", name) for name in function.__kwdefaults__ or ()}


def _returns(body: list[ast.stmt]) -> bool:
    """Whether every path through a block returns; one out of an endless loop counts as one that does not."""
    last = body[-1] if body else None
    if isinstance(last, ast.If):
        return _returns(last.body) and _returns(last.orelse)
    return isinstance(last, ast.Return)


def _is_step(node: ast.expr) -> bool:
    number = _number_of(node)
    return type(number) is int and number != 0


def _number_of(node: ast.expr) -> float | None:
    """A finite number that is written out, with its sign."""
    inside = node.operand if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) else node
    number = inside.value if isinstance(inside, ast.Constant) else None
    if isinstance(number, bool) or not isinstance(number, (int, float)) or number > 1e300:
        return None
    return number if inside is node else -number


_WORDS = {"Expr": "statement without effect", "JoinedStr": "string", "FunctionDef": "function inside it"}
_WORDS |= {"ListComp": "comprehension", "GeneratorExp": "comprehension", "NamedExpr": ":=", "For": "for with else"}
_WORDS |= {"While": "while with else"}


def _a(kind: str) -> str:
    words = _WORDS.get(kind, kind.lower())
    return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"


class _Deciding(ast.NodeTransformer):
    """Where branches stay, their conditions are of scalars."""

    def visit_If(self, node: ast.If) -> ast.If:
        self.generic_visit(node)
        node.test = _decided(node.test)
        return node

    def visit_While(self, node: ast.While) -> ast.While:
        self.generic_visit(node)
        node.test = _decided(node.test)
        return node


def _decided(test: ast.expr) -> ast.expr:
    call = ast.Call(ast.Name("_decide", ast.Load()), [test], [])
    return ast.fix_missing_locations(ast.copy_location(call, test))
