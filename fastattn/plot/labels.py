"""Labels of rows and columns: checked, made fit for XML and HTML, cut to a width, and thinned out where they crowd."""

import operator
from collections.abc import Iterable
from itertools import count, islice
from unicodedata import east_asian_width

from fastattn.errors import InputError, described
from fastattn.printable import visible

LONGEST = 1000  # characters that are kept of a label


def checked_labels(name: str, labels: Iterable[str | int] | None, length: int) -> list[str]:
    """``length`` labels as printable text; None: 0, 1, 2, ... InputError for other lengths and types."""
    if labels is None:
        return [str(i) for i in range(length)]
    if isinstance(labels, str | bytes):
        raise InputError(f"{name} should be a list of {length} labels, got a {type(labels).__name__}")
    try:
        listed = list(islice(labels, length + 1))
    except TypeError:
        raise InputError(f"{name} should be a list of {length} labels, got {described(labels)}") from None
    if len(listed) != length:
        got = "more" if len(listed) > length else len(listed)
        raise InputError(f"{name} should be {length} labels, as many as the weights have {name}, got {got}")
    texts = []
    for i, label in enumerate(listed):
        try:
            texts.append(printable_text(label) if isinstance(label, str) else str(operator.index(label)))
        except (TypeError, ValueError):  # ValueError: more digits than Python writes out
            raise InputError(f"{name}[{i}] should be a str or a whole number, got {described(label)}") from None
    return texts


def checked_title(title: str | None) -> str:
    """The title as printable text; None: ""."""
    if title is not None and not isinstance(title, str):
        raise InputError(f"title should be a str, got {described(title)}")
    return printable_text(title or "")


def printable_text(text: str) -> str:
    r"""At most LONGEST characters; characters that a page acts on or XML forbids are escaped: ``\n``, ``\u202e``."""
    shortened = text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
    return visible(shortened).replace("\ufffe", r"\ufffe").replace("\uffff", r"\uffff")


def isolated(text: str) -> str:
    """``text`` between marks that keep its writing direction to itself."""
    return f"\u2068{text}\u2069"


def columns_of(text: str) -> int:
    """The width of the text, where a Latin letter has 1 and a Chinese one 2."""
    return sum(2 if east_asian_width(character) in "WF" else 1 for character in text)


def cut(text: str, columns: int) -> str:
    """``text``, or as much of it as fits in so many ``columns``, with an ellipsis."""
    if columns_of(text) <= columns:
        return text
    beginning, width = "", 1
    for character in text:
        width += columns_of(character)
        if width > columns:
            break
        beginning += character
    return f"{beginning}…"


def label_step(size: float, least: float) -> int:
    """The smallest of 1, 2, 5, 10, 20, ... cells of ``size`` pixels that take ``least`` pixels."""
    steps = (factor * 10**power for power in count() for factor in (1, 2, 5))
    return next(step for step in steps if step * size >= least)
