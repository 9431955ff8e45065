"""The errors that fastattn raises on purpose, checks of arguments, and warnings; each message is one line for users."""

import functools
import operator
import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fastattn.printable import printable


class FastattnError(Exception):
    """The base class; the command line prints its message and exits with ``exit_code``."""

    exit_code = 1

    def __str__(self) -> str:
        """The message, safe to print: names in it come from files and servers."""
        return printable(super().__str__())


class OutOfMemoryError(FastattnError, MemoryError):
    """The system has too little memory; nothing is wrong with the file that was loaded."""


class CheckpointError(FastattnError):
    """A checkpoint that is missing, malformed, incomplete or not supported."""

    exit_code = 3


class WrongModelError(CheckpointError):
    """A checkpoint of another kind of model than the class or command takes."""


class TokenizerError(FastattnError):
    """A tokenizer file that cannot be read, or whose tokenization cannot be reproduced exactly."""

    exit_code = 3


class InputError(FastattnError, ValueError):
    """An argument, option or text that the engine cannot take."""

    exit_code = 2


class LineError(FastattnError):
    """Some lines or files could not be translated or encoded; all others were."""

    exit_code = 5


class SearchTimeout(FastattnError):
    """A translation whose search took longer than ``DecodingOptions.timeout``."""

    exit_code = 5


class StorageError(FastattnError):
    """A job could not read or write its output folder or store; files that it had finished are whole."""


class QueueFullError(FastattnError):
    """A request was refused because the queue holds as many requests as may wait."""

    exit_code = 5


class DownloadError(FastattnError):
    """A checkpoint that could not be fetched or did not have the expected checksum."""

    exit_code = 4


def check_count(name: str, value: Any) -> int:
    """``value`` as an int; InputError unless it is a whole number of at least 1."""
    try:
        count = operator.index(value)
    except TypeError:
        raise InputError(f"{name} must be a whole number, got {described(value)}") from None
    if isinstance(value, bool):
        raise InputError(f"{name} must be a whole number, got {described(value)}")
    if count < 1:
        raise InputError(f"{name} must be at least 1, got {described(count)}")
    return count


def check_known(label: str, value: Any, choices: Sequence[str]) -> None:
    """Raise InputError unless ``value`` is a str in ``choices``; NumPy's dtypes equal their names, but are no str."""
    if not isinstance(value, str) or value not in choices:
        raise InputError(f"unknown {label} {described(value)}; known: {', '.join(choices)}")


def check_hashable(name: str, value: Any) -> None:
    """Raise InputError for a value that is not hashable, such as a list."""
    try:
        hash(value)
    except TypeError:
        raise InputError(f"{name} should be hashable, got a {type(value).__name__}") from None


def check_bool(name: str, value: Any) -> bool:
    """``value`` as a bool; InputError unless it is Python's or NumPy's True or False."""
    if isinstance(value, bool):
        return value
    import numpy as np  # not at the top, so that importing this module stays cheap

    if not isinstance(value, np.bool_):
        raise InputError(f"{name} must be True or False, got {described(value)}")
    return bool(value)


def check_several(name: str, values: Any, expected: str = "a str or several") -> Iterable[Any]:
    """``values``; InputError unless it is an iterable of ordered items.

    A str, bytes (whose items are numbers), a dict or a table (whose items are names) and a set are refused.
    """
    axes = getattr(values, "ndim", 1)
    hint = next((hint for classes, hint in _REFUSED_ITERABLES if isinstance(values, classes)), "")
    hint = hint or ("; give one column of it" if axes > 1 else "")
    if hint or not axes or isinstance(values, str) or not isinstance(values, Iterable):
        raise InputError(f"{name} must be {expected}, got {type(values).__name__}{hint}")
    return values


_REFUSED_ITERABLES: tuple[tuple[Any, str], ...] = (
    (Mapping, "; give its values()"),
    ((set, frozenset), ", which has no order; give a list"),
    ((bytes, bytearray, memoryview), "; decode() makes a str"),
)


def check_texts(name: str, texts: Any) -> list[str]:
    """The texts of an iterable; InputError for anything else, and for an item that is no str."""
    return [check_text(name, text, number) for number, text in enumerate(check_several(name, texts))]


def check_text(name: str, text: Any, number: int | None = None) -> str:
    """``text``; InputError unless it is a str. ``number``: the text's in a list of texts, for the message."""
    if not isinstance(text, str):
        got = type(text).__name__
        expectation = f"a str, got {got}" if number is None else f"str, number {number} is {got}"
        raise InputError(f"{name} must be {expectation}{'; decode() makes a str' if isinstance(text, bytes) else ''}")
    return text


def conversion(name: str, value: Any, dtype: str = "np.float32") -> str:
    """Python code for a message: how to convert ``value``, a variable ``name``, to a NumPy array of ``dtype``."""
    if hasattr(value, "detach"):  # a PyTorch tensor; NumPy has no bfloat16
        widening = ".float()" if str(value.dtype) == "torch.bfloat16" else ""
        return f"{name}{widening}.numpy(force=True)"
    for method in ("copy_to_host", "get"):  # Numba's and CuPy's arrays on a card
        if hasattr(value, "__cuda_array_interface__") and hasattr(value, method):
            return f"{name}.{method}()"
    return f"{name}.astype({dtype})" if hasattr(value, "__array_interface__") else f"np.asarray({name}, {dtype})"


def described(value: Any) -> str:
    """``repr(value)``, cut at 100 characters, for messages."""
    try:
        text = repr(value)
    except ValueError:  # Python does not write out an int of thousands of digits
        if isinstance(value, int):
            return f"a number of about {value.bit_length() * 3 // 10} digits"
        return f"a {type(value).__name__} with a number of thousands of digits"
    return text if len(text) <= 100 else f"{text[:100]}..."


def warn(message: str) -> None:
    """Issue a UserWarning that points at the first caller outside the package."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("fastattn."):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, stacklevel=level)


warn_once = functools.cache(warn)  # a message that was issued before is not issued again


def without_errors(results: list[Any]) -> list[Any]:
    """``results``, unless some are errors: raises their first InputError, else their first FastattnError."""
    errors = [result for result in results if isinstance(result, FastattnError)]
    for error in sorted(errors, key=lambda error: not isinstance(error, InputError)):
        raise error
    return results
