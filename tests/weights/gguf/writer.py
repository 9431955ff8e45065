"""A writer of GGUF files, by the format's description alone: it shares no code with the reader."""

import struct
from typing import NamedTuple

import numpy as np

# A value's type -> (its number, struct's letter).
KINDS = {
    "u8": (0, "B"), "i8": (1, "b"), "u16": (2, "H"), "i16": (3, "h"), "u32": (4, "I"), "i32": (5, "i"),
    "f32": (6, "f"), "bool": (7, "?"), "u64": (10, "Q"), "i64": (11, "q"), "f64": (12, "d"),
}  # fmt: skip
TEXT, LIST = 8, 9
# A tensor's type -> (its number, numbers of a block, bytes of a block, where its float16 scales are).
TENSOR_KINDS = {
    "F32": (0, 1, 4, ()), "F16": (1, 1, 2, ()), "BF16": (30, 1, 2, ()), "Q4_0": (2, 32, 18, (0,)),
    "Q4_1": (3, 32, 20, (0, 2)), "Q5_0": (6, 32, 22, (0,)), "Q5_1": (7, 32, 24, (0, 2)), "Q8_0": (8, 32, 34, (0,)),
    "Q4_K": (12, 256, 144, (0, 2)), "Q5_K": (13, 256, 176, (0, 2)), "Q6_K": (14, 256, 210, (208,)),
}  # fmt: skip


class Value(NamedTuple):
    """A value of metadata with a type of KINDS; a list of them if it is a list. Texts need none."""

    kind: str
    value: object


class Stored(NamedTuple):
    """A tensor: the number of its type, its shape and bytes; ``offset`` where the next place is not it."""

    kind: int
    shape: tuple[int, ...]
    data: bytes
    offset: int | None = None


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data)) + data


def value_bytes(value: object) -> bytes:
    """A value with the number of its type before it."""
    kind, data = _plain(value)
    return struct.pack("<I", kind) + data


def _plain(value: object) -> tuple[int, bytes]:
    if isinstance(value, (str, bytes)):
        return TEXT, text(value)
    if isinstance(value, list):
        inner = [_plain(one) for one in value]
        return LIST, struct.pack("<IQ", inner[0][0] if inner else TEXT, len(inner)) + b"".join(d for _, d in inner)
    number, letter = KINDS[value.kind]
    if isinstance(value.value, list):
        count = len(value.value)
        return LIST, struct.pack(f"<IQ{count}{letter}", number, count, *value.value)
    return number, struct.pack("<" + letter, value.value)


def stored(kind: str, values: np.ndarray) -> Stored:
    """An array as floats."""
    data = np.asarray(values, np.float32)
    if kind == "BF16":
        data = (data.view(np.uint32) >> 16).astype("<u2")
    return Stored(TENSOR_KINDS[kind][0], data.shape, data.astype("<f2").tobytes() if kind == "F16" else data.tobytes())


def random_blocks(generator: np.random.Generator, kind: str, shape: tuple[int, ...], scale: float = 1.0) -> Stored:
    """Random blocks, with finite scales of about the size ``scale``."""
    number, width, size, halves = TENSOR_KINDS[kind]
    blocks = generator.integers(0, 256, (int(np.prod(shape)) // width, size), dtype=np.uint8)
    for at in halves:
        chosen = generator.standard_normal((len(blocks), 1)) * scale
        blocks[:, at : at + 2] = chosen.astype("<f2").view(np.uint8)
    return Stored(number, shape, blocks.tobytes())


def gguf_bytes(metadata, tensors, *, version=3, alignment=32, counts=None) -> bytes:
    """A file; ``counts`` of tensors and keys, where they should not be those."""
    numbers = counts or (len(tensors), len(metadata))
    head = b"GGUF" + struct.pack("<IQQ", version, *numbers)
    head += b"".join(text(key) + value_bytes(value) for key, value in metadata.items())
    body = b""
    for name, tensor in tensors.items():
        body += b"\0" * (-len(body) % alignment)
        sizes = tensor.shape[::-1]
        offset = len(body) if tensor.offset is None else tensor.offset
        head += text(name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, tensor.kind, offset)
        body += tensor.data
    return head + b"\0" * (-len(head) % alignment) + body
