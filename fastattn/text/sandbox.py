"""Jinja templates from strangers, rendered within bounds of time and memory.

jinja2's sandbox keeps a template away from Python's internals, but does not bound its time and memory. Here every step
of a template has a price, in characters, which is paid before the step: a pass of a loop, a call, a string, an item
of a list, the whole of a value that is printed or compared. The input's length bounds the sum, so that a template is
refused at the same place on every machine: hostile templates took at most 2 seconds and 50 MB. The price of padding is
its width; widths in formats, and powers, are limited.
"""

import functools
import json
import re
from collections.abc import Callable, ItemsView, KeysView, Mapping, ValuesView
from contextvars import ContextVar
from datetime import datetime
from itertools import chain
from typing import Any

from jinja2 import Template, TemplateError, nodes, pass_context, pass_eval_context
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.filters import FILTERS
from jinja2.runtime import Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

LONGEST_SOURCE = 1 << 16  # characters; published templates have 30,000 at most
BUDGET, BUDGET_A_CHARACTER = 1 << 23, 64  # of a rendering: a constant, and an addition for each input character
STEP_PRICE, ITEM_PRICE = 128, 64  # the price of a call or a pass of a loop, and of an item of a list, in characters
MOST_BITS = 1 << 14  # of a whole number that a template computes
# jinja2's filters without urlize, whose patterns are slow.
FILTER_NAMES = frozenset(
    "abs attr batch capitalize center count d default dictsort e escape filesizeformat first float forceescape format "
    "groupby indent int items last length list lower map max min pprint random reject rejectattr reverse round safe "
    "select selectattr slice sort string striptags sum title trim truncate unique upper urlencode wordcount wordwrap "
    "xmlattr".split()
)
# Filters and tests that read only the first level of a value.
SHALLOW_FILTERS = frozenset(
    "count d default first items last length list map reject rejectattr reverse select selectattr".split()
)
SHALLOW_TESTS = frozenset(
    "boolean callable defined even false float integer iterable mapping none number odd sameas sequence string true "
    "undefined".split()
)
DATA_METHODS = frozenset(  # the methods of strings, numbers and containers that templates may call
    "as_integer_ratio bit_count bit_length capitalize casefold center copy count endswith expandtabs find format "
    "format_map get index is_integer isalnum isalpha isascii isdecimal isdigit isidentifier islower isnumeric "
    "isprintable isspace istitle isupper items join keys ljust lower lstrip partition removeprefix removesuffix "
    "replace rfind rindex rjust rpartition rsplit rstrip split splitlines startswith strip swapcase title upper "
    "values zfill".split()
)
_CONTAINERS = (list, tuple, set, dict, KeysView, ValuesView, ItemsView)
_WIDE_PERCENT = re.compile(r"[%).][#0 +-]*\d{3}|%[#0 +.\d-]*\*")  # a large or computed width for the operator %
_WIDE_FIELD = re.compile(r"\{[^{}]*(\d{3}|\{)")  # a large or computed width for str.format


class RefusedError(TemplateError):
    """The error that a template raises by ``raise_exception``."""


class _Meter:
    """The remaining budget of a rendering."""

    def __init__(self, characters: int):
        self._budget = BUDGET + BUDGET_A_CHARACTER * characters

    def pay(self, price: int) -> None:
        self._budget -= price
        if self._budget < 0:
            raise SecurityError("the template makes or does too much")

    def pay_whole(self, value: Any, times: int = 1) -> None:
        """Pay ``times`` times the price of a value with all its contents."""
        values = [value]
        while values:
            value = values.pop()
            self.pay(times * _size(value))
            if isinstance(value, Mapping):
                values.extend(chain.from_iterable(value.items()))
            elif isinstance(value, _CONTAINERS):
                values.extend(value)


_METER: ContextVar[_Meter] = ContextVar("meter")  # of the current rendering; not set while jinja2 compiles


