"""A job's output in an object store, through pyarrow: objects that appear when they are closed, and leases."""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from fastattn.distributed.lease import hold_lease
from fastattn.distributed.store import Buffer, StoredFile, naming_failures
from fastattn.errors import InputError, StorageError

# pyarrow's types of file systems in which a file that is being written does not show under its name.
_WHOLE = ("s3", "gcs", "abfs")
_WAITS = (1.0, 4.0)  # seconds before a write is tried again


class ObjectStore:
    """A Store in the objects below a path; ``name`` is the URL in messages."""

    def __init__(self, filesystem: Any, path: str, name: str):
        if filesystem.type_name not in _WHOLE:
            raise InputError(
                f"cannot write {name}: {filesystem.type_name} may show files that are half written; "
                f"name a folder or an object store ({', '.join(_WHOLE)})"
            )
        self.name = name
        self._filesystem = filesystem
        self._path = path.rstrip("/")

    @contextlib.contextmanager
    def hold(self, room: str, folders: Sequence[str]) -> Iterator[Callable[[], None]]:
        """Hold a lease. There is nothing to make and nothing to sweep: folders are names, unfinished objects none."""
        with hold_lease(self, room) as check:
            yield check

    def read(self, path: str, most: int) -> bytes | None:
        with naming_failures(self, "read", path):
            try:
                with self._filesystem.open_input_stream(f"{self._path}/{path}") as stream:
                    data: bytes = stream.read(most)
                    return data
            except FileNotFoundError:
                return None

    def write(self, path: str, data: Buffer) -> None:
        """Write an object in one go: a stream that is closed early, or forgotten, would keep half of it.

        What fails is tried again: a job of many hosts ends with the first that cannot write.
        """
        for wait in (*_WAITS, None):
            try:
                with naming_failures(self, "write", path):
                    stream = self._filesystem.open_output_stream(f"{self._path}/{path}")
                    stream.write(data)
                    stream.close()
                return
            except StorageError:
                if wait is None:
                    raise
                time.sleep(wait)

    def delete(self, path: str) -> None:
        with naming_failures(self, "delete", path), contextlib.suppress(FileNotFoundError):
            self._filesystem.delete_file(f"{self._path}/{path}")

    def size(self, path: str) -> int | None:
        with naming_failures(self, "read", path):
            size: int | None = self._filesystem.get_file_info(f"{self._path}/{path}").size
        return size

    def intact(self, path: str, digest: str) -> bool:
        """True: object stores keep checksums of their own, and all the output would pass through the network."""
        return True

    def list(self, folder: str) -> dict[str, StoredFile]:
        from pyarrow.fs import FileSelector

        listed = f"{self._path}/{folder}" if folder else self._path
        with naming_failures(self, "read", folder):
            found = self._filesystem.get_file_info(FileSelector(listed, allow_not_found=True))
        return {info.base_name: StoredFile(info.size or 0, info.mtime_ns or 0) for info in found}
