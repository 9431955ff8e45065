"""Stores of a job's output: a local folder or an object store, which a lock or a lease keeps for one job at a time."""

import contextlib
import errno
import hashlib
import json
import os
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO, Protocol, cast

from fastattn.distributed.job import parse_object
from fastattn.errors import FastattnError, InputError, StorageError
from fastattn.system.atomic_files import abandon_file, begin_file, finish_file, sweep, try_lock, unlock
from fastattn.system.records import dataclass
from fastattn.system.worker_threads import start_thread

RENEWED_AFTER = 30.0  # seconds between renewals of a lease
DEAD_AFTER = 120.0  # seconds without a renewal after which a lease is dead; three renewals may fail
LEASES = "leases"  # the folder of leases


@contextlib.contextmanager
def hold_lease(store: "Store", state: str) -> Iterator[Callable[[], None]]:
    """Hold a lease in the folder ``state``; FastattnError if another job has a living lease. Yields a function that
    raises once the lease is lost.

    Leases serve where there are no locks. They are objects in the folder, which their holders renew. A job first writes
    its own lease, then lists all leases, and goes on only if no other lease lives. If a store's listings show all
    earlier writes, at least one of two jobs that begin at once finds the other: both may be refused, but both cannot go
    on. The age of a lease is the difference of two times of the store's clock.
    """
    lease = _Lease(store, f"{state}/{LEASES}")
    lease.renew()
    end, thread = threading.Event(), None
    try:
        lease.refuse_if_another_lives()
        thread = threading.Thread(target=lease.renew_until, args=(end,), name="fastattn lease", daemon=True)
        start_thread(thread)
        yield lease.check
    finally:
        end.set()
        if thread is not None and thread.is_alive():
            thread.join()
        with contextlib.suppress(StorageError):  # a lease that is not deleted expires
            store.delete(lease.path)


class _Lease:
    def __init__(self, store: "Store", folder: str):
        self._store, self._folder = store, folder
        self._name = f"{os.urandom(8).hex()}.json"
        self.path = f"{folder}/{self._name}"
        self._is_lost = False
        self._last_written = 0  # the time of the last renewal that a listing has shown, in ns of the store's clock

    def renew(self) -> None:
        holder = f"process {os.getpid()} on {socket.gethostname()}"
        self._store.write(self.path, json.dumps({"holder": holder}).encode())

    def refuse_if_another_lives(self) -> None:
        leases = self._store.list(self._folder)
        if self._name not in leases:
            raise StorageError(f"cannot hold {self._store.name}: what was written there is not listed")
        self._last_written = leases.pop(self._name).modified
        ages = {name: (self._last_written - entry.modified) / 1e9 for name, entry in leases.items()}
        youngest = min(ages, key=lambda name: ages[name], default=None)
        if youngest is not None and ages[youngest] < DEAD_AFTER:
            data = self._store.read(f"{self._folder}/{youngest}", 1 << 16)
            holder = (parse_object(data or b"") or {}).get("holder")
            holder_text = f", {holder[:100]}" if isinstance(holder, str) else ""
            raise FastattnError(
                f"{self._store.name}: another job is at work there, or was killed less than {DEAD_AFTER:.0f} seconds "
                f"ago (seen {max(0, ages[youngest]):.0f} seconds ago{holder_text})"
            )
        for name in ages:
            self._store.delete(f"{self._folder}/{name}")

    def renew_until(self, end: threading.Event) -> None:
        """Renew the lease every RENEWED_AFTER seconds. A lease that another job has deleted is lost."""
        while not (self._is_lost or end.wait(RENEWED_AFTER)):
            with contextlib.suppress(StorageError):
                self._is_lost = self._name not in self._store.list(self._folder)
                if not self._is_lost:
                    self.renew()
                    self._is_lost = self._may_be_taken_over()

    def _may_be_taken_over(self) -> bool:
        """Whether another job, whose lease is listed too, may have found this lease dead before its renewal.

        The lease of a job that found this lease alive means nothing, since that job was refused. The margin is for a
        store that dates a renewal by its beginning.
        """
        leases = self._store.list(self._folder)
        if self._name not in leases:
            return True
        previous, self._last_written = self._last_written, leases[self._name].modified
        return len(leases) > 1 and (self._last_written - previous) / 1e9 > DEAD_AFTER - RENEWED_AFTER

    def check(self) -> None:
        if self._is_lost:
            reason = f"not renewed for {DEAD_AFTER:.0f} seconds"
            raise StorageError(f"{self._store.name}: {reason}, so another job has begun there")


Buffer = Any  # bytes, or another object with a buffer of bytes


@dataclass(frozen=True)
class StoredFile:
    """A file in a listing: its size in bytes, and the time of its last write in ns of the store's clock."""

    size: int
    modified: int


