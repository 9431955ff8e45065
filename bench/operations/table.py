"""The classes of the table of operations: a problem is an operation at one size."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

FLOAT = 4  # bytes
WEIGHT_BYTES = {"float32": 4, "bfloat16": 2, "int8": 1, "int4": 0.625}
GFLOPS, GOPS, GBYTES = "GFLOP/s", "GOP/s", "GB/s"

Arrays = dict[str, np.ndarray]
Results = tuple[np.ndarray, ...]


@dataclass(frozen=True)
class Work:
    """A problem's title in the benchmark and its amount of work.

    bytes  the least that must be moved: each operand once
    flops  None if only moving is counted
    """

    title: str
    bytes: float
    flops: float | None = None
    unit: str = GFLOPS


@dataclass(frozen=True)
class Problem:
    """One operation at one size.

    arrays  its inputs, random from a fixed seed: float32, and integers for counts and indices
    bind    (operations, arrays) -> a call that returns a tuple of arrays; weights are packed before the call
    form    the operation's further arguments by name, which a peer needs with the arrays
    exact   the indices of results that must equal the oracle's, not only be close
    work    None if it is not in the benchmark
    """

    name: str
    operation: str
    arrays: Arrays
    bind: Callable[[Any, Arrays], Callable[[], Results]]
    form: dict[str, Any] = field(default_factory=dict)
    exact: tuple[int, ...] = ()
    work: Work | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name.replace(" ", ""))

    def call(self, ops: Any, arrays: Arrays) -> Results:
        return self.bind(ops, arrays)()


def copy_of(array: Any) -> Any:
    """A copy on the array's device, host or card, for an operation that writes it."""
    if isinstance(array, np.ndarray):
        return array.copy()
    from numba import cuda

    copy = cuda.device_array_like(array)
    copy.copy_to_device(array)
    return copy


class Size:
    """Arguments of the function that makes an operation's problems.

    scaling  whether the benchmark also measures it on more than two threads
    """

    def __init__(self, *arguments: Any, scaling: bool = False, **named: Any):
        self.arguments, self.named, self.scaling = arguments, named, scaling


@dataclass(frozen=True)
class Operation:
    """The function that makes an operation's problems, and their sizes.

    awkward     for tests: zero, one, primes, one below, at and above the widths of vectors and tiles
    large       for the benchmark: sizes of models
    toy         for the benchmark's own tests
    precisions  for the benchmark; with more than float32, ``make`` takes a precision
    """

    make: Callable[..., Problem]
    awkward: list[Size]
    large: list[Size] = field(default_factory=list)
    toy: list[Size] = field(default_factory=list)
    precisions: tuple[str, ...] = ("float32",)

    def problem(self, size: Size, **more: Any) -> Problem:
        return self.make(*size.arguments, **size.named, **more)


def normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def with_weights(attend: Callable[..., np.ndarray], keyword: str, *shape: int) -> Callable[[], Results]:
    """A call of attention that gives (its result, the result of a second call with weights, the weights)."""

    def call() -> Results:
        plain = attend()
        weights = np.full(shape, np.nan, plain.dtype)
        return plain, attend(**{keyword: weights}), weights

    return call


def starts_of(lengths: tuple[int, ...]) -> np.ndarray:
    """starts_B1 of sentences of these lengths."""
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
