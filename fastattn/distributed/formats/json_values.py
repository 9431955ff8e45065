"""Values of Arrow's columns as JSON's types."""

import base64
import datetime
import decimal
import math
import uuid
from typing import TYPE_CHECKING, Any

from fastattn.distributed.extra import import_pyarrow
from fastattn.errors import InputError

if TYPE_CHECKING:
    import pyarrow


def json_values(column: "pyarrow.ChunkedArray", name: str, url: str) -> list[Any]:
    """The values of a column: dates and times as ISO 8601, decimal numbers as strings, bytes as base64.

    What JSON has no number for (infinity, and what is none) is null. Raises InputError where a type has no such form.
    """
    pa = import_pyarrow()
    kind, types = column.type, pa.types
    try:
        if is_text(kind):
            return strings(column)
        if types.is_timestamp(kind) or types.is_time(kind):  # Python's own know no nanoseconds
            return [value and value.replace(" ", "T") for value in column.cast(pa.string()).to_pylist()]
        return [_json_value(value) for value in column.to_pylist()]
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(
            f"{url}: the column {name!r} of type {kind} has no form in JSON ({reason}); use --format parquet"
        ) from None


def is_text(kind: "pyarrow.DataType") -> bool:
    """Whether a type is that of strings, of strings by their number, or of a column that has nulls alone."""
    types = import_pyarrow().types
    value = kind.value_type if types.is_dictionary(kind) else kind
    kinds = (types.is_string, types.is_large_string, types.is_string_view, types.is_null)
    return any(is_kind(value) for is_kind in kinds)


def strings(column: "pyarrow.ChunkedArray") -> list[str | None]:
    """The values of a column of text, None for null and for what is not UTF-8."""
    try:
        return column.to_pylist()  # type: ignore[no-any-return]
    except UnicodeDecodeError:
        pa = import_pyarrow()
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type, safe=False)
        return [_string(value) for value in column.cast(pa.large_binary()).to_pylist()]


def _string(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _json_value(value: Any) -> Any:
    """A value as JSON's types; TypeError for one that has no such form."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, dict):
        return {name: _json_value(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):  # a tuple is a key of a map with its value
        return [_json_value(inner) for inner in value]
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, decimal.Decimal | uuid.UUID):
        return str(value)
    raise TypeError(f"{type(value).__name__}s have none")