class Store(Protocol):
    """Files by their paths below one folder, with "/" between names. All methods raise StorageError.

    hold    lets one process at a time hold the folder ``state``; makes the folders, deletes what killed writers left,
            and yields a function that raises StorageError if the folder is no longer held
    read    the contents, or their first ``most`` bytes; None if there is no such file
    write   writes or replaces a file, which is never incomplete under its name
    delete  deletes a file, if there is one
    size    of a file, in bytes; None if there is no such file
    is_intact  whether a file of the right size still has this SHA-256; always True in a store that keeps checksums
    list    name -> StoredFile of each file and folder in a folder; empty if there is no such folder
    """

    name: str

    def hold(self, state: str, folders: Sequence[str]) -> contextlib.AbstractContextManager[Callable[[], None]]: ...
    def read(self, path: str, most: int) -> bytes | None: ...
    def write(self, path: str, data: Buffer) -> None: ...
    def delete(self, path: str) -> None: ...
    def size(self, path: str) -> int | None: ...
    def is_intact(self, path: str, digest: str) -> bool: ...
    def list(self, folder: str) -> dict[str, StoredFile]: ...


_LONGEST_REASON = 300  # characters of a store's own message


@contextlib.contextmanager
def store_errors(store: Store, verb: str, path: str) -> Iterator[None]:
    """Turn an OSError or ValueError of the system or of pyarrow into a StorageError of one line."""
    try:
        yield
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())[:_LONGEST_REASON]
        raise StorageError(f"cannot {verb} {store.name}{'/' * bool(path)}{path}: {reason}") from error


# pyarrow's types of file systems in which no unfinished file is visible under its name.
_ATOMIC_SYSTEMS = ("s3", "gcs", "abfs")
_RETRY_SECONDS = (1.0, 4.0)  # seconds before a write is tried again


class ObjectStore:
    """A Store of the objects below a path; ``name`` is the URL in messages."""

    def __init__(self, filesystem: Any, path: str, name: str):
        if filesystem.type_name not in _ATOMIC_SYSTEMS:
            fault, systems = f"{filesystem.type_name} may show files that are half written", ", ".join(_ATOMIC_SYSTEMS)
            raise InputError(f"cannot write {name}: {fault}; name a folder or an object store ({systems})")
        self.name, self._filesystem, self._path = name, filesystem, path.rstrip("/")

    def hold(self, state: str, folders: Sequence[str]) -> contextlib.AbstractContextManager[Callable[[], None]]:
        """Hold a lease. No folders need to be made, and there are no unfinished objects to delete."""
        return hold_lease(self, state)

    def read(self, path: str, most: int) -> bytes | None:
        with store_errors(self, "read", path):
            try:
                with self._filesystem.open_input_stream(f"{self._path}/{path}") as stream:
                    return stream.read(most)  # type: ignore[no-any-return]
            except FileNotFoundError:
                return None

    def write(self, path: str, data: Buffer) -> None:
        """Write an object in one call, since a stream that is closed early would leave half of the object.

        A failed write is tried again, since a job on many hosts ends with the first host that cannot write.
        """
        for wait in (*_RETRY_SECONDS, None):
            try:
                with store_errors(self, "write", path):
                    stream = self._filesystem.open_output_stream(f"{self._path}/{path}")
                    stream.write(data)
                    stream.close()
                return
            except StorageError:
                if wait is None:
                    raise
                time.sleep(wait)

    def delete(self, path: str) -> None:
        with store_errors(self, "delete", path), contextlib.suppress(FileNotFoundError):
            self._filesystem.delete_file(f"{self._path}/{path}")

    def size(self, path: str) -> int | None:
        with store_errors(self, "read", path):
            return self._filesystem.get_file_info(f"{self._path}/{path}").size  # type: ignore[no-any-return]

    def is_intact(self, path: str, digest: str) -> bool:
        """True: object stores keep checksums, and a test would read all the output through the network."""
        return True

    def list(self, folder: str) -> dict[str, StoredFile]:
        from pyarrow.fs import FileSelector

        folder_path = f"{self._path}/{folder}" if folder else self._path
        with store_errors(self, "read", folder):
            files = self._filesystem.get_file_info(FileSelector(folder_path, allow_not_found=True))
        return {info.base_name: StoredFile(info.size or 0, info.mtime_ns or 0) for info in files}


_LOCK = "lock"
_READ_BYTES = 1 << 20  # at once, for a digest
_UNFINISHED_PREFIX = ".fastattn-"  # of unfinished files, which are hidden, so that readers ignore them


