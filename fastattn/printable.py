"""Text from outside, made safe to print: no control characters, no secrets."""

import os
import re
from collections.abc import Iterable, Iterator
from typing import Any

# Control characters, separators of lines, marks of writing direction, and halves of surrogate pairs, which stand for
# bytes of a path that are no UTF-8. The patterns are compiled when there is something to print.
_ACTED_ON = r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ud800-\udfff]"
_CREDENTIALS = r"([a-zA-Z][a-zA-Z0-9+.-]*://)[^/?#\s]*@"
_AUTHORIZATION = r"\b(Bearer|Basic) [\w.~+/=-]{16,}"
_TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
_NO_JSON = dict.fromkeys(("nan", "inf", "-inf"), "null")
_SHORTEST = 4  # characters of a token's part; shorter parts occur in ordinary words
_MOST, _LONGEST = 20, 300  # texts that are shown of a kind, and characters of each


def printable(text: str) -> str:
    """``text`` without secrets, its control characters escaped: safe to print."""
    return visible(without_secrets(text))


def counted(number: int, noun: str) -> str:
    """``1 line``, ``2,345 lines``."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def first_of(texts: list[str], kind: str) -> list[str]:
    """The first 20 texts, cut at 300 characters each, and how many more of the kind there are."""
    first = [text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..." for text in texts[:_MOST]]
    return first if len(texts) <= _MOST else [*first, f"and {len(texts) - _MOST} more {kind}"]


def visible(text: str) -> str:
    r"""``text`` with the characters that a terminal acts on escaped as ``ascii`` does: ``\x1b``, ``\u202e``."""
    return re.sub(_ACTED_ON, lambda match: ascii(match[0])[1:-1], text)


def without_secrets(text: str) -> str:
    """``text`` without users and passwords in URLs, contents of Authorization headers, and the hub's token."""
    text = re.sub(_AUTHORIZATION, r"\1 ***", re.sub(_CREDENTIALS, r"\1", text))
    for name in _TOKENS:
        # An error about a token with characters that no header can carry quotes its parts, with escapes between them.
        for part in re.split(r"[\s\x00-\x1f\x7f]+", os.environ.get(name, "")):
            if len(part) >= _SHORTEST:
                text = text.replace(part, "***")
    return text


def decimals(numbers: Iterable[Any]) -> Iterator[str]:
    """NumPy's whole numbers, or the shortest decimals that give the same float32 back."""
    return map(str, numbers)


def json_decimals(numbers: Iterable[Any]) -> Iterator[str]:
    """``decimals``, but null for numbers that are not finite, which JSON lacks."""
    return (_NO_JSON.get(number, number) for number in decimals(numbers))


def json_line(value: Any) -> str:
    """``value`` as JSON on one line; characters that a terminal acts on are escaped."""
    import json  # 1 ms, of every start

    return json_escaped(json.dumps(value, ensure_ascii=False))


def json_escaped(text: str) -> str:
    """JSON, whose only white space is spaces, with escapes for the characters that a terminal acts on."""
    return re.sub(_ACTED_ON, lambda match: f"\\u{ord(match[0]):04x}", text)
