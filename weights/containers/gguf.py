"""The GGUF container of llama.cpp: metadata by key, then tensors of floats or of quantized blocks; files are mapped.

Versions 2 and 3, little-endian. Every count (keys, strings, lists, dimensions) is checked against the bytes that remain
before anything is allocated, and tensors must lie aligned in the file without overlap.
"""

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastattn.errors import CheckpointError
from fastattn.spec.quantized import GROUP_INPUTS, Int4Tensor, Tensor, UnreadTensor, in_memory
from fastattn.system.memory import release_pages
from fastattn.weights.containers import ByteReader
from fastattn.weights.containers.json_file import JsonObject, shorten
from fastattn.weights.containers.safetensors import StoredTensor


@dataclass(frozen=True, eq=False)
class Groups:
    """B blocks of G groups of W numbers: values * scales, or values * scales + minima."""

    values_BGW: np.ndarray  # int8 or uint8
    scales_BG: np.ndarray  # float32
    minima_BG: np.ndarray | None = None  # float32

    def dequantize(self, out_BGW: np.ndarray) -> None:
        np.multiply(self.values_BGW, self.scales_BG[..., None], out=out_BGW, dtype=np.float32)
        if self.minima_BG is not None:
            out_BGW += self.minima_BG[..., None]


@dataclass(frozen=True)
class BlockType:
    """Blocks of ``numbers`` numbers in ``size`` bytes; ``unpack`` takes uint8 [B, size]."""

    numbers: int
    size: int
    unpack: Callable[[np.ndarray], Groups]


def _half(blocks_BS: np.ndarray, first: int) -> np.ndarray:
    """The float16 number that begins at byte ``first`` of each block, as float32 [B, 1]."""
    return np.ascontiguousarray(blocks_BS[:, first : first + 2]).view("<f2").astype(np.float32)