def _size(value: Any) -> int:
    """The price of a value without the contents of its items."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, _CONTAINERS):
        return ITEM_PRICE * len(value)
    return 1 + value.bit_length() // 8 if isinstance(value, int) else 1


def weight(value: Any) -> int:
    """The size of plain data, in characters, with ITEM_PRICE for each item."""
    items = chain.from_iterable(value.items()) if isinstance(value, dict) else value
    return _size(value) + (sum(map(weight, items)) if isinstance(value, _CONTAINERS) else 0)


def _priced(
    function: Callable[..., Any], shallow: bool = False, pay_extra: Callable[..., None] | None = None
) -> Callable[..., Any]:
    """A filter or test with a price. It raises LookupError while jinja2 compiles, which thus computes no constant.

    shallow    whether the function reads only the first level of its arguments
    pay_extra  called with the arguments; pays for more than reading the arguments and making the result, or refuses
    """

    @functools.wraps(function)
    def pay_and_call(*arguments: Any, **options: Any) -> Any:
        meter = _METER.get()
        meter.pay(STEP_PRICE)
        if pay_extra is not None:
            pay_extra(*arguments, **options)
        if not shallow:
            meter.pay_whole((arguments, options))
        result = function(*arguments, **options)
        meter.pay(_size(result))
        return result

    return pay_and_call


def _pay_indent(s: Any, width: Any = 4, first: bool = False, blank: bool = False) -> None:
    _METER.get().pay((width if isinstance(width, int) else len(width)) * (1 + str(s).count("\n")))


def _check_round(value: Any, precision: int = 0, method: str = "common") -> None:
    if abs(precision) > 100:
        raise SecurityError("round takes a precision of at most 100")


def _pay_sum(environment: Any, iterable: Any, attribute: Any = None, start: Any = 0) -> None:
    """A sum of numbers costs nothing extra; a sum of lists copies the list for each item."""
    if not isinstance(start, int | float):
        _METER.get().pay_whole([*iterable, start], 1 + len(iterable))


def _pay_percent(text: Any, *values: Any, **named: Any) -> None:
    """Pay for the operator %, as if each directive of the format printed all values."""
    if _WIDE_PERCENT.search(str(text)):
        raise SecurityError("a width in a format should be written out and below 100")
    directives = 1 + str(text).count("%")
    _METER.get().pay(STEP_PRICE * directives)
    _METER.get().pay_whole([values, named], directives)


EXTRA_PAYMENTS: dict[str, Callable[..., None]] = {  # name of a filter -> ``pay_extra`` of _priced
    "batch": lambda value, linecount, fill_with=None: _METER.get().pay(ITEM_PRICE * linecount),
    "center": lambda value, width=80: _METER.get().pay(width),
    "format": _pay_percent,
    "indent": _pay_indent,
    "pprint": lambda value: _METER.get().pay_whole(value, 10),
    "round": _check_round,
    "slice": lambda context, value, slices, fill_with=None: _METER.get().pay(ITEM_PRICE * slices),
    "striptags": lambda value: _METER.get().pay(len(str(value)) * str(value).count("<")),
    "sum": _pay_sum,
    "wordwrap": lambda environment, s, *arguments, **options: _METER.get().pay_whole([arguments, options], 1 + len(s)),
}
WIDTH_METHODS = frozenset("center ljust rjust zfill".split())  # methods of str whose first argument is a width


def _replace_price(text: str, old: str, new: str) -> int:
    return text.count(old) * len(new)


@pass_eval_context
def _join(context: Any, value: Any, d: str = "", attribute: Any = None) -> str:
    items = list(value)
    meter = _METER.get()
    meter.pay(STEP_PRICE + len(items) * len(d))
    meter.pay_whole(items)
    return str(FILTERS["join"](context, items, d, attribute))


@pass_eval_context
def _replace(context: Any, s: Any, old: str, new: str, count: int | None = None) -> str:
    meter = _METER.get()
    meter.pay_whole(s)
    meter.pay(STEP_PRICE + _replace_price(str(s), old, new))
    return str(FILTERS["replace"](context, s, old, new, count))


def _tojson(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    """JSON without escapes for HTML, as in transformers."""
    if len(str(indent)) > 2 and indent is not None or any(len(part) > 8 for part in separators or ()):
        raise SecurityError("tojson takes an indent below 100 and separators of at most 8 characters")
    encoder = json.JSONEncoder(ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    meter, parts = _METER.get(), []
    for part in encoder.iterencode(value):
        meter.pay(len(part))
        parts.append(part)
    return "".join(parts)


def _strftime_now(form: str) -> str:
    if len(form) > 100:
        raise SecurityError("strftime_now takes a format of at most 100 characters")
    return datetime.now().strftime(form)


def _raise_exception(message: Any) -> None:
    raise RefusedError(str(message))


def _dict(*arguments: Any, **items: Any) -> dict[Any, Any]:
    """``dict()`` as a function, which does not expose the class."""
    _METER.get().pay_whole((arguments, items))
    return dict(*arguments, **items)


class _Variables(Namespace):
    """``namespace()``, whose repr hides its items, and which refuses names with a leading underscore."""

    def __init__(*arguments: Any, **items: Any) -> None:  # so that an item may be named "self"
        self, *mappings = arguments
        Namespace.__init__(self, {})
        for name, value in _dict(*mappings, **items).items():
            self[name] = value

    def __setitem__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            raise SecurityError(f"a namespace takes no name such as {name!r}")
        super().__setitem__(name, value)

    def __repr__(self) -> str:
        return "<Namespace>"


class _Generation(Extension):
    """The tag ``generation`` around a model's answers, which matters only in training."""

    tags = {"generation"}

    def parse(self, parser: Any) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_write_body"), [], [], body).set_lineno(line)

    def _write_body(self, caller: Any) -> Any:
        return caller()


