"""Canonical tensors from a file's arrays: a table of the sources of each tensor, a check of all arrays, the tensors.

A key of a table is a canonical name of ``spec.tensors``, its value the ``sources`` by their names in the file. In both,
STACK stands for the name of the stack, # for a layer's number, * for weight and bias::

    "STACK.embedding.weight": sources("STACK.embed_tokens.weight"),
    "STACK.layers.#.self_attention.qkv.*": sources("STACK.#.query.*", "STACK.#.key.*", "STACK.#.value.*"),
    "STACK.layers.#.feed_forward.inner.*": sources("STACK.#.fc1.*", transposed=True),

The expected shapes of arrays follow from the canonical shapes. An array that needs no change is not copied. An array
that a file stores once under several names becomes one tensor. Weight matrices are UnreadTensors where the container
can read rows.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import prod
from typing import Any, Protocol

import numpy as np

from fastattn.errors import CheckpointError
from fastattn.spec.architecture import ModelSpec
from fastattn.spec.quantized import Int4Tensor, QuantizedTensor, Tensor, UnreadTensor, as_float32, in_memory, unread
from fastattn.spec.tensors import find_misfits, tensor_shapes

Shape = tuple[int, ...]
NAME = re.compile(r"([a-z_]+)(\.layers\.(\d+))?\.(.+?)(?:\.(weight|bias))?")


class Array(Protocol):
    """An array of a file in any container, converted when it is read.

    Where its rows can be read one by one it has a method ``unread`` too, which returns an UnreadTensor.
    """

    @property
    def shape(self) -> Shape: ...

    @property
    def vector(self) -> np.ndarray:
        """The values flattened, float32."""

    def matrix(self, transposed: bool) -> Tensor:
        """float32, or int8 as stored; transposed if ``transposed``."""


@dataclass(frozen=True)
class FirstRow:
    """The first of the ``rows`` rows of the matrix ``name``, times ``scale``."""

    name: str
    rows: int
    scale: float = 1.0


@dataclass(frozen=True)
class TensorSources:
    """The sources of a canonical tensor."""

    names: tuple[str | None, ...]  # arrays, concatenated by rows; None: a vector of zeros
    rows: tuple[int, ...] = ()  # of each array; (): all have equal shapes
    ends: tuple[str, str] = ("weight", "bias")  # the file's names for weight and bias
    transposed: bool = False  # matrices are stored as [inputs, outputs]
    flat: bool = False  # a vector of n numbers may be stored as [1, n]
    skip: int = 0  # how many first rows of an array are left out
    piece: tuple[int, int] = (0, 1)  # (i, n): an array holds the rows of n tensors of equal shapes; this is number i
    plus: FirstRow | None = None  # added to each row
    offset: float = 0.0  # added to each number
    first: int = 0  # how many first columns of a matrix come last in the tensor
    relu: bool = False  # negative numbers become 0
    # (shape) -> the tensor if the file has none of the arrays; None: they are required
    absent: Callable[[Shape], np.ndarray] | None = None
    # above 0: a convolution's weight, stored as [outputs, inputs, kernel], becomes rows of a linear layer, with the
    # inputs of each offset of the kernel side by side
    kernel: int = 0
    # above 0: an array has the queries, keys and values of one head after the other; the tensor has all queries first
    heads: int = 0
    shape: Shape = ()  # of the canonical tensor

    @property
    def row_counts(self) -> tuple[int, ...]:
        return self.rows or (self.shape[0] // max(1, len(self.names)),) * len(self.names)

    @property
    def source_shapes(self) -> dict[str, Shape]:
        """{name: expected shape} of the arrays."""
        shapes: dict[str, Shape] = {}
        columns = self.shape[1:]
        if self.kernel and columns:
            columns = (columns[0] // self.kernel, self.kernel)
        for name, rows in zip(self.names, self.row_counts):
            if name is not None:
                shape = (rows * self.piece[1] + self.skip, *columns)
                shapes[name] = shape[::-1] if self.transposed else shape
        return shapes | ({self.plus.name: (self.plus.rows, self.shape[-1])} if self.plus else {})

    def is_absent(self, stored: Mapping[str, Array]) -> bool:
        return self.absent is not None and not any(name in stored for name in self.source_shapes)


def sources(*names: str | None, **more: Any) -> TensorSources:
    return TensorSources(names, **more)


def zeros(shape: Shape) -> np.ndarray:
    return np.zeros(shape, np.float32)


def identity(shape: Shape) -> np.ndarray:
    return np.eye(*shape, dtype=np.float32)


def canonical_tensors(
    table: Mapping[str, TensorSources], spec: ModelSpec, stored: Mapping[str, Array], where: str, misfit: str
) -> dict[str, Tensor]:
    parts = map_tensors(table, spec)
    check_sources(parts, stored, where, misfit)
    return make_tensors(parts, stored)


def map_tensors(
    table: Mapping[str, TensorSources], spec: ModelSpec, numbers: Mapping[str, Sequence[int | str]] | None = None
) -> dict[str, TensorSources]:
    """The table's entry for each tensor of the architecture, with its names and shape filled in.

    numbers  of a stack, what the names of its layers have in place of #; None: numbers from 0
    """
    return map_shapes(table, tensor_shapes(spec), numbers)


def map_shapes(
    table: Mapping[str, TensorSources],
    shapes: Mapping[str, Shape],
    numbers: Mapping[str, Sequence[int | str]] | None = None,
) -> dict[str, TensorSources]:
    """``map_tensors`` for tensors of these canonical names and shapes."""
    parts = {}
    for name, shape in shapes.items():
        stack, layer, number, part, end = NAME.fullmatch(name).groups()  # type: ignore[union-attr]
        keys = [f"{scope}{'.layers.#' if layer else ''}.{part}" for scope in (stack, "STACK")]
        if end:
            keys = [f"{key}.{last}" for key in keys for last in (end, "*")]
        entry = next((table[key] for key in keys if key in table), None)
        if entry is None:
            raise LookupError(f"the table has none of {', '.join(keys)}")
        if number and numbers is not None:
            number = str(numbers[stack][int(number)])
        last = entry.ends[end == "bias"]
        names = tuple(
            source and source.replace("STACK", stack).replace("#", number or "").replace("*", last)
            for source in entry.names
        )
        parts[name] = replace(entry, names=names, shape=shape)
    return parts


def canonical_sources(spec: ModelSpec) -> dict[str, TensorSources]:
    """The mapping of a file that has each tensor under its canonical name."""
    return {name: TensorSources((name,), shape=shape) for name, shape in tensor_shapes(spec).items()}


def check_sources(parts: Mapping[str, TensorSources], stored: Mapping[str, Array], where: str, misfit: str) -> None:
    """Raise one CheckpointError that lists all arrays that are missing, left over or misshapen.

    where, misfit  how the message names the file, and what does not fit
    """
    expected: dict[str, Shape] = {}
    for part in parts.values():
        if not part.is_absent(stored):
            for name, shape in part.source_shapes.items():
                is_row = part.flat and len(shape) == 1 and name in stored and stored[name].shape == (1, *shape)
                expected[name] = (1, *shape) if is_row else shape
    problems = find_misfits(expected, stored)
    if problems:
        raise CheckpointError(f"{where}: {misfit}: {'; '.join(problems)}")


# Weights that are or become infinite or NaN cause no warning: they are data.
@np.errstate(over="ignore", invalid="ignore")
def make_tensors(parts: Mapping[str, TensorSources], stored: Mapping[str, Array]) -> dict[str, Tensor]:
    """The tensors of a checked mapping."""
    by_sources: dict[tuple, Tensor] = {}
    tensors = {}
    for name, part in parts.items():
        arrays = tuple(id(stored[source]) if source and source in stored else source for source in part.names)
        is_weight = name.endswith(".weight")  # only weights may be int8
        cut = part.skip, part.piece, part.kernel, part.heads, part.first, part.relu
        key = (arrays, is_weight, part.shape, part.transposed, cut, part.plus, part.offset, part.absent)
        if key not in by_sources:
            unread_tensor = _unread(part, stored) if is_weight and len(part.shape) == 2 else None
            by_sources[key] = _make(part, stored, is_weight) if unread_tensor is None else unread_tensor
        tensors[name] = by_sources[key]
    return tensors


def main_precision(arrays: Iterable[tuple[str, int]]) -> str:
    """The type of most of the weights, from (type, size) of each array; float32 without arrays."""
    sizes: dict[str, int] = {}
    for dtype, size in arrays:
        sizes[dtype] = sizes.get(dtype, 0) + size
    return max(sizes, key=lambda dtype: sizes[dtype], default="float32")


def stored_precision(stored: Mapping[str, Any]) -> str:
    """``main_precision`` of tensors whose types have safetensors' names."""
    names = {"F32": "float32", "F16": "float16", "BF16": "bfloat16", "F64": "float64"}
    return main_precision((names.get(array.dtype, array.dtype.lower()), len(array.data)) for array in stored.values())


