"""Containers of Marian models, ``.bin`` and ``.npz``: bytes -> arrays by name. Each size is checked before its use."""

import math
import re
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fastattn.errors import CheckpointError
from fastattn.spec.quantized import QuantizedTensor, Tensor
from fastattn.system.records import lazy
from fastattn.weights.containers import ByteReader
from fastattn.weights.containers.json_file import shorten
from fastattn.weights.containers.zip_archive import ZipError, check_members, check_packing, list_members, packed_bytes

FLOATS = ("float32", "float16")
SETTINGS = "special:model.yml"


@dataclass(frozen=True, eq=False)
class Item:
    """An array, a view of the file's bytes with the file's shape; Marian stores weights as [inputs, outputs]."""

    where: str  # the array's name in errors
    array: np.ndarray
    multiplier: np.float32 | None = None  # of the values of an int8 matrix; None for any other array

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @lazy
    def vector(self) -> np.ndarray:
        return np.require(self._floats().reshape(-1), np.float32, ["C", "A", "W"])

    @lazy
    def rows(self) -> Tensor:
        """The matrix as the file has it, for an embedding table."""
        return self._matrix(self.array)

    @lazy
    def columns(self) -> Tensor:
        """The matrix transposed, [outputs, inputs], for a linear weight."""
        return self._matrix(self.array.T)

    def matrix(self, transposed: bool) -> Tensor:
        return self.columns if transposed else self.rows

    def _matrix(self, values: np.ndarray) -> Tensor:
        if self.multiplier is not None:
            return QuantizedTensor(np.ascontiguousarray(values), np.full(len(values), self.multiplier))
        self._floats()
        return np.require(values, np.float32, ["C", "A", "W"])

    def _floats(self) -> np.ndarray:
        if self.array.dtype.name not in FLOATS or self.multiplier is not None:
            kind = "quantized" if self.multiplier is not None else self.array.dtype.name
            raise CheckpointError(f"{self.where} should be one of {', '.join(FLOATS)}, is {kind}")
        return self.array


VERSION, ENCRYPTED = 1, 2
HIGHEST_RANK, LONGEST_NAME = 8, 1024
HEADER = struct.Struct("<4Q")
NUMPY_TYPES = {0x404: "<f4", 0x402: "<f2", 0x101: "<i1"}
INTGEMM8_BROWSERMT, INTGEMM8 = 0x4101, 0x10001  # an int8 matrix for any CPU, as browsermt and marian-dev number it
# Types that are not read: other integers, and layouts for one kind of CPU.
UNSUPPORTED_TYPES = {
    0x102: "int16", 0x104: "int32", 0x108: "int64", 0x201: "uint8", 0x202: "uint16", 0x204: "uint32", 0x208: "uint64",
    0x408: "float64", 0x802: "packed16", 0x1801: "packed8avx2", 0x2801: "packed8avx512", 0x4102: "intgemm16",
    0x10002: "intgemm16", 0x18001: "intgemm8ssse3", 0x11001: "intgemm8avx2", 0x12001: "intgemm8avx512",
    0x13001: "intgemm8avx512vnni", 0x14002: "intgemm16sse2", 0x11002: "intgemm16avx2", 0x12002: "intgemm16avx512",
}  # fmt: skip
SMALLEST_SCALE, GREATEST_SCALE = 1e-30, 1e30  # a division by another scale would leave float32's range


def is_model(start: bytes) -> bool:
    """Whether a file that begins with these eight bytes is a Marian .bin, perhaps encrypted, and not CTranslate2's."""
    return start in (struct.pack("<Q", VERSION), struct.pack("<Q", ENCRYPTED))


