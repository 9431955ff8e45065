"""The container of CTranslate2's ``model.bin``, binary versions 1 to 6: bytes -> variables by name.

Every count and size is checked against the bytes that remain before anything is allocated.
"""

import math
import struct
from dataclasses import dataclass

import numpy as np

from fastattn.errors import CheckpointError
from fastattn.spec.quantized import QuantizedTensor, Tensor
from fastattn.system.records import lazy
from fastattn.weights.containers import ByteReader

NEWEST_VERSION = 6
LONGEST_NAME = 1024
HIGHEST_RANK = 8
# Versions from 4 on store a type's number; earlier versions store only the width of an item in bytes.
TYPES = {0: "float32", 1: "int8", 2: "int16", 3: "int32", 4: "float16", 5: "bfloat16"}
TYPES_BY_WIDTH = {4: "float32", 2: "int16", 1: "int8"}
NUMPY_TYPES = {"bfloat16": "<u2", "float32": "<f4", "int8": "<i1", "int16": "<i2", "int32": "<i4", "float16": "<f2"}
GLOBAL_INT16_SCALE = 1000.0  # the scale of every int16 model that was written before the format stored scales
SMALLEST_SCALE = 1e-30  # a division by less would leave float32's range


@dataclass
class Variable:
    """A stored array, a view of the file's bytes, converted to float32 once used. Tied weights are one Variable."""

    name: str
    dtype: str
    array: np.ndarray
    scale: "Variable | None" = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    def scalar(self) -> float:
        """The value of an attribute; CheckpointError if the variable is an array."""
        if self.shape:
            raise CheckpointError(f"{self.name} should be a single value, is {self.dtype} {list(self.shape)}")
        if self.dtype == "bfloat16":
            return float(self.float32)
        return self.array.item()

    @lazy
    def float32(self) -> np.ndarray:
        """The values as aligned, C-contiguous float32.

        int8 has a scale for each row, int16 one scale for all rows. Values are multiplied by the scale's reciprocal and
        rounded as in CTranslate2's computation in float32.
        """
        if self.dtype == "float32":
            return np.require(self.array, np.float32, ["C", "A", "W"])
        if self.dtype == "float16":
            return self.array.astype(np.float32)
        if self.dtype == "bfloat16":
            return np.left_shift(self.array, 16, dtype=np.uint32).view(np.float32)
        if self.dtype not in ("int8", "int16"):
            raise CheckpointError(f"{self.name} should hold weights, holds {self.dtype}")
        return np.multiply(self.array, _reciprocals(self), dtype=np.float32)

    @property
    def vector(self) -> np.ndarray:
        return self.float32.reshape(-1)

    def matrix(self, transposed: bool = False) -> Tensor:
        """The values in float32, or in int8 where the file has int8; if ``transposed``, always float32, transposed."""
        if transposed:
            return np.ascontiguousarray(self.float32.T)
        if self.dtype == "int8" and self.array.ndim == 2:
            return QuantizedTensor(self.array, _reciprocals(self).ravel())
        return self.float32


@dataclass(frozen=True)
class ModelFile:
    """The contents of a model.bin."""

    version: int
    spec_name: str  # the class of the model
    revision: int  # of the class, which decides the names of variables
    variables: dict[str, Variable]
    aliases: dict[str, str]  # {second name of a Variable: its first name}; ``variables`` has both names


class _Reader(ByteReader):
    def count(self, label: str, item_size: int) -> int:
        """The number of items that follow, each of at least ``item_size`` bytes."""
        count = self.number("I", label)
        if count * item_size > self.remaining:
            raise self.error(f"{label} {count} needs at least {count * item_size} bytes, {self.remaining} remain")
        return count

    def text(self, label: str) -> str:
        size = self.number("H", f"the length of {label}")
        if not 1 <= size <= LONGEST_NAME:
            raise self.error(f"{label} should have 1 to {LONGEST_NAME} bytes, has {size}")
        raw = bytes(self.take(size, label))
        if raw[-1] or 0 in raw[:-1]:
            raise self.error(f"{label} should end at its only NUL, is {raw[:60]!r}")
        try:
            text = raw[:-1].decode()
        except UnicodeDecodeError:
            raise self.error(f"{label} should be UTF-8, is {raw[:60]!r}") from None
        if not text.isprintable():
            raise self.error(f"{label} should be printable, is {ascii(text[:60])}")
        return text


