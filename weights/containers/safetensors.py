"""The safetensors container: a length, a JSON header, the concatenated arrays; float32 and int8 arrays are not copied.

Types, ranges and sizes in the header are checked against the file before anything is allocated. The arrays must cover
the data without overlap or gap, as the format demands.
"""

import json
import math
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, BinaryIO

import numpy as np

from fastattn.errors import CheckpointError
from fastattn.spec.quantized import Tensor, UnreadTensor
from fastattn.system.memory import release_pages
from fastattn.weights.containers.json_file import JsonObject, parse_json, shorten
from fastattn.weights.folder import Folder

LONGEST_HEADER = 100_000_000  # bytes: the format's own limit
HIGHEST_RANK = 8
# Name of a type -> (bytes of an element, NumPy's type; None: such tensors may be in a file, but are never converted).
TYPES: dict[str, tuple[int, str | None]] = {
    "F32": (4, "<f4"),
    "F16": (2, "<f2"),
    "BF16": (2, "<u2"),
    "F64": (8, "<f8"),
    "BOOL": (1, None),
    **{f"{kind}{8 * size}": (size, None) for kind in "IU" for size in (1, 2, 4, 8)},
    "F8_E4M3": (1, None),
    "F8_E5M2": (1, None),
}
# Name of a type that can be written -> NumPy's type; bfloat16 as its bits.
WRITABLE = {"F32": "<f4", "F16": "<f2", "BF16": "<u2", "I8": "i1", "U8": "u1", "I32": "<i4"}
ALIGNMENT = 64  # bytes: a cache line, and the widest vector


@dataclass(frozen=True)
class StoredTensor:
    """An array of a file, not yet converted."""

    dtype: str
    shape: tuple[int, ...]
    data: memoryview
    where: str
    strides: tuple[int, ...] | None = None  # in bytes, in some of PyTorch's files; None: C-contiguous

    @np.errstate(over="ignore", invalid="ignore")  # weights that become infinite are data
    def float32(self) -> np.ndarray:
        """Aligned, C-contiguous float32; a view of the file's bytes if they are float32 already."""
        numpy_type = TYPES[self.dtype][1]
        if numpy_type is None:
            raise CheckpointError(f"{self.where} should be F32, F16 or BF16, is {self.dtype}")
        stored = np.ndarray(self.shape, numpy_type, self.data if len(self.data) else None, strides=self.strides)
        if self.dtype == "BF16":
            return np.left_shift(stored, 16, dtype=np.uint32, order="C").view(np.float32)
        return np.require(stored, np.float32, ["C", "A", "W"])

    def equals(self, other: "StoredTensor") -> bool:
        return (self.dtype, self.shape, self.strides) == (other.dtype, other.shape, other.strides) and (
            self.data == other.data
        )

    @property
    def vector(self) -> np.ndarray:
        return self.float32().reshape(-1)

    def matrix(self, transposed: bool = False) -> Tensor:
        """``float32()``, transposed if ``transposed``."""
        return np.ascontiguousarray(self.float32().T) if transposed else self.float32()

    def unread(self) -> UnreadTensor:
        """``matrix()``, to be read by rows. Raises CheckpointError for a type that is not converted."""
        if self.strides is not None:
            return UnreadTensor(self.shape, lambda first, last: self.float32()[first:last], by_rows=False)
        self.rows(0, 0).float32()  # raises the error
        return UnreadTensor(
            self.shape,
            lambda first, last: self.rows(first, last).float32(),
            forget=lambda first, last: release_pages(self.rows(first, last).data),
        )

    def rows(self, first: int, last: int) -> Any:
        """The rows from ``first`` to ``last``, as a tensor of the same class."""
        size = len(self.data) // max(1, self.shape[0])
        return replace(self, shape=(last - first, *self.shape[1:]), data=self.data[first * size : last * size])

    def array(self) -> np.ndarray:
        """The array as stored, of a type of WRITABLE; a view of the file's bytes."""
        if self.dtype not in WRITABLE:
            raise CheckpointError(f"{self.where} should be one of {', '.join(WRITABLE)}, is {self.dtype}")
        return np.ndarray(self.shape, WRITABLE[self.dtype], self.data if len(self.data) else None)


@dataclass(frozen=True)
class NewTensor:
    """An array to be written: a type of WRITABLE, and a function that returns the values when they are written."""

    dtype: str
    shape: tuple[int, ...]
    values: Callable[[], np.ndarray | Iterable[np.ndarray]]  # the whole array, or parts of it in order

    @property
    def size(self) -> int:
        """The size in bytes."""
        return math.prod(self.shape) * TYPES[self.dtype][0]


def read_metadata(folder: Folder, name: str) -> JsonObject:
    """The texts by name that a file stores beside its tensors."""
    header, _ = _split_header(folder.read(name), folder.where(name))
    return JsonObject(header, folder.where(name)).nested("__metadata__")