def parse_bin(data: memoryview, where: str) -> dict[str, Item]:
    """The arrays of a .bin; CheckpointError if it is malformed or not supported.

    The file has u64 version, u64 n, n x u64 {bytes of the name with its NUL, type, rank, bytes of the data}, names,
    shapes (i32), u64 offset and as many bytes of padding, the concatenated data. (marian-dev, src/common/binary.cpp.)
    """
    reader = ByteReader(data, where)
    version = reader.number("Q", "version")
    if version == ENCRYPTED:
        raise CheckpointError(f"{where}: is encrypted; only who has the key can read it, with Marian")
    if version != VERSION:
        raise CheckpointError(f"{where}: not a Marian .bin: its version should be {VERSION}, is {version}")
    count = reader.number("Q", "number of arrays")
    headers = list(HEADER.iter_unpack(reader.take(HEADER.size * count, "headers")))
    names = [_read_name(reader, header[0]) for header in headers]
    if len(set(names)) < len(names):
        raise CheckpointError(f"{where}: {Counter(names).most_common(1)[0][0]} is given twice")
    _check_types({name: header[1] for name, header in zip(names, headers)}, where)
    shapes = [_read_shape(reader, name, header[2]) for name, header in zip(names, headers)]
    reader.take(reader.number("Q", "offset of the data"), "padding")
    items = {
        name: _make_item(name, number, shape, reader.take(size, name), reader)
        for name, shape, (_, number, _, size) in zip(names, shapes, headers)
    }
    reader.check_end()
    return items


def _read_name(reader: ByteReader, size: int) -> str:
    if not 2 <= size <= LONGEST_NAME:
        raise reader.error(f"a name should have 2 to {LONGEST_NAME} bytes with its NUL, has {size}")
    raw = bytes(reader.take(size, "a name"))
    if raw[-1] or 0 in raw[:-1] or not raw[:-1].isascii() or not raw[:-1].decode("ascii").isprintable():
        raise reader.error(f"a name should be printable and end at its only NUL, is {raw[:60]!r}")
    return raw[:-1].decode("ascii")


def _check_types(types: Mapping[str, int], where: str) -> None:
    names_by_type: dict[int, list[str]] = {}
    for name, number in types.items():
        if number not in NUMPY_TYPES and number not in (INTGEMM8, INTGEMM8_BROWSERMT):
            names_by_type.setdefault(number, []).append(name)
    problems = []
    for number, names in names_by_type.items():
        count = f" and {len(names) - 1} more" if len(names) > 1 else ""
        problems.append(f"{UNSUPPORTED_TYPES.get(number, f'type {number:#x}')} ({names[0]}{count})")
    if problems:
        raise CheckpointError(
            f"{where}: arrays of types that are not supported: {', '.join(problems)}; supported: float32, float16, and"
            " int8 for any CPU (marian-conv --gemm-type intgemm8)"
        )


def _read_shape(reader: ByteReader, name: str, rank: int) -> tuple[int, ...]:
    if rank > HIGHEST_RANK:
        raise reader.error(f"rank of {name} should be at most {HIGHEST_RANK}, is {rank}")
    shape = struct.unpack(f"<{rank}i", reader.take(4 * rank, f"shape of {name}"))
    if min(shape, default=1) < 1:
        raise reader.error(f"dimensions of {name} should be at least 1, are {list(shape)}")
    return shape


def _make_item(name: str, type_number: int, shape: tuple[int, ...], data: memoryview, reader: ByteReader) -> Item:
    """The Item of an array; ``data`` may end in padding."""
    dtype = NUMPY_TYPES.get(type_number, "<i1")
    count = math.prod(shape)
    size = count * np.dtype(dtype).itemsize + (0 if type_number in NUMPY_TYPES else 4)
    if size > len(data):
        raise reader.error(f"{name} of shape {list(shape)} takes {size} bytes, has {len(data)}")
    array = np.ndarray((count,), dtype, data)
    if type_number in NUMPY_TYPES:
        return Item(f"{reader.where}: {name}", array.reshape(shape))
    if len(shape) != 2:
        raise reader.error(f"{name} should be a matrix, has the shape {list(shape)}")
    (scale,) = struct.unpack_from("<f", data, count)
    if not SMALLEST_SCALE < scale < GREATEST_SCALE:
        raise reader.error(f"{name} should have a scale from {SMALLEST_SCALE} to {GREATEST_SCALE}, has {scale}")
    # Values are stored transposed, shapes are not; but browsermt does not transpose embeddings.
    is_transposed = type_number != INTGEMM8_BROWSERMT or "Wemb" not in name
    array = array.reshape(shape[::-1]).T if is_transposed else array.reshape(shape)
    return Item(f"{reader.where}: {name}", array, np.float32(1) / np.float32(scale))


