"""Untrusted JSON: parsed whole, then every field read by type, with errors that name file and field."""

import json
import sys
from collections.abc import Iterable
from typing import Any

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
        value = self._value(name, default, "true or false")
        if not isinstance(value, bool):
            raise self.error(name, "true or false", value)
        return value

    def string(self, name: str, default: str | None = None) -> str:
        value = self._value(name, default, "a string")
        if not is_text(value):
            raise self.error(name, "a string", value)
        return value

    def choice(self, name: str, known: Iterable[str], default: str | None = None) -> str:
        """One of the strings that are known; "" may be the default without being named in the error."""
        value, known = self.string(name, default), list(known)
        if value not in known and value != default:
            raise self.error(name, f"one of {', '.join(filter(None, known))}", value)
        return value

    def optional_size(self, name: str) -> int | None:
        """An integer of at least 1; None if it is absent or null."""
        return self.integer(name, minimum=1) if self.has(name) else None

    def nested(self, name: str) -> "JsonObject":
        """The object under a name; an empty one if it is absent or null."""
        value = self._value(name, {}, "an object")
        if not isinstance(value, dict):
            raise self.error(name, "an object", value)
        return JsonObject(value, f"{self.where}: {name}")

    def error(self, name: str, expected: str, value: object) -> CheckpointError:
        return CheckpointError(f"{self.where}: {name} should be {expected}, is {shorten(value)}")

    def _value(self, name: str, default: Any, expected: str) -> Any:
        value = self.values.get(name)
        if value is None:
            value = default
        if value is None:
            raise CheckpointError(f"{self.where}: {name} is missing; expected {expected}")
        return value


def read_json(folder: Folder, name: str) -> Any:
    """The parsed value of a file of UTF-8 JSON."""
    return parse_json(bytes(folder.read(name)), folder.where(name))


def read_object(folder: Folder, name: str) -> JsonObject:
    values = read_json(folder, name)
    if not isinstance(values, dict):
        raise CheckpointError(f"{folder.where(name)}: should hold a JSON object, holds {shorten(values)}")
    return JsonObject(values, folder.where(name))


def read_optional(folder: Folder, name: str) -> JsonObject:
    """``read_object``; an empty one if there is no such file."""
    return read_object(folder, name) if folder.contains(name) else JsonObject({}, folder.where(name))


def parse_json(data: bytes, where: str) -> Any:
    try:
        return json.loads(data.decode("utf-8-sig"), object_pairs_hook=_unique, parse_int=_integer)
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{where}: not UTF-8 at byte {error.start}") from None
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{where}: not JSON: {str(error).splitlines()[0]}") from None


def is_text(value: object) -> bool:
    """Whether this is a string that UTF-8 can encode: JSON escapes can make half a surrogate pair."""
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
    """The first name that was there before; one is."""
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
