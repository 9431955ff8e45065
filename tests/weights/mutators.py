"""Random damage to files: to their bytes whatever they are, and to the fields of the formats that have some.

Every function takes a random.Random and is a pure function of it, so that a seed gives the same file again.
"""

import io
import json
import random
import struct
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from fastattn.weights.ctranslate2.file import parse
from fastattn.weights.marian.model_file import parse_bin, parse_npz
from tests.weights.containers.shortlist_writer import hash_words
from tests.weights.ctranslate2 import writer as ctranslate2_writer
from tests.weights.marian import writer as marian_writer

Files = dict[str, bytes]
HUGE = [0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 1 << 24, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 40, (1 << 63) - 1]
HUGE += [1 << 63, (1 << 64) - 1]
DEEP = 100_000

# What takes the place of a JSON value; text that json.dumps would not write is marked by its bytes.
STRANGE: list[Any] = [None, True, False, 0, 1, -1, 2, 7, 1 << 31, 1 << 63, -(1 << 63), 10**30, 0.5, -1.5, 1e30, 1e308]
STRANGE += ["", "x", "\0", "\ud800", "\u2028\n", "../x", "/etc/passwd", "n" * 5000, [], {}, [[]], [{}], {"": None}]
RAW = ["1e999", "-1e999", "NaN", "1" * 400, "1" * 5000, "[" * DEEP, "[" * 900 + "]" * 900, '{"a":' * DEEP, "\\", "\t"]


def mutate(files: Files, rng: random.Random) -> Files:
    """A damaged copy: one file in several ways, at times two."""
    files = dict(files)
    for _ in range(rng.choice((1, 1, 1, 2))):
        name = rng.choice(sorted(files))
        if rng.random() < 0.04:
            _shuffle(files, name, rng)
            continue
        for _ in range(rng.choice((1, 1, 1, 3))):
            kind = _fields(name) if rng.random() < 0.5 else None
            try:
                files[name] = kind(files[name], rng) if kind else _bytes(files[name], rng)
            except Unfit:  # already damaged beyond its format
                files[name] = _bytes(files[name], rng)
    return files


def damaged_copies(data: bytes) -> st.SearchStrategy[bytes]:
    """Copies with up to eight bytes changed, half of them cut short as well."""

    def change(edits: list[tuple[int, int]], kept: int) -> bytes:
        damaged = bytearray(data)
        for position, value in edits:
            damaged[position] = value
        return bytes(damaged[: len(data) if kept % 2 else kept])

    edit = st.tuples(st.integers(0, len(data) - 1), st.integers(0, 255))
    return st.builds(change, st.lists(edit, min_size=1, max_size=8), st.integers(0, len(data)))


class Unfit(Exception):
    """Bytes that are not, or no longer, of the format whose fields were to be changed."""


def _shuffle(files: Files, name: str, rng: random.Random) -> None:
    """A file lost, empty, doubled, or in another's place."""
    match rng.randrange(4):
        case 0 if len(files) > 1:
            del files[name]
        case 0 | 1:
            files[name] = b""
        case 2:
            files[name] += files[name]
        case 3:
            files[name] = files[rng.choice(sorted(files))]


def _fields(name: str) -> Callable[[bytes, random.Random], bytes] | None:
    """Who knows the fields of a file of that name."""
    if name.endswith(".json"):
        return _json
    if name.endswith(".safetensors"):
        return _safetensors
    if name.endswith(".s2t.bin"):
        return _shortlist
    if name.endswith((".npz", ".marian.bin")):
        return _marian
    if name.endswith(".yml"):
        return _yml
    if name.startswith("pytorch_model"):
        return _pytorch
    if name.endswith(".bin"):
        return _ctranslate2
    return _zip if name.endswith((".zip", ".argosmodel")) else None


def _pytorch(data: bytes, rng: random.Random) -> bytes:
    """Bytes of the pickle that holds the tensors, in place: numbers, opcodes, or some from elsewhere in it."""
    end = data.find(b"u.")
    start = data.rfind(b"\x80\x02", 0, max(end, 0))
    if start < 0:
        raise Unfit
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        place, size = rng.randrange(start, end), rng.choice((1, 1, 1, 2, 5, 20))
        other = rng.randrange(start, end)
        chosen = rng.choice((rng.randbytes(1), b"\0", b"\xff", b"\x7f", data[other : other + size]))
        changed[place : place + len(chosen)] = chosen
    return bytes(changed[: len(data)])


