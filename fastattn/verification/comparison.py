"""Comparisons of results of fastattn and of the source framework, and how far apart the results may be."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

# Precision -> the largest difference of rows that is allowed, relative to the framework's largest number.
ROW_BOUNDS = {"float32": 1e-4, "bfloat16": 0.05, "int8": 0.2, "intgemm": 0.2, "int4": 0.5}
# Precision -> the largest difference of a token's log-probability that is allowed.
LOG_PROB_BOUNDS = {"float32": 1e-3, "bfloat16": 0.2, "int8": 0.5, "intgemm": 0.5, "int4": 1.5}


@dataclass(frozen=True)
class Bounds:
    """How far apart the results of the two sides may be.

    rows       the largest difference of a layer's rows or of a vector, relative to the framework's largest number
    log_probs  the largest difference of a token's log-probability
    """

    rows: float
    log_probs: float

    @classmethod
    def of_precision(cls, precision: str, bound: float | None) -> "Bounds":
        """The bounds of a precision; ``bound`` replaces both."""
        return cls(ROW_BOUNDS[precision], LOG_PROB_BOUNDS[precision]) if bound is None else cls(bound, bound)


@dataclass(frozen=True)
class Comparison:
    """A line of a report.

    name      what is compared, such as "block 1", "vector" or "tokens"
    within    whether the difference is within the bound
    largest   the largest difference of two numbers
    relative  ``largest`` relative to the framework's largest number
    cosine    the least cosine of two rows with the same index
    remark    where the largest difference is, or why nothing is compared
    here, there  the tokens of a translation by fastattn and by the source framework
    """

    name: str
    within: bool = True
    largest: float | None = None
    relative: float | None = None
    cosine: float | None = None
    remark: str = ""
    here: Sequence[str] | None = None
    there: Sequence[str] | None = None


def worst_of_each(comparisons: Iterable[Comparison]) -> list[Comparison]:
    """The worst comparison of each name, in the order in which the names first occur."""
    worst: dict[str, Comparison] = {}
    for comparison in comparisons:
        previous = worst.get(comparison.name)
        if previous is None or _severity(comparison) > _severity(previous):
            worst[comparison.name] = comparison
    return list(worst.values())


def _severity(comparison: Comparison) -> tuple[bool, float]:
    difference = comparison.largest if comparison.relative is None else comparison.relative
    return not comparison.within, -1.0 if difference is None else float(np.nan_to_num(difference, nan=np.inf))


def compare_rows(name: str, ours_TD: np.ndarray, theirs_TD: np.ndarray, bound: float, location: str) -> Comparison:
    """The Comparison of both sides' rows; NaN is never within a bound.

    location  says in the remark which text the rows are from
    """
    if ours_TD.shape != theirs_TD.shape:
        return Comparison(name, False, remark=f"{location}: shape {ours_TD.shape} here, {theirs_TD.shape} there")
    ours_TD, theirs_TD = ours_TD.astype(np.float64), theirs_TD.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        difference_TD = np.abs(ours_TD - theirs_TD)
        largest, scale = float(difference_TD.max()), float(np.abs(theirs_TD).max())
        relative = largest if scale == 0.0 else largest / scale
        row = int(difference_TD.max(axis=1).argmax())
    if len(ours_TD) > 1:
        location += f", token {row + 1}"
    return Comparison(name, relative <= bound, largest, relative, _least_cosine(ours_TD, theirs_TD), location)


def _least_cosine(a_TD: np.ndarray, b_TD: np.ndarray) -> float:
    """The least cosine of two rows with the same index, 1 for equal rows."""
    with np.errstate(invalid="ignore", over="ignore"):
        lengths_T = np.linalg.norm(a_TD, axis=1) * np.linalg.norm(b_TD, axis=1)
        products_T = np.einsum("td,td->t", a_TD, b_TD)
        same_T = (a_TD == b_TD).all(axis=1)
        cosines_T = np.where(same_T, 1.0, products_T / np.where(lengths_T == 0.0, 1.0, lengths_T))
    return min(float(cosines_T.min()), 1.0)


def compare_states(
    ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray], bound: float, location: str, framework: str
) -> Iterator[Comparison]:
    """The Comparisons of each layer's rows, by the layer's name; remarks say which layers only one side shows."""
    for name in dict.fromkeys([*ours, *theirs]):
        if name not in theirs:
            yield Comparison(name, remark=f"not compared: {framework} does not show it")
        elif name not in ours:
            yield Comparison(name, remark=f"not compared: only {framework} shows it")
        elif name == "embedding" and ours[name].shape != theirs[name].shape:
            yield Comparison(name, remark=f"not compared: {theirs[name].shape[1]} numbers a row in {framework}")
        else:
            yield compare_rows(name, ours[name], theirs[name], bound, location)


def name_states(states: Sequence[np.ndarray], output_TD: np.ndarray, prefix: str = "") -> dict[str, np.ndarray]:
    """{name of a layer: its rows}; the last block is left out if its rows are equal to the output.

    states     the rows after the embedding and after each block
    output_TD  the last hidden states: those of the last block, or what a final norm makes of them
    """
    rows_of = {f"{prefix}embedding": states[0]}
    rows_of |= {f"{prefix}block {number}": x_TD for number, x_TD in enumerate(states[1:], 1)}
    last_TD = states[-1]
    if len(states) > 1 and last_TD.shape == output_TD.shape and np.array_equal(last_TD, output_TD, equal_nan=True):
        del rows_of[f"{prefix}block {len(states) - 1}"]
    return rows_of | {f"{prefix}output": output_TD}


def compare_ids(
    ours: Sequence[Sequence[int]], theirs: Sequence[Sequence[int]], token: Callable[[int], str | None]
) -> Comparison:
    """The Comparison of the ids of each text; the remark has the first difference. ``token`` names an id."""
    for number, (here, there) in enumerate(zip(ours, theirs), 1):
        if list(here) != list(there):
            first = first_difference(here, there)
            tokens = f"{_token_name(here, first, token)} here and {_token_name(there, first, token)} there"
            counts = f"{len(here)} ids here, {len(there)} there"
            remark = f"text {number}: {counts}; the first that differs, {first + 1}: {tokens}"
            return Comparison("tokens", False, remark=remark)
    return Comparison("tokens", remark=f"the same: {', '.join(f'{len(ids):,}' for ids in ours)} ids")


def first_difference(here: Sequence[Any], there: Sequence[Any]) -> int:
    """The first index at which the sequences differ; the shorter one's length if the longer one begins with it."""
    pairs = enumerate(zip(here, there))
    return next((index for index, (a, b) in pairs if a != b), min(len(here), len(there)))


def _token_name(ids: Sequence[int], index: int, token: Callable[[int], str | None]) -> str:
    return f"{token(ids[index])!r} ({ids[index]})" if index < len(ids) else "none"
