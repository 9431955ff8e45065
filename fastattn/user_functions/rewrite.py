"""A user's function as source that Numba compiles for lanes, for scalars and for ranges alike.

Operators and known functions become operations (simd/operations.py); ``and``, ``or``, ``not``, ``x if c else y`` and
chained comparisons become operations without branches. Variables that the function or the functions that it calls read
beside their parameters become parameters. Branches become choices between values: both sides are computed, which is
harmless, since nothing in such a function raises or has effects. Other Python is refused, with its line.
"""

import ast
import copy
from types import FunctionType
from typing import Any

from fastattn.errors import InputError
from fastattn.user_functions.expressions import Expressions, Parts, constant_number, kind_name
from fastattn.user_functions.source import Captured, Path, definition_of, function_of, location_of

CHOOSE = "_where"
MOST_VALUES = 200


class NotStraight(Exception):
    """The function has loops, or paths without a value; the message says where."""


def straighten(body: list[ast.stmt], parameters: list[str]) -> list[ast.stmt]:
    """Rewrite a body as assignments, each to a new name, and one ``return``. NotStraight for loops and the like."""
    straight = _Straight()
    result = straight.run(body, {name: name for name in parameters})
    if result is None:
        raise NotStraight(f"line {body[-1].lineno}: a path without a return")
    return [*straight.assignments, ast.copy_location(ast.Return(result), result)]


class _Straight:
    def __init__(self) -> None:
        self.assignments: list[ast.stmt] = []

    def run(self, body: list[ast.stmt], names: dict[str, str]) -> ast.expr | None:
        """The value that the body returns; None without a return. ``names``: variable -> name of its present value."""
        for n, statement in enumerate(body):
            if isinstance(statement, ast.Return):
                assert statement.value is not None
                return self.use(statement.value, names)
            if isinstance(statement, ast.Assign):
                (target,) = statement.targets
                assert isinstance(target, ast.Name)
                names[target.id] = self.keep(target.id, self.use(statement.value, names))
            elif isinstance(statement, ast.If):
                result = self.branch(statement, body[n + 1 :], names)
                if result is not None:
                    return result
            elif not isinstance(statement, ast.Pass):
                raise NotStraight(f"line {statement.lineno}: a loop")
        return None

    def branch(self, statement: ast.If, following: list[ast.stmt], names: dict[str, str]) -> ast.expr | None:
        if len(self.assignments) > MOST_VALUES:
            raise NotStraight(f"line {statement.lineno}: too many branches with a return")
        test = self.keep("test", self.use(statement.test, names))
        then_names, else_names = dict(names), dict(names)
        if not (_has_return(statement.body) or _has_return(statement.orelse)):
            self.run(statement.body, then_names)
            self.run(statement.orelse, else_names)
            self.merge(statement, test, names, then_names, else_names)
            return None
        # Each side goes on with its own copy of the statements that follow.
        first = self.run([*statement.body, *following], then_names)
        second = self.run([*statement.orelse, *following], else_names)
        if first is None or second is None:
            raise NotStraight(f"line {statement.lineno}: a path without a return")
        return self.choice(statement, test, first, second)

    def merge(self, statement: ast.If, test: str, names: dict[str, str], *sides: dict[str, str]) -> None:
        then_names, else_names = sides
        for name in {**then_names, **else_names}:
            if name not in then_names or name not in else_names:
                names.pop(name, None)
            elif then_names[name] != else_names[name]:
                values = (ast.Name(side[name], ast.Load()) for side in sides)
                names[name] = self.keep(name, self.choice(statement, test, *values))

    def choice(self, statement: ast.If, test: str, first: ast.expr, second: ast.expr) -> ast.expr:
        operands: list[ast.expr] = [ast.Name(test, ast.Load()), first, second]
        call = ast.Call(ast.Name(CHOOSE, ast.Load()), operands, [])
        return ast.fix_missing_locations(ast.copy_location(call, statement.test))

    def keep(self, name: str, value: ast.expr) -> str:
        target = f"{name}_{len(self.assignments)}_"
        assignment = ast.Assign([ast.Name(target, ast.Store())], value)
        self.assignments.append(ast.fix_missing_locations(ast.copy_location(assignment, value)))
        return target

    def use(self, value: ast.expr, names: dict[str, str]) -> ast.expr:
        return _Renamed(names).visit(copy.deepcopy(value))


def _has_return(body: list[ast.stmt]) -> bool:
    return any(isinstance(node, ast.Return) for statement in body for node in ast.walk(statement))


