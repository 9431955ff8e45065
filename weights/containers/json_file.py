"""Untrusted JSON: parsed whole, then read field by field with errors that name file and field, or into dataclasses."""

import dataclasses
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType, NoneType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

from fastattn.errors import CheckpointError
from fastattn.weights.folder import Folder

GREATEST = sys.float_info.max  # an integer may be greater
# More than any real size has; a product of integers of thousands of digits could not be printed in an error.
MOST_DIGITS = 500


class JsonObject:
    """A JSON object whose fields are read by type; an absent or null field gives the default."""

    def __init__(self, values: dict[str, Any], where: str) -> None:
        self.values = values
        self.where = where

    def has(self, name: str) -> bool:
        return self.values.get(name) is not None

    def integer(self, name: str, default: int | None = None, minimum: int = 0) -> int:
        value = self._value(name, default, "an integer")
        # Tokenizers write "no limit" as 1e30, sometimes as a float.
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
            raise self.error(name, f"an integer of at least {minimum}", value)
        return value

    def number(self, name: str, default: float | None = None) -> float:
        value = self._value(name, default, "a number")
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= GREATEST:
            raise self.error(name, "a finite number", value)
        return float(value)

    def boolean(self, name: str, default: bool | None = None) -> bool:
        return bool(self._value(name, default, "true or false", lambda value: isinstance(value, bool)))

    def string(self, name: str, default: str | None = None) -> str:
        return str(self._value(name, default, "a string", is_text))

    def choice(self, name: str, choices: Iterable[str], default: str | None = None) -> str:
        """A string that is one of ``choices``, or the default; an error does not list ""."""
        value, choices = self.string(name, default), list(choices)
        if value not in choices and value != default:
            raise self.error(name, f"one of {', '.join(filter(None, choices))}", value)
        return value

    def optional_size(self, name: str) -> int | None:
        """An integer of at least 1; None if it is absent or null."""
        return self.integer(name, minimum=1) if self.has(name) else None

    def nested(self, name: str) -> "JsonObject":
        """The object under a name; an empty one if it is absent or null."""
        value = self._value(name, {}, "an object", lambda value: isinstance(value, dict))
        return JsonObject(value, f"{self.where}: {name}")

    def error(self, name: str, expected: str, value: object) -> CheckpointError:
        return CheckpointError(f"{self.where}: {name} should be {expected}, is {shorten(value)}")

    def _value(self, name: str, default: Any, expected: str, fits: Callable[[Any], bool] = lambda value: True) -> Any:
        value = default if self.values.get(name) is None else self.values[name]
        if value is None:
            raise CheckpointError(f"{self.where}: {name} is missing; expected {expected}")
        if not fits(value):
            raise self.error(name, expected, value)
        return value


def read_json(folder: Folder, name: str) -> Any:
    return parse_json(bytes(folder.read(name)), folder.where(name))


def read_object(folder: Folder, name: str) -> JsonObject:
    values = read_json(folder, name)
    if not isinstance(values, dict):
        raise CheckpointError(f"{folder.where(name)}: should hold a JSON object, holds {shorten(values)}")
    return JsonObject(values, folder.where(name))


def read_optional(folder: Folder, name: str) -> JsonObject:
    """``read_object``; an empty object if there is no such file."""
    return read_object(folder, name) if folder.contains(name) else JsonObject({}, folder.where(name))


def decoded(data: bytes | memoryview, where: str, encoding: str = "utf-8") -> str:
    """The bytes as UTF-8 text; CheckpointError where they are not."""
    try:
        return str(data, encoding)
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{where}: not UTF-8 at byte {error.start}") from None


def parse_json(data: bytes, where: str) -> Any:
    text = decoded(data, where, "utf-8-sig")
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_int=_integer)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{where}: not JSON: {str(error).splitlines()[0]}") from None


def is_text(value: object) -> bool:
    """Whether ``value`` is a string that UTF-8 can encode: JSON escapes can make half a surrogate pair."""
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False


def shorten(value: object) -> str:
    """A value for an error message: on one line, long lists cut."""
    try:
        text = ascii(value)
    except RecursionError:
        text = f"a deeply nested {type(value).__name__}"
    return text if len(text) <= 80 else text[:77] + "..."


def first_repeated(names: Iterable[str]) -> str:
    """The first name that occurs a second time; some name does."""
    seen: set[str] = set()
    return next(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]


