"""Few choices of one value from each of several lists, in which any two values of two lists meet."""

import itertools
from collections.abc import Iterable
from typing import Any


def pairs(*lists: Iterable[Any]) -> list[tuple[Any, ...]]:
    """In place of the product of the lists: a fault of one value, or of two together, is in one of them."""
    values = [list(one) for one in lists]
    every = list(itertools.product(*(range(len(one)) for one in values)))
    left = {pair for choice in every for pair in _met(choice)}
    chosen = []
    while left:
        best = max(every, key=lambda choice: len(left & _met(choice)))
        left -= _met(best)
        chosen.append(best)
    return [tuple(one[i] for one, i in zip(values, choice, strict=True)) for choice in sorted(chosen)]


def _met(choice: tuple[int, ...]) -> set[tuple[tuple[int, int], ...]]:
    """The pairs of (list, value) in a choice."""
    return set(itertools.combinations(enumerate(choice), 2))