class _Renamed(ast.NodeTransformer):
    def __init__(self, names: dict[str, str]):
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        if node.id.startswith("_"):  # no variable of the function
            return node
        if node.id not in self.names:
            raise NotStraight(f"line {node.lineno}: {node.id} may have no value")
        return ast.copy_location(ast.Name(self.names[node.id], node.ctx), node)


class Rewritten:
    """A function's new source, and what it needs.

    definition        its tree; the parameters are the function's own, then the captured variables
    calls             name in the source -> the Rewritten of a function that it calls
    scalar_functions  name in the source -> (name, function) of NumPy or math, which Numba compiles for scalars
    captured          the captured variables, in the order of the parameters
    not_straight      why branches stay in it; "" if there are none
    overridden        the parameters that are passed though they have defaults
    """

    def __init__(self, function: FunctionType, path: Path, parts: Parts, overridden: frozenset[str] = frozenset()):
        self.function_name, self.file = function.__name__, function.__code__.co_filename
        self.location, self.path, self.overridden = location_of(function.__code__), path, overridden
        self.calls: dict[str, Rewritten] = {}
        self.scalar_functions: dict[str, tuple[str, Any]] = {}
        self.captured: list[Captured] = []
        self.not_straight = ""
        parts.functions.append((path, function.__code__))
        self.definition = _Rewriter(self, function, path, parts, overridden).definition()

    def text(self) -> str:
        """All that its code depends on, as text without line numbers."""
        calls = "".join(f"{name}:\n{call.text()}\n" for name, call in self.calls.items())
        scalar_functions = "".join(f"{name}: {called}\n" for name, (called, _) in self.scalar_functions.items())
        return f"{calls}{scalar_functions}{ast.unparse(self.definition)}"


class _Rewriter(Expressions):
    """Rewrites a function's statements."""

    def rewrite(self, function: FunctionType, path: Path, overridden: frozenset[str]) -> Rewritten:
        return Rewritten(function, path, self.parts, overridden)

    def definition(self) -> ast.FunctionDef:
        if any(function is self.function for function in self.parts.stack):
            raise InputError(f"{self.rewritten.location}: it calls itself")
        self.parts.stack.append(self.function)
        source = definition_of(self.function)
        self.own |= {n.id for n in ast.walk(source) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        if isinstance(source, ast.Lambda):
            body: list[ast.stmt] = [ast.copy_location(ast.Return(self.value(source.body)), source.body)]
        else:
            body = self.statements(source.body)
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
            return [_ScalarConditions().visit(statement) for statement in body]

    def statements(self, body: list[ast.stmt]) -> list[ast.stmt]:
        return [
            ast.fix_missing_locations(ast.copy_location(statement, node))
            for node in body
            for statement in self.statement(node)
        ]

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
        return self.refuse(node, kind_name(type(node).__name__))

    def block(self, body: list[ast.stmt]) -> list[ast.stmt]:
        return self.statements(body) or [ast.Pass()]

    def target(self, node: ast.expr) -> ast.Name:
        if not isinstance(node, ast.Name):
            self.refuse(node, "an assignment to something other than a variable", "assign one at a time")
        if node.id in self.defaults:
            self.refuse(node, f"an assignment to {node.id}, a parameter with a default")
        return ast.copy_location(ast.Name(f"v_{node.id}", ast.Store()), node)

    def range_call(self, node: ast.expr) -> ast.expr:
        """``range`` of whole numbers, which never raises: its step is a literal number."""
        if not (isinstance(node, ast.Call) and self.value_of_name(node.func) is range and not node.keywords):
            self.refuse(node, "a loop over something other than a range")
        numbers = [self.value(argument) for argument in node.args]
        step = constant_number(node.args[2]) if len(numbers) == 3 else 1
        if not 1 <= len(numbers) <= 3 or type(step) is not int or step == 0:
            self.refuse(node, "a range whose step is no number other than 0")
        first = [self.call("count", number) for number in numbers[:2]]
        return ast.Call(ast.Name("_range", ast.Load()), first + copy.deepcopy(node.args[2:]), [])


def _returns(body: list[ast.stmt]) -> bool:
    """Whether every path through a block ends in a return; the path out of an endless loop does not."""
    last = body[-1] if body else None
    if isinstance(last, ast.If):
        return _returns(last.body) and _returns(last.orelse)
    return isinstance(last, ast.Return)


class _ScalarConditions(ast.NodeTransformer):
    """Turns the conditions of remaining branches into scalars."""

    def visit_If(self, node: Any) -> Any:
        self.generic_visit(node)
        call = ast.Call(ast.Name("_decide", ast.Load()), [node.test], [])
        node.test = ast.fix_missing_locations(ast.copy_location(call, node.test))
        return node

    visit_While = visit_If
