"""Files inside a zip archive, by name, without unpacking to disk."""

import zipfile
import zlib
from pathlib import Path, PurePosixPath

from fastattn.errors import CheckpointError
from fastattn.weights.containers.json_file import shorten
from fastattn.weights.containers.unpacking import check_members

MOST_MEMBERS = 10_000


class ZipFolder:
    """The Folder of an archive's members in the folder of the member ``landmark``: the top or a folder in it.

    Refuses archives with too many members, or with members that are outside, duplicate, encrypted, or refused by
    ``check_members``.
    """

    def __init__(self, path: Path, landmark: str) -> None:
        self.path = path
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
            _check_name(path, entry.filename)
            if not entry.is_dir():
                if entry.filename in self.members:
                    raise CheckpointError(f"{path}: member {shorten(entry.filename)} is given twice")
                self.members[entry.filename] = entry
        tops = [name.removesuffix(landmark) for name in self.members if _is_landmark(name, landmark)]
        self.top = min(tops, key=len, default="")

    @property
    def used(self) -> list[Path]:
        return [self.path]

    def contains(self, name: str) -> bool:
        return self.top + name in self.members

    def where(self, name: str) -> str:
        return f"{self.path}: {self.top}{name}"

    def read(self, name: str) -> memoryview:
        entry = self.members.get(self.top + name)
        if entry is None:
            raise CheckpointError(f"{self.where(name)}: no such member")
        if entry.flag_bits & 1:
            raise CheckpointError(f"{self.where(name)}: is encrypted")
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise CheckpointError(f"{self.where(name)}: should be stored or deflated, has type {entry.compress_type}")
        try:
            with zipfile.ZipFile(self.path) as archive, archive.open(entry) as stream:
                data = bytearray()
                while len(data) < entry.file_size and (part := stream.read(min(1 << 24, entry.file_size - len(data)))):
                    data += part
                # The checksum is verified at the end of the stream.
                over = stream.read(1)
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError) as error:
            raise CheckpointError(f"{self.where(name)}: cannot be unpacked: {error}") from None
        if len(data) != entry.file_size or over:
            raise CheckpointError(f"{self.where(name)}: expected {entry.file_size} bytes, got {len(data)}")
        return memoryview(data)


def _check_name(path: Path, name: str) -> None:
    pure = PurePosixPath(name)
    if not pure.parts or pure.is_absolute() or ".." in pure.parts or "\\" in name or ":" in pure.parts[0]:
        raise CheckpointError(f"{path}: member {shorten(name)} lies outside the archive")


def _is_landmark(name: str, landmark: str) -> bool:
    parts = PurePosixPath(name).parts
    return parts[-1] == landmark and len(parts) <= 2