def _unpack(bytes_BS: np.ndarray, width: int, bits: int) -> np.ndarray:
    """uint8 [B, groups, width]: ``width`` bytes give one group of their lowest ``bits``, one of the next bits, ..."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    groups = bytes_BS.reshape(len(bytes_BS), -1, 1, width) >> shifts & np.uint8((1 << bits) - 1)
    return groups.reshape(len(bytes_BS), -1, width)


def _four_bits(bytes_BS: np.ndarray) -> np.ndarray:
    """The 32 numbers of 16 bytes, [B, 1, 32]."""
    return _unpack(bytes_BS, 16, 4).reshape(-1, 1, 32)


def _five_bits(bytes_BS: np.ndarray) -> np.ndarray:
    """The 32 numbers of 20 bytes, [B, 1, 32]: 4 bytes have the highest bits, 16 bytes the other four."""
    high_bits = np.unpackbits(bytes_BS[:, :4], axis=1, bitorder="little")
    return _four_bits(bytes_BS[:, 4:]) | (high_bits << np.uint8(4))[:, None]


def _k_groups(blocks: np.ndarray, values_BGW: np.ndarray) -> Groups:
    """The 8 groups of Q4_K's or Q5_K's blocks: 12 bytes hold 8 scales and 8 minima of 6 bits, some in two parts."""
    first, second, third = (blocks[:, begin : begin + 4] for begin in (4, 8, 12))
    scales = np.hstack([first & 63, (third & 15) | (first >> 2 & 48)])
    minima = np.hstack([second & 63, (third >> 4) | (second >> 2 & 48)])
    return Groups(values_BGW, _half(blocks, 0) * scales, -(_half(blocks, 2) * minima))


def _unpack_q6_k(blocks: np.ndarray) -> Groups:
    low_bits = _unpack(blocks[:, :128], 64, 4).reshape(-1, 16, 16)
    high_bits = _unpack(blocks[:, 128:192], 32, 2).reshape(-1, 16, 16)
    values = (low_bits | high_bits << np.uint8(4)).view(np.int8) - np.int8(32)
    return Groups(values, _half(blocks, 208) * blocks[:, 192:208].view(np.int8))


BLOCKS = {
    "Q8_0": BlockType(32, 34, lambda blocks: Groups(blocks[:, None, 2:].view(np.int8), _half(blocks, 0))),
    "Q4_0": BlockType(
        32, 18, lambda blocks: Groups(_four_bits(blocks[:, 2:]).view(np.int8) - np.int8(8), _half(blocks, 0))
    ),
    "Q4_1": BlockType(32, 20, lambda blocks: Groups(_four_bits(blocks[:, 4:]), _half(blocks, 0), _half(blocks, 2))),
    "Q5_0": BlockType(
        32, 22, lambda blocks: Groups(_five_bits(blocks[:, 2:]).view(np.int8) - np.int8(16), _half(blocks, 0))
    ),
    "Q5_1": BlockType(32, 24, lambda blocks: Groups(_five_bits(blocks[:, 4:]), _half(blocks, 0), _half(blocks, 2))),
    "Q4_K": BlockType(256, 144, lambda blocks: _k_groups(blocks, _unpack(blocks[:, 16:], 32, 4))),
    "Q5_K": BlockType(
        256,
        176,
        lambda blocks: _k_groups(blocks, _unpack(blocks[:, 48:], 32, 4) | _unpack(blocks[:, 16:48], 32, 1) << 4),
    ),
    "Q6_K": BlockType(256, 210, _unpack_q6_k),
}
MAGIC, VERSIONS = b"GGUF", (2, 3)
HIGHEST_RANK = 4
MOST_ENTRIES = 1 << 17  # keys, or tensors: more than any real file has
STRING, LIST, BOOLEAN = 8, 9, 7  # numbers of types of metadata
# Number of a type of metadata -> NumPy's type.
DTYPES = {0: "u1", 1: "i1", 2: "u2", 3: "i2", 4: "u4", 5: "i4", 6: "f4", BOOLEAN: "u1", 10: "u8", 11: "i8", 12: "f8"}
# Number of a type of tensors -> its name. Only types of FLOAT_BYTES and BLOCKS are read.
TYPES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 9: "Q8_1", 10: "Q2_K", 11: "Q3_K",
    12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S",
    20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64",
    29: "IQ1_M", 30: "BF16", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4", 40: "NVFP4", 41: "Q1_0",
}  # fmt: skip
FOUR_BIT_TYPES = ("Q4_0", "Q4_1", "Q4_K")
GREATEST_HALF = 65504
FLOAT_BYTES = {"F32": 4, "F16": 2, "BF16": 2}  # bytes of a number
NUMBERS_AT_ONCE = 1 << 20  # how many numbers are unpacked at a time, so that temporary arrays stay small


class BlockTensor(StoredTensor):
    """A tensor of a file, not yet converted: floats, or rows of blocks."""

    @property
    def precision(self) -> str:
        """The engine's precision that is nearest to the type: int8 for blocks of more than 4 bits."""
        return {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}.get(self.dtype) or (
            "int4" if self.dtype in FOUR_BIT_TYPES else "int8"
        )

    def matrix(self, transposed: bool = False) -> Tensor:
        """Blocks as they are stored, floats as float32; if ``transposed``, all as float32, transposed."""
        return super().matrix(True) if transposed else in_memory(self.unread())

    def unread(self) -> UnreadTensor:
        def read(first: int, last: int) -> Tensor:
            rows = self.rows(first, last)
            return rows._int4() if form == "int4" else rows.float32()

        form = "int4" if self._fits_int4() else "blocks" if self.dtype in BLOCKS else "float32"
        return UnreadTensor(self.shape, read, form, lambda first, last: release_pages(self.rows(first, last).data))

    @np.errstate(over="ignore", invalid="ignore")
    def float32(self) -> np.ndarray:
        """C-contiguous float32; a view of the file's bytes if they are float32 already."""
        if self.dtype in FLOAT_BYTES:
            return super().float32()
        blocks = self.blocks()
        numbers = np.empty((len(blocks), BLOCKS[self.dtype].numbers), np.float32)
        step = NUMBERS_AT_ONCE // BLOCKS[self.dtype].numbers
        for first in range(0, len(blocks), step):
            groups = BLOCKS[self.dtype].unpack(blocks[first : first + step])
            groups.dequantize(numbers[first : first + step].reshape(groups.values_BGW.shape))
        return numbers.reshape(self.shape)

    def blocks(self) -> np.ndarray:
        """uint8 [blocks, bytes of a block], in the order of the numbers; a view of the file's bytes."""
        size = BLOCKS[self.dtype].size
        return np.ndarray((len(self.data) // size, size), np.uint8, self.data)

    @np.errstate(over="ignore", invalid="ignore")
    def _fits_int4(self) -> bool:
        """Whether the blocks have 4 bits a number, and scales and minima that float16 can hold.

        Q4_0's minima are -8 times its scales; Q4_K's scales and minima are products with up to 63.
        """
        if self.dtype not in FOUR_BIT_TYPES:
            return False
        blocks = self.blocks()
        scales = np.ascontiguousarray(blocks[:, :4] if self.dtype != "Q4_0" else blocks[:, :2]).view("<f2")
        release_pages(self.data)
        factor = {"Q4_0": 8, "Q4_1": 1, "Q4_K": 63}[self.dtype]
        if (np.abs(scales.astype(np.float32)) * np.float32(factor) <= GREATEST_HALF).all():
            return True
        groups = BLOCKS[self.dtype].unpack(blocks)
        minima_BG = groups.scales_BG * np.float32(8) if groups.minima_BG is None else groups.minima_BG
        return all(np.isfinite(array_BG.astype(np.float16)).all() for array_BG in (groups.scales_BG, minima_BG))

    def _int4(self) -> Int4Tensor:
        groups = BLOCKS[self.dtype].unpack(self.blocks())
        (F, D), scales_BG, minima_BG = self.shape, groups.scales_BG, groups.minima_BG
        values_FGI = groups.values_BGW.reshape(F, -1, GROUP_INPUTS)
        if minima_BG is None:  # from -8 to 7
            values_FGI, minima_BG = (values_FGI + np.int8(8)).view(np.uint8), scales_BG * np.float32(-8)
        low_FGJ, high_FGJ = np.split(values_FGI, 2, axis=2)
        factors = [array_BG.reshape(F, -1) for array_BG in (scales_BG, minima_BG)]
        tensor = Int4Tensor((low_FGJ | high_FGJ << np.uint8(4)).reshape(F, D // 2), *factors)
        return tensor if self.dtype == "Q4_K" else tensor.half()


@dataclass(frozen=True)
class GGUF:
    """A file's metadata by key (numbers, texts, lists of texts, NumPy arrays of numbers) and tensors by name."""

    metadata: JsonObject
    tensors: dict[str, BlockTensor]


def parse_gguf(data: memoryview, where: str) -> GGUF:
    """The metadata and tensors of one file; CheckpointError for a damaged file, or one of another format."""
    reader = ByteReader(data, where)
    if bytes(reader.take(4, "a GGUF header")) != MAGIC:
        raise CheckpointError(f"{where}: not a GGUF file: it begins with {shorten(bytes(data[:4]))}")
    version = reader.number("I", "version")
    if version not in VERSIONS:
        variant = "a big-endian file" if version & 0xFFFF == 0 else f"version {version}"
        raise CheckpointError(f"{where}: GGUF of versions 2 and 3, little-endian, is read; this is {variant}")
    tensor_count, key_count = reader.number("Q", "tensors"), reader.number("Q", "metadata")
    _check_count(reader, key_count, 13, "keys")
    values: dict[str, Any] = {}
    for _ in range(key_count):
        key = _read_name(reader, "a key", values)
        values[key] = _read_value(reader, reader.number("I", "a value's type"))
    metadata = JsonObject(values, where)
    alignment = metadata.integer("general.alignment", 32, minimum=1)
    if alignment & (alignment - 1):
        raise metadata.error("general.alignment", "a power of 2", alignment)
    _check_count(reader, tensor_count, 24, "tensors")
    entries: dict[str, tuple[str, tuple[int, ...], int]] = {}
    for _ in range(tensor_count):
        name = _read_name(reader, "a tensor's name", entries)
        entries[name] = _read_tensor_info(reader, name)
    begin = -(-reader.position // alignment) * alignment
    return GGUF(metadata, _tensors(entries, data[begin:], alignment, where))


def _check_count(reader: ByteReader, count: int, size: int, label: str) -> None:
    """Raise CheckpointError unless the bytes that remain can hold ``count`` items of at least ``size`` bytes each."""
    if count > MOST_ENTRIES and label in ("keys", "tensors"):
        raise reader.error(f"{count} {label}, more than {MOST_ENTRIES}")
    if count * size > reader.remaining:
        raise reader.error(f"expected {count} {label}, {reader.remaining} bytes remain (is the file complete?)")


def _read_name(reader: ByteReader, label: str, names: dict[str, Any]) -> str:
    name = _read_string(reader, label)
    if not name or not name.isprintable() or len(name) > 1000:
        raise reader.error(f"{label} should be printable, is {shorten(name)}")
    if name in names:
        raise reader.error(f"{label} is given twice: {name}")
    return name


def _read_string(reader: ByteReader, label: str) -> str:
    length = reader.number("Q", label)
    try:
        return str(reader.take(length, label), "utf-8")
    except UnicodeDecodeError:
        raise reader.error(f"{label} is not UTF-8") from None


def _read_value(reader: ByteReader, type_number: int) -> Any:
    if type_number == STRING:
        return _read_string(reader, "a text")
    if type_number == LIST:
        return _read_list(reader)
    if type_number not in DTYPES:
        raise reader.error(f"a value's type should be from 0 to 12, is {type_number}")
    number = np.frombuffer(reader.take(int(DTYPES[type_number][1]), "a value"), f"<{DTYPES[type_number]}")[0].item()
    if type_number == BOOLEAN and number > 1:
        raise reader.error(f"a truth value should be 0 or 1, is {number}")
    return bool(number) if type_number == BOOLEAN else number


def _read_list(reader: ByteReader) -> Any:
    """A list of texts, or an array of numbers, which is not copied."""
    type_number, count = reader.number("I", "a list's type"), reader.number("Q", "a list's length")
    if type_number == STRING:
        _check_count(reader, count, 8, "texts")
        return _read_strings(reader, count)
    if type_number not in DTYPES:
        raise reader.error(f"a list should be of numbers or texts, is of values of type {type_number}")
    size = int(DTYPES[type_number][1])
    _check_count(reader, count, size, "values of a list")
    numbers = np.ndarray((count,), f"<{DTYPES[type_number]}", reader.take(count * size, "a list") if count else None)
    return numbers != 0 if type_number == BOOLEAN else numbers


def _read_strings(reader: ByteReader, count: int) -> list[str]:
    """``count`` texts, each as by ``_read_string``, in one loop: a vocabulary has hundreds of thousands of tokens."""
    data, position, end, texts = reader.data, reader.position, len(reader.data), []
    unpack = struct.Struct("<Q").unpack_from
    for _ in range(count):
        if position + 8 > end:
            break
        begin = position + 8
        position = begin + unpack(data, position)[0]
        try:
            texts.append(str(data[begin:position], "utf-8"))
        except UnicodeDecodeError:
            reader.position = begin
            raise reader.error("a text is not UTF-8") from None
        if position > end:
            break
    if len(texts) < count or position > end:
        raise reader.error(f"expected {count} texts, they go beyond the end (is the file complete?)")
    reader.position = position
    return texts


def _read_tensor_info(reader: ByteReader, name: str) -> tuple[str, tuple[int, ...], int]:
    """(type, shape, offset) of the tensor ``name``. A file stores the last size of a shape first."""
    rank = reader.number("I", "a number of dimensions")
    if not 1 <= rank <= HIGHEST_RANK:
        raise reader.error(f"{name} should have from 1 to {HIGHEST_RANK} dimensions, has {rank}")
    shape = tuple(reader.number("Q", "dimensions") for _ in range(rank))[::-1]
    type_number, offset = reader.number("I", "a tensor's type"), reader.number("Q", "an offset")
    dtype = TYPES.get(type_number, f"type {type_number}")
    if dtype not in FLOAT_BYTES and dtype not in BLOCKS:
        raise reader.error(f"{name} is {dtype}, which is not supported; known: {', '.join([*FLOAT_BYTES, *BLOCKS])}")
    if not all(shape) or (dtype in BLOCKS and shape[-1] % BLOCKS[dtype].numbers):
        blocks = f", its rows whole blocks of {BLOCKS[dtype].numbers}" if dtype in BLOCKS else ""
        raise reader.error(f"{name} of {dtype} should have sizes above zero{blocks}, is {shorten(list(shape))}")
    return dtype, shape, offset


def _tensors(
    entries: dict[str, tuple[str, tuple[int, ...], int]], body: memoryview, alignment: int, where: str
) -> dict[str, BlockTensor]:
    tensors, end, previous = {}, 0, ""
    for name, (dtype, shape, offset) in sorted(entries.items(), key=lambda entry: entry[1][2]):
        count = math.prod(shape)
        size = count // BLOCKS[dtype].numbers * BLOCKS[dtype].size if dtype in BLOCKS else count * FLOAT_BYTES[dtype]
        if offset % alignment:
            raise CheckpointError(f"{where}: {name} should begin at a multiple of {alignment}, begins at {offset}")
        if offset < end:
            raise CheckpointError(f"{where}: {name} should begin after {previous}, at {end}, begins at {offset}")
        if offset + size > len(body):
            raise CheckpointError(
                f"{where}: {name}, {dtype} {list(shape)}, takes {size} bytes from {offset} on, the file has "
                f"{len(body)} for tensors (is it complete?)"
            )
        tensors[name] = BlockTensor(dtype, shape, body[offset : offset + size], f"{where}: {name}")
        end, previous = offset + size, name
    return {name: tensors[name] for name in entries}
