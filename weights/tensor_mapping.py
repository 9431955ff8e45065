"""Canonical tensors from a file's arrays: a table says which arrays each tensor is made of.

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
Table = Mapping[str, "TensorSources"]
# {stack: for each of its layers the text that replaces #}; None: the layers' numbers from 0
LayerNumbers = Mapping[str, Sequence[int | str]] | None
NAME = re.compile(r"([a-z_]+)(\.layers\.(\d+))?\.(.+?)(?:\.(weight|bias))?")


class Array(Protocol):
    """An array of a file in any container, converted when it is read.

    An array whose rows can be read one by one has a method ``unread`` too, which returns an UnreadTensor.
    """

    @property
    def shape(self) -> Shape: ...

    @property
    def vector(self) -> np.ndarray:
        """The values flattened, float32."""

    def matrix(self, transposed: bool) -> Tensor:
        """The matrix in float32, or in int8 where the file has int8; transposed if ``transposed``."""


@dataclass(frozen=True)
class FirstRow:
    """The first row of the matrix ``name``, which has ``rows`` rows, times ``scale``."""

    name: str
    rows: int
    scale: float = 1.0


@dataclass(frozen=True)
class TensorSources:
    """The arrays that a canonical tensor is made of, and how."""

    names: tuple[str | None, ...]  # of the arrays, which are concatenated by rows; None: a vector of zeros
    rows: tuple[int, ...] = ()  # how many rows each array contributes; (): equally many
    ends: tuple[str, str] = ("weight", "bias")  # the file's names for weight and bias
    transposed: bool = False  # matrices are stored as [inputs, outputs]
    flat: bool = False  # a vector of n numbers may be stored as [1, n]
    skipped_rows: int = 0  # how many rows at the beginning of each array are left out
    split: tuple[int, int] = (0, 1)  # (i, n): an array holds the rows of n tensors of equal shapes; this is number i
    added_row: FirstRow | None = None  # added to each row
    offset: float = 0.0  # added to each number
    rolled_columns: int = 0  # how many columns move from the beginning of a matrix to the end of the tensor
    relu: bool = False  # negative numbers become 0
    # (shape) -> the tensor where the file has none of the arrays; None: the arrays are required
    default: Callable[[Shape], np.ndarray] | None = None
    # above 0: the width of a convolution's kernel; the weight, stored as [outputs, inputs, kernel], becomes rows of a
    # linear layer, in which all inputs of one offset of the kernel are neighbours
    kernel: int = 0
    # above 0: the array has the queries, keys and values of one head after another, the tensor first all queries
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
                shape = (rows * self.split[1] + self.skipped_rows, *columns)
                shapes[name] = shape[::-1] if self.transposed else shape
        return shapes | ({self.added_row.name: (self.added_row.rows, self.shape[-1])} if self.added_row else {})

    def uses_default(self, stored: Mapping[str, Array]) -> bool:
        return self.default is not None and not any(name in stored for name in self.source_shapes)


def sources(*names: str | None, **fields: Any) -> TensorSources:
    return TensorSources(names, **fields)


def zeros(shape: Shape) -> np.ndarray:
    return np.zeros(shape, np.float32)


def identity(shape: Shape) -> np.ndarray:
    return np.eye(*shape, dtype=np.float32)


def canonical_tensors(
    table: Table, spec: ModelSpec, stored: Mapping[str, Array], where: str, misfit: str
) -> dict[str, Tensor]:
    """The tensors of the model ``spec``, made as ``table`` says; see ``check_sources`` for ``where`` and ``misfit``."""
    mapping = map_tensors(table, spec)
    check_sources(mapping, stored, where, misfit)
    return make_tensors(mapping, stored)


def map_tensors(table: Table, spec: ModelSpec, numbers: LayerNumbers = None) -> dict[str, TensorSources]:
    """{name of a tensor of the architecture: its entry in the table, with the arrays' names and the shape}."""
    return map_shapes(table, tensor_shapes(spec), numbers)


def map_shapes(table: Table, shapes: Mapping[str, Shape], numbers: LayerNumbers = None) -> dict[str, TensorSources]:
    """``map_tensors`` for tensors of the given canonical names and shapes."""
    mapping = {}
    for name, shape in shapes.items():
        stack, layer, number, member, end = NAME.fullmatch(name).groups()  # type: ignore[union-attr]
        keys = [f"{scope}{'.layers.#' if layer else ''}.{member}" for scope in (stack, "STACK")]
        if end:
            keys = [f"{key}.{suffix}" for key in keys for suffix in (end, "*")]
        entry = next((table[key] for key in keys if key in table), None)
        if entry is None:
            raise LookupError(f"the table has none of {', '.join(keys)}")
        if number and numbers is not None:
            number = str(numbers[stack][int(number)])
        suffix = entry.ends[end == "bias"]
        names = tuple(
            source and source.replace("STACK", stack).replace("#", number or "").replace("*", suffix)
            for source in entry.names
        )
        mapping[name] = replace(entry, names=names, shape=shape)
    return mapping


def canonical_sources(spec: ModelSpec) -> dict[str, TensorSources]:
    """The mapping of a file that has each tensor under its canonical name."""
    return {name: TensorSources((name,), shape=shape) for name, shape in tensor_shapes(spec).items()}


def check_sources(mapping: Mapping[str, TensorSources], stored: Mapping[str, Array], where: str, misfit: str) -> None:
    """Raise one CheckpointError that lists all arrays that are missing, left over or misshapen.

    where, misfit  the beginning of the message: the file's name, and a phrase that says what does not fit
    """
    expected: dict[str, Shape] = {}
    for entry in mapping.values():
        if not entry.uses_default(stored):
            for name, shape in entry.source_shapes.items():
                is_row = entry.flat and len(shape) == 1 and name in stored and stored[name].shape == (1, *shape)
                expected[name] = (1, *shape) if is_row else shape
    problems = find_misfits(expected, stored)
    if problems:
        raise CheckpointError(f"{where}: {misfit}: {'; '.join(problems)}")


# Weights that are or become infinite or NaN cause no warning: they are data.
@np.errstate(over="ignore", invalid="ignore")
def make_tensors(mapping: Mapping[str, TensorSources], stored: Mapping[str, Array]) -> dict[str, Tensor]:
    """The tensors of a checked mapping."""
    by_sources: dict[tuple, Tensor] = {}
    tensors = {}
    for name, entry in mapping.items():
        arrays = tuple(id(stored[source]) if source and source in stored else source for source in entry.names)
        is_weight = name.endswith(".weight")  # only weights may be int8
        changes = entry.skipped_rows, entry.split, entry.kernel, entry.heads, entry.rolled_columns, entry.relu
        key = (arrays, is_weight, entry.shape, entry.transposed, changes, entry.added_row, entry.offset, entry.default)
        if key not in by_sources:
            unread_tensor = _unread_tensor(entry, stored) if is_weight and len(entry.shape) == 2 else None
            by_sources[key] = _make_tensor(entry, stored, is_weight) if unread_tensor is None else unread_tensor
        tensors[name] = by_sources[key]
    return tensors


def main_precision(arrays: Iterable[tuple[str, int]]) -> str:
    """The type of most bytes of the arrays, given as (type, size in bytes); float32 where there are no arrays."""
    sizes: dict[str, int] = {}
    for dtype, size in arrays:
        sizes[dtype] = sizes.get(dtype, 0) + size
    return max(sizes, key=lambda dtype: sizes[dtype], default="float32")


def stored_precision(stored: Mapping[str, Any]) -> str:
    """``main_precision`` of arrays whose types have safetensors' names."""
    names = {"F32": "float32", "F16": "float16", "BF16": "bfloat16", "F64": "float64"}
    return main_precision((names.get(array.dtype, array.dtype.lower()), len(array.data)) for array in stored.values())


def _make_tensor(entry: TensorSources, stored: Mapping[str, Array], is_weight: bool) -> Tensor:
    if entry.default is not None and entry.uses_default(stored):
        return entry.default(entry.shape)
    tensor: Tensor
    if len(entry.shape) == 1:
        vectors = [
            zeros((rows,)) if name is None else stored[name].vector[_row_slice(entry, prod(stored[name].shape))]
            for name, rows in zip(entry.names, entry.row_counts)
        ]
        tensor = vectors[0] if len(vectors) == 1 else np.concatenate(vectors)
    elif entry.kernel:
        (name,) = entry.source_shapes
        weight_OIC = stored[name].vector.reshape(entry.source_shapes[name])
        tensor = np.ascontiguousarray(weight_OIC.transpose(0, 2, 1)).reshape(entry.shape)
    else:
        arrays = [unread(stored[name].matrix(entry.transposed)) for name in entry.names if name is not None]
        tensor = in_memory(_concatenate([_select_rows(entry, array) for array in arrays]))
        if not is_weight:
            tensor = as_float32(tensor)
    if entry.heads:
        rows_HPKD = as_float32(tensor).reshape(entry.heads, 3, -1, *entry.shape[1:])
        tensor = np.ascontiguousarray(rows_HPKD.swapaxes(0, 1)).reshape(entry.shape)
    if entry.added_row is not None:
        row_D = as_float32(stored[entry.added_row.name].matrix(transposed=False))[0]
        tensor = as_float32(tensor) + row_D * np.float32(entry.added_row.scale)
    if entry.offset:
        tensor = as_float32(tensor) + np.float32(entry.offset)
    if entry.rolled_columns:
        tensor = np.roll(as_float32(tensor), -entry.rolled_columns, axis=1)
    if entry.relu:
        tensor = np.maximum(as_float32(tensor), 0)
    return tensor


def _unread_tensor(entry: TensorSources, stored: Mapping[str, Array]) -> UnreadTensor | None:
    """The matrix of ``_make_tensor``, still to be read; None for a convolution, and if an array has no ``unread``."""
    methods = [getattr(stored.get(name), "unread", None) for name in entry.source_shapes]
    if entry.kernel or not methods or None in methods:
        return None
    arrays = [method() for method in methods if method is not None]

    def forget(first: int, last: int) -> None:
        for array in arrays:
            array.forget(0, array.shape[0])

    def read(first: int, last: int) -> np.ndarray:
        return as_float32(_make_tensor(entry, stored, True))[first:last]

    changes = entry.transposed, entry.heads, entry.added_row, entry.offset, entry.rolled_columns, entry.relu
    if any(changes) or None in entry.names:  # then rows of the tensor are not rows of the arrays
        return UnreadTensor(entry.shape, read, "float32", forget, by_rows=False)
    return _concatenate([_select_rows(entry, array) for array in arrays])


def _row_slice(entry: TensorSources, count: int) -> slice:
    """The rows that the tensor takes from an array of ``count`` rows."""
    number, tensors = entry.split
    rows = (count - entry.skipped_rows) // tensors
    return slice(entry.skipped_rows + number * rows, entry.skipped_rows + (number + 1) * rows)


def _select_rows(entry: TensorSources, array: UnreadTensor) -> UnreadTensor:
    """The matrix of the rows that the tensor takes from an array."""
    rows = _row_slice(entry, array.shape[0])
    if rows == slice(0, array.shape[0]):
        return array
    is_int8, begin = array.form == "int8", rows.start

    def read(first: int, last: int) -> Tensor:
        selected_rows: Tensor = array.read(begin + first, begin + last)
        return as_float32(selected_rows) if is_int8 else selected_rows

    def forget(first: int, last: int) -> None:
        array.forget(begin + first, begin + last)

    shape = rows.stop - begin, *array.shape[1:]
    return UnreadTensor(shape, read, "float32" if is_int8 else array.form, forget, array.by_rows)


def _concatenate(matrices: Sequence[UnreadTensor]) -> UnreadTensor:
    """The matrices concatenated by rows, in their common form; else in float32 if one is, else in blocks."""
    if len(matrices) == 1:
        return matrices[0]
    forms = {matrix.form for matrix in matrices}
    form = "float32" if "float32" in forms else min(forms) if len(forms) == 1 else "blocks"
    ends = list(accumulate(matrix.shape[0] for matrix in matrices))

    def overlaps(first: int, last: int) -> list[tuple[UnreadTensor, int, int]]:
        if first == last:
            return [(matrix, 0, 0) for matrix in matrices]
        ranges = [(matrix, end - matrix.shape[0], end) for matrix, end in zip(matrices, ends)]
        return [
            (matrix, max(first, begin) - begin, min(last, end) - begin)
            for matrix, begin, end in ranges
            if first < end and begin < last
        ]

    def read(first: int, last: int) -> Tensor:
        tensors: list[Any] = [matrix.read(start, stop) for matrix, start, stop in overlaps(first, last)]
        if form == "int4":
            return Int4Tensor(*map(np.concatenate, zip(*((t.values_FE, t.scales_FG, t.minima_FG) for t in tensors))))
        if form == "int8":
            values_FD = np.concatenate([tensor.values_FD for tensor in tensors])
            return QuantizedTensor(values_FD, np.concatenate([tensor.multipliers_F for tensor in tensors]))
        return np.concatenate([as_float32(tensor) for tensor in tensors])

    def forget(first: int, last: int) -> None:
        for matrix, start, stop in overlaps(first, last):
            matrix.forget(start, stop)

    shape = ends[-1], *matrices[0].shape[1:]
    return UnreadTensor(shape, read, form, forget, by_rows=all(matrix.by_rows for matrix in matrices))
