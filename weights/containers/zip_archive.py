"""Zip archives: members of an archive in memory, not copied; an archive on disk as a Folder; limits of unpacking."""

import struct
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from fastattn.errors import CheckpointError
from fastattn.weights.containers import ByteReader
from fastattn.weights.containers.json_file import shorten

# Weights compress to about 0.9, vocabularies and shortlists to 0.2; a file that grows by a greater factor is an attack.
GREATEST_RATIO = 20
SMALLEST_SUSPECT = 1 << 20
# Tied tensors share bytes of the file. Tensors of more than this many times the file's bytes would only fill memory.
MOST_SHARING = 16


def most_unpacked(size: int) -> int:
    """The most bytes that a compressed file of ``size`` bytes may hold."""
    return max(SMALLEST_SUSPECT, GREATEST_RATIO * size)


def check_members(members: Iterable[zipfile.ZipInfo], size: int, where: str) -> None:
    """Raise CheckpointError if members of a zip archive of ``size`` bytes overlap, or unpack to too much in all.

    Sizes are those that the archive's list states; unpacking must check them again.
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
LOCAL_HEADER = struct.Struct("<4s22xHH")  # magic, and the lengths of the member's name and extra field, which follow


class ZipError(Exception):
    """Bytes that are no zip archive; the message is one line."""


def list_members(data: memoryview) -> list[zipfile.ZipInfo]:
    """The members that the list at the archive's end names; raises ZipError."""
    try:
        return zipfile.ZipFile(ByteReader(data)).infolist()  # type: ignore[call-overload]
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OverflowError, OSError, struct.error) as error:
        raise ZipError(" ".join(str(error).split())) from None


def packed_bytes(data: memoryview, member: zipfile.ZipInfo) -> memoryview | None:
    """A member's packed bytes, fewer if the archive ends early; None if no member begins where the list says."""
    begin = member.header_offset
    header = data[begin : begin + LOCAL_HEADER.size] if begin >= 0 else b""
    if len(header) < LOCAL_HEADER.size or header[:4] != MAGIC:
        return None
    _, *lengths = LOCAL_HEADER.unpack(header)
    begin += LOCAL_HEADER.size + sum(lengths)
    return data[begin : begin + member.compress_size]


MOST_MEMBERS = 10_000


class ZipFolder:
    """A Folder in an archive: its top level, or the folder there that has a file ``landmark``.

    Raises CheckpointError where ``check_members`` does, for too many members, and for one outside or listed twice.
    """

    part = ""

    def __init__(self, path: Path, landmark: str) -> None:
        self.path, self.files_read = path, [path]
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
            file = PurePosixPath(name := entry.filename)
            if not file.parts or file.is_absolute() or ".." in file.parts or "\\" in name or ":" in file.parts[0]:
                raise CheckpointError(f"{path}: member {shorten(name)} lies outside the archive")
            if not entry.is_dir():
                if name in self.members:
                    raise CheckpointError(f"{path}: member {shorten(name)} is given twice")
                self.members[name] = entry
        paths = ((name, PurePosixPath(name).parts) for name in self.members)
        folders = [name.removesuffix(landmark) for name, parts in paths if parts[-1] == landmark and len(parts) <= 2]
        self.prefix = min(folders, key=len, default="")

    def contains(self, name: str) -> bool:
        return self.prefix + name in self.members

    def where(self, name: str) -> str:
        return f"{self.path}: {self.prefix}{name}"

    def read(self, name: str) -> memoryview:
        entry = self.members.get(self.prefix + name)
        if entry is None:
            raise CheckpointError(f"{self.where(name)}: no such member")
        check_packing(entry, self.where(name))
        try:
            with zipfile.ZipFile(self.path) as archive, archive.open(entry) as stream:
                data = bytearray()
                while len(data) < entry.file_size and (chunk := stream.read(min(1 << 24, entry.file_size - len(data)))):
                    data += chunk
                excess = stream.read(1)  # the checksum is verified at the end of the stream
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError) as error:
            raise CheckpointError(f"{self.where(name)}: cannot be unpacked: {error}") from None
        if len(data) != entry.file_size or excess:
            raise CheckpointError(f"{self.where(name)}: expected {entry.file_size} bytes, got {len(data)}")
        return memoryview(data)
