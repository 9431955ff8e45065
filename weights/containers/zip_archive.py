"""Zip archives in memory: members without a copy, files by name, and limits on what they unpack to."""

import struct
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from fastattn.errors import CheckpointError
from fastattn.weights.containers import ByteReader
from fastattn.weights.containers.json_file import shorten

# Weights compress to about 0.9, vocabularies and shortlists to 0.2; a file that unpacks to more than this is an attack.
GREATEST_RATIO = 20
SMALLEST_SUSPECT = 1 << 20
# Tied weights appear several times, a few bytes each; more than this many times the file would only fill memory.
MOST_SHARING = 16


def most_unpacked(size: int) -> int:
    """The most bytes that a compressed file of ``size`` bytes may hold."""
    return max(SMALLEST_SUSPECT, GREATEST_RATIO * size)


def check_members(members: Iterable[zipfile.ZipInfo], size: int, where: str) -> None:
    """Raise CheckpointError if members of a zip archive of ``size`` bytes overlap, or unpack to too much in all.

    Sizes are those in the archive's list, which unpacking must check again.
    """
    members = list(members)
    packed, unpacked = (sum(getattr(member, name) for member in members) for name in ("compress_size", "file_size"))
    if packed > size:
        raise CheckpointError(f"{where}: its members say they take {packed} bytes, more than the archive's {size}")
    if unpacked > most_unpacked(size):
        raise CheckpointError(
            f"{where}: says it unpacks to {unpacked} bytes, more than {GREATEST_RATIO} times the archive's {size}"
        )


def check_packing(member: zipfile.ZipInfo, where: str) -> None:
    """Raise CheckpointError for a member that is encrypted, or packed in a rare way."""
    if member.flag_bits & 1:
        raise CheckpointError(f"{where}: is encrypted")
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise CheckpointError(f"{where}: should be stored or deflated, has type {member.compress_type}")


MAGIC = b"PK\x03\x04"
LOCAL_HEADER = struct.Struct("<4s22xHH")  # followed by the member's name and extra field, of these lengths


class ZipError(Exception):
    """Bytes that are no zip archive; the message is one line."""


def list_members(data: memoryview) -> list[zipfile.ZipInfo]:
    """The members by the list at the archive's end; raises ZipError."""
    try:
        return zipfile.ZipFile(ByteReader(data)).infolist()  # type: ignore[call-overload]
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OverflowError, OSError, struct.error) as error:
        raise ZipError(" ".join(str(error).split())) from None


def packed_bytes(data: memoryview, member: zipfile.ZipInfo) -> memoryview | None:
    """A member's packed bytes, fewer if the archive ends early; None if the member is not where the list says."""
    begin = member.header_offset
    header = data[begin : begin + LOCAL_HEADER.size] if begin >= 0 else b""
    if len(header) < LOCAL_HEADER.size or header[:4] != MAGIC:
        return None
    _, *lengths = LOCAL_HEADER.unpack(header)
    begin += LOCAL_HEADER.size + sum(lengths)
    return data[begin : begin + member.compress_size]


MOST_MEMBERS = 10_000


class ZipFolder:
    """The Folder of an archive: the folder in it, or its top, that has the member ``landmark``.

    Refuses archives with too many members, or members that are outside, duplicate or fail ``check_members``.
    """

    part = ""

    def __init__(self, path: Path, landmark: str) -> None:
        self.path, self.used = path, [path]
        try:
            with zipfile.ZipFile(path) as archive:
                entries = archive.infolist()
        except (zipfile.BadZipFile, NotImplementedError, ValueError) as error:
            raise CheckpointError(f"{path}: not a zip archive: {error}") from None
        if len(entries) > MOST_MEMBERS:
            raise CheckpointError(f"{path}: should have at most {MOST_MEMBERS} members, has {len(entries)}")
        check_members(entries, path.stat().st_size, str(path))
        self.members: dict[str, zipfile.ZipInfo] = {}
        for entry in entries:
            pure = PurePosixPath(name := entry.filename)
            if not pure.parts or pure.is_absolute() or ".." in pure.parts or "\\" in name or ":" in pure.parts[0]:
                raise CheckpointError(f"{path}: member {shorten(name)} lies outside the archive")
            if not entry.is_dir():
                if name in self.members:
                    raise CheckpointError(f"{path}: member {shorten(name)} is given twice")
                self.members[name] = entry
        places = ((name, PurePosixPath(name).parts) for name in self.members)
        tops = [name.removesuffix(landmark) for name, parts in places if parts[-1] == landmark and len(parts) <= 2]
        self.top = min(tops, key=len, default="")

    def contains(self, name: str) -> bool:
        return self.top + name in self.members

    def where(self, name: str) -> str:
        return f"{self.path}: {self.top}{name}"

    def read(self, name: str) -> memoryview:
        entry = self.members.get(self.top + name)
        if entry is None:
            raise CheckpointError(f"{self.where(name)}: no such member")
        check_packing(entry, self.where(name))
        try:
            with zipfile.ZipFile(self.path) as archive, archive.open(entry) as stream:
                data = bytearray()
                while len(data) < entry.file_size and (part := stream.read(min(1 << 24, entry.file_size - len(data)))):
                    data += part
                over = stream.read(1)  # the checksum is verified at the end of the stream
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError) as error:
            raise CheckpointError(f"{self.where(name)}: cannot be unpacked: {error}") from None
        if len(data) != entry.file_size or over:
            raise CheckpointError(f"{self.where(name)}: expected {entry.file_size} bytes, got {len(data)}")
        return memoryview(data)