class LocalStore:
    """A Store of the files in a folder; ``name`` is the folder in messages."""

    def __init__(self, folder: str, name: str):
        self.name, self._folder = name, folder

    @contextlib.contextmanager
    def hold(self, state: str, folders: Sequence[str]) -> Iterator[Callable[[], None]]:
        """Hold the lock in the folder ``state``, or a lease if the system has no locks."""
        self._make_folders(folders)
        with store_errors(self, "write", f"{state}/{_LOCK}"):
            # Unbuffered, so that closing the file does not write again what a full disk refused.
            lock = os.path.join(self._folder, state, _LOCK)
            file = _open_regular(lock, "a+b", getattr(os, "O_NOFOLLOW", 0), buffering=0)
        with file:
            is_locked = try_lock(file)  # None: another process has the lock; False: the system has no locks
            if is_locked is None:
                holder = ""
                with contextlib.suppress(OSError):  # on Windows nobody can read a locked file
                    file.seek(0)
                    holder = file.read(100).decode("utf-8", "replace")
                raise FastattnError(f"{self.name}: another job is at work there{f' ({holder})' * bool(holder)}")
            if not is_locked:
                self._make_folders([f"{state}/{LEASES}"])
                with hold_lease(self, state) as check:
                    yield check
                return
            try:
                with contextlib.suppress(OSError):  # only people read the contents
                    file.truncate(0)
                    file.write(f"process {os.getpid()} on {socket.gethostname()}".encode())
                for folder in folders:
                    sweep(os.path.join(self._folder, folder), _UNFINISHED_PREFIX)
                yield lambda: None  # a lock cannot be lost
            finally:
                unlock(file)

    def read(self, path: str, most: int) -> bytes | None:
        with store_errors(self, "read", path), contextlib.suppress(FileNotFoundError):
            with _open_regular(os.path.join(self._folder, path), "rb") as file:
                return file.read(most)
        return None

    def write(self, path: str, data: Buffer) -> None:
        """Write a file in a folder that ``hold`` made, which another host has only if the hosts share the folder."""
        target = os.path.join(self._folder, path)
        folder, name = os.path.split(target)
        with store_errors(self, "write", path):
            if not os.path.isdir(folder):
                raise StorageError(f"cannot write {self.name}/{path}: no such folder; do all hosts share {self.name}?")
            stream, partial_file = begin_file(os.path.join(folder, f"{_UNFINISHED_PREFIX}{name}."), 0o666)
            try:
                stream.write(data)
                finish_file(stream, partial_file, target)
            finally:
                abandon_file(stream, partial_file)

    def delete(self, path: str) -> None:
        with store_errors(self, "delete", path), contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self._folder, path))

    def size(self, path: str) -> int | None:
        with store_errors(self, "read", path), contextlib.suppress(FileNotFoundError):
            return os.stat(os.path.join(self._folder, path)).st_size
        return None

    def is_intact(self, path: str, digest: str) -> bool:
        sha256 = hashlib.sha256()
        with store_errors(self, "read", path), contextlib.suppress(FileNotFoundError):
            with _open_regular(os.path.join(self._folder, path), "rb") as file:
                while content := file.read(_READ_BYTES):
                    sha256.update(content)
            return sha256.hexdigest() == digest
        return False

    def list(self, folder: str) -> dict[str, StoredFile]:
        files: dict[str, StoredFile] = {}
        with store_errors(self, "read", folder), contextlib.suppress(FileNotFoundError):
            with os.scandir(os.path.join(self._folder, folder)) as entries:
                for entry in entries:
                    with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
                        status = entry.stat(follow_symlinks=False)
                        files[entry.name] = StoredFile(status.st_size, status.st_mtime_ns)
        return files

    def _make_folders(self, folders: Sequence[str]) -> None:
        parent = os.path.dirname(self._folder)
        if not os.path.isdir(parent):
            raise InputError(f"cannot write {self.name}: the folder {parent} does not exist")
        for folder in folders:
            with store_errors(self, "write", folder), contextlib.suppress(FileExistsError):
                os.mkdir(os.path.join(self._folder, folder))
            with store_errors(self, "write", folder):
                is_folder = stat.S_ISDIR(os.lstat(os.path.join(self._folder, folder)).st_mode)
            if folder and not is_folder:  # a link would lead writes elsewhere
                raise StorageError(f"cannot write {self.name}/{folder}: it is a link, or no folder")


def _open_regular(path: str, mode: str, flags: int = 0, buffering: int = -1) -> BinaryIO:
    """Open a regular file; OSError at once for a pipe or a device, which may never answer."""
    flags |= getattr(os, "O_NONBLOCK", 0)
    file = open(path, mode, buffering, opener=lambda name, open_flags: os.open(name, open_flags | flags, 0o666))
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "no regular file")
    return cast(BinaryIO, file)
