"""Dataclasses to JSON objects and back: every field is checked by its type, all faults are reported at once."""

import dataclasses
from collections.abc import Mapping
from types import NoneType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

from fastattn.errors import CheckpointError
from fastattn.weights.containers.json_file import is_text, shorten

GREATEST_INTEGER = 2**31 - 1
GREATEST_NUMBER = float(np.finfo(np.float32).max)  # beyond it, casts to float32 would overflow
# Type -> (its name in errors, whether a JSON value is one).
PLAIN: dict[Any, tuple[str, Any]] = {
    bool: ("true or false", lambda value: type(value) is bool),
    int: ("an integer of 32 bits", lambda value: type(value) is int and abs(value) <= GREATEST_INTEGER),
    float: ("a number of float32", lambda value: type(value) in (int, float) and abs(value) <= GREATEST_NUMBER),
    str: ("a string", is_text),
    dict: ("an object", lambda value: isinstance(value, dict)),
    tuple[tuple[int, ...], ...]: (
        "a list of lists of integers of 32 bits",
        lambda value: isinstance(value, list) and all(map(_is_integers, value)),
    ),
    tuple[int, ...]: ("a list of integers of 32 bits", lambda value: _is_integers(value)),
    tuple[str, ...]: ("a list of strings", lambda value: isinstance(value, list) and all(map(is_text, value))),
    dict[str, str]: (
        "an object of strings",
        lambda value: isinstance(value, dict) and all(map(is_text, [*value, *value.values()])),
    ),
}

T = TypeVar("T")


def _is_integers(value: object) -> bool:
    return isinstance(value, list) and all(type(item) is int and abs(item) <= GREATEST_INTEGER for item in value)


def to_plain(value: Any, stored_separately: Mapping[str, object] | None = None) -> dict[str, Any]:
    """The fields of a dataclass, nested ones too, for ``json.dumps``; without those ``stored_separately``."""
    names = [field.name for field in dataclasses.fields(value) if field.name not in (stored_separately or {})]
    held = {name: getattr(value, name) for name in names}
    return {name: to_plain(inner) if dataclasses.is_dataclass(inner) else inner for name, inner in held.items()}


def from_plain(
    kind: type[T], values: object, name: str, problems: list[str], stored_separately: Mapping[str, object] | None = None
) -> T | None:
    """The dataclass ``kind`` from a JSON object; None on failure, with every reason appended to ``problems``.

    A field that has a default may be missing: the file may be older than the field.

    name   the object's name in errors ("" for the whole file)
    stored_separately  fields that the object does not have, and their values until they are read
    """
    if not isinstance(values, dict):
        problems.append(f"{name} should be an object, is {shorten(values)}")
        return None
    known = len(problems)
    prefix = f"{name}." if name else ""
    hints = {field: hint for field, hint in get_type_hints(kind).items() if field not in (stored_separately or {})}
    problems += [f"{prefix}{field} is missing" for field in hints if field not in values and field in _needed(kind)]
    problems += [f"{shorten(prefix + field)} is unknown" for field in values if field not in hints]
    fields = {
        field: _convert(hint, values[field], prefix + field, problems)
        for field, hint in hints.items()
        if field in values
    }
    if len(problems) > known:
        return None
    try:
        return kind(**fields, **(stored_separately or {}))
    except CheckpointError as error:
        problems.append(f"{name}: {error}")
        return None


def _needed(kind: Any) -> set[str]:
    """The fields without a default."""
    return {
        field.name
        for field in dataclasses.fields(kind)
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    }


def _convert(hint: Any, value: object, name: str, problems: list[str]) -> Any:
    options = [option for option in get_args(hint) if option is not NoneType]
    if NoneType in get_args(hint):
        if value is None:
            return None
        (hint,) = options
    if dataclasses.is_dataclass(hint):
        return from_plain(hint, value, name, problems)  # type: ignore[arg-type]
    what, fits = PLAIN[hint]
    if not fits(value):
        problems.append(f"{name} should be {what}, is {shorten(value)}")
        return None
    if hint == tuple[tuple[int, ...], ...]:
        return tuple(tuple(inner) for inner in value)  # type: ignore[attr-defined]
    return (get_origin(hint) or hint)(value)
