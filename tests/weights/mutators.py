"""Random damage to files: to their bytes whatever they are, and to the fields of the formats that have some.

Every function takes a random.Random and is a pure function of it, so that a seed gives the same file again.
"""

import io
import json
import random
import re
import struct
import zipfile
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
YAML = ["[x, y]", "~", "&a", '"\\x41"', "'", "1 # 2", "true", "false", "2", "3", "16", "rnn", *map(str, STRANGE), *RAW]


def mutate(files: Files, rng: random.Random) -> Files:
    """A damaged copy: one file in several ways, at times two; or one lost, empty, doubled, or in another's place."""
    files = dict(files)
    for _ in range(rng.choice((1, 1, 1, 2))):
        name = rng.choice(sorted(files))
        if rng.random() < 0.04:
            files[name] = rng.choice((b"", files[name] * 2, files[rng.choice(sorted(files))]))
            if len(files) > 1 and rng.random() < 0.25:
                del files[name]
            continue
        for _ in range(rng.choice((1, 1, 1, 3))):
            change = next(change for pattern, change in CHANGES.items() if re.search(pattern, name))
            try:
                files[name] = (change if rng.random() < 0.5 else _bytes)(files[name], rng)
            except Exception:  # noqa: BLE001  it is already damaged beyond its format, or would have to be
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


def _pytorch(data: bytes, rng: random.Random) -> bytes:
    """Bytes of the pickle that holds the tensors, in place: numbers, opcodes, or some from elsewhere in it."""
    end = data.find(b"u.")
    start = data.rindex(b"\x80\x02", 0, end)
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        place, other, size = rng.randrange(start, end), rng.randrange(start, end), rng.choice((1, 1, 1, 2, 5, 20))
        chosen = rng.choice((rng.randbytes(1), b"\0", b"\xff", b"\x7f", data[other : other + size]))
        changed[place : place + len(chosen)] = chosen
    return bytes(changed[: len(data)])


