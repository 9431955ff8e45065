"""Labels of rows and columns: checks, text that XML and HTML allow, truncation, and the steps at which labels fit."""

import operator
from collections.abc import Iterable
from itertools import count, islice
from unicodedata import east_asian_width

from fastattn.errors import InputError, described
from fastattn.printable import escape_controls

MOST_CHARACTERS = 1000  # of a label; further characters are dropped


def checked_labels(name: str, labels: Iterable[str | int] | None, length: int) -> list[str]:
    """``length`` labels as printable text; None: 0, 1, 2, ... InputError for labels of another number or type."""
    if labels is None:
        return [str(i) for i in range(length)]
    if isinstance(labels, str | bytes):
        raise InputError(f"{name} should be a list of {length} labels, got a {type(labels).__name__}")
    try:
        label_list = list(islice(labels, length + 1))
    except TypeError:
        raise InputError(f"{name} should be a list of {length} labels, got {described(labels)}") from None
    if len(label_list) != length:
        actual = "more" if len(label_list) > length else len(label_list)
        raise InputError(f"{name} should be {length} labels, as many as the weights have {name}, got {actual}")
    texts = []
    for i, label in enumerate(label_list):
        try:
            texts.append(printable_text(label) if isinstance(label, str) else str(operator.index(label)))
        except (TypeError, ValueError):  # ValueError: the number has more digits than Python writes
            raise InputError(f"{name}[{i}] should be a str or a whole number, got {described(label)}") from None
    return texts


def checked_title(title: str | None) -> str:
    """The title as printable text; None: ""."""
    if title is not None and not isinstance(title, str):
        raise InputError(f"title should be a str, got {described(title)}")
    return printable_text(title or "")


def printable_text(text: str) -> str:
    r"""At most MOST_CHARACTERS of a text, with escapes for control characters and for characters that XML forbids."""
    shortened = text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}…"
    return escape_controls(shortened).replace("\ufffe", r"\ufffe").replace("\uffff", r"\uffff")


def isolate(text: str) -> str:
    """``text`` between marks that isolate its writing direction from that of the text around it."""
    return f"\u2068{text}\u2069"


def display_width(text: str) -> int:
    """The width of a text in columns: a Latin letter takes 1, a Chinese character 2."""
    return sum(2 if east_asian_width(character) in "WF" else 1 for character in text)


def clip(text: str, columns: int) -> str:
    """``text``, or if it is wider than ``columns``, its beginning and an ellipsis that fit."""
    if display_width(text) <= columns:
        return text
    beginning, width = "", 1
    for character in text:
        width += display_width(character)
        if width > columns:
            break
        beginning += character
    return f"{beginning}…"


def label_step(size: float, least: float) -> int:
    """The smallest step of 1, 2, 5, 10, 20, ... cells of ``size`` pixels that is at least ``least`` pixels."""
    steps = (factor * 10**power for power in count() for factor in (1, 2, 5))
    return next(step for step in steps if step * size >= least)
