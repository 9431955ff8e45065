"""A job's output in a folder of the system: files that appear whole, and a lock that ends with its process."""

import contextlib
import errno
import hashlib
import os
import socket
import stat
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO, cast

from fastattn.distributed.lease import LEASES, hold_lease
from fastattn.distributed.store import Buffer, StoredFile, naming_failures
from fastattn.errors import FastattnError, InputError, StorageError
from fastattn.system.atomic_files import abandon, begin, finish, sweep, try_lock, unlock

_LOCK = "lock"
_CHUNK = 1 << 20  # bytes that are read at once for a digest
_PART = ".fastattn-"  # begins the names of unfinished files, which readers of a folder pass over as hidden


class LocalStore:
    """A Store in a folder; ``name`` is the folder's in messages."""

    def __init__(self, folder: str, name: str):
        self.name = name
        self._folder = folder

    @contextlib.contextmanager
    def hold(self, room: str, folders: Sequence[str]) -> Iterator[Callable[[], None]]:
        """Hold the lock in ``room``; where the system has no locks, a lease, as an object store does."""
        self._make_folders(folders)
        with naming_failures(self, "write", f"{room}/{_LOCK}"):
            # Unbuffered: what a full disk does not take is not tried again when the file is closed.
            lock = os.path.join(self._folder, room, _LOCK)
            file = _open_regular(lock, "a+b", getattr(os, "O_NOFOLLOW", 0), buffering=0)
        with file:
            locked = try_lock(file)
            if locked is None:
                raise FastattnError(f"{self.name}: another job is at work there{_holder(file)}")
            if not locked:
                self._make_folders([f"{room}/{LEASES}"])
                with hold_lease(self, room) as check:
                    yield check
                return
            try:
                with contextlib.suppress(OSError):  # what it says is for people alone
                    file.truncate(0)
                    file.write(f"process {os.getpid()} on {socket.gethostname()}".encode())
                for folder in folders:
                    sweep(os.path.join(self._folder, folder), _PART)
                yield _nothing_to_check
            finally:
                unlock(file)

    def read(self, path: str, most: int) -> bytes | None:
        with naming_failures(self, "read", path), contextlib.suppress(FileNotFoundError):
            with _open_regular(os.path.join(self._folder, path), "rb") as file:
                return file.read(most)
        return None

    def write(self, path: str, data: Buffer) -> None:
        """Write a file in a folder that ``hold`` made; on another host it is there only if the hosts share it."""
        target = os.path.join(self._folder, path)
        folder, name = os.path.split(target)
        with naming_failures(self, "write", path):
            if not os.path.isdir(folder):
                raise StorageError(f"cannot write {self.name}/{path}: no such folder; do all hosts share {self.name}?")
            stream, part = begin(os.path.join(folder, f"{_PART}{name}."), 0o666)
            try:
                stream.write(data)
                finish(stream, part, target)
            finally:
                abandon(stream, part)

    def delete(self, path: str) -> None:
        with naming_failures(self, "delete", path), contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self._folder, path))

    def size(self, path: str) -> int | None:
        with naming_failures(self, "read", path), contextlib.suppress(FileNotFoundError):
            return os.stat(os.path.join(self._folder, path)).st_size
        return None

    def intact(self, path: str, digest: str) -> bool:
        found = hashlib.sha256()
        with naming_failures(self, "read", path), contextlib.suppress(FileNotFoundError):
            with _open_regular(os.path.join(self._folder, path), "rb") as file:
                while part := file.read(_CHUNK):
                    found.update(part)
            return found.hexdigest() == digest
        return False

    def list(self, folder: str) -> dict[str, StoredFile]:
        found: dict[str, StoredFile] = {}
        with naming_failures(self, "read", folder), contextlib.suppress(FileNotFoundError):
            with os.scandir(os.path.join(self._folder, folder)) as entries:
                for entry in entries:
                    with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
                        status = entry.stat(follow_symlinks=False)
                        found[entry.name] = StoredFile(status.st_size, status.st_mtime_ns)
        return found

    def _make_folders(self, folders: Sequence[str]) -> None:
        above = os.path.dirname(self._folder)
        if not os.path.isdir(above):
            raise InputError(f"cannot write {self.name}: the folder {above} does not exist")
        for folder in folders:
            with naming_failures(self, "write", folder), contextlib.suppress(FileExistsError):
                os.mkdir(os.path.join(self._folder, folder))
            if folder and not self._is_folder(folder):  # what was written there would go elsewhere
                raise StorageError(f"cannot write {self.name}/{folder}: it is a link, or no folder")

    def _is_folder(self, folder: str) -> bool:
        with naming_failures(self, "write", folder):
            return stat.S_ISDIR(os.lstat(os.path.join(self._folder, folder)).st_mode)


def _open_regular(path: str, mode: str, flags: int = 0, buffering: int = -1) -> BinaryIO:
    """Open a file that anyone may have put there; OSError at once for a pipe or a device, which may never answer."""
    flags |= getattr(os, "O_NONBLOCK", 0)
    file = open(path, mode, buffering, opener=lambda name, given: os.open(name, given | flags, 0o666))
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "no regular file")
    return cast(BinaryIO, file)


def _holder(file: BinaryIO) -> str:
    try:
        file.seek(0)
        text = file.read(100).decode("utf-8", "replace")
    except OSError:  # Windows lets nobody read what is locked
        return ""
    return f" ({text})" if text else ""


def _nothing_to_check() -> None:
    """A lock cannot be lost."""
