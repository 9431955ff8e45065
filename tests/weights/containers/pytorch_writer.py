"""Writes what torch.save writes: pickles opcode by opcode, the zip form and the older stream around them."""

import io
import struct
import zipfile
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

STORAGES = {
    "float32": "Float",
    "float16": "Half",
    "float64": "Double",
    "uint16": "BFloat16",  # its bits, as in safetensors_writer
    "int64": "Long",
    "int8": "Char",
    "uint8": "Byte",
    "bool": "Bool",
}


def text(value: str) -> bytes:
    data = value.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def integer(value: int) -> bytes:
    if 0 <= value < 1 << 31:
        return b"J" + struct.pack("<i", value)
    data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(data)]) + data


def name(module: str, attribute: str) -> bytes:
    return f"c{module}\n{attribute}\n".encode()


def tuple_of(*items: bytes) -> bytes:
    return b"(" + b"".join(items) + b"t"


def call(function: bytes, *arguments: bytes) -> bytes:
    return function + tuple_of(*arguments) + b"R"


def dict_of(items: Mapping[str, bytes]) -> bytes:
    return b"}(" + b"".join(text(key) + value for key, value in items.items()) + b"u"


def pickled(body: bytes) -> bytes:
    return b"\x80\x02" + body + b"."


NO_HOOKS = call(name("collections", "OrderedDict"))
STORAGE = text("storage")


def storage(kind: str, key: str, count: int, *more: bytes) -> bytes:
    """A persistent id of a storage; ``kind`` is a NumPy type's name."""
    parts = (STORAGE, name("torch", f"{STORAGES[kind]}Storage"), text(key), text("cpu"), integer(count), *more)
    return tuple_of(*parts) + b"Q"


def tensor(stored: bytes, shape: Sequence[int], strides: Sequence[int] | None = None, offset: int = 0) -> bytes:
    if strides is None:
        strides = [int(np.prod(shape[i + 1 :])) for i in range(len(shape))]
    sizes = (tuple_of(*map(integer, numbers)) for numbers in (shape, strides))
    return call(name("torch._utils", "_rebuild_tensor_v2"), stored, integer(offset), *sizes, b"\x89", NO_HOOKS)


def zip_bytes(
    pickle: bytes,
    storages: Mapping[str, bytes | memoryview],
    top: str = "archive",
    more: Mapping[str, bytes] | None = None,
) -> bytes:
    """The zip form; ``more`` are further members, or others in the place of these."""
    members: dict[str, bytes | memoryview] = {f"{top}/data.pkl": pickle, f"{top}/byteorder": b"little"}
    members |= {f"{top}/data/{key}": data for key, data in storages.items()}
    members |= {f"{top}/version": b"3\n", **{f"{top}/{key}": data for key, data in (more or {}).items()}}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for member, data in members.items():
            archive.writestr(member, data)
    return buffer.getvalue()


def stream_bytes(pickle: bytes, storages: Iterable[tuple[str, int, bytes]], keys: bytes | None = None) -> bytes:
    """The older stream; ``storages`` are (key, count, data), ``keys`` replaces the pickle of the true ones."""
    storages = list(storages)
    machine = dict_of({"protocol_version": integer(1001), "little_endian": b"\x88"})
    true = pickled(b"](" + b"".join(text(key) for key, _, _ in storages) + b"e")
    pickles = [pickled(integer(0x1950A86A20F9469CFC6C)), pickled(integer(1001)), pickled(machine)]
    data = [struct.pack("<q", count) + content for _, count, content in storages]
    return b"".join([*pickles, pickle, true if keys is None else keys, *data])


def pytorch_bytes(tensors: Mapping[str, np.ndarray], form: str = "zip") -> bytes:
    """A state dict of contiguous tensors, as ``form`` "zip" or "stream"; equal objects share their storage."""
    keys: dict[int, str] = {}
    storages: dict[str, np.ndarray] = {}
    items = {}
    older = (b"N",) if form == "stream" else ()
    for key, value in tensors.items():
        number = keys.setdefault(id(value), str(len(keys)))
        storages[number] = np.ascontiguousarray(value)
        items[key] = tensor(storage(value.dtype.name, number, value.size, *older), value.shape)
    pickle = pickled(dict_of(items))
    if form == "stream":
        return stream_bytes(pickle, ((key, value.size, value.tobytes()) for key, value in storages.items()))
    return zip_bytes(pickle, {key: value.reshape(-1).view(np.uint8).data for key, value in storages.items()})
