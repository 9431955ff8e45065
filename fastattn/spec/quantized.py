"""Weights of 8 and 4 bits, from a checkpoint or from ``rounding``, and weights that are read on demand."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fastattn.errors import CheckpointError
from fastattn.system.records import dataclass


class _Matrix:
    """Attributes that the classes below share with arrays."""

    dtype = np.dtype(np.float32)  # of the matrix that the tensor represents
    ndim = 2

    @property
    def size(self: Any) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True, eq=False)
class QuantizedTensor(_Matrix):
    """A weight matrix or embedding table as int8, with a scale for each row and perhaps for each column.

    The matrix in float32 is values_FD[f, d] * multipliers_F[f] * input_factors_D[d].

    input_scale      multiplies inputs, which are then rounded to int8 and clipped at +-127; None: 127 / max |x| of each
                     row. Not for embeddings
    input_factors_D  float32 [D], multiply inputs, which are then rounded to int8, for the product with values_FD and
                     multipliers_F; None: ones. Not with an input scale, nor for embeddings
    """

    values_FD: np.ndarray  # int8 [F, D], C-contiguous; a view of a mapped file keeps the file open
    multipliers_F: np.ndarray  # float32 [F]
    input_scale: float | None = None
    input_factors_D: np.ndarray | None = None

    def __post_init__(self) -> None:
        if self.input_scale is not None and not 1e-30 < self.input_scale < 1e30:  # its reciprocal is a float32 too
            raise CheckpointError(f"an input scale should be a number from 1e-30 to 1e30, is {self.input_scale}")
        factors_D = self.input_factors_D
        if factors_D is not None:
            if self.input_scale is not None:
                raise CheckpointError("inputs have a scale or factors, not both")
            if factors_D.shape != self.shape[1:]:
                raise CheckpointError(f"input factors should be {list(self.shape[1:])}, are {list(factors_D.shape)}")
            if not ((factors_D > 1e-30) & (factors_D < 1e30)).all():
                raise CheckpointError("input factors should be numbers from 1e-30 to 1e30")

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values_FD.shape

    def take(self, rows_F: np.ndarray) -> "QuantizedTensor":
        return replace(self, values_FD=take(self.values_FD, rows_F), multipliers_F=take(self.multipliers_F, rows_F))

    def float32(self) -> np.ndarray:
        """The dequantized matrix, a new array each time."""
        # NumPy converts block by block in its own buffer: it makes no float copy of the whole values_FD.
        weight_FD = np.multiply(self.values_FD, self.multipliers_F[:, None], dtype=np.float32)
        if self.input_factors_D is not None:
            weight_FD *= self.input_factors_D
        return weight_FD


# Layers that may share an embedding's matrix; a model of 4 bits has them in int8, any other in its own precision.
PROJECTIONS = ("decoder.projection", "head.output")
GROUP_INPUTS = 32  # inputs that share a scale and a minimum in 4 bits


@dataclass(frozen=True, eq=False)
class Int4Tensor(_Matrix):
    """A weight matrix as 4-bit numbers, with a scale and a minimum for each group of 32 inputs: 5 bits a weight.

    A number q, 0 to 15, of row f and group g is scales_FG[f, g] * q + minima_FG[f, g] in float32. GGUF's Q4_0 and Q4_1
    have exactly this form; so has Q4_K, whose scales and minima are products that need float32.

    values_FE  uint8 [F, D / 2], C-contiguous; byte 16 g + i holds the inputs 32 g + i in its low and 32 g + 16 + i in
               its high bits
    scales_FG, minima_FG  float16 [F, D / 32], or float32 within float16's range: see ``half``
    """

    values_FE: np.ndarray
    scales_FG: np.ndarray
    minima_FG: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values_FE.shape[0], 2 * self.values_FE.shape[1]

    def take(self, rows_F: np.ndarray) -> "Int4Tensor":
        return Int4Tensor(*(take(array, rows_F) for array in (self.values_FE, self.scales_FG, self.minima_FG)))

    def half(self) -> "Int4Tensor":
        """The tensor with float16 scales and minima, for int4 products and files: a relative error of 2^-11."""
        halves = (array_FG.astype(np.float16, copy=False) for array_FG in (self.scales_FG, self.minima_FG))
        return Int4Tensor(self.values_FE, *halves)

    def float32(self) -> np.ndarray:
        """The dequantized matrix, a new array each time; products are rounded before the minimum is added."""
        F, G = self.scales_FG.shape
        weight_FGI = np.empty((F, G, GROUP_INPUTS), np.float32)
        values_FGJ = self.values_FE.reshape(F, G, GROUP_INPUTS // 2)
        weight_FGI[..., : GROUP_INPUTS // 2] = values_FGJ & 15
        weight_FGI[..., GROUP_INPUTS // 2 :] = values_FGJ >> 4
        weight_FGI *= self.scales_FG[..., None]
        weight_FGI += self.minima_FG[..., None]
        return weight_FGI.reshape(self.shape)


@dataclass(frozen=True, eq=False)
class UnreadTensor(_Matrix):
    """A weight matrix in a file, read on demand, whole or by rows.

    form  the result of ``read``: "float32", an array; "int8", a QuantizedTensor; "int4", an Int4Tensor; "blocks", a
          float32 array, whose numbers the file stores in blocks of 5 to 8 bits or of several widths: int8 models round
          the numbers with a scale for each row, int4 models with a scale for each group of 32 inputs
    """

    shape: tuple[int, ...]  # [F, D]
    read: Callable[[int, int], Any]  # (first, last) -> rows first to last - 1: an array or a tensor of the form's class
    form: str = "float32"
    forget: Callable[[int, int], None] = lambda first, last: None  # frees the memory of the file's pages with the rows
    by_rows: bool = True  # whether a range of rows can be read without all other rows

    def whole(self) -> Any:
        return self.read(0, self.shape[0])

    def float32(self) -> np.ndarray:
        return as_float32(self.whole())

    def take(self, rows_F: np.ndarray) -> Any:
        return take(self.whole(), rows_F)

    def row_ranges(self, multiple: int = 1) -> list[tuple[int, int]]:
        """Ranges (first, last) to read one by one, ``last`` excluded; all but the final one have whole multiples."""
        F = self.shape[0]
        step = max(1, NUMBERS_AT_ONCE // max(1, self.shape[1]) // multiple) * multiple if self.by_rows else F
        return [(first, min(first + step, F)) for first in range(0, F, step or 1)]

    def rows(self) -> Iterator[Any]:
        """Yield the rows of each of ``row_ranges``; the file's pages of a range are freed before the next is read."""
        for first, last in self.row_ranges():
            yield self.read(first, last)
            self.forget(first, last)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the tensor without its numbers: the cache of a loaded model stores packed weights instead."""
        return UnreadTensor, (self.shape, NoRows(), self.form)


@dataclass(frozen=True)
class NoRows:
    """Stands for an UnreadTensor's ``read`` in the cache, which stores only dataclasses."""

    def __call__(self, first: int, last: int) -> np.ndarray:
        raise AssertionError("a cached model has packed weights only")