def parse(data: memoryview, where: str) -> ModelFile:
    """Read a whole model.bin; raises CheckpointError, which names ``where``, at the first fault."""
    reader = _Reader(data, where)
    version = reader.number("I", "binary version")
    if not 1 <= version <= NEWEST_VERSION:
        raise CheckpointError(f"{where}: CTranslate2 binary version should be 1 to {NEWEST_VERSION}, is {version}")
    spec_name, revision = "", 1
    if version >= 2:
        spec_name = reader.text("the specification's name")
        revision = reader.number("I", "revision")
    variables: dict[str, Variable] = {}
    for _ in range(reader.count("number of variables", item_size=8)):
        variable = _read_variable(reader, version)
        if variable.name in variables:
            raise reader.error(f"variable {variable.name} is given twice")
        variables[variable.name] = variable
    aliases: dict[str, str] = {}
    if version >= 3:
        for _ in range(reader.count("number of aliases", item_size=6)):
            alias, target = reader.text("an alias"), reader.text("an alias's target")
            if alias in variables:
                raise reader.error(f"alias {alias} is also a variable or given twice")
            if target not in variables:
                raise reader.error(f"alias {alias} stands for {target}, which is missing")
            variables[alias] = variables[target]
            aliases[alias] = target
    reader.check_end()
    return ModelFile(version, spec_name, revision, variables, aliases)


def link_scales(variables: dict[str, Variable]) -> None:
    """Give each variable NAME its scale, the variable NAME_scale; all names should be of the newest revision."""
    for name, variable in variables.items():
        if variable.scale is None:
            variable.scale = variables.get(name + "_scale")


def _read_variable(reader: _Reader, version: int) -> Variable:
    name = reader.text("a variable's name")
    rank = reader.number("B", f"rank of {name}")
    if rank > HIGHEST_RANK:
        raise reader.error(f"rank of {name} should be at most {HIGHEST_RANK}, is {rank}")
    shape = struct.unpack(f"<{rank}I", reader.take(4 * rank, f"dimensions of {name}"))
    types = TYPES if version >= 4 else TYPES_BY_WIDTH
    code = reader.number("B", f"type of {name}")
    if code not in types:
        choices = ", ".join(f"{code} ({dtype})" for code, dtype in sorted(types.items()))
        raise reader.error(f"type of {name} should be one of {choices}, is {code}")
    dtype = types[code]
    itemsize = np.dtype(NUMPY_TYPES[dtype]).itemsize
    size = reader.number("I", f"size of {name}") * (1 if version >= 4 else itemsize)
    if size != math.prod(shape) * itemsize:
        raise reader.error(f"{name} of {dtype} {list(shape)} takes {math.prod(shape) * itemsize} bytes, not {size}")
    # NumPy limits the product of the other sizes even if an array is empty.
    if 0 in shape and math.prod(filter(None, shape)) > len(reader.data):
        raise reader.error(f"{name} is empty but has dimensions {list(shape)}, more than the file could hold")
    raw = reader.take(size, name)
    return Variable(name, dtype, np.ndarray(shape, NUMPY_TYPES[dtype], raw if size else None))


def _reciprocals(variable: Variable) -> np.ndarray:
    """1 / scale: [rows, 1] for int8, a single number for int16."""
    scale = variable.scale
    if scale is None:
        if variable.dtype != "int16":
            raise CheckpointError(f"{variable.name} is {variable.dtype}, but {variable.name}_scale is missing")
        return np.float32(1) / np.full((1,) * max(1, variable.array.ndim), GLOBAL_INT16_SCALE, np.float32)
    rows = variable.shape[:1] if variable.dtype == "int8" else ()
    if scale.dtype not in ("float32", "float16", "bfloat16") or scale.shape not in (rows, rows + (1,)):
        raise CheckpointError(
            f"{scale.name} should be float32 {list(rows)} for {variable.dtype} {variable.name} {list(variable.shape)},"
            f" is {scale.dtype} {list(scale.shape)}"
        )
    values = scale.float32
    if not (values > SMALLEST_SCALE).all():
        raise CheckpointError(f"{scale.name} should be above {SMALLEST_SCALE} everywhere")
    return np.float32(1) / values.reshape(rows + (1,) * (variable.array.ndim - len(rows)))
