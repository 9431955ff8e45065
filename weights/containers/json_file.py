"""Untrusted JSON: parsed whole, then read field by field or into dataclasses, with errors that name file and field."""

import dataclasses
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType, NoneType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

from fastattn.errors import CheckpointError
from fastattn.weights.folder import Folder

GREATEST_FLOAT = sys.float_info.max  # an integer in JSON may be greater
# More digits than any real size has: a product of integers of thousands of digits could not be printed in an error.
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
        # Tokenizers write "no limit" as 10**30, some of them as a float.
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
            raise self.error(name, f"an integer of at least {minimum}", value)
        return value

    def number(self, name: str, default: float | None = None) -> float:
        value = self._value(name, default, "a number")
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= GREATEST_FLOAT:
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

    def _value(self, name: str, default: Any, expected: str, is_valid: Callable[[Any], bool] = lambda _: True) -> Any:
        value = default if self.values.get(name) is None else self.values[name]
        if value is None:
            raise CheckpointError(f"{self.where}: {name} is missing; expected {expected}")
        if not is_valid(value):
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


def decode(data: bytes | memoryview, where: str, encoding: str = "utf-8") -> str:
    """The text that the bytes encode, in UTF-8; CheckpointError where they are no text."""
    try:
        return str(data, encoding)
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{where}: not UTF-8 at byte {error.start}") from None


def parse_json(data: bytes, where: str) -> Any:
    text = decode(data, where, "utf-8-sig")
    try:
        return json.loads(text, object_pairs_hook=_unique_names, parse_int=_integer)
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
    """The first name that occurs a second time; StopIteration where none does."""
    earlier_names: set[str] = set()
    return next(name for name in names if name in earlier_names or earlier_names.add(name))  # type: ignore[func-returns-value]


def _integer(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"a number of {len(digits)} digits, more than {MOST_DIGITS}")
    return int(digits)


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError(f"the name {shorten(first_repeated(name for name, _ in pairs))} is given twice")
    return values


GREATEST_INTEGER = 2**31 - 1
GREATEST_NUMBER = float(np.finfo(np.float32).max)  # beyond it, casts to float32 would overflow
# Type of a field -> (its name in errors, (a JSON value) -> whether the field may have it).
FIELD_TYPES: dict[Any, tuple[str, Callable[[Any], bool]]] = {
    bool: ("true or false", lambda value: type(value) is bool),
    int: ("an integer of 32 bits", lambda value: type(value) is int and abs(value) <= GREATEST_INTEGER),
    float: ("a number of float32", lambda value: type(value) in (int, float) and abs(value) <= GREATEST_NUMBER),
    str: ("a string", is_text),
    dict: ("an object", lambda value: isinstance(value, dict)),
}


def _list_of(item_type: Any) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(FIELD_TYPES[item_type][1], value))


FIELD_TYPES |= {
    tuple[tuple[int, ...], ...]: ("a list of lists of integers of 32 bits", _list_of(tuple[int, ...])),
    tuple[int, ...]: ("a list of integers of 32 bits", _list_of(int)),
    tuple[float, ...]: ("a list of numbers of float32", _list_of(float)),
    tuple[str, ...]: ("a list of strings", _list_of(str)),
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
    """The fields of a dataclass, and of dataclasses in it, for ``json.dumps``; without fields ``stored_separately``."""
    names = [field.name for field in dataclasses.fields(value) if field.name not in (stored_separately or {})]
    values = {name: getattr(value, name) for name in names}
    return {name: to_plain(inner) if dataclasses.is_dataclass(inner) else inner for name, inner in values.items()}


def from_plain(
    record_type: type[T],
    values: object,
    name: str,
    problems: list[str],
    stored_separately: Mapping[str, object] | None = None,
    variants: Mapping[Any, Callable[[Any], Any]] = MappingProxyType({}),
) -> T | None:
    """A ``record_type``, a dataclass, from a JSON object; None on failure, with every reason appended to ``problems``.

    A field that has a default may be missing: the file may be older than the field.

    name               the object's name in errors ("" for the whole file)
    stored_separately  fields that the object does not have, and their values until they are read
    variants           dataclass of a field -> (the field's JSON value) -> the dataclass to make of the value
    """
    if not isinstance(values, dict):
        problems.append(f"{name} should be an object, is {shorten(values)}")
        return None
    problems_before = len(problems)
    prefix = f"{name}." if name else ""
    separate_fields = stored_separately or {}
    hints = {field: hint for field, hint in get_type_hints(record_type).items() if field not in separate_fields}
    problems += [
        f"{prefix}{field.name} is missing"
        for field in dataclasses.fields(record_type)  # type: ignore[arg-type]
        if field.name in hints and field.name not in values
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]
    problems += [f"{shorten(prefix + field)} is unknown" for field in values if field not in hints]
    fields = {
        field: _convert(hint, values[field], prefix + field, problems, variants)
        for field, hint in hints.items()
        if field in values
    }
    if len(problems) > problems_before:
        return None
    try:
        return record_type(**fields, **separate_fields)
    except CheckpointError as error:
        problems.append(f"{name}: {error}")
        return None


def _convert(
    hint: Any, value: object, name: str, problems: list[str], variants: Mapping[Any, Callable[[Any], Any]]
) -> Any:
    if NoneType in get_args(hint):
        if value is None:
            return None
        (hint,) = (alternative for alternative in get_args(hint) if alternative is not NoneType)
    if dataclasses.is_dataclass(hint):
        record_type: Any = variants[hint](value) if hint in variants else hint
        return from_plain(record_type, value, name, problems, None, variants)
    label, is_valid = FIELD_TYPES[hint]
    if not is_valid(value):
        problems.append(f"{name} should be {label}, is {shorten(value)}")
        return None
    if hint == tuple[tuple[int, ...], ...]:
        return tuple(tuple(inner) for inner in value)  # type: ignore[attr-defined]
    return (get_origin(hint) or hint)(value)
