"""A checkpoint's files by name: the Protocol, and files on disk; ``containers.zip_archive`` has those of an archive."""

import errno
import mmap
import os
import stat
from collections.abc import Collection
from pathlib import Path
from typing import IO, Protocol

from fastattn.errors import CheckpointError, OutOfMemoryError


class Folder(Protocol):
    """The files of one checkpoint. A name is relative and has forward slashes.

    part  "encoder": read only the encoder, where it can be a model by itself (T5's); "": the whole model
    """

    part: str

    @property
    def files_read(self) -> list[Path]:
        """The paths of the files on disk that were read so far."""

    def contains(self, name: str) -> bool: ...

    def read(self, name: str) -> memoryview:
        """The file's bytes, writable; raises CheckpointError if there is no such file."""

    def where(self, name: str) -> str:
        """The file's name in error messages."""


class FilePending(Exception):
    """Raised by reading a file that is not downloaded yet: all files that were read before are valid."""


class Directory:
    """A Folder on disk. Files are mapped: a tensor that needs no conversion costs no time and no memory.

    pending_files  names of files not downloaded yet: they count as existing, reading one raises FilePending
    """

    def __init__(self, path: Path, pending_files: Collection[str] = (), part: str = "") -> None:
        self.path, self.part = path, part
        self.pending_files = frozenset(pending_files)
        self.files_read: list[Path] = []

    def names(self) -> list[str]:
        """The names of the files at the folder's top."""
        files = {entry.name for entry in self.path.iterdir() if entry.is_file()}
        return sorted(files.union(name for name in self.pending_files if "/" not in name))

    def contains(self, name: str) -> bool:
        return name in self.pending_files or (self.path / name).exists()

    def read(self, name: str) -> memoryview:
        if name in self.pending_files:
            raise FilePending(name)
        self.files_read.append(self.path / name)
        return map_file(self.path / name)

    def where(self, name: str) -> str:
        return str(self.path / name)


def file_type(path: Path) -> str:
    """The type of a path, links followed: file, folder, FIFO, socket or device; "" where the path does not exist."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):  # ValueError: a path with a NUL
        return ""
    kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFIFO: "FIFO", stat.S_IFSOCK: "socket"}
    return kinds.get(stat.S_IFMT(mode), "device")


class FileMap(mmap.mmap):
    """The mapped bytes of the file ``path``: arrays over them can be traced back to it."""

    path: Path


def map_file(path: Path) -> memoryview:
    """The mapped bytes of a file, copy on write: arrays over them are writable, the file never changes."""
    kind = file_type(path)
    if kind != "file":
        raise CheckpointError(f"{path}: no such file" if not kind else f"{path}: should be a file, is a {kind}")
    try:
        with path.open("rb") as stream:
            return map_opened(stream, path)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: cannot be read: {error}") from None


def map_opened(stream: IO[bytes], path: Path) -> memoryview:
    """``map_file`` of an open file. Raises OSError; OutOfMemoryError if the system had no memory."""
    if not os.fstat(stream.fileno()).st_size:
        return memoryview(bytearray())
    try:
        mapped = FileMap(stream.fileno(), 0, access=mmap.ACCESS_COPY)
    except OSError as error:
        check_memory(error, path)
        raise
    mapped.path = path
    return memoryview(mapped)


def check_memory(error: Exception, path: Path) -> None:
    """Raise OutOfMemoryError if ``error`` says that the system had no memory: nothing is wrong with the file."""
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        raise OutOfMemoryError(f"not enough memory to read {path}") from None
