"""One function of several, chosen by the number b: compiled once, where each takes a tenth of a second by itself."""

from collections.abc import Callable, Sequence


def one_of_scores(functions: Sequence[Callable]) -> Callable:
    """The ``score_mod`` that calls the function of number b, as of sentence 1."""
    if len(functions) == 1:
        return _scores_of_one(functions[0])
    middle = len(functions) // 2
    return _either_score(middle, one_of_scores(functions[:middle]), one_of_scores(functions[middle:]))


def one_of_masks(functions: Sequence[Callable]) -> Callable:
    """The ``mask_mod`` that calls the function of number b, as of sentence 1."""
    if len(functions) == 1:
        return _mask_of_one(functions[0])
    middle = len(functions) // 2
    return _either_mask(middle, one_of_masks(functions[:middle]), one_of_masks(functions[middle:]))


def _scores_of_one(function: Callable) -> Callable:
    return lambda score, b, h, t, s: function(score, 1, h, t, s)


def _mask_of_one(function: Callable) -> Callable:
    return lambda b, h, t, s: function(1, h, t, s)


def _either_score(middle: int, first: Callable, second: Callable) -> Callable:
    return lambda score, b, h, t, s: first(score, b, h, t, s) if b < middle else second(score, b - middle, h, t, s)


def _either_mask(middle: int, first: Callable, second: Callable) -> Callable:
    return lambda b, h, t, s: first(b, h, t, s) if b < middle else second(b - middle, h, t, s)