class _PriceInserter(NodeTransformer):
    """Inserts prices into a template's tree where jinja2 offers no hook."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        self.generic_visit(node)
        text_length = sum(len(data.data) for part in node.body for data in part.find_all(nodes.TemplateData))
        node.body.insert(0, nodes.ExprStmt(_filter_node(nodes.Const(STEP_PRICE + text_length), "price")))
        if node.test is not None:
            node.test = nodes.And(_filter_node(nodes.Const(STEP_PRICE), "price"), node.test)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _filter_node(nodes.List(node.nodes), "text")

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        self.generic_visit(node)
        operands: list[Any] = [node, *node.ops]
        for operand in operands:
            operand.expr = _filter_node(operand.expr, "whole")
        return node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        self.generic_visit(node)
        if isinstance(node.arg, nodes.Slice):
            return _filter_node(node, "first level") if node.ctx == "load" else node
        if not isinstance(node.arg, nodes.Const):
            node.arg = _filter_node(node.arg, "whole")
        return node

    def _visit_literal(self, node: Any) -> nodes.Node:
        self.generic_visit(node)
        return node if getattr(node, "ctx", "load") == "store" else _filter_node(node, "first level")

    visit_List = visit_Tuple = visit_Dict = _visit_literal

    def visit_Pair(self, node: nodes.Pair) -> nodes.Node:
        self.generic_visit(node)
        if not isinstance(node.key, nodes.Const):
            node.key = _filter_node(node.key, "whole")
        return node


def _filter_node(node: nodes.Node, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None)


def _paying_filter(pay: Callable[[_Meter, Any], None]) -> Callable[..., Any]:
    """A filter that pays for a value and returns the value; with a context, jinja2 does not call it while compiling."""

    @pass_context
    def pay_and_return(context: Any, value: Any) -> Any:
        pay(_METER.get(), value)
        return value

    return pay_and_return


_charge = _paying_filter(_Meter.pay_whole)


@pass_context
def _concatenate(context: Any, values: list[Any]) -> str:
    _METER.get().pay_whole(values)
    return "".join(map(str, values))


class _Environment(ImmutableSandboxedEnvironment):
    """The environment that transformers uses, with prices."""

    intercepted_binops = frozenset("+ - * / // ** %".split())

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols], finalize=_charge, cache_size=0
        )
        env: Any = self  # Any, since the library's types of these tables are narrower
        filters, tests, builtins, pay = env.filters, env.tests, env.globals, EXTRA_PAYMENTS
        env.filters = {name: _priced(filters[name], name in SHALLOW_FILTERS, pay.get(name)) for name in FILTER_NAMES}
        env.filters |= {"tojson": _priced(_tojson), "join": _join, "replace": _replace}
        env.filters |= {"price": _paying_filter(_Meter.pay), "whole": _charge, "text": _concatenate}
        env.filters["first level"] = _paying_filter(lambda meter, value: meter.pay(STEP_PRICE + _size(value)))
        env.tests = {name: _priced(test, name in SHALLOW_TESTS) for name, test in tests.items()}
        env.globals = {name: builtins[name] for name in ("range", "cycler", "joiner")}
        env.globals |= {"dict": _dict, "namespace": _Variables}
        env.globals |= {"raise_exception": _raise_exception, "strftime_now": _strftime_now}

    def wrap_str_format(self, value: Any) -> Any:
        """str.format and format_map with the sandbox's restrictions, and a price for each field of the format."""
        method, text = super().wrap_str_format(value), getattr(value, "__self__", None)
        if method is None or not isinstance(text, str):
            return method

        def pay_and_format(*arguments: Any, **items: Any) -> str:
            if _WIDE_FIELD.search(text):
                raise SecurityError("a width in a format should be written out and below 100")
            fields = 1 + text.count("{")
            _METER.get().pay(STEP_PRICE * fields)
            _METER.get().pay_whole([arguments, items], fields)
            return str(method(*arguments, **items))

        return pay_and_format

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        is_data = isinstance(obj, (str, int, float, *_CONTAINERS))
        return (not is_data or attr in DATA_METHODS) and super().is_safe_attribute(obj, attr, value)

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        meter = _METER.get()
        meter.pay(STEP_PRICE)
        data: Any = getattr(__obj, "__self__", None)
        name = getattr(__obj, "__name__", "")
        is_data = isinstance(data, (str, *_CONTAINERS))  # a name, so that types of ``data`` are not narrowed
        if is_data:
            if name == "join":
                args = (list(*args),)
                meter.pay(len(args[0]) * len(data))
            elif name == "replace":
                meter.pay(_replace_price(data, *args[:2]))
            elif name in WIDTH_METHODS and isinstance(data, str):
                meter.pay(args[0])
            elif name == "expandtabs":
                meter.pay(data.count("\t") * next(iter((*args, *kwargs.values())), 8))
            if name in ("count", "index"):
                meter.pay_whole(data)
            meter.pay(_size(data))
        if not isinstance(__obj, Macro):  # a macro uses its arguments only in steps with a price
            meter.pay_whole((args, kwargs))
        result = super().call(__context, __obj, *args, **kwargs)
        meter.pay(_size(result))
        return result

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        meter = _METER.get()
        meter.pay(STEP_PRICE)
        if isinstance(left, str) and operator == "%":
            _pay_percent(left, right)
        elif isinstance(left, int) and isinstance(right, int):
            times = min(abs(right), MOST_BITS) if operator == "**" else 1
            if left.bit_length() * times + right.bit_length() > MOST_BITS:
                raise SecurityError("a number is too great")
        elif operator == "*":
            times, value = (left, right) if isinstance(left, int) else (right, left)
            meter.pay(_size(value) * (max(times, 0) if isinstance(times, int) else 1))
        else:
            meter.pay(_size(left) + _size(right))
        return super().call_binop(context, operator, left, right)


class PricedTemplate:
    """A compiled template; an invalid source raises errors of jinja2 and of Python."""

    def __init__(self, source: str):
        if len(source) > LONGEST_SOURCE:
            raise SecurityError(f"the template has {len(source):,} characters, more than {LONGEST_SOURCE:,}")
        environment = _Environment()
        tree = _PriceInserter().visit(environment.parse(source))
        tree.set_environment(environment)
        self._template: Template = environment.from_string(tree)

    def render(self, variables: dict[str, Any]) -> str:
        meter, parts = _Meter(weight(variables)), list[str]()
        token = _METER.set(meter)
        try:
            for part in self._template.generate(variables):
                meter.pay(len(part))
                parts.append(part)
        finally:
            _METER.reset(token)
        return "".join(parts)
