"""Text from outside, made safe to print: no control characters, no secrets."""

import os
import re
from collections.abc import Iterable, Iterator
from typing import Any

# A control character, a line separator, a mark of writing direction, or half of a surrogate pair, which stands for a
# byte of a path that is not UTF-8. ``re`` compiles these patterns when there is something to print.
_UNSAFE_CHARACTER = r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ud800-\udfff]"
_CREDENTIALS = r"([a-zA-Z][a-zA-Z0-9+.-]*://)[^/?#\s]*@"
_AUTHORIZATION = r"\b(Bearer|Basic) [\w.~+/=-]{16,}"
_TOKEN_VARIABLES = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
_JSON_NULLS = dict.fromkeys(("nan", "inf", "-inf"), "null")
_MIN_SECRET_LENGTH = 4  # characters; shorter parts of a token occur in ordinary words
_MAX_TEXTS, _MAX_LENGTH = 20, 300  # how many texts ``first_of`` returns, and characters of each


def printable(text: str) -> str:
    """``text`` without secrets, its control characters escaped: safe to print."""
    return escape_controls(without_secrets(text))


def counted(number: int, noun: str) -> str:
    """``1 line``, ``2,345 lines``."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def first_of(texts: list[str], kind: str) -> list[str]:
    """The first 20 texts, each cut at 300 characters; where there are more, a last entry "and N more ``kind``"."""
    first = [text if len(text) <= _MAX_LENGTH else f"{text[:_MAX_LENGTH]}..." for text in texts[:_MAX_TEXTS]]
    return first if len(texts) <= _MAX_TEXTS else [*first, f"and {len(texts) - _MAX_TEXTS} more {kind}"]


def escape_controls(text: str) -> str:
    r"""``text`` with the characters that a terminal acts on escaped as ``ascii`` does: ``\x1b``, ``\u202e``."""
    return re.sub(_UNSAFE_CHARACTER, lambda match: ascii(match[0])[1:-1], text)


def without_secrets(text: str) -> str:
    """``text`` without users and passwords in URLs, contents of Authorization headers, and the hub's token."""
    text = re.sub(_AUTHORIZATION, r"\1 ***", re.sub(_CREDENTIALS, r"\1", text))
    for name in _TOKEN_VARIABLES:
        # An error about a token that no header can carry quotes the token with escapes: replace its parts one by one.
        for part in re.split(r"[\s\x00-\x1f\x7f]+", os.environ.get(name, "")):
            if len(part) >= _MIN_SECRET_LENGTH:
                text = text.replace(part, "***")
    return text


def decimals(numbers: Iterable[Any]) -> Iterator[str]:
    """Numbers of NumPy as text: whole numbers, or the shortest decimals that round to the same float32."""
    return map(str, numbers)


def json_decimals(numbers: Iterable[Any]) -> Iterator[str]:
    """``decimals``, but "null" for infinity and NaN, which JSON lacks."""
    return (_JSON_NULLS.get(number, number) for number in decimals(numbers))


def json_line(value: Any) -> str:
    """``value`` as JSON on one line; characters that a terminal acts on are escaped."""
    import json  # here, since the import would add 1 ms to every start

    return json_escaped(json.dumps(value, ensure_ascii=False))


def json_escaped(text: str) -> str:
    """``text``, JSON without line ends or tabs, with the characters that a terminal acts on escaped as JSON does."""
    return re.sub(_UNSAFE_CHARACTER, lambda match: f"\\u{ord(match[0]):04x}", text)