NUMBERS_AT_ONCE = 1 << 20  # read at a time: 4 MB of float32 between the file and the result


def unread(tensor: "Tensor") -> UnreadTensor:
    """A matrix as an UnreadTensor."""
    if isinstance(tensor, UnreadTensor):
        return tensor

    def read(first: int, last: int) -> Tensor:
        return tensor if (first, last) == (0, tensor.shape[0]) else rows_of(tensor, first, last)

    return UnreadTensor(tensor.shape, read, form_of(tensor))


def form_of(tensor: "Tensor") -> str:
    """A tensor's form, by UnreadTensor's names."""
    if isinstance(tensor, UnreadTensor):
        return tensor.form
    return {QuantizedTensor: "int8", Int4Tensor: "int4"}.get(type(tensor), "float32")


def rows_of(tensor: Any, first: int, last: int) -> Any:
    """Rows ``first`` to ``last`` - 1 of a matrix in memory, as a view."""
    if isinstance(tensor, QuantizedTensor):
        return replace(tensor, values_FD=tensor.values_FD[first:last], multipliers_F=tensor.multipliers_F[first:last])
    if isinstance(tensor, Int4Tensor):
        return Int4Tensor(*(array[first:last] for array in (tensor.values_FE, tensor.scales_FG, tensor.minima_FG)))
    return tensor[first:last]


def in_memory(tensor: "Tensor") -> "Tensor":
    """The tensor in memory; a tensor of the form "blocks" stays as it is."""
    return tensor.whole() if isinstance(tensor, UnreadTensor) and tensor.form != "blocks" else tensor


Tensor = np.ndarray | QuantizedTensor | Int4Tensor | UnreadTensor


def as_float32(tensor: Tensor) -> np.ndarray:
    """The tensor as float32, dequantized if need be; an array on a card too."""
    if isinstance(tensor, QuantizedTensor | Int4Tensor | UnreadTensor):
        return tensor.float32()
    return np.asarray(tensor, np.float32)


def equal(first: Tensor, second: Tensor) -> bool:
    """Whether two matrices represent the same numbers; reading stops at the first ``row_ranges`` that differ."""
    if first.shape != second.shape:
        return False
    pair = unread(first), unread(second)
    for start, stop in pair[0].row_ranges():
        first_rows, second_rows = (as_float32(matrix.read(start, stop)) for matrix in pair)
        are_equal = np.array_equal(first_rows, second_rows)
        for matrix in pair:
            matrix.forget(start, stop)
        if not are_equal:
            return False
    return True


def take(tensor: Any, rows_F: np.ndarray) -> Any:
    """The rows of a matrix, or numbers of a vector, at these indices; zeros at the index -1."""
    if not isinstance(tensor, np.ndarray):
        return tensor.take(rows_F)
    rows = tensor[rows_F]
    rows[rows_F < 0] = 0
    return rows


def without_input_scales(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors without their input scales; names that share a tensor still share one."""
    converted = {id(tensor): _without_input_scale(tensor) for tensor in tensors.values()}
    return {name: converted[id(tensor)] for name, tensor in tensors.items()}


def _without_input_scale(tensor: Tensor) -> Tensor:
    if isinstance(tensor, UnreadTensor) and tensor.form == "int8":
        return replace(tensor, read=lambda first, last: _without_input_scale(tensor.read(first, last)))
    has_scale = isinstance(tensor, QuantizedTensor) and tensor.input_scale is not None
    return replace(tensor, input_scale=None) if has_scale else tensor  # type: ignore[type-var]