def _integer(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"a number of {len(digits)} digits, more than {MOST_DIGITS}")
    return int(digits)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError(f"the name {shorten(first_repeated(name for name, _ in pairs))} is given twice")
    return values


GREATEST_INTEGER = 2**31 - 1
GREATEST_NUMBER = float(np.finfo(np.float32).max)  # beyond it, casts to float32 would overflow
# Type -> (its name in errors, whether a JSON value is one).
PLAIN: dict[Any, tuple[str, Callable[[Any], bool]]] = {
    bool: ("true or false", lambda value: type(value) is bool),
    int: ("an integer of 32 bits", lambda value: type(value) is int and abs(value) <= GREATEST_INTEGER),
    float: ("a number of float32", lambda value: type(value) in (int, float) and abs(value) <= GREATEST_NUMBER),
    str: ("a string", is_text),
    dict: ("an object", lambda value: isinstance(value, dict)),
}


def _all(kind: Any) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(PLAIN[kind][1], value))


PLAIN |= {
    tuple[tuple[int, ...], ...]: ("a list of lists of integers of 32 bits", _all(tuple[int, ...])),
    tuple[int, ...]: ("a list of integers of 32 bits", _all(int)),
    tuple[float, ...]: ("a list of numbers of float32", _all(float)),
    tuple[str, ...]: ("a list of strings", _all(str)),
    dict[str, str]: (
        "an object of strings",
        lambda value: isinstance(value, dict) and all(map(is_text, [*value, *value.values()])),
    ),
}
T = TypeVar("T")


def as_json(value: object) -> bytes:
    """``value`` as the JSON text of a new file, indented for readers."""
    return json.dumps(value, ensure_ascii=False, indent=1).encode()


def to_plain(value: Any, stored_separately: Mapping[str, object] | None = None) -> dict[str, Any]:
    """The fields of a dataclass as a dict for ``json.dumps``, nested ones too, without fields ``stored_separately``."""
    names = [field.name for field in dataclasses.fields(value) if field.name not in (stored_separately or {})]
    values = {name: getattr(value, name) for name in names}
    return {name: to_plain(inner) if dataclasses.is_dataclass(inner) else inner for name, inner in values.items()}


def from_plain(
    kind: type[T],
    values: object,
    name: str,
    problems: list[str],
    stored_separately: Mapping[str, object] | None = None,
    kinds: Mapping[Any, Callable[[Any], Any]] = MappingProxyType({}),
) -> T | None:
    """The dataclass ``kind`` from a JSON object; None on failure, with every reason appended to ``problems``.

    A field that has a default may be missing: the file may be older than the field.

    name               the object's name in errors ("" for the whole file)
    stored_separately  fields that the object does not have, and their values until they are read
    kinds              dataclass of a field -> (the field's JSON value) -> the dataclass to read it as
    """
    if not isinstance(values, dict):
        problems.append(f"{name} should be an object, is {shorten(values)}")
        return None
    earlier = len(problems)
    prefix = f"{name}." if name else ""
    hints = {field: hint for field, hint in get_type_hints(kind).items() if field not in (stored_separately or {})}
    problems += [
        f"{prefix}{field.name} is missing"
        for field in dataclasses.fields(kind)  # type: ignore[arg-type]
        if field.name in hints and field.name not in values
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]
    problems += [f"{shorten(prefix + field)} is unknown" for field in values if field not in hints]
    fields = {
        field: _convert(hint, values[field], prefix + field, problems, kinds)
        for field, hint in hints.items()
        if field in values
    }
    if len(problems) > earlier:
        return None
    try:
        return kind(**fields, **(stored_separately or {}))
    except CheckpointError as error:
        problems.append(f"{name}: {error}")
        return None


def _convert(
    hint: Any, value: object, name: str, problems: list[str], kinds: Mapping[Any, Callable[[Any], Any]]
) -> Any:
    options = [option for option in get_args(hint) if option is not NoneType]
    if NoneType in get_args(hint):
        if value is None:
            return None
        (hint,) = options
    if dataclasses.is_dataclass(hint):
        kind: Any = kinds[hint](value) if hint in kinds else hint
        return from_plain(kind, value, name, problems, None, kinds)
    label, fits = PLAIN[hint]
    if not fits(value):
        problems.append(f"{name} should be {label}, is {shorten(value)}")
        return None
    if hint == tuple[tuple[int, ...], ...]:
        return tuple(tuple(inner) for inner in value)  # type: ignore[attr-defined]
    return (get_origin(hint) or hint)(value)