def _bytes(data: bytes, rng: random.Random) -> bytes:
    """The end lost, or a stretch changed, lost or doubled; half of the places are in the first tenth, with headers."""
    start, other = (rng.randrange(max(1, len(data) if rng.random() < 0.5 else len(data) // 10)) for _ in range(2))
    if rng.random() < 0.1:
        return data[:start]
    chunk = data[start : start + rng.choice((1, 2, 4, 8, 16, 64, 256, 4096))]
    size = len(chunk)
    number = rng.choice(HUGE).to_bytes(8, "little")[: rng.choice((1, 2, 4, 8))]
    bit = bytes(byte ^ 1 << rng.randrange(8) for byte in chunk[:1]) + chunk[1:]
    elsewhere = data[other : other + size]
    new = rng.choice((bit, rng.randbytes(size), b"\0" * size, b"\xff" * size, number, elsewhere, b"", chunk * 2))
    return data[:start] + new + data[start + rng.choice((size, len(new))) :]


def _json(data: bytes, rng: random.Random) -> bytes:
    """A value lost, renamed, elsewhere too, or another in its place: of its type, of any, or that no JSON has."""
    whole = [json.loads(data)]
    places = list(_places(whole))
    holder, key = rng.choice(places)
    raw, mark = rng.choice(RAW), "\ue000mark"
    match rng.randrange(8):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, dict):
            holder[rng.choice(("", "x", f"{key}x", "\n", "\ud800"))] = holder.pop(key)
        case 2:
            other, there = rng.choice(places)
            holder[key] = json.loads(json.dumps(other[there]))
        case 3 | 4:
            holder[key] = _like(holder[key], rng)
        case 5:
            holder[key] = mark
        case _:
            holder[key] = rng.choice(STRANGE)
    return json.dumps(whole[0]).replace(json.dumps(mark), raw).encode()


def _like(value: Any, rng: random.Random) -> Any:
    """Another value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return rng.choice((value + 1, value - 1, -value, 2 * value, value // 2, 0, 1, 1 << 20, 1 << 31))
    if isinstance(value, str):
        return rng.choice((value[1:], value[:-1], value + value, value.upper(), value + "\u0301", "0", "\n"))
    if isinstance(value, list):
        return rng.choice((value[::-1], value[:1], value + value, value[1:], value + value[-1:]))
    return dict(reversed(value.items())) if isinstance(value, dict) else value


def _places(holder: Any):
    """(container, key) of each value within."""
    for key in list(holder) if isinstance(holder, dict) else range(len(holder)):
        yield holder, key
        if isinstance(holder[key], dict | list):
            yield from _places(holder[key])


def _safetensors(data: bytes, rng: random.Random) -> bytes:
    """The header's fields, its length kept true."""
    (length,) = struct.unpack("<Q", data[:8])
    header = _json(data[8 : 8 + length], rng)
    return struct.pack("<Q", len(header)) + header + data[8 + length :]


def _shortlist(data: bytes, rng: random.Random) -> bytes:
    """A number of the header, an offset or an id; the checksum is right."""
    changed = bytearray(data)
    place, number = 16 + 4 * rng.randrange((len(data) - 16) // 4), rng.choice((*HUGE, *range(30)))
    width = rng.choice((4, 8))
    changed[place : place + width] = number.to_bytes(8, "little")[:width]
    changed[8:16] = hash_words(bytes(changed[16:])).to_bytes(8, "little")
    return bytes(changed)


@np.errstate(all="ignore")
def _change(arrays: dict[str, np.ndarray], rng: random.Random) -> None:
    """One lost, doubled, renamed, of another shape or type, or with numbers that no training gives."""
    single = [name for name, array in arrays.items() if not array.shape]
    name = rng.choice(sorted(single if single and rng.random() < 0.4 else arrays))
    array = arrays[name]
    match rng.randrange(7):
        case 0:
            del arrays[name]
        case 1:
            arrays[name] = arrays[rng.choice(sorted(arrays))]
        case 2:
            old = rng.choice(("0", "1", "2", "W", "weight", "encoder", "/", "_"))
            arrays[name.replace(old, rng.choice("0123456789W_"))] = arrays.pop(name)
        case 3:
            shapes = [
                (),
                (1,),
                (array.size,),
                (1, array.size),
                (array.size, 1),
                array.shape[::-1],
                (0,),
                (0, 5),
                (1, 1),
            ]
            arrays[name] = np.resize(array, rng.choice(shapes))
        case 4:
            arrays[name] = array.astype(rng.choice(("float32", "int8", "int16", "int32", "float16")))
        case 5:
            arrays[name] = np.frombuffer(rng.randbytes(array.nbytes), array.dtype).reshape(array.shape)
        case _:
            number = np.array(rng.choice((0, 1, -1, 2, 3, 127, -128, 32767, 3e38, 1e-40, np.inf, np.nan)))
            arrays[name] = array.copy()
            arrays[name].reshape(-1)[rng.randrange(array.size) :][: rng.choice((1, 8, 1000))] = number.astype(
                array.dtype
            )


def _ctranslate2(data: bytes, rng: random.Random) -> bytes:
    """A variable; the file stays sound."""
    file = parse(memoryview(bytearray(data)), "")
    variables = {name: variable.array for name, variable in file.variables.items() if name not in file.aliases}
    _change(variables, rng)
    aliases = {alias: target for alias, target in file.aliases.items() if target in variables}
    how = {"version": file.version, "spec": file.spec_name, "revision": file.revision}
    return ctranslate2_writer.model_bytes(variables, aliases=aliases, **how)


@np.errstate(all="ignore")
def _marian(data: bytes, rng: random.Random) -> bytes:
    """An array or an option; the file stays sound."""
    is_npz = data[:2] == b"PK"
    items = (parse_npz if is_npz else parse_bin)(memoryview(bytearray(data)), "")
    arrays = {name: item.array * (item.multiplier or item.array.dtype.type(1)) for name, item in items.items()}
    if rng.random() < 0.25:
        settings = arrays["special:model.yml"].tobytes().rstrip(b"\0")
        arrays["special:model.yml"] = np.frombuffer(_yml(settings, rng) + b"\0", np.int8)
    else:
        _change(arrays, rng)
    if is_npz:
        return marian_writer.npz_bytes(arrays)
    quantized = any(item.multiplier is not None for item in items.values())
    return marian_writer.bin_bytes(arrays, marian_writer.BROWSERMT * quantized)


def _yml(data: bytes, rng: random.Random) -> bytes:
    """A line lost, doubled, in another's place, begun otherwise, or with another value."""
    lines = data.split(b"\n")
    at, other = (rng.randrange(len(lines)) for _ in range(2))
    begun = rng.choice((b" ", b"- ", b"x: ", b"? ", b"\t", b"'", b"[")) + lines[at]
    valued = lines[at].rpartition(b": ")[0] + b": " + rng.choice(YAML).encode("utf-8", "replace")
    lines[at : at + 1] = rng.choice(([], [lines[at]] * 2, [lines[other]], [begun], [valued], [valued]))
    return b"\n".join(lines)


def _zip(data: bytes, rng: random.Random) -> bytes:
    """A member damaged before it is packed."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {entry.filename: archive.read(entry) for entry in archive.infolist()}
        method = archive.infolist()[0].compress_type
    return packed(mutate(members, rng), method)


# A pattern of a file's name -> who knows the fields of such files.
CHANGES = {
    r"\.json$": _json, r"\.safetensors$": _safetensors, r"\.s2t\.bin$": _shortlist, r"\.(npz|marian\.bin)$": _marian,
    r"\.yml$": _yml, r"^pytorch_model": _pytorch, r"\.bin$": _ctranslate2, r"\.(zip|argosmodel)$": _zip, "": _bytes,
}  # fmt: skip


def packed(members: Files, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A zip archive of these members, the same bytes each time."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content, method)
    return buffer.getvalue()