MOST_MEMBERS = 100_000
# The header of a .npy as NumPy and cnpy write it. NumPy's own parser would evaluate any Python literal.
NPY = re.compile(
    rb"\{'descr': '([<|=]?[a-z][0-9]{1,3})', 'fortran_order': (True|False), 'shape': \(([0-9L, ]{0,200})\), ?\}[ \n]*"
)
# Type in the header of a .npy -> NumPy's type here.
NPY_TYPES = {"f4": "<f4", "f2": "<f2", "i1": "i1", "u1": "i1", "S1": "i1"}


def parse_npz(data: memoryview, where: str) -> dict[str, Item]:
    """The arrays of an .npz; CheckpointError if it is malformed or not supported."""
    try:
        members = list_members(data)
    except ZipError as error:
        raise CheckpointError(f"{where}: not an .npz archive, or not a whole one: {error}") from None
    if len(members) > MOST_MEMBERS:
        raise CheckpointError(f"{where}: should have at most {MOST_MEMBERS} members, has {len(members)}")
    check_members(members, len(data), where)
    items: dict[str, Item] = {}
    for member in members:
        name = member.filename.removesuffix(".npy")
        if not name.isprintable() or name == member.filename:
            raise CheckpointError(f"{where}: member {shorten(member.filename)} should be a printable name with .npy")
        if name in items:
            raise CheckpointError(f"{where}: {name} is given twice")
        items[name] = _parse_npy(_unpack(data, member, f"{where}: {name}"), f"{where}: {name}")
    return items


def _unpack(data: memoryview, member: zipfile.ZipInfo, where: str) -> memoryview:
    """A member's bytes, checksum verified; a view of the file's bytes if it is not compressed."""
    check_packing(member, where)
    packed = packed_bytes(data, member)
    if packed is None:
        raise CheckpointError(f"{where}: is not where the archive says")
    if len(packed) != member.compress_size:
        raise CheckpointError(f"{where}: expected {member.compress_size} bytes, {len(packed)} remain")
    content = packed
    if member.compress_type == zipfile.ZIP_DEFLATED:
        try:
            content = memoryview(bytearray(zlib.decompressobj(-15).decompress(packed, member.file_size + 1)))
        except zlib.error as error:
            raise CheckpointError(f"{where}: cannot be unpacked: {error}") from None
    if len(content) != member.file_size or zlib.crc32(content) != member.CRC:
        raise CheckpointError(f"{where}: its size or its checksum does not match, the file is damaged")
    return content


def _parse_npy(content: memoryview, where: str) -> Item:
    start = bytes(content[:12])
    if start[:6] != b"\x93NUMPY" or start[6:8] not in (b"\1\0", b"\2\0") or len(start) < 12:
        raise CheckpointError(f"{where}: not a .npy array of version 1 or 2")
    begin, length_type = (10, "<H") if start[6] == 1 else (12, "<I")
    (length,) = struct.unpack(length_type, start[8:begin])
    header = NPY.fullmatch(bytes(content[begin : begin + min(length, 10_000)]))
    if header is None or len(content) < begin + length:
        raise CheckpointError(f"{where}: not a .npy header that is known: {bytes(content[begin:][:80])!r}")
    dtype = NPY_TYPES.get(header[1].decode().lstrip("<|="), "")
    if not dtype or header[2] == b"True":
        order = " in Fortran's order" if header[2] == b"True" else ""
        raise CheckpointError(
            f"{where}: should be float32, float16 or int8 in C's order, is {header[1].decode()}{order}"
        )
    digits = [size.strip(b" L") for size in header[3].split(b",") if size.strip()]
    if len(digits) > HIGHEST_RANK or not all(size.isdigit() and int(size) for size in digits):
        raise CheckpointError(f"{where}: should have up to {HIGHEST_RANK} dimensions of at least 1, has {header[3]!r}")
    shape = tuple(map(int, digits))
    body = content[begin + length :]
    if math.prod(shape) * np.dtype(dtype).itemsize != len(body):
        raise CheckpointError(f"{where}: {dtype[-2:]} of shape {list(shape)} does not take {len(body)} bytes")
    return Item(where, np.ndarray(shape, dtype, body))
