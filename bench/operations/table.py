"""What the table of operations is made of: an operation at one size, and the sizes of an operation."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

FLOAT = 4  # bytes
WEIGHT_BYTES = {"float32": 4, "bfloat16": 2, "int8": 1}
GFLOPS, GOPS, GBYTES = "GFLOP/s", "GOP/s", "GB/s"

Arrays = dict[str, np.ndarray]
Results = tuple[np.ndarray, ...]


@dataclass(frozen=True)
class Work:
    """What the benchmark says of a problem: its title there, and how much there is to do.

    bytes  the least that must be moved: each operand once
    flops  None where nothing but moving is counted
    """

    title: str
    bytes: float
    flops: float | None = None
    unit: str = GFLOPS


@dataclass(frozen=True)
class Problem:
    """One operation at one size.

    arrays  its inputs, drawn from a seed: float32, and integers that count or look up
    bind    (operations, arrays) -> a call that gives a tuple of arrays; what a model packs once is packed before it
    form    what else the operation is given, by name: what a peer has to know beside the arrays
    exact   which results must be equal to the oracle's, not merely close
    work    None where no benchmark takes it
    """

    name: str
    operation: str
    arrays: Arrays
    bind: Callable[[Any, Arrays], Callable[[], Results]]
    form: dict[str, Any] = field(default_factory=dict)
    exact: tuple[int, ...] = ()
    work: Work | None = None

    def call(self, ops: Any, arrays: Arrays) -> Results:
        return self.bind(ops, arrays)()


class Size:
    """Arguments of the function that makes an operation's problems.

    scaling  whether the benchmark also takes it to more than two threads
    """

    def __init__(self, *arguments: Any, scaling: bool = False, **named: Any):
        self.arguments, self.named, self.scaling = arguments, named, scaling


@dataclass(frozen=True)
class Operation:
    """How its problems are made, and of which sizes.

    awkward     of the tests: one, primes, one below, at and above widths of vectors and tiles, nothing at all
    large       of the benchmark: what models have
    toy         of the benchmark's own tests
    precisions  of the benchmark; beyond float32 ``make`` takes one
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


def starts_of(lengths: tuple[int, ...]) -> np.ndarray:
    """starts_B1 of sentences of these lengths."""
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