def _make(part: TensorSources, stored: Mapping[str, Array], is_weight: bool) -> Tensor:
    if part.absent is not None and part.is_absent(stored):
        return part.absent(part.shape)
    tensor: Tensor
    if len(part.shape) == 1:
        cut = [
            zeros((rows,)) if name is None else stored[name].vector[_rows(part, prod(stored[name].shape))]
            for name, rows in zip(part.names, part.row_counts)
        ]
        tensor = cut[0] if len(cut) == 1 else np.concatenate(cut)
    elif part.kernel:
        (name,) = part.source_shapes
        weight_OIC = stored[name].vector.reshape(part.source_shapes[name])
        tensor = np.ascontiguousarray(weight_OIC.transpose(0, 2, 1)).reshape(part.shape)
    else:
        arrays = [unread(stored[name].matrix(part.transposed)) for name in part.names if name is not None]
        tensor = in_memory(_joined([_cut(part, array) for array in arrays]))
        if not is_weight:
            tensor = as_float32(tensor)
    if part.heads:
        rows_HPKD = as_float32(tensor).reshape(part.heads, 3, -1, *part.shape[1:])
        tensor = np.ascontiguousarray(rows_HPKD.swapaxes(0, 1)).reshape(part.shape)
    if part.plus is not None:
        row_D = as_float32(stored[part.plus.name].matrix(transposed=False))[0]
        tensor = as_float32(tensor) + row_D * np.float32(part.plus.scale)
    if part.offset:
        tensor = as_float32(tensor) + np.float32(part.offset)
    if part.first:
        tensor = np.roll(as_float32(tensor), -part.first, axis=1)
    if part.relu:
        tensor = np.maximum(as_float32(tensor), 0)
    return tensor


