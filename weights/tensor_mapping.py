"""Canonical tensors from a file's arrays: a table of the sources of each, one check of all, then the tensors.

A key is a canonical name of ``spec.tensors``, its value the ``sources`` by their names in the file. In both, STACK
stands for the name of the stack, # for a layer's number, * for weight and bias::

    "STACK.embedding.weight": sources("STACK.embed_tokens.weight"),
    "STACK.layers.#.self_attention.qkv.*": sources("STACK.#.query.*", "STACK.#.key.*", "STACK.#.value.*"),
    "STACK.layers.#.feed_forward.inner.*": sources("STACK.#.fc1.*", transposed=True),

The expected shapes of the arrays follow from the canonical ones. An array that needs no change is not copied; an array
that a file stores once under several names becomes one tensor.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from fastattn.errors import CheckpointError
from fastattn.spec.architecture import ModelSpec
from fastattn.spec.quantized import BlockedTensor, Int4Tensor, QuantizedTensor, Tensor, as_float32
from fastattn.spec.tensors import find_misfits, tensor_shapes

Shape = tuple[int, ...]
NAME = re.compile(r"([a-z_]+)(\.layers\.(\d+))?\.(.+?)(?:\.(weight|bias))?")


class Array(Protocol):
    """An array of a file, of any container; converted only when it is read."""

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
    """The sources of a canonical tensor.

    names   arrays, concatenated by rows; None: a vector of zeros
    rows    of each array; (): all have equal shapes
    ends    the file's names for weight and bias
    transposed  matrices are stored as [inputs, outputs]
    flat    a vector of n numbers may be stored as [1, n]
    skip    how many first rows of an array stay out
    first   how many first columns of a matrix come last in the tensor
    relu    negative numbers become 0
    piece   (number, count): an array holds the rows of so many tensors of equal shapes; the one wanted
    plus    added to each row
    offset  added to each number
    absent  (shape) -> the tensor if the file has none of the arrays; None: they are required
    heads   an array has for each of so many heads its rows of queries, of keys and of values, which the tensor has
            with all queries first
    kernel  a convolution's weight is stored as [outputs, inputs, kernel]; 0: it is none. Its rows become those of a
            linear layer, whose inputs are side by side for each offset of the kernel
    shape   of the canonical tensor
    """

    names: tuple[str | None, ...]
    rows: tuple[int, ...] = ()
    ends: tuple[str, str] = ("weight", "bias")
    transposed: bool = False
    flat: bool = False
    skip: int = 0
    piece: tuple[int, int] = (0, 1)
    plus: FirstRow | None = None
    offset: float = 0.0
    first: int = 0
    relu: bool = False
    absent: Callable[[Shape], np.ndarray] | None = None
    kernel: int = 0
    heads: int = 0
    shape: Shape = ()

    @property
    def row_counts(self) -> tuple[int, ...]:
        """The rows that each array gives to the tensor."""
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
    """A table's entry, see TensorSources."""
    return TensorSources(names, **more)


def zeros(shape: Shape) -> np.ndarray:
    return np.zeros(shape, np.float32)


def identity(shape: Shape) -> np.ndarray:
    return np.eye(*shape, dtype=np.float32)


def canonical_tensors(
    table: Mapping[str, TensorSources], spec: ModelSpec, stored: Mapping[str, Array], where: str, misfit: str
) -> dict[str, Tensor]:
    """The tensors of an architecture by canonical name, see ``check_sources``."""
    parts = map_tensors(table, spec)
    check_sources(parts, stored, where, misfit)
    return make_tensors(parts, stored)


def map_tensors(
    table: Mapping[str, TensorSources], spec: ModelSpec, numbers: Mapping[str, Sequence[int | str]] | None = None
) -> dict[str, TensorSources]:
    """The table's entry for each tensor of the architecture, with its names and shape filled in.

    numbers  what a stack's layers have in the file in place of #; None: their numbers from 0
    """
    return map_shapes(table, tensor_shapes(spec), numbers)


def map_shapes(
    table: Mapping[str, TensorSources],
    shapes: Mapping[str, Shape],
    numbers: Mapping[str, Sequence[int | str]] | None = None,
) -> dict[str, TensorSources]:
    """``map_tensors`` of canonical names and their shapes."""
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
        words = {"STACK": stack, "#": number or "", "*": entry.ends[end == "bias"]}
        names = tuple(theirs and _filled(theirs, words) for theirs in entry.names)
        parts[name] = replace(entry, names=names, shape=shape)
    return parts


def _filled(pattern: str, words: Mapping[str, str]) -> str:
    for sign, word in words.items():
        pattern = pattern.replace(sign, word)
    return pattern


def canonical_sources(spec: ModelSpec) -> dict[str, TensorSources]:
    """The mapping of a file that has each tensor under its canonical name."""
    return {name: TensorSources((name,), shape=shape) for name, shape in tensor_shapes(spec).items()}


