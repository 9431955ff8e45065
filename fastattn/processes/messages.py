"""Messages between a program and its worker processes: plain data as JSON, and the bytes of its arrays.

A message consists of lists, texts, numbers, None, dictionaries by name, arrays, and results and errors of fastattn, but
never of code. A message is sent as a header (a magic word, the version of this format, two lengths), a table of the
arrays, the arrays' bytes, and JSON; a dictionary whose only key is array, error or result stands for such a value.
"""

import json
import struct
from dataclasses import fields, is_dataclass
from math import prod
from typing import Any, BinaryIO

import numpy as np

from fastattn import errors
from fastattn.errors import FastattnError

_RESULTS: dict[str, Any] = {}  # name -> class of a result, added by modules whose processes return such results
_ERRORS: dict[str, type[FastattnError]] = {
    name: error for name, error in vars(errors).items() if isinstance(error, type) and issubclass(error, FastattnError)
}
_MAGIC, VERSION = b"fastattn", 1
_HEADER = struct.Struct("<8sIQQ")  # _MAGIC, VERSION, bytes of the table and of the JSON


def allow_results(*classes: type) -> None:
    """Allow results of these dataclasses in messages of this process."""
    _RESULTS.update({result.__name__: result for result in classes})


class PipeClosed(Exception):
    """The process at the other end of a pipe has ended."""


def message_parts(message: list[Any]) -> list[Any]:
    """The bytes of a message, in a few buffers to write in order. TypeError for anything but plain data."""
    arrays: list[np.ndarray] = []

    def encode_value(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            arrays.append(np.ascontiguousarray(value))
            return {"array": len(arrays) - 1}
        if isinstance(value, np.generic):
            return value.item()
        if isinstance(value, FastattnError):
            name = next(base.__name__ for base in type(value).__mro__ if base.__name__ in _ERRORS)
            return {"error": [name, *map(str, value.args[:1])]}
        if is_dataclass(value) and type(value).__name__ in _RESULTS:
            return {"result": [type(value).__name__, *(getattr(value, field.name) for field in fields(value))]}
        raise TypeError(f"a {type(value).__name__} cannot be sent to another process")

    text = json.dumps(message, default=encode_value).encode()
    table = json.dumps([[array.dtype.str, array.shape] for array in arrays]).encode()
    header = _HEADER.pack(_MAGIC, VERSION, len(table), len(text))
    data: list[Any] = [array.reshape(-1).view(np.uint8).data for array in arrays]
    # Short buffers are joined, since each write may wake the reader.
    return [header + table, *data, text] if arrays else [header + table + text]


def write_parts(stream: BinaryIO, parts: list[Any]) -> None:
    """Write the buffers of ``message_parts`` to an unbuffered stream; PipeClosed if nobody reads the stream."""
    for part in parts:
        unsent = memoryview(part)
        while unsent:
            try:
                unsent = unsent[stream.write(unsent) :]
            except (OSError, ValueError) as error:  # a pipe without a reader, a closed stream
                raise PipeClosed from error


def read_message(stream: Any) -> list[Any]:
    """The next message of a stream with ``readinto``; PipeClosed at the end, FastattnError for other bytes."""
    magic = bytes(_read_all(stream, bytearray(len(_MAGIC))))
    if magic != _MAGIC:
        raise FastattnError(f"something else than a message came: {magic!r}...")
    header = magic + _read_all(stream, bytearray(_HEADER.size - len(_MAGIC)))
    _, version, table_bytes, text_bytes = _HEADER.unpack(header)
    if version != VERSION:
        raise FastattnError(f"a message of another fastattn came: version {version}, not {VERSION}")
    table = json.loads(_read_all(stream, bytearray(table_bytes)))
    arrays = []
    for dtype, shape in table:
        array_N = np.empty(prod(shape), dtype)
        _read_all(stream, array_N.view(np.uint8).data)
        arrays.append(array_N.reshape(shape))
    text = _read_all(stream, bytearray(text_bytes))

    def decode_value(value: dict[str, Any]) -> Any:
        if len(value) > 1:
            return value
        for type_name, content in value.items():
            if type_name == "array":
                return arrays[content]
            if type_name == "error":
                return _ERRORS[content[0]](*content[1:])
            if type_name == "result":
                return _RESULTS[content[0]](*content[1:])
        return value

    message: list[Any] = json.loads(text, object_hook=decode_value)
    return message


def _read_all(stream: Any, buffer: Any) -> Any:
    unfilled = memoryview(buffer)
    while unfilled:
        try:
            count = stream.readinto(unfilled)
        except (OSError, ValueError) as error:
            raise PipeClosed from error
        if not count:
            raise PipeClosed
        unfilled = unfilled[count:]
    return buffer
