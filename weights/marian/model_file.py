"""Containers of Marian models, ``.bin`` and ``.npz``: bytes -> arrays by name; every size is checked before its use."""

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
    """A view of the file's bytes in the shape that the file gives; Marian stores weights as [inputs, outputs]."""

    where: str  # its name in errors
    stored: np.ndarray
    multiplier: np.float32 | None = None  # of an int8 matrix's values; None for other arrays

    @property
    def shape(self) -> tuple[int, ...]:
        return self.stored.shape

    @lazy
    def vector(self) -> np.ndarray:
        return np.require(self._floats().reshape(-1), np.float32, ["C", "A", "W"])

    @lazy
    def rows(self) -> Tensor:
        """The matrix as stored: an embedding table."""
        return self._matrix(self.stored)

    @lazy
    def columns(self) -> Tensor:
        """The matrix transposed: a linear weight, [outputs, inputs]."""
        return self._matrix(self.stored.T)

    def matrix(self, transposed: bool) -> Tensor:
        return self.columns if transposed else self.rows

    def _matrix(self, values: np.ndarray) -> Tensor:
        if self.multiplier is not None:
            return QuantizedTensor(np.ascontiguousarray(values), np.full(len(values), self.multiplier))
        self._floats()
        return np.require(values, np.float32, ["C", "A", "W"])

    def _floats(self) -> np.ndarray:
        if self.stored.dtype.name not in FLOATS or self.multiplier is not None:
            kind = "quantized" if self.multiplier is not None else self.stored.dtype.name
            raise CheckpointError(f"{self.where} should be one of {', '.join(FLOATS)}, is {kind}")
        return self.stored


VERSION, ENCRYPTED = 1, 2
HIGHEST_RANK = 8
LONGEST_NAME = 1024
HEADER = struct.Struct("<4Q")
PLAIN = {0x404: "<f4", 0x402: "<f2", 0x101: "<i1"}
INTGEMM8_BROWSERMT, INTGEMM8 = 0x4101, 0x10001  # an int8 matrix for any CPU, as browsermt and marian-dev number it
# Known types that are not read: other integers, and layouts for one kind of CPU.
FOREIGN = {
    0x102: "int16", 0x104: "int32", 0x108: "int64", 0x201: "uint8", 0x202: "uint16", 0x204: "uint32", 0x208: "uint64",
    0x408: "float64", 0x802: "packed16", 0x1801: "packed8avx2", 0x2801: "packed8avx512", 0x4102: "intgemm16",
    0x10002: "intgemm16", 0x18001: "intgemm8ssse3", 0x11001: "intgemm8avx2", 0x12001: "intgemm8avx512",
    0x13001: "intgemm8avx512vnni", 0x14002: "intgemm16sse2", 0x11002: "intgemm16avx2", 0x12002: "intgemm16avx512",
}  # fmt: skip
SMALLEST_SCALE, GREATEST_SCALE = 1e-30, 1e30  # a division by others would leave float32's range


def is_model(start: bytes) -> bool:
    """Whether a file with these first eight bytes is a Marian .bin, encrypted or not; no CTranslate2 model.bin is."""
    return start in (struct.pack("<Q", VERSION), struct.pack("<Q", ENCRYPTED))


def parse_bin(data: memoryview, where: str) -> dict[str, Item]:
    """Read a whole .bin; CheckpointError if it is malformed or not supported.

    u64 version, u64 n, n x u64 {bytes of the name with its NUL, type, rank, bytes of the data}, the names, the shapes
    (i32), u64 offset and as many bytes of padding, the concatenated data. (marian-dev, src/common/binary.cpp.)
    """
    reader = ByteReader(data, where)
    version = reader.number("Q", "version")
    if version == ENCRYPTED:
        raise CheckpointError(f"{where}: is encrypted; only who has the key can read it, with Marian")
    if version != VERSION:
        raise CheckpointError(f"{where}: not a Marian .bin: its version should be {VERSION}, is {version}")
    count = reader.number("Q", "number of arrays")
    headers = list(HEADER.iter_unpack(reader.take(HEADER.size * count, "headers")))
    names = [_name(reader, header[0]) for header in headers]
    if len(set(names)) < len(names):
        raise CheckpointError(f"{where}: {Counter(names).most_common(1)[0][0]} is given twice")
    _refuse_foreign({name: header[1] for name, header in zip(names, headers)}, where)
    shapes = [_shape(reader, name, header[2]) for name, header in zip(names, headers)]
    reader.take(reader.number("Q", "offset of the data"), "padding")
    items = {
        name: _item(name, kind, shape, reader.take(size, name), reader)
        for name, shape, (_, kind, _, size) in zip(names, shapes, headers)
    }
    reader.check_end()
    return items


def _name(reader: ByteReader, size: int) -> str:
    if not 2 <= size <= LONGEST_NAME:
        raise reader.error(f"a name should have 2 to {LONGEST_NAME} bytes with its NUL, has {size}")
    raw = bytes(reader.take(size, "a name"))
    if raw[-1] or 0 in raw[:-1] or not raw[:-1].isascii() or not raw[:-1].decode("ascii").isprintable():
        raise reader.error(f"a name should be printable and end at its only NUL, is {raw[:60]!r}")
    return raw[:-1].decode("ascii")


