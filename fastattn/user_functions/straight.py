"""Branches without branching: a function's ``if`` and early ``return`` become choices between values.

Both sides of a branch are computed, which is harmless, since nothing in such a function raises or lasts.
"""

import ast
import copy

CHOOSE = "_where"


MOST_VALUES = 200


class NotStraight(Exception):
    """The function has loops, or paths without a value; the message says where."""


def straighten(body: list[ast.stmt], parameters: list[str]) -> list[ast.stmt]:
    """Rewrite a body as assignments, each to a new name, and one ``return``. NotStraight for loops and the like."""
    return _Straight(parameters).whole(body)


class _Straight:
    def __init__(self, parameters: list[str]):
        self.parameters = parameters
        self.made: list[ast.stmt] = []

    def whole(self, body: list[ast.stmt]) -> list[ast.stmt]:
        result = self.run(body, {name: name for name in self.parameters})
        if result is None:
            raise NotStraight(f"line {body[-1].lineno}: a path without a return")
        return [*self.made, ast.copy_location(ast.Return(result), result)]

    def run(self, body: list[ast.stmt], names: dict[str, str]) -> ast.expr | None:
        """What is returned; None if nothing is. ``names`` has the name of each variable's present value."""
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

    def branch(self, statement: ast.If, rest: list[ast.stmt], names: dict[str, str]) -> ast.expr | None:
        if len(self.made) > MOST_VALUES:
            raise NotStraight(f"line {statement.lineno}: too many branches with a return")
        test = self.keep("test", self.use(statement.test, names))
        inside, outside = dict(names), dict(names)
        if not (_has_return(statement.body) or _has_return(statement.orelse)):
            self.run(statement.body, inside)
            self.run(statement.orelse, outside)
            self.merge(statement, test, names, inside, outside)
            return None
        # each side goes on with its own copy of the rest
        first = self.run([*statement.body, *rest], inside)
        second = self.run([*statement.orelse, *rest], outside)
        if first is None or second is None:
            raise NotStraight(f"line {statement.lineno}: a path without a return")
        return self.choice(statement, test, first, second)

    def merge(self, statement: ast.If, test: str, names: dict[str, str], *sides: dict[str, str]) -> None:
        inside, outside = sides
        for name in {**inside, **outside}:
            if name not in inside or name not in outside:
                names.pop(name, None)
            elif inside[name] != outside[name]:
                values = (ast.Name(side[name], ast.Load()) for side in sides)
                names[name] = self.keep(name, self.choice(statement, test, *values))

    def choice(self, statement: ast.If, test: str, first: ast.expr, second: ast.expr) -> ast.expr:
        operands: list[ast.expr] = [ast.Name(test, ast.Load()), first, second]
        call = ast.Call(ast.Name(CHOOSE, ast.Load()), operands, [])
        return ast.fix_missing_locations(ast.copy_location(call, statement.test))

    def keep(self, name: str, value: ast.expr) -> str:
        target = f"{name}_{len(self.made)}_"
        made = ast.Assign([ast.Name(target, ast.Store())], value)
        self.made.append(ast.fix_missing_locations(ast.copy_location(made, value)))
        return target

    def use(self, value: ast.expr, names: dict[str, str]) -> ast.expr:
        return _Renamed(names).visit(copy.deepcopy(value))


def _has_return(body: list[ast.stmt]) -> bool:
    return any(isinstance(node, ast.Return) for statement in body for node in ast.walk(statement))


class _Renamed(ast.NodeTransformer):
    def __init__(self, names: dict[str, str]):
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        if node.id.startswith("_"):  # none of the function's own variables
            return node
        if node.id not in self.names:
            raise NotStraight(f"line {node.lineno}: {node.id} may have no value")
        return ast.copy_location(ast.Name(self.names[node.id], node.ctx), node)
