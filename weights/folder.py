"""A checkpoint's files by name, wherever they lie: in a directory here, in an archive in ``argos.py``."""

import mmap
from pathlib import Path
from typing import Protocol

from fastattn.errors import CheckpointError


class Folder(Protocol):
    """The files of one checkpoint. A name is relative and has forward slashes."""

    @property
    def used(self) -> list[Path]:
        """The files on disk that were read so far."""

    def contains(self, name: str) -> bool: ...

    def read(self, name: str) -> memoryview:
        """The file's bytes, writable; raises CheckpointError where there is none."""

    def where(self, name: str) -> str:
        """What an error calls the file."""


class Directory:
    """A Folder on disk, its files mapped: a tensor that needs no conversion costs neither time nor memory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._used: list[Path] = []

    @property
    def used(self) -> list[Path]:
        return self._used

    def contains(self, name: str) -> bool:
        return (self.path / name).is_file()

    def read(self, name: str) -> memoryview:
        self._used.append(self.path / name)
        return map_file(self.path / name)

    def where(self, name: str) -> str:
        return str(self.path / name)


def map_file(path: Path) -> memoryview:
    """The bytes of a file, copy on write: arrays over them are writable, the file never changes."""
    if not path.is_file():
        raise CheckpointError(f"{path}: no such file")
    try:
        with path.open("rb") as stream:
            if not path.stat().st_size:
                return memoryview(bytearray())
            return memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_COPY))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: cannot be read: {error}") from None