def _refuse_foreign(kinds: Mapping[str, int], where: str) -> None:
    refused: dict[int, list[str]] = {}
    for name, kind in kinds.items():
        if kind not in PLAIN and kind not in (INTGEMM8, INTGEMM8_BROWSERMT):
            refused.setdefault(kind, []).append(name)
    reasons = [
        f"{FOREIGN.get(kind, f'type {kind:#x}')} ({names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''})"
        for kind, names in refused.items()
    ]
    if reasons:
        raise CheckpointError(
            f"{where}: arrays of types that are not supported: {', '.join(reasons)}; supported: float32, float16, and"
            " int8 for any CPU (marian-conv --gemm-type intgemm8)"
        )


def _shape(reader: ByteReader, name: str, rank: int) -> tuple[int, ...]:
    if rank > HIGHEST_RANK:
        raise reader.error(f"rank of {name} should be at most {HIGHEST_RANK}, is {rank}")
    shape = struct.unpack(f"<{rank}i", reader.take(4 * rank, f"shape of {name}"))
    if min(shape, default=1) < 1:
        raise reader.error(f"dimensions of {name} should be at least 1, are {list(shape)}")
    return shape


def _item(name: str, kind: int, shape: tuple[int, ...], data: memoryview, reader: ByteReader) -> Item:
    """The Item of an array; ``data`` may end in padding."""
    form = PLAIN.get(kind, "<i1")
    count = math.prod(shape)
    size = count * np.dtype(form).itemsize + (0 if kind in PLAIN else 4)
    if size > len(data):
        raise reader.error(f"{name} of shape {list(shape)} takes {size} bytes, has {len(data)}")
    stored = np.ndarray((count,), form, data)
    if kind in PLAIN:
        return Item(f"{reader.where}: {name}", stored.reshape(shape))
    if len(shape) != 2:
        raise reader.error(f"{name} should be a matrix, has the shape {list(shape)}")
    (scale,) = struct.unpack_from("<f", data, count)
    if not SMALLEST_SCALE < scale < GREATEST_SCALE:
        raise reader.error(f"{name} should have a scale from {SMALLEST_SCALE} to {GREATEST_SCALE}, has {scale}")
    # The values are stored transposed, the shape is not; but browsermt does not transpose embeddings.
    if kind == INTGEMM8_BROWSERMT and "Wemb" in name:
        stored = stored.reshape(shape)
    else:
        stored = stored.reshape(shape[::-1]).T
    return Item(f"{reader.where}: {name}", stored, np.float32(1) / np.float32(scale))


MOST_MEMBERS = 100_000
# The header of a .npy as NumPy and cnpy write it. NumPy's own parser would evaluate any Python literal.
NPY = re.compile(
    rb"\{'descr': '([<|=]?[a-z][0-9]{1,3})', 'fortran_order': (True|False), 'shape': \(([0-9L, ]{0,200})\), ?\}[ \n]*"
)
TYPES = {"f4": "<f4", "f2": "<f2", "i1": "i1", "u1": "i1", "S1": "i1"}


def parse_npz(data: memoryview, where: str) -> dict[str, Item]:
    """Read a whole .npz; CheckpointError if it is malformed or not supported."""
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
        items[name] = _array(_unpacked(data, member, f"{where}: {name}"), f"{where}: {name}")
    return items


def _unpacked(data: memoryview, member: zipfile.ZipInfo, where: str) -> memoryview:
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


def _array(content: memoryview, where: str) -> Item:
    start = bytes(content[:12])
    if start[:6] != b"\x93NUMPY" or start[6:8] not in (b"\1\0", b"\2\0") or len(start) < 12:
        raise CheckpointError(f"{where}: not a .npy array of version 1 or 2")
    begin, form = (10, "<H") if start[6] == 1 else (12, "<I")
    (length,) = struct.unpack(form, start[8:begin])
    header = NPY.fullmatch(bytes(content[begin : begin + min(length, 10_000)]))
    if header is None or len(content) < begin + length:
        raise CheckpointError(f"{where}: not a .npy header that is known: {bytes(content[begin:][:80])!r}")
    form = TYPES.get(header[1].decode().lstrip("<|="), "")
    if not form or header[2] == b"True":
        order = " in Fortran's order" if header[2] == b"True" else ""
        raise CheckpointError(
            f"{where}: should be float32, float16 or int8 in C's order, is {header[1].decode()}{order}"
        )
    shape = [size.strip(b" L") for size in header[3].split(b",") if size.strip()]
    if len(shape) > HIGHEST_RANK or not all(size.isdigit() and int(size) for size in shape):
        raise CheckpointError(f"{where}: should have up to {HIGHEST_RANK} dimensions of at least 1, has {header[3]!r}")
    sizes = tuple(map(int, shape))
    body = content[begin + length :]
    if math.prod(sizes) * np.dtype(form).itemsize != len(body):
        raise CheckpointError(f"{where}: {form[-2:]} of shape {list(sizes)} does not take {len(body)} bytes")
    return Item(where, np.ndarray(sizes, form, body))