def _unread(part: TensorSources, stored: Mapping[str, Array]) -> UnreadTensor | None:
    """The matrix that ``_make`` makes, read by rows, or whole where its rows are not rows of the arrays.

    None where some of its arrays cannot be read so.
    """
    readers = [getattr(stored.get(name), "unread", None) for name in part.source_shapes]
    if part.kernel or not readers or None in readers:
        return None
    arrays = [call() for call in readers if call is not None]

    def forget(first: int, last: int) -> None:
        for array in arrays:
            array.forget(0, array.shape[0])

    def read(first: int, last: int) -> np.ndarray:
        return as_float32(_make(part, stored, True))[first:last]

    if part.transposed or part.heads or part.plus or part.offset or part.first or part.relu or None in part.names:
        return UnreadTensor(part.shape, read, "float32", forget, by_rows=False)
    return _joined([_cut(part, array) for array in arrays])


def _rows(part: TensorSources, rows: int) -> slice:
    """The rows of an array that go into the tensor; the array has so many ``rows``."""
    number, count = part.piece
    rows = (rows - part.skip) // count
    return slice(part.skip + number * rows, part.skip + (number + 1) * rows)


def _cut(part: TensorSources, array: UnreadTensor) -> UnreadTensor:
    """The rows of a matrix that go into a tensor."""
    rows = _rows(part, array.shape[0])
    if rows == slice(0, array.shape[0]):
        return array
    int8, begin = array.form == "int8", rows.start

    def read(first: int, last: int) -> Tensor:
        rows: Tensor = array.read(begin + first, begin + last)
        return as_float32(rows) if int8 else rows

    def forget(first: int, last: int) -> None:
        array.forget(begin + first, begin + last)

    shape = rows.stop - begin, *array.shape[1:]
    return UnreadTensor(shape, read, "float32" if int8 else array.form, forget, array.by_rows)


def _joined(pieces: Sequence[UnreadTensor]) -> UnreadTensor:
    """The matrices concatenated by rows: int8 or int4 if all are, of blocks if all have few bits, else float32."""
    if len(pieces) == 1:
        return pieces[0]
    forms = {piece.form for piece in pieces}
    form = "float32" if "float32" in forms else min(forms) if len(forms) == 1 else "blocks"
    ends = list(accumulate(piece.shape[0] for piece in pieces))

    def each(first: int, last: int) -> list[tuple[UnreadTensor, int, int]]:
        if first == last:
            return [(piece, 0, 0) for piece in pieces]
        placed = [(piece, end - piece.shape[0], end) for piece, end in zip(pieces, ends)]
        return [
            (piece, max(first, begin) - begin, min(last, end) - begin)
            for piece, begin, end in placed
            if first < end and begin < last
        ]

    def read(first: int, last: int) -> Tensor:
        parts: list[Any] = [piece.read(start, stop) for piece, start, stop in each(first, last)]
        if form == "int4":
            return Int4Tensor(*map(np.concatenate, zip(*((a.values_FE, a.scales_FG, a.minima_FG) for a in parts))))
        if form == "int8":
            values_FD = np.concatenate([part.values_FD for part in parts])
            return QuantizedTensor(values_FD, np.concatenate([part.multipliers_F for part in parts]))
        return np.concatenate([as_float32(part) for part in parts])

    def forget(first: int, last: int) -> None:
        for piece, start, stop in each(first, last):
            piece.forget(start, stop)

    shape = ends[-1], *pieces[0].shape[1:]
    return UnreadTensor(shape, read, form, forget, by_rows=all(piece.by_rows for piece in pieces))
