"""The container of Marian's ``.bin`` models: bytes -> arrays by name. Every size is checked before it is used.

u64 version, u64 n, n x u64 {bytes of the name with its NUL, type, rank, bytes of the data}, the names, the shapes
(i32), u64 offset and as many bytes of padding, the concatenated data. (marian-dev, src/common/binary.cpp.)
"""

import math
import struct
from collections import Counter
from collections.abc import Mapping

import numpy as np

from fastattn.errors import CheckpointError
from fastattn.weights.containers.byte_reader import ByteReader
from fastattn.weights.marian.item import Item

VERSION, ENCRYPTED = 1, 2
HIGHEST_RANK = 8
LONGEST_NAME = 1024
HEADER = struct.Struct("<4Q")
PLAIN = {0x404: "<f4", 0x402: "<f2", 0x101: "<i1"}
# An int8 matrix for any CPU, as browsermt and marian-dev number it.
INTGEMM8_BROWSERMT, INTGEMM8 = 0x4101, 0x10001
# Known types that are not read: other integers, and layouts for one kind of CPU.
FOREIGN = {
    0x102: "int16", 0x104: "int32", 0x108: "int64", 0x201: "uint8", 0x202: "uint16", 0x204: "uint32", 0x208: "uint64",
    0x408: "float64", 0x802: "packed16", 0x1801: "packed8avx2", 0x2801: "packed8avx512", 0x4102: "intgemm16",
    0x10002: "intgemm16", 0x18001: "intgemm8ssse3", 0x11001: "intgemm8avx2", 0x12001: "intgemm8avx512",
    0x13001: "intgemm8avx512vnni", 0x14002: "intgemm16sse2", 0x11002: "intgemm16avx2", 0x12002: "intgemm16avx512",
}  # fmt: skip
SMALLEST_SCALE, GREATEST_SCALE = 1e-30, 1e30  # a division by others would leave float32's range


def is_model(start: bytes) -> bool:
    """Whether these first eight bytes are of a Marian .bin, encrypted or not; no CTranslate2 model.bin has the same."""
    return start in (struct.pack("<Q", VERSION), struct.pack("<Q", ENCRYPTED))


def parse(data: memoryview, where: str) -> dict[str, Item]:
    """Read a whole .bin; raises CheckpointError, which names ``where``, if it is malformed or not supported."""
    reader = ByteReader(data, where)
    version = reader.number("Q", "version")
    if version == ENCRYPTED:
        raise CheckpointError(f"{where}: is encrypted; only who has the key can read it, with Marian")
    if version != VERSION:
        raise CheckpointError(f"{where}: not a Marian .bin: its version should be {VERSION}, is {version}")
    count = reader.number("Q", "number of arrays")
    headers = [HEADER.unpack(entry) for entry in _split(reader.take(HEADER.size * count, "headers"), HEADER.size)]
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


def _split(data: memoryview, size: int) -> list[memoryview]:
    return [data[at : at + size] for at in range(0, len(data), size)]


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