def _split_header(data: memoryview, where: str) -> tuple[dict[str, Any], memoryview]:
    if len(data) < 8:
        raise CheckpointError(f"{where}: expected 8 bytes of header length, the file has {len(data)}")
    (length,) = struct.unpack("<Q", data[:8])
    if length > min(LONGEST_HEADER, len(data) - 8):
        raise CheckpointError(f"{where}: header says {length} bytes, {len(data) - 8} follow (is the file complete?)")
    header = parse_json(bytes(data[8 : 8 + length]), where)
    if not isinstance(header, dict):
        raise CheckpointError(f"{where}: the header should be a JSON object, is {shorten(header)}")
    return header, data[8 + length :]


def parse(data: memoryview, where: str) -> dict[str, StoredTensor]:
    """The tensors of a file by name; CheckpointError for a malformed file."""
    header, body = _split_header(data, where)
    header.pop("__metadata__", None)
    tensors, ranges = {}, []
    for name, entry in header.items():
        if not name.isprintable():
            raise CheckpointError(f"{where}: a tensor's name should be printable, is {shorten(name)}")
        if not isinstance(entry, dict):
            raise CheckpointError(f"{where}: {shorten(name)} should be an object, is {shorten(entry)}")
        tensor, begin, end = _read_entry(JsonObject(entry, f"{where}: {name}"), body)
        tensors[name] = tensor
        ranges.append((begin, end, name))
    previous_end = 0
    for begin, end, name in sorted(ranges):
        if begin != previous_end:
            raise CheckpointError(f"{where}: {name} should begin at byte {previous_end} of the data, begins at {begin}")
        previous_end = end
    if previous_end != len(body):
        raise CheckpointError(f"{where}: the arrays take {previous_end} bytes, the file has {len(body)} for them")
    return tensors


def _read_entry(entry: JsonObject, body: memoryview) -> tuple[StoredTensor, int, int]:
    dtype = entry.string("dtype")
    if dtype not in TYPES:
        raise entry.error("dtype", f"one of {', '.join(TYPES)}", dtype)
    shape = _sizes(entry, "shape")
    offsets = _sizes(entry, "data_offsets")
    if len(shape) > HIGHEST_RANK:
        raise entry.error("shape", f"at most {HIGHEST_RANK} dimensions", list(shape))
    if len(offsets) != 2 or not offsets[0] <= offsets[1] <= len(body):
        raise entry.error("data_offsets", f"a range within {len(body)} bytes", list(offsets))
    begin, end = offsets
    size = math.prod(shape) * TYPES[dtype][0]
    if end - begin != size:
        raise CheckpointError(f"{entry.where}: {dtype} {list(shape)} takes {size} bytes, not {end - begin}")
    if 0 in shape and nonzero_product(shape) > len(body):
        raise entry.error("shape", "sizes that the file could hold", list(shape))
    return StoredTensor(dtype, shape, body[begin:end], entry.where), begin, end


def nonzero_product(shape: tuple[int, ...]) -> int:
    """The product of the sizes above zero, which NumPy limits even for an empty array."""
    return math.prod(filter(None, shape))


def _sizes(entry: JsonObject, name: str) -> tuple[int, ...]:
    values = entry.values.get(name)
    if not isinstance(values, list) or not all(type(value) is int and value >= 0 for value in values):
        raise entry.error(name, "a list of sizes", values)
    return tuple(values)


def write_tensors(
    stream: BinaryIO,
    tensors: Mapping[str, NewTensor],
    progress: Callable[[int, int], None] | None = None,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write a .safetensors file; ``progress`` is called with (bytes written, bytes in all).

    The format allows no gaps, so arrays whose size is a multiple of ALIGNMENT come first, each aligned to ALIGNMENT in
    the file; the other arrays follow by descending item size, each aligned to its item size.
    """
    names = sorted(tensors, key=lambda name: (tensors[name].size % ALIGNMENT > 0, -TYPES[tensors[name].dtype][0]))
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": dict(metadata)}
    total = 0
    for name in names:
        tensor, begin, total = tensors[name], total, total + tensors[name].size
        header[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [begin, total]}
    header_text = json.dumps(header, separators=(",", ":")).encode()
    header_text += b" " * (-(8 + len(header_text)) % ALIGNMENT)
    stream.write(struct.pack("<Q", len(header_text)) + header_text)
    written = 0
    for name in names:
        parts = tensors[name].values()
        for part in [parts] if isinstance(parts, np.ndarray) else parts:
            array = np.require(part, WRITABLE[tensors[name].dtype], "C")
            stream.write(array.reshape(-1).view(np.uint8).data)
        written += tensors[name].size
        if progress is not None:
            progress(written, total)
