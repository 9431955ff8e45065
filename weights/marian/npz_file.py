"""Marian's ``.npz`` models: a zip of .npy arrays -> arrays by name. No pickles; every size is checked before use."""

import math
import re
import struct
import zipfile
import zlib

import numpy as np

from fastattn.errors import CheckpointError
from fastattn.weights.containers.json_file import shorten
from fastattn.weights.containers.unpacking import check_members
from fastattn.weights.containers.zip_members import ZipError, list_members, packed_bytes
from fastattn.weights.marian.item import Item

MOST_MEMBERS = 100_000
HIGHEST_RANK = 8
# The header of a .npy as NumPy and cnpy write it. Python's own parser would accept more than we want.
NPY = re.compile(
    rb"\{'descr': '([<|=]?[a-z][0-9]{1,3})', 'fortran_order': (True|False), 'shape': \(([0-9L, ]{0,200})\), ?\}[ \n]*"
)
TYPES = {"f4": "<f4", "f2": "<f2", "i1": "i1", "u1": "i1", "S1": "i1"}


def parse(data: memoryview, where: str) -> dict[str, Item]:
    """Read a whole .npz; raises CheckpointError, which names ``where``, if it is malformed or not supported."""
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
    if member.flag_bits & 1:
        raise CheckpointError(f"{where}: is encrypted")
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise CheckpointError(f"{where}: should be stored or deflated, has type {member.compress_type}")
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