def _place(size: int, rng: random.Random) -> int:
    """Half of the places are in the first tenth, where headers are."""
    return rng.randrange(size if rng.random() < 0.5 else max(1, size // 10)) if size else 0


def _bytes(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    start = _place(len(data), rng)
    length = min(len(data) - start, rng.choice((1, 2, 4, 8, 16, 64, 256, 4096)))
    chunk = bytes(changed[start : start + length])
    other = _place(len(data), rng)
    match rng.randrange(9):
        case 0:  # bits
            for _ in range(rng.randint(1, 8)):
                if data:
                    changed[_place(len(data), rng)] ^= 1 << rng.randrange(8)
        case 1:  # bytes
            changed[start : start + length] = rng.randbytes(length)
        case 2:
            del changed[rng.randrange(len(data) + 1) :]
        case 3:
            del changed[start : start + length]
        case 4:  # double
            changed[start:start] = chunk
        case 5:  # a piece of it elsewhere
            changed[other : other + length] = chunk
        case 6:
            changed[other:other] = chunk
        case 7:  # a number
            width = rng.choice((1, 2, 4, 8))
            changed[start : start + width] = (rng.choice(HUGE) & ((1 << 8 * width) - 1)).to_bytes(width, "little")
        case 8:
            changed[start : start + length] = rng.choice((b"\0", b"\xff")) * length
    return bytes(changed)


def _json(data: bytes, rng: random.Random) -> bytes:
    try:
        return _json_value(json.loads(data), rng)
    except (ValueError, RecursionError):
        raise Unfit from None


def _json_value(value: Any, rng: random.Random) -> bytes:
    holder, key = {"": value}, ""
    places = list(_json_places(holder, ""))
    holder, key = rng.choice(places)
    match rng.randrange(9):
        case 0 if len(places) > 1 and key != "":
            del holder[key]
        case 1 if isinstance(holder, dict) and key != "":
            holder[rng.choice(("", "x", f"{key}x", "\n", "\ud800"))] = holder.pop(key)
        case 2 if isinstance(holder, list):
            holder.insert(rng.randrange(len(holder) + 1), holder[key])
        case 3:
            other, there = rng.choice(places)
            holder[key] = json.loads(json.dumps(other[there]))
        case 4 | 5:
            holder[key] = _like(holder[key], rng)
        case 6:  # what no json.dumps writes
            mark = "\ue000mark"
            holder[key] = mark
            return json.dumps(places[0][0].get("", value)).replace(json.dumps(mark), rng.choice(RAW)).encode()
        case _:
            holder[key] = rng.choice(STRANGE)
    return json.dumps(places[0][0].get("", value)).encode()


def _like(value: Any, rng: random.Random) -> Any:
    """Another value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return rng.choice((value + 1, value - 1, -value, 2 * value, value // 2, 0, 1, 1 << 20, 1 << 31))
    if isinstance(value, str):
        return rng.choice((value[1:], value[:-1], value + value, value.upper(), value + "\u0301", "0", "\n"))
    if isinstance(value, list):
        return rng.choice((value[::-1], value[:1], value + value, value[1:]))
    return dict(reversed(value.items())) if isinstance(value, dict) else value


def _json_places(holder: Any, key: Any):
    """(container, key) of each value, the whole first."""
    yield holder, key
    value = holder[key]
    if isinstance(value, dict | list):
        for inner in list(value) if isinstance(value, dict) else range(len(value)):
            yield from _json_places(value, inner)


def _safetensors(data: bytes, rng: random.Random) -> bytes:
    """The header's fields, its length kept true, or a stretch of the arrays."""
    if len(data) < 8:
        raise Unfit
    (length,) = struct.unpack("<Q", data[:8])
    body = len(data) - 8 - length
    if body > 0 and rng.random() < 0.5:
        start = 8 + length + rng.randrange(body)
        size = min(len(data) - start, rng.choice((4, 32, 4096)))
        return data[:start] + rng.choice((rng.randbytes(size), b"\xff" * size, b"\0" * size)) + data[start + size :]
    header = _json(data[8 : 8 + length], rng)
    return struct.pack("<Q", len(header)) + header + data[8 + length :]


def _shortlist(data: bytes, rng: random.Random) -> bytes:
    """A number of the header, an offset or an id; the checksum is right."""
    if len(data) < 48:
        raise Unfit
    changed = bytearray(data)
    place = 16 + 4 * rng.randrange((len(data) - 16) // 4)
    number = rng.choice((*HUGE, *range(30)))
    width = rng.choice((4, 8))
    changed[place : place + width] = (number & ((1 << 8 * width) - 1)).to_bytes(width, "little")
    changed[8:16] = hash_words(bytes(changed[16:])).to_bytes(8, "little")
    return bytes(changed)


def _ctranslate2(data: bytes, rng: random.Random) -> bytes:
    """A variable lost, doubled, renamed, of another shape or type, or a single value changed; the file stays sound."""
    try:
        file = parse(memoryview(bytearray(data)), "")
    except Exception:  # noqa: BLE001  whatever is wrong with it
        raise Unfit from None
    variables = {name: variable.stored for name, variable in file.variables.items() if name not in file.aliases}
    name = rng.choice(sorted(variables))
    value = variables[name]
    match rng.randrange(8):
        case 0:
            del variables[name]
        case 1:
            other = rng.choice(sorted(variables))
            variables[name] = variables[other]
        case 2:
            digit = rng.choice("0123456789")
            variables[name.replace(rng.choice(("0", "1", "weight", "encoder", "/")), digit)] = variables.pop(name)
        case 3 if value.size:
            shapes = [
                (), (1,), (value.size,), (1, value.size), (value.size, 1), value.shape[::-1], (0,), (0, 5), (7, 0),
            ]  # fmt: skip
            shape = rng.choice(shapes)
            size = int(np.prod(shape))
            variables[name] = np.resize(value, shape) if size else np.zeros(shape, value.dtype)
        case 4:
            types = ["float32", "int8", "int16"] + ["int32", "float16"] * (file.version >= 4)
            with np.errstate(all="ignore"):
                variables[name] = value.astype(rng.choice(types))
        case 5 | 6 if value.size:  # numbers that no training gives
            value = variables[name] = value.copy()
            where = rng.randrange(value.size)
            raw = value.reshape(-1)[where : where + rng.choice((1, 8, 1000))].view(np.uint8)
            raw[:] = np.frombuffer(
                rng.choice((rng.randbytes(len(raw)), b"\xff" * len(raw), b"\0" * len(raw))), np.uint8
            )
        case _:
            scalars = sorted(name for name, value in variables.items() if not value.shape) or [name]
            name = rng.choice(scalars)
            with np.errstate(all="ignore"):
                number = rng.choice((0, 1, -1, 2, 3, 127, -128, 32767, np.inf, np.nan))
                variables[name] = np.full_like(variables[name], np.array(number).astype(variables[name].dtype))
    aliases = {alias: target for alias, target in file.aliases.items() if target in variables}
    try:
        return ctranslate2_writer.model_bytes(
            variables, version=file.version, spec=file.spec, revision=file.revision, aliases=aliases
        )
    except (ValueError, KeyError):  # a type that the version does not have
        raise Unfit from None


def _marian(data: bytes, rng: random.Random) -> bytes:
    """An array lost, doubled, renamed, of another shape or type, odd numbers, or an option; the file stays sound."""
    is_npz = data[:2] == b"PK"
    try:
        items = (parse_npz if is_npz else parse_bin)(memoryview(bytearray(data)), "")
    except Exception:  # noqa: BLE001  whatever is wrong with it
        raise Unfit from None
    arrays = {name: item.stored * (item.multiplier or item.stored.dtype.type(1)) for name, item in items.items()}
    name = rng.choice(sorted(arrays))
    array = arrays[name]
    match rng.randrange(8):
        case 0:
            del arrays[name]
        case 1:
            arrays[name] = arrays[rng.choice(sorted(arrays))]
        case 2:
            arrays[name.replace(rng.choice(("1", "2", "W", "encoder", "_")), rng.choice("0123W_"))] = arrays.pop(name)
        case 3:
            shapes = [(array.size,), (1, array.size), (array.size, 1), array.shape[::-1], (1, 1), (*array.shape, 1)]
            arrays[name] = np.resize(array, rng.choice(shapes))
        case 4:
            with np.errstate(all="ignore"):
                arrays[name] = array.astype(rng.choice(("float32", "float16", "int8", "int16")))
        case 5:  # numbers that no training gives
            raw = arrays[name] = array.copy()
            number = np.array(rng.choice((0, 1, -1, 3e38, np.inf, np.nan, 1e-40)))
            with np.errstate(all="ignore"):
                raw.reshape(-1)[rng.randrange(raw.size) :][: rng.choice((1, 8, 1000))] = number.astype(raw.dtype)
        case _:
            settings = arrays.get("special:model.yml", array).tobytes().rstrip(b"\0")
            arrays["special:model.yml"] = np.frombuffer(_yml(settings, rng) + b"\0", np.int8)
    try:
        if is_npz:
            return marian_writer.npz_bytes(arrays)
        quantized = any(item.multiplier is not None for item in items.values())
        with np.errstate(all="ignore"):
            return marian_writer.bin_bytes(arrays, marian_writer.BROWSERMT * quantized)
    except (ValueError, KeyError):  # a shape or a type that the container does not have
        raise Unfit from None


def _yml(data: bytes, rng: random.Random) -> bytes:
    """A line lost, doubled, moved, or with another value."""
    lines = data.split(b"\n")
    at = rng.randrange(len(lines))
    match rng.randrange(6):
        case 0:
            del lines[at]
        case 1:
            lines.insert(rng.randrange(len(lines) + 1), lines[at])
        case 2:
            lines[at] = lines[rng.randrange(len(lines))]
        case 3:
            lines[at] = rng.choice((b" ", b"- ", b"x: ", b"? ", b"\t", b"'", b"[")) + lines[at]
        case _:
            values = [str(value).encode("utf-8", "replace") for value in STRANGE] + [raw.encode() for raw in RAW]
            values += [b"[x, y]", b"~", b"&a", b'"\\x41"', b"'", b"1 # 2", b"true", b"false", b"2", b"3", b"16", b"rnn"]
            lines[at] = lines[at].rpartition(b": ")[0] + b": " + rng.choice(values)
    return b"\n".join(lines)


def _zip(data: bytes, rng: random.Random) -> bytes:
    """A member damaged before it is packed."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = {entry.filename: archive.read(entry) for entry in archive.infolist()}
            method = archive.infolist()[0].compress_type
    except Exception:  # noqa: BLE001  whatever is wrong with it
        raise Unfit from None
    return packed(mutate(members, rng), method)


def packed(members: Files, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A zip archive of these members, the same bytes each time."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content, method)
    return buffer.getvalue()