def check_sources(parts: Mapping[str, TensorSources], stored: Mapping[str, Array], where: str, misfit: str) -> None:
    """Raise one CheckpointError that lists, by the file's names, what is missing, left over or misshapen.

    where   the file's name in errors
    misfit  the start of the message: what does not fit
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
    made: dict[tuple, Tensor] = {}
    tensors = {}
    for name, part in parts.items():
        arrays = tuple(id(stored[theirs]) if theirs and theirs in stored else theirs for theirs in part.names)
        is_weight = name.endswith(".weight")  # only weights may be int8
        cut = part.skip, part.piece, part.kernel, part.heads, part.first, part.relu
        key = (arrays, is_weight, part.shape, part.transposed, cut, part.plus, part.offset, part.absent)
        if key not in made:
            made[key] = _make(part, stored, is_weight)
        tensors[name] = made[key]
    return tensors


def main_precision(arrays: Iterable[tuple[str, int]]) -> str:
    """The type that holds most of the weights, by (type, size) of each array; float32 if there are none."""
    sizes: dict[str, int] = {}
    for dtype, size in arrays:
        sizes[dtype] = sizes.get(dtype, 0) + size
    return max(sizes, key=lambda dtype: sizes[dtype], default="float32")


def stored_precision(stored: Mapping[str, Any]) -> str:
    """``main_precision`` of a container's tensors, whose types are those of safetensors."""
    names = {"F32": "float32", "F16": "float16", "BF16": "bfloat16", "F64": "float64"}
    return main_precision((names.get(one.dtype, one.dtype.lower()), len(one.data)) for one in stored.values())


def _make(part: TensorSources, stored: Mapping[str, Array], is_weight: bool) -> Tensor:
    if part.absent is not None and part.is_absent(stored):
        return part.absent(part.shape)
    made: Tensor
    if len(part.shape) == 1:
        made = _joined(
            [
                zeros((rows,)) if name is None else _cut(part, stored[name].vector)
                for name, rows in zip(part.names, part.row_counts)
            ]
        )
    elif part.kernel:
        (name,) = part.source_shapes
        weight_OIC = stored[name].vector.reshape(part.source_shapes[name])
        made = np.ascontiguousarray(weight_OIC.transpose(0, 2, 1)).reshape(part.shape)
    else:
        arrays = [stored[name].matrix(part.transposed) for name in part.names if name is not None]
        made = _joined([_cut(part, array) for array in arrays])
        if not is_weight:
            made = as_float32(made)
    if part.heads:
        rows_HPKD = as_float32(made).reshape(part.heads, 3, -1, *part.shape[1:])
        made = np.ascontiguousarray(rows_HPKD.swapaxes(0, 1)).reshape(part.shape)
    if part.plus is not None:
        row_D = as_float32(stored[part.plus.name].matrix(transposed=False))[0]
        made = as_float32(made) + row_D * np.float32(part.plus.scale)
    if part.offset:
        made = as_float32(made) + np.float32(part.offset)
    if part.first:
        made = np.roll(as_float32(made), -part.first, axis=1)
    if part.relu:
        made = np.maximum(as_float32(made), 0)
    return made


def _cut(part: TensorSources, array: Tensor) -> Tensor:
    """The rows of an array that go into a tensor."""
    if not part.skip and part.piece == (0, 1):
        return array
    number, count = part.piece
    rows = (array.shape[0] - part.skip) // count
    cut = slice(part.skip + number * rows, part.skip + (number + 1) * rows)
    if isinstance(array, Int4Tensor):
        return Int4Tensor(array.values_FE[cut], array.scales_FG[cut], array.minima_FG[cut])
    if isinstance(array, BlockedTensor):
        return BlockedTensor((rows, *array.shape[1:]), lambda: array.float32()[cut])
    return as_float32(array)[cut]


def _joined(tensors: Sequence[Tensor]) -> Tensor:
    """The tensors concatenated by rows; int8 or of 4 bits if all are, blocked if all are of few bits."""
    if len(tensors) == 1:
        return tensors[0]
    groups = [tensor for tensor in tensors if isinstance(tensor, Int4Tensor)]
    if len(groups) == len(tensors):
        parts = zip(*((one.values_FE, one.scales_FG, one.minima_FG) for one in groups))
        return Int4Tensor(*map(np.concatenate, parts))
    quantized = [tensor for tensor in tensors if isinstance(tensor, QuantizedTensor)]
    if len(quantized) < len(tensors):

        def join() -> np.ndarray:
            return np.concatenate([as_float32(tensor) for tensor in tensors])

        if any(isinstance(tensor, np.ndarray) for tensor in tensors):
            return join()
        return BlockedTensor((sum(tensor.shape[0] for tensor in tensors), *tensors[0].shape[1:]), join)
    values = np.concatenate([tensor.values_FD for tensor in quantized])
    return QuantizedTensor(values, np.concatenate([tensor.multipliers_F for tensor in quantized]))
